"""Simulated samples of models, with runs to go with them, and text that bites.

``python -m tests.compare_samples FOLDER`` writes their page, which says that they are simulated.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from portkern.agent.attempt import Attempt, Status
from portkern.agent.axes import PromptMessage
from portkern.agent.llm.calls import ModelCall
from portkern.experiment.compare import page
from portkern.experiment.compare.comparison import compare
from portkern.experiment.compare.sample import Sample
from portkern.records.jsonl import LineFile

#: What models can do: the chance of a correct kernel and its usual speedup.
MODELS = {"lab/strong": (0.8, 1.3), "lab/middling": (0.55, 1.0), "local/small": (0.2, 0.7)}
PLACES = (
    ("cuda", "h200", "measured"),
    ("triton", "h200", "measured"),
    ("hip", "gfx942", "emulated"),
    ("opencl", "opencl_generic", "emulated"),
    ("pallas", "x86_64", "emulated"),
    ("cpu", "x86_64", "measured"),
)
OPS = {
    "kernelbench/level1": ("relu", "softmax", "layernorm", "rmsnorm", "matmul", "transpose"),
    "core": ("add", "gelu", "sum", "cumsum", "cross_entropy", "embedding"),
}
SUITED = tuple((suite, op) for suite, several in OPS.items() for op in several)
FAILURES = (
    Status.NO_CODE,
    Status.BUILD_FAILED,
    Status.BUILD_FAILED,
    Status.WRONG,
    Status.WRONG,
    Status.CRASHED,
    Status.REJECTED,
)
#: The reply of a model that would run in the page of whoever reads it.
BITES = "</script><script>document.body.dataset.bitten = 1</script><img src=x onerror=alert(1)>"


def samples(
    models: Sequence[str] = tuple(MODELS),
    ops: Sequence[tuple[str, str]] = SUITED,
    n: int = 5,
) -> list[Sample]:
    """``ops`` with their suites. The same every time."""
    chance = random.Random(0)
    return [
        _sample(chance, model, suite, op, place, index)
        for index in range(n)
        for suite, op in ops
        for place in PLACES
        for model in models
    ]


def _sample(
    chance: random.Random,
    model: str,
    suite: str,
    op: str,
    place: tuple[str, str, str],
    index: int,
) -> Sample:
    backend, target, evidence = place
    able, usual = MODELS.get(model, (0.5, 1.0))
    hard = 0.6 + 0.4 * random.Random(f"{op} {backend}").random()
    passed = chance.random() < able * hard
    status = Status.PASSED if passed else chance.choice(FAILURES)
    timed = passed and evidence == "measured"
    speedup = usual * chance.lognormvariate(0, 0.35) if timed else None
    ran = status not in (Status.NO_CODE, Status.BUILD_FAILED, Status.REJECTED)
    return Sample(
        model=model,
        op=op,
        suite=suite,
        backend=backend,
        target=target,
        index=index,
        seed=index,
        status=status,
        evidence=evidence if ran else "",  # type: ignore[arg-type]
        device="NVIDIA H200" if target == "h200" else "",
        baseline="eager" if timed else "",
        speedup=speedup,
        efficiency=min(0.95, speedup * 0.4) if speedup else None,
        us=20 / speedup if speedup else None,
        heldout=chance.random() < 0.9 if passed else None,
        cheat="calls torch" if status is Status.REJECTED else "",
        donor="cuda" if backend == "hip" else "",
        digest=f"{model}-{op}-{backend}-{index}" if status is not Status.NO_CODE else "",
        detail="" if passed else f"{str(status).replace('_', ' ')}: {BITES[: 30 * (index % 2)]}",
        tokens_in=1800,
        tokens_out=chance.randrange(400, 2400),
        usd=round((0.02 if model.startswith("lab") else 0.001) * (1 + chance.random()), 5),
        seconds=10 + 30 * chance.random(),
        path=f"samples/{model.replace('/', '-')}/{op}-{backend}-{target}/{index}",
    )


def write_runs(folder: Path, rows: Sequence[Sample], *, reply: str = BITES) -> None:
    """Writes the files that a sweep leaves for each sample."""
    for row in rows:
        place = folder / row.path
        LineFile(place / "calls.jsonl", ModelCall.from_json).append([_call(row, reply)])
        LineFile(place / "attempts.jsonl", Attempt.from_json).append([_attempt(row)])


def _call(row: Sample, reply: str) -> ModelCall:
    messages = (
        PromptMessage("system", "You write kernels."),
        PromptMessage("user", f"Write {row.op} for {row.backend} on {row.target}."),
    )
    answer = f"Sample {row.index} of {row.model}: {reply}"
    return ModelCall(
        id="1/coder#1", digest="0", role="coder", model=row.model, messages=messages, reply=answer
    )


def _attempt(row: Sample) -> Attempt:
    return Attempt(
        id="1.1",
        slot=1,
        number=1,
        op=row.op,
        target=row.target,
        backend=row.backend,
        source="" if row.status is Status.NO_CODE else f"// kernel {row.index} of {row.model}\n",
        digest=row.digest,
        status=row.status or Status.UNAVAILABLE,
        detail=row.detail,
        calls=("1/coder#1",),
    )


def _sources(rows: Sequence[Sample]) -> Iterator[tuple[str, str]]:
    """Kernels that share more or less of their lines, by backend."""
    for row in rows:
        lines = [f"int shared_{row.op}_{k};" for k in range(20)]
        own = [f"int {row.backend}_{k};" for k in range(4 + 2 * len(row.backend))]
        yield row.digest, "\n".join([*lines, *own])


def main(folder: Path) -> None:
    rows = samples()
    write_runs(folder, rows, reply="```cuda\n// a kernel\n```")
    comparison = compare(rows, sources=dict(_sources(rows)))
    facts = {
        "Simulated": "no model was asked; chances and times are drawn from a seed",
        "Prices": "invented",
    }
    paths = page.write(
        folder,
        comparison,
        rows,
        title="Simulated sweep: three models that do not exist",
        facts=facts,
    )
    sys.stdout.write("\n".join([*map(str, paths), page.summary(comparison)]) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
