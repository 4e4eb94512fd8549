"""Measures what timing on the evaluator's own device memory costs, on a machine with an NVIDIA GPU:
writes results/device-memory-h200.json after each row and prints its table.

    .venv/bin/python -m benchmarks.device_memory [target=h200] [seconds=60]

Each kernel is built once and then judged and timed with it and without it, in turns, by a running
evaluator; rows stop when the seconds are over.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks import _script
from portkern import ops
from portkern.evaluator import timer
from portkern.evaluator.result import Result
from portkern.evaluator.trial import TrialOptions
from portkern.sandbox import session
from portkern.spec import catalogue, registry
from portkern.spec import target as targets
from portkern.spec.op import Workload
from portkern.testing import evaluate
from portkern.toolchain import host

#: Backends, operators and sizes, the largest in memory among them.
CASES = (
    ("cuda", "softmax", {"rows": 4096, "cols": 4096}),
    ("triton", "softmax", {"rows": 4096, "cols": 4096}),
    ("cuda", "relu", {"n": 1 << 26}),
    ("cuda", "layernorm", {"rows": 512, "cols": 1024}),
    ("cuda", "matmul", {"m": 2048, "n": 2048, "k": 2048}),
    ("triton", "add", {"m": 64, "n": 1024}),
)
RESULTS = "device-memory-{}.json"


def main() -> None:
    asked = _script.words(("target", "seconds"), __doc__)
    target, limit_s = asked.get("target", "h200"), float(asked.get("seconds", 60))
    machine = {"target": target, "cpu": host.cpu_name()}
    rows: list[dict[str, Any]] = []
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for backend, name, dims in CASES:
            if time.monotonic() - start > limit_s:
                break
            rows.append(_row(backend, name, dims, target, Path(folder)))
            print(rows[-1], flush=True)
            _script.write(RESULTS.format(target), {"machine": machine, "rows": rows})
    session.close_servers()
    print(table(rows))


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as a Markdown table."""
    lines = ["| | asked | on its memory | ratio | median, µs |", "|---|---|---|---|---|"]
    for row in rows:
        ratio = row["placed_s"] / row["asked_s"]
        medians = f"{row['asked_us']:.3g}, {row['placed_us']:.3g}"
        sizes = "x".join(map(str, row["dims"].values()))
        seconds = f"{row['asked_s']:.2f} s | {row['placed_s']:.2f} s | {ratio:.2f}"
        lines.append(f"| {row['backend']} {row['op']} {sizes} | {seconds} | {medians} |")
    return "\n".join(lines)


def _row(
    backend: str, name: str, dims: dict[str, int], target: str, folder: Path
) -> dict[str, Any]:
    """Two tries of each, the first of which opens and builds what both need."""
    op, where, opened = ops.load(name), targets.load(target), registry.load(backend)
    [candidate, *_] = catalogue.candidates(name, opened)
    row: dict[str, Any] = {"backend": backend, "op": name, "dims": dims}
    took: dict[str, list[tuple[float, Result]]] = {"asked": [], "placed": []}
    for way in _turns():
        start = time.perf_counter()
        with patch.object(timer.Timer, "_is_placed", _PLACED[way]):
            results = evaluate(
                candidate,
                op,
                opened,
                where,
                [Workload("one", dims)],
                folder=folder,
                options=TrialOptions(),
            )
        seconds = time.perf_counter() - start
        assert isinstance(results, list), results
        took[way].append((seconds, results[0]))
    for way, tries in took.items():
        row[f"{way}_s"] = min(seconds for seconds, _ in tries)
        last = tries[-1][1]
        row[way] = f"{last.verdict}: {last.detail}" if last.detail else str(last.verdict)
        row[f"{way}_notes"] = sorted({finding.code for finding in last.findings})
        samples = [value for lap in last.samples.rounds for value in lap] if last.samples else [0.0]
        row[f"{way}_us"], row[f"{way}_calls"] = statistics.median(samples), len(samples)
    return row


def _turns() -> Iterator[str]:
    yield from ("placed", "asked", "asked", "placed")


_PLACED = {
    "placed": timer.Timer._is_placed,
    "asked": lambda self, key, device: device == "cpu",
}


if __name__ == "__main__":
    main()
