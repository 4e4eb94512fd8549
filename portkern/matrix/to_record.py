"""How a cell ended, as a record: from its build and its result to verdict and evidence."""

from __future__ import annotations

import secrets
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version

from portkern.evaluator import statistics
from portkern.evaluator.build import Built, Failure
from portkern.evaluator.trial import Result
from portkern.matrix.selection import Cell
from portkern.records.record import (
    BuildResources,
    Environment,
    Evidence,
    Record,
    Verdict,
    WorkloadRef,
)
from portkern.sandbox import session
from portkern.spec.backend import SOURCE_KINDS, Artifact, Missing, Ready, Resources, Venue
from portkern.spec.occupancy import occupancy
from portkern.spec.op import Workload
from portkern.spec.target import Target
from portkern.toolchain import host


def unbuilt(run: str, cell: Cell) -> Record:
    """A cell whose verdict needs no build."""
    assert cell.ruled_out is not None
    verdict, reason = cell.ruled_out
    return _record(run, cell, verdict, reason, Evidence.NONE)


def unrun(run: str, cell: Cell, built: Built) -> Record:
    """A cell that ended with its build: it failed, or there is nowhere to run it."""
    if isinstance(built.outcome, Failure):
        failure = built.outcome
        return _record(run, cell, failure.verdict, str(failure), Evidence.NONE, built=built)
    evidence = _built_evidence(built.outcome)
    reason = f"{cell.venues.hardware}; {cell.venues.emulator}"
    return _record(run, cell, Verdict.UNAVAILABLE, reason, evidence, built=built)


def evaluated(run: str, cell: Cell, built: Built, result: Result) -> Record:
    """A cell that ran; what is missing is why it has not been measured."""
    assert isinstance(built.outcome, Artifact)
    evidence, missing = _built_evidence(built.outcome), ""
    if result.verdict is Verdict.PASSED and isinstance(cell.venues.hardware, Missing):
        evidence, missing = Evidence.EMULATED, str(cell.venues.hardware)
    elif result.verdict is Verdict.PASSED and result.samples is None:
        evidence, missing = Evidence.VERIFIED, "it could not be timed"
    elif result.verdict is Verdict.PASSED:
        evidence = Evidence.MEASURED
    return _record(
        run,
        cell,
        result.verdict,
        result.detail,
        evidence,
        built=built,
        result=result,
        missing=missing,
    )


def _record(
    run: str,
    cell: Cell,
    verdict: Verdict,
    detail: str,
    evidence: Evidence,
    *,
    built: Built | None = None,
    result: Result | None = None,
    missing: str = "",
) -> Record:
    venue, candidate, dims = cell.venues.best, cell.candidate, cell.workload.dims
    own = result.samples if result else None
    baselines = result.baselines if result and own else {}
    measured = statistics.summarize(own.rounds, own.method, own.conditions) if own else None
    first_line = detail.partition("\n")[0]
    return Record(
        run=run,
        id=secrets.token_hex(8),
        key=cell.key,
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        op=cell.op.name,
        workload=_workload_ref(cell.workload_set, cell.workload, cell.dtype),
        backend=cell.backend.name,
        language=cell.language,
        target=cell.target.name,
        venue=str(venue) if result and isinstance(venue, Venue) else "",
        source_hash=candidate.digest if candidate else "",
        author=candidate.author if candidate else "",
        parents=list(candidate.parents) if candidate else [],
        verdict=verdict,
        detail=detail,
        evidence=evidence,
        missing="" if evidence is Evidence.MEASURED else missing or first_line,
        errors=result.errors if result else None,
        precision=cell.op.precision,
        timing=measured,
        baselines={name: statistics.summarize(b.rounds, b.method) for name, b in baselines.items()},
        speedup={
            name: statistics.speedup(own.values, b.values) for name, b in baselines.items() if own
        },
        roofline=statistics.roofline(
            cell.target,
            nbytes=cell.op.nbytes(dims, cell.dtype),
            flops=cell.op.flops(dims),
            dtype=cell.dtype,
            median_us=measured.median_us if measured else None,
        ),
        resources=_resources(cell.target, built),
        guard=[str(hit) for hit in cell.hits],
        findings=list(result.findings) if result else [],
        launches=list(result.launches) if result else [],
        environment=_environment(cell, ran=built is not None),
        seconds=_seconds(built, result),
    )


def _built_evidence(artifact: Artifact) -> Evidence:
    return Evidence.NONE if artifact.kind in SOURCE_KINDS else Evidence.BUILT


def _workload_ref(which: str, workload: Workload, dtype: str) -> WorkloadRef:
    return WorkloadRef(
        set=which,
        name=workload.name,
        dims=dict(workload.dims),
        dtype=dtype,
        scalars=dict(workload.scalars),
    )


def _resources(target: Target, built: Built | None) -> list[BuildResources]:
    if built is None or isinstance(built.outcome, Failure):
        return []
    return [
        BuildResources(**asdict(used), occupancy=_occupancy(target, used))
        for used in built.outcome.resources
    ]


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


def _environment(cell: Cell, *, ran: bool) -> Environment:
    venue = cell.venues.best
    ready = cell.ready
    gpu = host.gpu_for(cell.target)
    return Environment(
        machine=host.machine(),
        device=venue.name if isinstance(venue, Venue) else "",
        driver=gpu.driver if gpu else "",
        toolchain=dict(ready.toolchain) if isinstance(ready, Ready) else {},
        harness_version=version("portkern"),
        containment=str(session.layers()) if ran else "",
    )


def _seconds(built: Built | None, result: Result | None) -> dict[str, float]:
    seconds = {"build": round(built.seconds, 3)} if built and built.seconds else {}
    return seconds | {k: round(v, 3) for k, v in (result.seconds if result else {}).items()}
