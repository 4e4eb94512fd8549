"""Which kernels a call launched and how long each took, as the attribution of its work found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from portkern.agent.axes import Measured
from portkern.agent.feedback.timing import largest
from portkern.agent.task import Task
from portkern.records.record import Launch, Record, Verdict
from portkern.spec.candidate import Candidate


class LaunchFeedback:
    """Lists the kernels that one call launched on the largest workload, as torch's profiler saw
    them. At most ``most`` are listed, those that took the longest first; an executor has no
    times, and counts them and, of objects, what they did."""

    kind: ClassVar[str] = "launches"
    stage: ClassVar[int] = 2

    def __init__(self, *, most: int) -> None:
        self._most = most

    def measure(self, task: Task, candidate: Candidate, records: Sequence[Record]) -> Measured:
        """Returns the list as text; it is empty where nobody counts launches, as for native code
        on a CPU."""
        counted = [one for one in records if one.verdict is Verdict.PASSED and one.launches]
        if not counted:
            return Measured({})
        of = largest(task, counted)
        size = f"{of.workload.set}/{of.workload.name}"
        title = f"Kernels that one call launched, on {size}"
        executed = sum(launch.counts.get("instructions", 0) for launch in of.launches)
        metrics = {"instructions": float(executed)} if executed else {}
        return Measured(metrics, title, "\n".join(self._told(of.launches)))

    def _told(self, launches: Sequence[Launch]) -> Iterator[str]:
        total = sum(launch.us for launch in launches)
        ordered = sorted(launches, key=lambda launch: (-launch.us, -launch.count))
        for launch in ordered[: self._most]:
            share = f": {launch.us:.4g} µs, {launch.us / total:.0%}" if total else ""
            times = f", in {launch.count} launches" if launch.count > 1 else ""
            did = f": {launch.told}" if launch.told else ""
            yield f"{launch.name}{share}{times}{did}"
        left = ordered[self._most :]
        if left:
            told = f": {sum(one.us for one in left):.4g} µs" if total else ""
            yield f"… and {len(left)} more{told}"
