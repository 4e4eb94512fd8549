"""Where a kernel that builds is wrong, and what it gets right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from portkern.agent.axes import Measured
from portkern.agent.task import Task
from portkern.records.record import Errors, Record, Verdict
from portkern.spec.candidate import Candidate

#: What each verdict means to whoever wrote the kernel.
_TITLES = {
    Verdict.REJECTED: "It is refused",
    Verdict.BUILD_FAILED: "It does not build",
    Verdict.CRASHED: "It crashes",
    Verdict.TIMED_OUT: "It takes too long",
    Verdict.WRONG: "It is wrong",
    Verdict.SUSPICIOUS: "Its result is not believed",
    Verdict.UNAVAILABLE: "It could not be run",
    Verdict.UNSUPPORTED: "It cannot be built here",
}


class CorrectnessFeedback:
    """Stage 1. A kernel that is wrong has nothing else that is worth measuring."""

    kind: ClassVar[str] = "correctness"
    stage: ClassVar[int] = 1

    def __init__(self, *, lines: int, chars: int) -> None:
        self._lines, self._chars = lines, chars

    def measure(self, task: Task, candidate: Candidate, records: Sequence[Record]) -> Measured:
        failed = [record for record in records if record.verdict is not Verdict.PASSED]
        passed = [record for record in records if record.verdict is Verdict.PASSED]
        notes = list(dict.fromkeys(hit for record in passed for hit in record.guard))
        if not failed:
            lines = [f"Right on {_names(passed)}.", *(f"The guard notes: {hit}" for hit in notes)]
            return Measured({}, "CorrectnessFeedback", "\n".join(lines) if passed else "")
        lines = [line for record in failed for line in self._told(record)]
        lines += [f"Right on {_names(passed)}."] if passed else []
        untried = _untried(task, records)
        lines += [f"Not tried: {', '.join(untried)}."] if untried else []
        stop = any(record.verdict.bad for record in failed)
        return Measured({}, _TITLES.get(failed[0].verdict, "It fails"), "\n".join(lines), stop=stop)

    def _told(self, record: Record) -> list[str]:
        head, _, rest = record.detail.partition("\n")
        lines = [f"{_place(record)}: {head or record.verdict}"]
        lines += [f"    {line}" for line in rest.splitlines()[: self._lines]]
        lines += [f"    {_told_errors(record.errors)}"] if record.errors else []
        lines += [f"    the guard notes: {hit}" for hit in record.guard if hit not in record.detail]
        text = "\n".join(lines)
        return text.splitlines() if len(text) <= self._chars else [f"{text[: self._chars]}…"]


def _place(record: Record) -> str:
    work = record.workload
    dims = " ".join(f"{axis}={length}" for axis, length in work.dims.items())
    return f"{work.set}/{work.name} ({dims}, {work.dtype})"


def _names(records: Sequence[Record]) -> str:
    return ", ".join(f"{record.workload.set}/{record.workload.name}" for record in records)


def _untried(task: Task, records: Sequence[Record]) -> list[str]:
    """A candidate is evaluated up to the first workload that it fails."""
    tried = {(record.workload.set, record.workload.name) for record in records}
    return [
        f"{name}/{workload.name}"
        for name, workloads in task.workloads.items()
        for workload in workloads
        if (name, workload.name) not in tried
    ]


def _told_errors(errors: Errors) -> str:
    return (
        f"largest difference {errors.max_abs:.3g}, relative {errors.max_rel:.3g}; against float64 "
        f"{errors.vs_fp64:.2g} in norm, the framework's own {errors.reference_vs_fp64:.2g}"
    )
