"""How much too good a time can be made by the routes that the evaluator bounds: writes
results/residual.json and prints its table.

    .venv/bin/python -m benchmarks.residual [tries=5]

A softmax in C++ does a share of its work where its calls do not show it; at each size the largest
share is looked for that passes in any of the tries with a time that is not noisy.

clock: its worker speaks of so much less time than it took, in whatever way it came to that;
batch: every eighth call does the share for eight; ahead: a thread does it while inputs are made.
"""

from __future__ import annotations

import json
import os
import statistics
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
from portkern.evaluator.statistics import noisy, speedup, summarize
from portkern.evaluator.trial import Result, TrialOptions
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
    rows = []
    for rows_, cols in SIZES:
        workload = Workload(f"{rows_}x{cols}", {"rows": rows_, "cols": cols})
        honest = statistics.median(_median_us(_evaluated("clock", 0.0, workload)) for _ in range(3))
        for route in ROUTES:
            rows.append({"route": route, "size": workload.name, "honest_us": honest})
            rows[-1] |= _most(route, workload, tries, honest)
            print(json.dumps(rows[-1]), flush=True)
    session.close_servers()
    machine = {"name": host.cpu_name(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    _script.write("residual.json", {"machine": machine, "tries": tries, "rows": rows})
    print(table(results()))


def results() -> list[dict[str, Any]]:
    rows = json.loads((_script.RESULTS / "residual.json").read_text(encoding="utf-8"))["rows"]
    return list(rows)


def table(rows: list[dict[str, Any]]) -> str:
    """In Markdown."""
    lines = [
        "| | a call takes | largest share that passed | time too good by |",
        "|---|---|---|---|",
    ]
    for row in rows:
        share = f"{row['share']:.0%}" if row["share"] else "none"
        gain = f"{row['gain']:.2f} ×" if row["share"] else ""
        call = f"{row['honest_us']:.3g} µs"
        lines.append(f"| {row['route']}, softmax {row['size']} | {call} | {share} | {gain} |")
    return "\n".join(lines)


def _most(route: str, workload: Workload, tries: int, honest_us: float) -> dict[str, Any]:
    """The largest share that passed, and by how much its best time was too good; once two shares in
    a row have not, larger ones do not."""
    most: dict[str, Any] = {"share": 0.0, "gain": 1.0, "passed": {}, "caught": {}}
    for share in SHARES:
        results = [_evaluated(route, share, workload) for _ in range(tries)]
        passed = [result for result in results if _counts(result)]
        most["passed"][str(share)] = len(passed)
        for result in results:
            if result.verdict is not Verdict.PASSED:
                most["caught"][str(share)] = result.detail.splitlines()[0]
        if passed:
            best = honest_us / min(map(_median_us, passed))
            most |= {"share": share, "gain": best}
        elif list(most["passed"].values())[-2:] == [0, 0]:
            break
    return most


def _counts(result: Result) -> bool:
    """It passed, with a time that enters means."""
    if result.verdict is not Verdict.PASSED or result.samples is None or result.samples.unsure:
        return False
    ratio = speedup(result.samples.values, result.baselines["eager"].values)
    return not noisy(summarize(result.samples.rounds, result.samples.method), {"eager": ratio})


def _median_us(result: Result) -> float:
    assert result.samples is not None, result
    return statistics.median(result.samples.values)


def _evaluated(route: str, share: float, workload: Workload) -> Result:
    op, backend = ops.load("softmax"), registry.load("cpu")
    text = SOURCE.read_text(encoding="utf-8")
    source = f"#define ROUTE {ROUTES[route]}\n#define SHARE {share}\n{text}"
    candidate = Candidate(op.name, "cpu", "c++", source, op.name, author="residual", style="dps")
    with (
        tempfile.TemporaryDirectory() as folder,
        _clock_of_candidates(1 - share if route == "clock" else 1.0),
    ):
        results = evaluate(
            candidate,
            op,
            backend,
            default_target(backend),
            [workload],
            folder=Path(folder),
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
