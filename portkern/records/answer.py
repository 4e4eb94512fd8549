"""A record from finished values: what was asked, and how it ended."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime

from portkern.records.record import (
    BuildResources,
    Environment,
    Errors,
    Evidence,
    Finding,
    Launch,
    Record,
    Roofline,
    Speedup,
    Timing,
    Verdict,
    WorkloadRef,
)
from portkern.spec.backend import Resources
from portkern.spec.candidate import Candidate
from portkern.spec.occupancy import occupancy
from portkern.spec.op import Op, Workload
from portkern.spec.target import Target


@dataclass(frozen=True)
class CellQuestion:
    """Whether ``candidate`` computes ``op`` on ``target``, and how fast; None where the backend
    ships no kernel. ``guard`` is what was noticed in its source; ``asked`` as in a record."""

    key: str
    op: Op
    workload_set: str
    workload: Workload
    dtype: str
    backend: str
    language: str
    target: Target
    candidate: Candidate | None
    guard: tuple[str, ...] = ()
    asked: str = ""


@dataclass(frozen=True)
class CellAnswer:
    """``missing``: why the next rung of evidence is missing; where it is empty, the first line of
    ``detail`` says so. The rest as in :class:`portkern.records.record.Record`."""

    verdict: Verdict
    detail: str
    evidence: Evidence
    environment: Environment
    missing: str = ""
    venue: str = ""
    errors: Errors | None = None
    timing: Timing | None = None
    baselines: Mapping[str, Timing] = field(default_factory=dict)
    speedup: Mapping[str, Speedup] = field(default_factory=dict)
    roofline: Roofline | None = None
    resources: Sequence[Resources] = ()
    findings: Sequence[Finding] = ()
    launches: Sequence[Launch] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    code: str = ""
    code_bytes: int | None = None

    def record(self, run: str, question: CellQuestion) -> Record:
        """A record of this answer under a new id, at this time. Raises pydantic's ValidationError,
        a ValueError, for an answer that contradicts itself."""
        candidate, measured = question.candidate, self.evidence is Evidence.MEASURED
        return Record(
            run=run,
            id=secrets.token_hex(8),
            key=question.key,
            asked=question.asked,
            time=datetime.now(UTC).isoformat(timespec="seconds"),
            op=question.op.name,
            workload=_workload_ref(question),
            backend=question.backend,
            language=question.language,
            target=question.target.name,
            venue=self.venue,
            source_hash=candidate.digest if candidate else "",
            author=candidate.author if candidate else "",
            variant=candidate.variant if candidate else "",
            parents=list(candidate.parents) if candidate else [],
            verdict=self.verdict,
            detail=self.detail,
            evidence=self.evidence,
            missing="" if measured else self.missing or self.detail.partition("\n")[0],
            errors=self.errors,
            precision=question.op.precision,
            timing=self.timing,
            baselines=dict(self.baselines),
            speedup=dict(self.speedup),
            roofline=self.roofline,
            resources=[_build_resources(question.target, used) for used in self.resources],
            guard=list(question.guard),
            findings=list(self.findings),
            launches=list(self.launches),
            environment=self.environment,
            seconds={stage: round(seconds, 3) for stage, seconds in self.seconds.items()},
            code=self.code,
            code_bytes=self.code_bytes,
        )


def _workload_ref(question: CellQuestion) -> WorkloadRef:
    workload = question.workload
    return WorkloadRef(
        set=question.workload_set,
        name=workload.name,
        dims=dict(workload.dims),
        dtype=question.dtype,
        scalars=dict(workload.scalars),
    )


def _build_resources(target: Target, used: Resources) -> BuildResources:
    return BuildResources(**asdict(used), occupancy=_occupancy(target, used))


def _occupancy(target: Target, used: Resources) -> float | None:
    """The fraction that the build allows; None when the block's size is only known at launch."""
    if not target.is_gpu or used.registers is None or used.threads is None:
        return None
    return occupancy(
        target,
        registers=used.registers,
        agprs=used.agprs or 0,
        shared_bytes=used.shared_bytes or 0,
        threads=used.threads,
    ).fraction
