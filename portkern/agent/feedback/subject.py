"""The subject of profiling: the very artifact that was evaluated, on the largest workload it was
timed on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from portkern.agent.feedback.timing import largest
from portkern.agent.task import Task
from portkern.cells.selection import SelectedCell
from portkern.evaluator import build
from portkern.evaluator.artifact_cache import ArtifactCache
from portkern.evaluator.build import StageLimits
from portkern.evaluator.workers import Contestant
from portkern.records.record import Record, Verdict
from portkern.spec.backend import Artifact, Missing, Ready, Venue
from portkern.spec.candidate import Candidate
from portkern.spec.op import Op, Workload
from portkern.toolchain.run_tool import cache_root

#: ``void ns::name<float, 4>(float*, int) [clone .kd]`` is ``name``.
_BASE = re.compile(r"(?<![\w~:])(?:::)?(?:[\w~]++::)*+([A-Za-z_]\w*+)\s*+(?:<|\(|\.kd|\[|$)")


@dataclass(frozen=True)
class FeedbackSubject:
    """``kernels``: the bare names of what a call launches, none where nobody counted."""

    op: Op
    workload: Workload
    dtype: str
    contestant: Contestant
    median_us: float
    kernels: frozenset[str]

    @classmethod
    def of(
        cls, task: Task, candidate: Candidate, records: Sequence[Record]
    ) -> FeedbackSubject | Missing:
        """Raises ValueError for records of another candidate: their counters would be shown with
        this one's code."""
        others = {record.source_hash for record in records} - {candidate.digest, ""}
        if others:
            raise ValueError(f"records are of {min(others)}, the candidate is {candidate.digest}")
        ran = [record for record in records if record.verdict is Verdict.PASSED]
        timed = [record for record in ran if record.timing is not None]
        if not ran:
            return Missing("no workload was passed")
        if not timed:
            return Missing(
                f"counters are the hardware's, and it was not timed there: {ran[0].missing}"
            )
        record = largest(task, timed)
        work = record.workload
        workload = Workload(work.name, work.dims, work.scalars)
        cell = SelectedCell(
            task.op, work.set, workload, work.dtype, task.backend, task.target, candidate
        )
        contestant = _contestant(cell)
        if isinstance(contestant, Missing):
            return contestant
        assert record.timing is not None
        names = [launch.name for launch in record.launches] or [
            resource.kernel for resource in record.resources
        ]
        kernels = frozenset(map(bare, names))
        return cls(task.op, workload, work.dtype, contestant, record.timing.median_us, kernels)

    def launched(self, name: str) -> bool:
        """Whether a kernel of this name is the candidate's; anyone's where nobody counted."""
        return not self.kernels or bare(name) in self.kernels


def bare(name: str) -> str:
    """A kernel's name without its namespace, template arguments and parameters."""
    match = _BASE.search(name.removeprefix("void "))
    return match[1] if match else name


def _contestant(cell: SelectedCell) -> Contestant | Missing:
    """The build from the cache, where the evaluator's own left it."""
    venue = cell.venues.hardware
    if not isinstance(venue, Venue):
        return venue
    toolchain = cell.ready.toolchain if isinstance(cell.ready, Ready) else {}
    cache = ArtifactCache(cache_root() / "builds")
    (built,) = build.build_all([cell.build_request], [toolchain], limits=StageLimits(), cache=cache)
    if not isinstance(built.outcome, Artifact):
        return Missing(f"it does not build again: {built.outcome.detail}")
    return Contestant(built.request, built.outcome, venue, cell.torch_ops)
