"""Measures what the evaluator's defences against false times and answers cost: a cell with all of
them, and without each and without any, in turns; adds rows to results/sound-cost.jsonl, prints
their table.

    .venv/bin/python -m benchmarks.sound_cost [cells=softmax:cpu:c++,...] [turns=5] [seconds=240]
        [out=FILE] [sets=ci,typical]

A cell is op:backend:language of a kernel that portkern ships; at the largest size of each set. What
is built is built once; what is taken is the wall time from opening the workers to the result.
Without a measure: `buffers`, outputs are asked of the worker after the clock, and inputs are made
from a base; `inputs`, large sizes see one distribution beside the usual one, none in part;
`processes`, a baseline is timed in one process; `calls`, an emulated kernel is called twice.
"""

from __future__ import annotations

import json
import os
import secrets
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks import _script
from portkern import ops
from portkern.cells.selection import default_target
from portkern.evaluator import inputs, workers
from portkern.evaluator.build import Built
from portkern.evaluator.correctness import Correctness
from portkern.evaluator.timer import Timer
from portkern.evaluator.trial import TrialOptions
from portkern.records.record import Verdict
from portkern.sandbox import session
from portkern.spec import catalogue, registry
from portkern.spec.op import Op, Workload
from portkern.testing import evaluate
from portkern.toolchain import host

RESULTS = _script.RESULTS / "sound-cost.jsonl"
CELLS = "relu:cpu:c++,softmax:cpu:c++,layernorm:cpu:c++,matmul:cpu:c++"
ALL, NONE = "all", "none"


def _few_distributions(op: Op, workload: Workload, among: Sequence[str]) -> tuple[str, ...]:
    """Distributions as they were chosen before every size saw its operator's adversaries."""
    sizes = [tensor.nelements(workload.dims) for tensor in op.signature.inputs]
    others = [*op.adversaries, *(name for name in among if name != inputs.BASE)]
    if max(sizes, default=0) > inputs.FEW_ELEMENTS:
        others = [secrets.choice(others)]
    return (inputs.BASE, *others)


#: What stands for the evaluator without a measure.
WITHOUT: dict[str, Sequence[tuple[object, str, object]]] = {
    "buffers": (
        (Timer, "_is_placed", lambda *_: False),
        (Correctness, "places", lambda *_: False),
    ),
    "inputs": ((inputs, "choose", _few_distributions),),
    "processes": ((Timer, "_again", lambda *_: ()),),
    "calls": ((workers, "LATER", 0),),
}


def main() -> None:
    asked = _script.words(("cells", "turns", "seconds", "out", "sets"), __doc__)
    out = Path(asked.get("out", RESULTS))
    until = time.monotonic() + float(asked.get("seconds", 240))
    sets = asked.get("sets", "ci").split(",")
    ways = [ALL, NONE, *WITHOUT]
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(int(asked.get("turns", 5)) + 1):
            for cell in asked.get("cells", CELLS).split(","):
                for which in sets:
                    # The first turn builds, and warms up what stays.
                    for way in (ways if turn % 2 else reversed(ways)) if turn else [ALL]:
                        if time.monotonic() > until:
                            break
                        row = one(cell, which, way, Path(folder)) | {"turn": turn}
                        if turn:
                            with out.open("a", encoding="utf-8") as file:
                                file.write(json.dumps(row) + "\n")
    session.close_servers()
    print(table(_script.rows(out)))


def one(cell: str, which: str, way: str, folder: Path) -> dict[str, Any]:
    """The row of one evaluation: how long it took."""
    name, language, kernel = cell.split(":")
    op, backend = ops.load(name), registry.load(language)
    chosen = default_target(backend)
    size = max(op.workloads[which], key=lambda size: op.tensor_bytes(size.dims, "float32"))
    shipped = catalogue.candidates(op.name, backend, chosen)
    [candidate] = [made for made in shipped if made.language == kernel and not made.variant]

    start = time.perf_counter()
    with without(way):
        results = evaluate(
            candidate, op, backend, chosen, [size], folder=folder, options=TrialOptions()
        )
    seconds = time.perf_counter() - start
    if isinstance(results, Built) or results[0].verdict is not Verdict.PASSED:
        raise SystemExit(f"{cell} did not pass: {results}")
    return {
        "cell": cell,
        "size": size.name,
        "way": way,
        "seconds": round(seconds, 4),
        "machine": f"{len(os.sched_getaffinity(0))} cores of {os.cpu_count()}, {host.cpu_name()}",
        "target": chosen.name,
        "load": os.getloadavg()[0],
    }


@contextmanager
def without(way: str) -> Iterator[None]:
    """The evaluator without this measure, or without any."""
    left_out = list(WITHOUT) if way == NONE else [way] if way in WITHOUT else []
    with ExitStack() as stack:
        for measure in left_out:
            for owner, name, stand_in in WITHOUT[measure]:
                stack.enter_context(patch.object(owner, name, stand_in))
        yield


def ratios(found: Sequence[dict[str, Any]], way: str) -> list[float]:
    """The time with all measures over the time in this way, for each turn of one cell."""
    taken = {(row["turn"], row["way"]): row["seconds"] for row in found}
    turns = {turn for turn, _ in taken}
    pairs = [(taken.get((turn, ALL)), taken.get((turn, way))) for turn in sorted(turns)]
    return [one / other for one, other in pairs if one and other]


def table(found: Sequence[dict[str, Any]]) -> str:
    """The ratios by cell as a Markdown table."""
    titles = " | ".join(f"without {way}" for way in WITHOUT)
    lines = [f"| | with all | without any | {titles} |", "|---|---|---|" + "---|" * len(WITHOUT)]
    cells: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in found:
        cells.setdefault((row["cell"], row["size"], row["target"]), []).append(row)
    means: dict[str, list[float]] = {way: [] for way in (NONE, *WITHOUT)}
    for (cell, size, target), its in sorted(cells.items()):
        with_all = statistics.median(row["seconds"] for row in its if row["way"] == ALL)
        told = [f"{cell.split(':')[0]} {size}, {cell.split(':')[2]} on {target}"]
        told.append(f"{with_all:.2f} s")
        for way, values in means.items():
            own = ratios(its, way)
            values += [statistics.median(own)] if own else []
            told.append(f"× {statistics.median(own):.2f}" if own else "")
        lines.append(f"| {' | '.join(told)} |")
    together = [f"× {statistics.geometric_mean(own):.2f}" if own else "" for own in means.values()]
    lines.append(f"| geometric mean | | {' | '.join(together)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
