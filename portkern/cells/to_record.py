"""How a cell ended, as a record: from its build and its result to verdict and evidence."""

from __future__ import annotations

from importlib.metadata import version
from typing import TypedDict

from portkern.cells.selection import SelectedCell
from portkern.evaluator import statistics
from portkern.evaluator.build import Built, Failure
from portkern.evaluator.result import Result
from portkern.records.answer import CellAnswer, CellQuestion
from portkern.records.record import (
    RACES_NOT_LOOKED_FOR,
    Environment,
    Evidence,
    Finding,
    Record,
    Roofline,
    Verdict,
)
from portkern.sandbox import session
from portkern.spec.backend import SOURCE_KINDS, Artifact, Missing, Ready, Venue
from portkern.toolchain import host, machine_code
from portkern.toolchain.run_tool import package_version

RACES = "races"


class _Code(TypedDict, total=False):
    """The fields of an :class:`CellAnswer` on the compiled code."""

    code: str
    code_bytes: int | None


def unbuilt(run: str, cell: SelectedCell) -> Record:
    """A cell whose verdict needs no build."""
    assert cell.ruled_out is not None
    return _without_build(run, cell, *cell.ruled_out)


def unroutable(run: str, cell: SelectedCell, reason: str) -> Record:
    """A cell that no machine of those that were asked has answered."""
    return _without_build(run, cell, Verdict.UNAVAILABLE, reason)


def _without_build(run: str, cell: SelectedCell, verdict: Verdict, reason: str) -> Record:
    answer = CellAnswer(
        verdict,
        reason,
        Evidence.NONE,
        environment_of(cell, ran=False),
        roofline=_roofline(cell, median_us=None),
    )
    return answer.record(run, _question(cell))


def unrun(run: str, cell: SelectedCell, built: Built) -> Record:
    """A cell that ended with its build: it failed, or there is nowhere to run it."""
    if isinstance(built.outcome, Failure):
        verdict, detail, evidence = built.outcome.verdict, str(built.outcome), Evidence.NONE
    else:
        verdict, evidence = Verdict.UNAVAILABLE, _built_evidence(built.outcome)
        detail = cell.venues.reasons
    answer = CellAnswer(
        verdict,
        detail,
        evidence,
        environment_of(cell, ran=True),
        roofline=_roofline(cell, median_us=None),
        resources=built.outcome.resources if isinstance(built.outcome, Artifact) else (),
        seconds=_build_seconds(built),
        **_code(built),
    )
    return answer.record(run, _question(cell))


def evaluated(run: str, cell: SelectedCell, built: Built, result: Result) -> Record:
    """A cell that ran."""
    assert isinstance(built.outcome, Artifact)
    evidence, missing = _evidence(cell, built.outcome, result)
    samples, venue = result.samples, cell.venues.best
    baselines = result.baselines if samples else {}
    timing, speedup = None, {}
    if samples:
        timing = statistics.summarize(samples.rounds, samples.method, samples.conditions)
        speedup = {
            name: statistics.speedup_of_rounds(samples.rounds, its.rounds, its.again)
            for name, its in baselines.items()
        }
        told = ((n, statistics.modes(its.rounds, its.again)) for n, its in baselines.items())
        of_modes = "; ".join(f"{name} {mode}" for name, mode in told if mode)
        doubtful = samples.unsure or of_modes or statistics.noisy(timing, speedup)
        timing = timing.model_copy(update={"noisy": doubtful})
    answer = CellAnswer(
        result.verdict,
        result.detail,
        evidence,
        environment_of(cell, ran=True),
        missing=missing,
        venue=str(venue) if isinstance(venue, Venue) else "",
        errors=result.errors,
        timing=timing,
        baselines={name: statistics.summarize(b.rounds, b.method) for name, b in baselines.items()},
        speedup=speedup,
        roofline=_roofline(cell, median_us=timing.median_us if timing else None),
        resources=built.outcome.resources,
        findings=(*result.findings, *_not_looked_for(cell, evidence)),
        launches=result.launches,
        seconds=_build_seconds(built) | dict(result.seconds),
        **_code(built, result.code),
    )
    return answer.record(run, _question(cell))


