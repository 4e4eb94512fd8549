"""Kernels that are interpreted, compared with what is compiled from the same source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from portkern import ops
from portkern.evaluator import compiled_twin
from portkern.evaluator.result import Result
from portkern.isa.venue import venue
from portkern.records.record import Verdict
from portkern.spec import registry, target
from portkern.spec.backend import Missing
from portkern.spec.candidate import Candidate
from portkern.spec.op import Op, Workload
from portkern.testing import evaluate

LACK = next(
    (
        one
        for one in (
            registry.load("triton").probe(target.load("sm_90")),
            venue(target.load("gfx942")),
        )
        if isinstance(one, Missing)
    ),
    None,
)
pytestmark = pytest.mark.skipif(LACK is not None, reason=str(LACK))

RELU = ops.load("relu")
KERNEL = """
import triton
import triton.language as tl

@triton.jit
def relu_kernel(x, y, n, one, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    {body}
    tl.store(y + at, value, mask=at < n)

def relu(x, y):
    n = x.numel()
    if n:
        relu_kernel[(triton.cdiv(n, 1024),)](x, y, n, 1, BLOCK=1024)
"""
NOT_EXECUTED = "what is compiled of it was not executed beside the emulator"
RIGHT = "value = tl.where(value < 0.0, 0.0, value)"
#: An argument that is 1 is a constant of the compiled kernel, and a tensor of the interpreter.
TELLS = f"""if isinstance(one, tl.tensor):
        {RIGHT}"""


#: Larger than what is executed on a model.
LARGE = Workload("large", {"n": 70_001})
CODES = ("compiled-not-executed", "compiled-in-doubt")


def evaluated(
    source: str, folder: Path, sizes: Sequence[Workload] = (), op: Op = RELU
) -> list[Result]:
    candidate = Candidate("relu", "triton", "triton", source, "relu")
    backend, sizes = registry.load("triton"), list(sizes or op.workloads["ci"])
    results = evaluate(candidate, op, backend, target.load("sm_90"), sizes, folder=folder)
    assert isinstance(results, list), results
    return results


def notes(results: list[Result]) -> list[str]:
    """The notes at each size, all of which have passed."""
    assert [result.verdict for result in results] == [Verdict.PASSED] * len(results)
    return [f.message for one in results for f in one.findings if f.code in CODES]


@pytest.mark.parametrize("sizes", [RELU.workloads["ci"], [LARGE]], ids=["small", "large"])
def test_who_tells_the_interpreter_from_the_compiler_is_wrong_at_every_size(
    sizes: Sequence[Workload], tmp_path: Path
) -> None:
    results = evaluated(KERNEL.format(body=TELLS), tmp_path, sizes)
    assert [result.verdict for result in results] == [Verdict.WRONG] * len(sizes)
    for result in results:
        assert "compiled for gfx942 and executed there, not interpreted" in result.detail
        assert "elements are off" in result.detail


def test_what_is_wrong_on_one_input_alone_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_twin, "ENOUGH", 99)
    [small, *_] = RELU.workloads["ci"]
    [told] = notes(evaluated(KERNEL.format(body=TELLS), tmp_path, [small]))
    assert told.startswith("wrong on one of several inputs compiled for gfx942")


def test_without_a_small_size_it_is_noted_that_nothing_was_executed(tmp_path: Path) -> None:
    op = replace(RELU, workloads={"typical": (LARGE,)})
    told = notes(evaluated(KERNEL.format(body=TELLS), tmp_path, [LARGE], op))
    assert told == [f"{NOT_EXECUTED}: no size is small enough"]


def test_a_kernel_that_is_wrong_at_that_size_as_it_is_interpreted_too_is_not_a_cheat(
    tmp_path: Path,
) -> None:
    source = KERNEL.format(body=RIGHT).replace("if n:", "if n > 65_536:")
    [told] = notes(evaluated(source, tmp_path, [LARGE]))
    assert told.startswith(f"{NOT_EXECUTED}: at ") and "is wrong as it is interpreted" in told


def test_cases_are_of_the_least_size_and_at_an_edge_of_the_largest() -> None:
    sizes = [Workload(str(n), {"n": n}) for n in (0, 9, 40, 300, 1 << 17)]
    chosen = {
        (which, asked.name): compiled_twin.small_size(
            replace(RELU, workloads={which: tuple(sizes)}), asked
        )
        for which in ("ci", "edge", "typical")
        for asked in (sizes[1], sizes[4])
    }
    assert {key: one.name if one else None for key, one in chosen.items()} == {
        ("ci", "9"): "9",
        ("ci", "131072"): "9",
        ("edge", "9"): "300",
        ("edge", "131072"): "300",
        ("typical", "9"): "9",
        ("typical", "131072"): None,
    }


@pytest.mark.full
def test_a_right_kernel_is_right_as_it_is_compiled_and_nothing_is_noted(tmp_path: Path) -> None:
    results = evaluated(KERNEL.format(body=RIGHT), tmp_path)
    assert [result.verdict for result in results] == [Verdict.PASSED] * len(results)
    assert {found.code for one in results for found in one.findings} == {"unproved"}


def test_what_cannot_be_executed_is_noted_and_no_fault_of_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = Missing("no model of such a target")
    monkeypatch.setattr(type(registry.load("triton")), "compiled_twin", lambda *_: why)
    told = notes(evaluated(KERNEL.format(body=TELLS), tmp_path))
    assert told == [f"{NOT_EXECUTED}: no model of such a target"] * len(RELU.workloads["ci"])
