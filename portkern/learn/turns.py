"""Turns of what records say: one attempt, on one place or several."""

from __future__ import annotations

import math
from collections.abc import Sequence

from portkern.learn.pinned import PinnedTimes
from portkern.learn.rewards import Ratio, Turn, Unavailable
from portkern.records.record import Record, Verdict

_NO_VERDICT = (Verdict.UNAVAILABLE, Verdict.UNSUPPORTED)
#: The worst verdict of an attempt's cells is its own: what breaks rules comes before what is wrong.
_WORST = (
    Verdict.REJECTED,
    Verdict.SUSPICIOUS,
    Verdict.BUILD_FAILED,
    Verdict.CRASHED,
    Verdict.TIMED_OUT,
    Verdict.WRONG,
)


def turn_of(records: Sequence[Record], pinned: PinnedTimes | None = None) -> Turn:
    """One attempt on one place, from the records of all its workloads. A time counts only where
    every workload has one that is sure enough, so that all attempts are paid for the same work.
    It is compared with the ``pinned`` time of the reference, where that is given, else with the one
    that was measured beside it.

    Raises Unavailable where a workload was not evaluated and no other one failed.
    """
    verdicts = {record.verdict for record in records}
    worst = next((verdict for verdict in _WORST if verdict in verdicts), None)
    if worst is not None:
        return Turn(worst)
    missing = next((r for r in records if r.verdict in _NO_VERDICT), None)
    if missing is not None or not records:
        why = f"{missing.target}: {missing.detail}" if missing else "no workload was evaluated"
        raise Unavailable(f"No reward: {why}")
    timed = [record for record in records if record.timing is not None]
    return Turn(
        Verdict.PASSED,
        eager=pinned.ratio(records) if pinned else _over(records, "eager"),
        compiled=_over(records, "compile"),
        noisy=any(not record.comparable for record in timed),
    )


def _over(records: Sequence[Record], baseline: str) -> Ratio | None:
    """The geometric mean of the intervals, where every record has one."""
    known = [record.speedup[baseline].ci95 for record in records if baseline in record.speedup]
    if len(known) < len(records) or any(low <= 0 for low, _ in known):
        return None
    low, high = (
        math.exp(sum(map(math.log, ends)) / len(ends)) for ends in zip(*known, strict=True)
    )
    return Ratio(low, high)