def _question(cell: SelectedCell) -> CellQuestion:
    return CellQuestion(
        cell.key,
        cell.op,
        cell.workload_set,
        cell.workload,
        cell.dtype,
        cell.backend.name,
        cell.language,
        cell.target,
        cell.candidate,
        tuple(map(str, cell.hits)),
        cell.asked,
    )


def _evidence(cell: SelectedCell, artifact: Artifact, result: Result) -> tuple[Evidence, str]:
    """How much is known of the cell, and why it has not been measured; the latter is empty for a
    cell that did not pass, whose detail says it."""
    if result.verdict is not Verdict.PASSED:
        return _built_evidence(artifact), ""
    if isinstance(cell.venues.hardware, Missing):
        venue = cell.venues.best
        executed = isinstance(venue, Venue) and venue.kind == "object"
        rung = Evidence.EXECUTED if executed else Evidence.EMULATED
        return rung, str(cell.venues.hardware)
    if result.samples is None:
        return Evidence.VERIFIED, result.untimed
    return Evidence.MEASURED, ""


def _not_looked_for(cell: SelectedCell, evidence: Evidence) -> list[Finding]:
    """An executor runs threads in some order: a right answer of one says nothing of races."""
    venue, unseen = cell.venues.best, (Evidence.EMULATED, Evidence.EXECUTED)
    if evidence not in unseen or not isinstance(venue, Venue) or RACES in venue.sanitize:
        return []
    known = cell.backend.object_checkers if venue.kind == "object" else cell.backend.checkers
    able = RACES in known
    remedy = f"sanitize={RACES} looks for them" if able else f"{venue.name} has no check for them"
    message = f"races: not looked for; {remedy}"
    return [Finding(code=RACES_NOT_LOOKED_FOR, severity="note", message=message)]


def _built_evidence(artifact: Artifact) -> Evidence:
    return Evidence.NONE if artifact.kind in SOURCE_KINDS else Evidence.BUILT


def _roofline(cell: SelectedCell, *, median_us: float | None) -> Roofline:
    dims = cell.workload.dims
    return statistics.roofline(
        cell.target,
        nbytes=cell.op.nbytes(dims, cell.dtype),
        flops=cell.op.flops(dims),
        dtype=cell.dtype,
        median_us=median_us,
    )


def environment_of(cell: SelectedCell, *, ran: bool) -> Environment:
    """The environment in which a cell runs now."""
    venue = cell.venues.best
    ready = cell.ready
    gpu = host.gpu_for(cell.target)
    return Environment(
        machine=host.machine(),
        device=venue.name if isinstance(venue, Venue) else "",
        driver=gpu.driver if gpu else "",
        toolchain=_tools(ready, beside_eager=ran and isinstance(cell.venues.hardware, Venue)),
        harness_version=version("portkern"),
        containment=str(session.layers()) if ran else "",
    )


def _tools(ready: Ready | Missing, *, beside_eager: bool) -> dict[str, str]:
    """The tools that build a kernel, and torch, whose eager kernels it is timed beside."""
    tools = dict(ready.toolchain) if isinstance(ready, Ready) else {}
    torch = package_version("torch") if beside_eager else None
    return ({"torch": torch} if torch else {}) | tools


def _code(built: Built, loaded: machine_code.MachineCode | None = None) -> _Code:
    """The machine code of the build as it is kept, else as the build told it, else of what was
    compiled as it was loaded."""
    found = loaded
    if isinstance(made := built.outcome, Artifact):
        told = machine_code.MachineCode(made.code, made.code_bytes) if made.code else loaded
        found = machine_code.of(made.path) or told
    return _Code(code=found.digest, code_bytes=found.size) if found else _Code()


def _build_seconds(built: Built) -> dict[str, float]:
    """Empty when it came from the cache."""
    return {"build": built.seconds} if built.seconds else {}
