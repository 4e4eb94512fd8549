"""How much too good a time can be made by the routes that the evaluator bounds: writes
results/residual.json after each row and prints its table. Rows that are there already, made on a
machine like this one with as many tries, are not made again: the file is removed to start anew.

    .venv/bin/python -m benchmarks.residual [tries=5]

A softmax in C++ does a share of its work where its calls do not show it; at each size the largest
share is looked for that passes in any of the tries. A try whose time is noisy counts for nothing,
and is made again, as often as there are tries. How much too good times are is told by honest ones
of the same kernel, taken before and between the shares.

clock: its worker speaks of so much less time than it took, in whatever way it came to that;
batch: every eighth call does the share for eight; ahead: a thread does it while inputs are made.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks import _script
from portkern import ops
from portkern.cells.selection import default_target
from portkern.evaluator import interleaved_timing
from portkern.evaluator.clock_check import TimedRound
from portkern.evaluator.result import Result
from portkern.evaluator.statistics import noisy, speedup, summarize
from portkern.evaluator.trial import TrialOptions
from portkern.records.record import Verdict
from portkern.sandbox import session
from portkern.spec import registry
from portkern.spec.candidate import Candidate
from portkern.spec.op import Workload
from portkern.testing import evaluate
from portkern.toolchain import host

SOURCE = Path(__file__).with_name("residual_kernels") / "softmax.cpp"
ROUTES = {"clock": 0, "batch": 1, "ahead": 2}
SIZES = ((8, 64), (64, 1024), (512, 4096))
SHARES = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.8)


def main() -> None:
    tries = int(_script.words(("tries",), __doc__).get("tries", 5))
    machine = {"name": host.cpu_name(), "cores": os.cpu_count(), "tries": tries}
    rows = _script.earlier("residual.json", machine, (), "route")
    known = {(row["route"], row["size"]) for row in rows}
    left = []
    with tempfile.TemporaryDirectory() as folder:
        for (count, cols), route in itertools.product(SIZES, ROUTES):
            workload = Workload(f"{count}x{cols}", {"rows": count, "cols": cols})
            if (route, workload.name) in known:
                continue
            row = _row(route, workload, tries, Path(folder))
            if row is None:
                left.append(f"{route} {workload.name}")
                print(f"{left[-1]}: all times are noisy", file=sys.stderr, flush=True)
                continue
            rows.append(row)
            _script.write("residual.json", {"machine": machine, "rows": rows})
    session.close_servers()
    print(table(rows))
    if left:
        raise SystemExit(f"Too busy a machine for {', '.join(left)}: run it again")


def results() -> list[dict[str, Any]]:
    rows = json.loads((_script.RESULTS / "residual.json").read_text(encoding="utf-8"))["rows"]
    return list(rows)


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as a table in Markdown."""
    lines = [
        "| | a call takes | largest share that passed | of tries | time too good by |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        tried = row["tried"].get(str(row["share"]))
        passed = f"{row['share']:.0%} | {tried['passed']} of {tried['all']}" if tried else "none | "
        gain = f"{row['gain']:.2f} ×" if tried else ""
        call = f"{row['honest_us']:.3g} µs"
        lines.append(f"| {row['route']}, softmax {row['size']} | {call} | {passed} | {gain} |")
    return "\n".join(lines)


def _row(route: str, workload: Workload, tries: int, folder: Path) -> dict[str, Any] | None:
    """The largest share that passed, and by how much its times were too good in the median; once
    two shares in a row have not, larger ones do not. None where no honest time can be told, or
    nothing of a share: where each is noisy, nobody was caught."""
    honest = [result for result in _tried(route, 0.0, workload, tries, folder) if _counts(result)]
    if not honest:
        return None
    row: dict[str, Any] = {"route": route, "size": workload.name, "share": 0.0, "gain": 1.0}
    row["tried"] = {}
    for share in SHARES:
        honest += filter(_counts, [_evaluated(route, 0.0, workload, folder)])
        results = _tried(route, share, workload, tries, folder)
        passed = [result for result in results if _counts(result)]
        caught = [result for result in results if result.verdict is not Verdict.PASSED]
        tried: dict[str, Any] = {"passed": len(passed), "caught": len(caught), "all": len(results)}
        if not passed and not caught:
            return None
        if caught:
            tried["why"] = caught[0].detail.splitlines()[0]
        row["tried"][str(share)] = tried
        if passed:
            row |= {"share": share, "gain": _usual_us(honest) / _usual_us(passed)}
        print(f"{route} {workload.name} {share:.0%}: {tried}", file=sys.stderr, flush=True)
        if [known["passed"] for known in row["tried"].values()][-2:] == [0, 0]:
            break
    return row | {"honest_us": _usual_us(honest), "load": os.getloadavg()[0]}


def _tried(route: str, share: float, workload: Workload, tries: int, folder: Path) -> list[Result]:
    """So many whose times are not noisy, or twice as many of all."""
    results: list[Result] = []
    for _ in range(2 * tries):
        results.append(_evaluated(route, share, workload, folder))
        if sum(map(_is_told, results)) == tries:
            break
    return results


def _is_told(result: Result) -> bool:
    """It was caught, or has a time that enters means."""
    return result.verdict is not Verdict.PASSED or _counts(result)


def _counts(result: Result) -> bool:
    """It passed, with a time that enters means."""
    if result.verdict is not Verdict.PASSED or result.samples is None or result.samples.unsure:
        return False
    ratio = speedup(result.samples.values, result.baselines["eager"].values)
    return not noisy(summarize(result.samples.rounds, result.samples.method), {"eager": ratio})


def _usual_us(results: list[Result]) -> float:
    """The median of all tries' medians."""
    return statistics.median(
        statistics.median(result.samples.values) for result in results if result.samples is not None
    )


def _evaluated(route: str, share: float, workload: Workload, folder: Path) -> Result:
    op, backend = ops.load("softmax"), registry.load("cpu")
    text = SOURCE.read_text(encoding="utf-8")
    source = f"#define ROUTE {ROUTES[route]}\n#define SHARE {share}\n{text}"
    candidate = Candidate(op.name, "cpu", "c++", source, op.name, author="residual", style="dps")
    with _clock_of_candidates(1 - share if route == "clock" else 1.0):
        results = evaluate(
            candidate,
            op,
            backend,
            default_target(backend),
            [workload],
            folder=folder,  # where what is built is kept for the next try
            options=TrialOptions(),
        )
    assert isinstance(results, list), results
    return results[0]


@contextmanager
def _clock_of_candidates(rate: float) -> Iterator[None]:
    """Candidates' workers speak of so much of the time that their calls took."""
    timed = interleaved_timing.InterleavedTiming
    lap, ran = timed._lap, timed.run
    theirs: set[int] = set()

    def slowed(self: Any, asked: Any, *given: Any, **named: Any) -> Any:
        done = lap(self, asked, *given, **named)
        if isinstance(done, TimedRound) and asked.pid in theirs:
            done.samples = [sample * rate for sample in done.samples]
        return done

    def run(self: Any, runners: Any, trusted: str) -> None:
        theirs.update(runner.pid for key, runner in runners.items() if isinstance(key, int))
        ran(self, runners, trusted)

    with patch.object(timed, "_lap", slowed), patch.object(timed, "run", run):
        yield


if __name__ == "__main__":
    main()
