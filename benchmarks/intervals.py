"""Whether 95 % intervals hold from process to process: adds runs to results/intervals.jsonl, and
prints how many of each thing's intervals contain its median in the long run.

    .venv/bin/python -m benchmarks.intervals [runs=40] [cells=relu:cpu:c++,...]
        [seconds=240] [out=FILE]

A cell is op:backend:language of a kernel that portkern ships, at the largest size of `ci`. Each run
has a fork server and workers of its own, and options as they are by default; cells take turns, so
that what drifts meets all of them. The long run's median is that of the medians of all runs. A run
that is marked as noisy claims nothing, and is counted apart.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import _script
from portkern import ops
from portkern.cells.selection import default_target
from portkern.evaluator import statistics
from portkern.evaluator.build import Built
from portkern.evaluator.trial import TrialOptions
from portkern.experiment.statistics import share
from portkern.sandbox import session
from portkern.spec import catalogue, registry
from portkern.spec.op import Op, Workload
from portkern.testing import evaluate
from portkern.toolchain import host

RESULTS = _script.RESULTS / "intervals.jsonl"
CELLS = "relu:cpu:c++,softmax:cpu:c++,matmul:cpu:c++,layernorm:cpu:c++"
#: What an interval is told of, as the table calls it.
TOLD = {"kernel": "the kernel's median", "eager": "the baseline's median", "speedup": "the speedup"}


def main() -> None:
    asked = _script.words(("runs", "cells", "seconds", "out"), __doc__)
    out = Path(asked.get("out", RESULTS))
    until = time.monotonic() + float(asked.get("seconds", 240))
    cells = asked.get("cells", CELLS).split(",")
    done = [row["cell"] for row in _script.rows(out)]
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(int(asked.get("runs", 40))):
            for cell in cells:
                if time.monotonic() > until or done.count(cell) >= int(asked.get("runs", 40)):
                    continue
                row = one(cell, Path(folder))
                done.append(cell)
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
    print(table(_script.rows(out)))


def one(cell: str, folder: Path) -> dict[str, Any]:
    """The row of one run: each figure with the ends of its interval."""
    name, language, kernel = cell.split(":")
    op, backend = ops.load(name), registry.load(language)
    chosen = default_target(backend)
    shipped = catalogue.candidates(op.name, backend, chosen)
    [candidate] = [made for made in shipped if made.language == kernel and not made.variant]
    results = evaluate(
        candidate, op, backend, chosen, [_size(op)], folder=folder, options=TrialOptions()
    )
    session.close_servers()
    if isinstance(results, Built) or not (mine := results[0].samples):
        raise SystemExit(f"{cell} has no time: {results}")
    eager = results[0].baselines["eager"]
    told = {
        "kernel": statistics.summarize(mine.rounds, mine.method),
        "eager": statistics.summarize(eager.rounds, eager.method),
    }
    ratio = statistics.speedup_of_rounds(mine.rounds, eager.rounds, eager.again)
    doubt = (
        mine.unsure
        or statistics.modes(eager.rounds, eager.again)
        or statistics.noisy(told["kernel"], {"eager": ratio})
    )
    return {
        "cell": cell,
        "machine": f"{len(os.sched_getaffinity(0))} cores of {os.cpu_count()}, {host.cpu_name()}",
        "load": os.getloadavg()[0],
        **{name: [one.median_us, *(one.ci95_us or ())] for name, one in told.items()},
        "speedup": [ratio.value, *ratio.ci95],
        "noisy": doubt,
    }


def _size(op: Op) -> Workload:
    return max(op.workloads["ci"], key=lambda size: op.tensor_bytes(size.dims, "float32"))


def held(found: Sequence[dict[str, Any]], name: str) -> tuple[int, int]:
    """How many intervals of one cell contain the median in the long run, and of how many."""
    long_run = float(np.median([row[name][0] for row in found]))
    claimed = [row[name] for row in found if not row["noisy"]]
    return sum(low <= long_run <= high for _, low, high in claimed), len(claimed)


def table(found: Sequence[dict[str, Any]]) -> str:
    """The runs, how many were noisy and what was reported, as a Markdown table."""
    lines = [
        "| | runs | noisy | " + " | ".join(TOLD.values()) + " | medians of runs lie within |",
        "|---|---|---|" + "---|" * (len(TOLD) + 1),
    ]
    counts = {name: [0, 0] for name in TOLD}
    for cell in sorted({row["cell"] for row in found}):
        its = [row for row in found if row["cell"] == cell]
        cells = []
        for name in TOLD:
            good, of = held(its, name)
            counts[name][0] += good
            counts[name][1] += of
            cells.append(f"{good} of {of}")
        low, high = np.quantile([row["kernel"][0] for row in its], [0.05, 0.95])
        noisy = sum(bool(row["noisy"]) for row in its)
        lines.append(
            f"| {cell.replace(':', ' ')} | {len(its)} | {noisy} | {' | '.join(cells)} "
            f"| {low:.3g} to {high:.3g} µs |"
        )
    ends = []
    for good, of in counts.values():
        low, high = share(good, of).ends if of else (0.0, 1.0)
        ends.append(f"{good / max(of, 1):.1%} ({low:.1%}–{high:.1%})")
    lines.append(f"| together | {len(found)} | | {' | '.join(ends)} | |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
