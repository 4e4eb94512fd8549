"""Presets that write Pallas for TPUs and for Mosaic GPU, end to end on a scripted server: what
authors are told, and what becomes of their kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from portkern.agent.log import Log
from portkern.cli import main
from portkern.spec import catalogue, registry, target
from portkern.spec.backend import Missing
from tests.llm_server import MODEL, Server

PALLAS = registry.load("pallas")
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        isinstance(PALLAS.probe(target.load("tpu_v5e")), Missing), reason="no jax here"
    ),
]


def shipped(where: str, language: str) -> str:
    kernels = catalogue.candidates("relu", PALLAS, target.load(where))
    return next(kernel.source for kernel in kernels if kernel.language == language)


@pytest.mark.parametrize(
    ("where", "language", "told", "untold", "fault"),
    [
        (
            "tpu_v5e", "pallas-tpu",
            ["## The TPU lowering", "pltpu.make_async_copy", "multiples of 8 and 128"],
            ["## The Mosaic GPU lowering", "plgpu", "num_warps"],
            ("jnp.zeros_like(x), x)", "x, x)"),
        ),
        (
            "h200", "pallas-mosaic-gpu",
            ["## The Mosaic GPU lowering", "plgpu.commit_smem", "plgpu.wgmma_wait(1)"],
            ["## The TPU lowering", "pltpu", "num_warps"],
            ("    plgpu.barrier_wait(came)\n", ""),
        ),
    ],
)  # fmt: skip
def test_a_preset_mends_what_the_emulator_found(
    where: str, language: str, told: list[str], untold: list[str],
    fault: tuple[str, str], tmp_path: Path,
) -> None:  # fmt: skip
    good = shipped(where, language)
    assert fault[0] in good
    kernels = iter([good.replace(*fault), good])

    def answer(asked: object, _: int) -> str:
        return f"Here.\n```python\n{next(kernels, good)}```\n"

    with Server(answer) as server:
        code = main.run(
            [
                "generate", "op=relu", f"target={where}", "backend=pallas", f"language={language}",
                "preset=caesar", "budget.attempts=2", "workloads=ci", "final=[]", "track=false",
                "cache=false", f"models.coder.model={MODEL}", f"models.coder.api_base={server.url}",
                f"reports={tmp_path}", "run=it",
            ]
        )  # fmt: skip
        prompts = server.prompts
    attempts = list(Log.read(tmp_path / "it" / "attempts.jsonl"))
    assert [str(attempt.status) for attempt in attempts] == ["wrong", "passed"]
    assert code == 0
    first = prompts[0]
    assert [words for words in told if words not in first] == []
    assert [words for words in untold if words in first] == []
    assert (tmp_path / "it" / "best.py").read_text() == good
