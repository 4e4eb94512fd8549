"""Builds and judges kernels: every exit is a :class:`Result`, none is an exception.

All kernels of one op and dtype are judged together, each in a worker of its own: they see the
same fresh inputs, and are timed in turns with the baseline on the same device.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from portkern import check, inputs, race, registry, sandbox, timing
from portkern.arena import Arena, Slot
from portkern.backend import Artifact, Build, Venue
from portkern.cache import ArtifactCache, build_key
from portkern.op import Op, Workload
from portkern.record import Errors, Finding, Verdict
from portkern.sandbox import Answer, Died, Failed, Outcome, Session, TimedOut
from portkern.worker import build_to_json

LOG_LINES = 12


@dataclass(frozen=True)
class Limits:
    """Seconds after which a worker is killed."""

    build_s: float = 180.0
    load_s: float = 120.0
    run_s: float = 120.0


@dataclass(frozen=True)
class Options:
    """``baselines``: ``eager`` and ``compile`` (torch.compile of the reference)."""

    limits: Limits = field(default_factory=Limits)
    plan: timing.Plan = field(default_factory=timing.Plan)
    baselines: tuple[str, ...] = ("eager",)
    distributions: tuple[str, ...] = tuple(inputs.DISTRIBUTIONS)


@dataclass(frozen=True)
class Failure:
    """Why a kernel got no further, in one line; ``log`` holds the tool's or the worker's words."""

    verdict: Verdict
    detail: str
    log: str = ""

    def __str__(self) -> str:
        kept = self.log.strip().splitlines()[:LOG_LINES]
        return "\n".join([self.detail, *kept])


@dataclass(frozen=True)
class Built:
    """The artifact or why there is none; ``seconds`` is 0 when it came from the cache."""

    request: Build
    outcome: Artifact | Failure
    seconds: float = 0.0


@dataclass(frozen=True)
class Contestant:
    """A built kernel and where it runs."""

    request: Build
    artifact: Artifact
    venue: Venue

    @property
    def preload(self) -> tuple[str, ...]:
        return registry.load(self.request.candidate.backend).preload


@dataclass(frozen=True)
class Samples:
    """Microseconds per call and how they were taken."""

    values: tuple[float, ...]
    method: str


@dataclass(frozen=True)
class Result:
    """One contestant on one workload. ``samples`` are there when it passed on hardware."""

    verdict: Verdict
    detail: str = ""
    errors: Errors | None = None
    samples: Samples | None = None
    baselines: Mapping[str, Samples] = field(default_factory=dict)
    seconds: float = 0.0
    findings: tuple[Finding, ...] = ()


def build_all(
    requests: Sequence[Build], toolchains: Sequence[Mapping[str, str]], *, limits: Limits,
    cache: ArtifactCache,
) -> list[Built]:  # fmt: skip
    """Build one candidate for several targets, in one worker for each environment they need."""
    keys = [_key(r, t) for r, t in zip(requests, toolchains, strict=True)]
    built: list[Built] = []
    sessions: dict[tuple[tuple[str, str], ...], Session] = {}  # by environment
    try:
        for request, key in zip(requests, keys, strict=True):
            hit = cache.get(key)
            if hit is not None:
                built.append(Built(request, hit))
                continue
            backend = registry.load(request.candidate.backend)
            environment = tuple(backend.environment(request.target).items())
            session = sessions.get(environment)
            if session is None or not session.alive:
                if session is not None:
                    session.close()
                session = sessions[environment] = Session(
                    backend.preload, dict(environment), reads=_shared(request),
                    device=request.runnable and request.target.is_gpu,
                )  # fmt: skip
            built.append(_build_one(session, request, key, limits, cache))
    finally:
        for session in sessions.values():
            session.close()
    return built


def _key(request: Build, toolchain: Mapping[str, str]) -> str:
    backend = registry.load(request.candidate.backend)
    return build_key(request, backend.builds_for(request.target), toolchain)


def _build_one(
    session: Session, request: Build, key: str, limits: Limits, cache: ArtifactCache
) -> Built:
    outcome = session.ask("build", timeout_s=limits.build_s, request=build_to_json(request))
    if isinstance(outcome, Answer):
        try:
            return _unpacked(session, request, outcome.data, key, cache)
        except (
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            OSError,
            tarfile.TarError,
        ) as error:
            detail = f"the build's files cannot be read: {error}"
            return Built(request, Failure(Verdict.BUILD_FAILED, detail, session.log()))
    failure = _failure(outcome, "the build")
    if failure.verdict is Verdict.CRASHED:
        failure = replace(failure, verdict=Verdict.BUILD_FAILED)
    return Built(request, failure)


def _unpacked(
    session: Session, request: Build, told: Mapping[str, Any], key: str, cache: ArtifactCache
) -> Built:
    """Into the cache with what the worker packed: files and folders, none outside of its own."""
    packed = session.arena.bytes(int(told["bytes"]))
    if packed is None:
        raise ValueError(f"{told['bytes']} bytes are not there")
    workdir = cache.workdir()
    try:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(workdir, filter="data")
        relative = Path(str(told["artifact"]["path"]))
        path = (workdir / relative).resolve()
        if not path.is_relative_to(workdir.resolve()) or not path.exists():
            raise ValueError(f"no file {relative} among them")
        artifact = Artifact.from_json({**told["artifact"], "path": str(workdir / relative)})
        return Built(request, cache.put(key, workdir, artifact), float(told["seconds"]))
    except BaseException:
        shutil.rmtree(workdir, ignore_errors=True)
        raise


def _shared(request: Build) -> tuple[Path, ...]:
    return tuple(registry.load(request.candidate.backend).prepare(request))


def _failure(outcome: Failed | Died | TimedOut, stage: str) -> Failure:
    if isinstance(outcome, TimedOut):
        detail = f"{stage} took longer than {outcome.limit_s:g} s"
        return Failure(Verdict.TIMED_OUT, detail, outcome.log)
    if isinstance(outcome, Died):
        return Failure(Verdict.CRASHED, f"{stage} was {outcome}", outcome.log)
    if outcome.error in ("BackendUnavailable", "JailError"):
        return Failure(Verdict.UNAVAILABLE, outcome.message)
    if outcome.error == "LaunchTimeout":
        return Failure(Verdict.TIMED_OUT, outcome.message)
    if outcome.error in ("BuildError", "LaunchError"):
        return Failure(Verdict.CRASHED, outcome.message, outcome.log)
    last = outcome.log.strip().splitlines()[-LOG_LINES:]
    detail = f"{stage} raised {outcome.error}: {outcome.message.partition(chr(10))[0]}"
    return Failure(Verdict.CRASHED, detail, "\n".join(last))


@dataclass(frozen=True)
class Slots:
    """Where one call's tensors lie in the arena: ``after`` are the inputs once it is over,
    ``fences`` the bytes around the outputs, which were ``margins`` before."""

    inputs: list[Slot]
    outputs: list[Slot]
    results: list[Slot]
    after: list[Slot]
    fences: list[Slot]
    margins: list[Any]


class Trial:
    """The workers of all contestants for one op and dtype, and of the baselines they are timed
    against. A worker that died is started again for the next workload."""

    def __init__(
        self, op: Op, dtype: str, contestants: Sequence[Contestant], options: Options
    ) -> None:
        self.op, self.dtype, self.options = op, dtype, options
        self.contestants = list(contestants)
        self._pool = ThreadPoolExecutor(min(len(self.contestants) or 1, os.cpu_count() or 1))
        self._sessions: dict[int, Session] = {}
        self._methods: dict[int, str] = {}
        self._baselines: dict[tuple[str, str], tuple[Session, str] | Failure] = {}

    def __enter__(self) -> Trial:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._pool.shutdown()
        opened = [b[0] for b in self._baselines.values() if not isinstance(b, Failure)]
        for session in (*self._sessions.values(), *opened):
            session.close()

    def run(self, workload: Workload) -> list[Result]:
        """Judge every contestant on ``workload``; the timed part has the machine for itself."""
        results: dict[int, Result] = {}
        standing = list(range(len(self.contestants)))
        case = None
        for distribution in inputs.choose(self.op, workload, self.options.distributions):
            case = check.make_case(self.op, workload, self.dtype, distribution)
            _ = case.budgets  # once, before the threads below share it
            judge = partial(self._judge, workload=workload, case=case)
            judged = self._pool.map(judge, standing, [results.get(i) for i in standing])
            results |= dict(zip(standing, judged, strict=True))
            standing = [i for i in standing if results[i].verdict is Verdict.PASSED]
        assert case is not None
        for device in {self._device(i) for i in standing} - {""}:
            racing = [i for i in standing if self._device(i) == device]
            self._race(racing, device, workload, case, results)
        return [results[index] for index in range(len(self.contestants))]

    def _device(self, index: int) -> str:
        """The torch device of this contestant's baseline; empty when it is only emulated."""
        venue = self.contestants[index].venue
        return "" if venue.kind == "emulator" else venue.baseline or venue.device

    def _judge(
        self, index: int, before: Result | None, *, workload: Workload, case: check.Case
    ) -> Result:
        """One call on fresh inputs, and on the base distribution a second with equal ones."""
        session = self._open(index)
        if isinstance(session, Failure):
            return Result(session.verdict, str(session))
        result, first = self._judge_call(session, before, workload, case)
        if result.verdict is not Verdict.PASSED or case.distribution != inputs.BASE:
            return result
        result, second = self._judge_call(session, result, workload, case)
        if result.verdict is not Verdict.PASSED:
            return replace(result, detail=f"in a second call with equal inputs: {result.detail}")
        found = check.repeated(first=first, second=second, case=case, precision=self.op.precision)
        if found.spread is None:
            return result
        message = found.problem or f"two calls with equal inputs differ by up to {found.spread:.2g}"
        note = Finding(code="nondeterministic", severity="note", message=message)
        verdict = Verdict.WRONG if found.problem else Verdict.PASSED
        return replace(
            result, verdict=verdict, detail=found.problem, findings=(*result.findings, note)
        )

    def _judge_call(
        self, session: Session, before: Result | None, workload: Workload, case: check.Case
    ) -> tuple[Result, list[Any]]:
        """The verdict on one call and its outputs; errors are the worst of this and the calls
        before."""
        seconds = before.seconds if before else 0.0
        outcome, slots = self._ask_run(session, workload, case)
        if not isinstance(outcome, Answer):
            failure = _failure(outcome, "the kernel")
            return Result(failure.verdict, str(failure), seconds=seconds), []
        seconds += float(outcome.data.get("seconds", 0.0))
        findings = _findings(outcome.data, before.findings if before else ())
        actual = _collect(self.op, session.arena, slots, outcome.data)
        problem = actual if isinstance(actual, str) else ""
        problem = problem or _trespass(self.op, session.arena, slots)
        changed = _changed_input(self.op, session.arena, slots, case)
        if changed and not problem:
            problem = f"the kernel changed its input {changed!r}"
        if problem or isinstance(actual, str):
            return Result(Verdict.WRONG, problem, seconds=seconds, findings=findings), []
        compared = check.compare(actual=actual, case=case, precision=self.op.precision)
        errors = _worst(before.errors if before else None, compared)
        defects = [str(one) for one in findings if one.severity == "error"]
        problem = compared.problem or "\n".join(defects)
        verdict = Verdict.WRONG if problem else Verdict.PASSED
        return Result(verdict, problem, errors, seconds=seconds, findings=findings), actual

    def _open(self, index: int) -> Session | Failure:
        session = self._sessions.get(index)
        if session is not None and session.alive:
            return session
        if session is not None:
            session.close()
        contestant = self.contestants[index]
        request, folder = contestant.request, contestant.artifact.path.parent
        session = Session(
            contestant.preload, contestant.venue.environment, reads=[*_shared(request), folder],
            device=contestant.venue.kind == "hardware" and request.target.is_gpu,
        )  # fmt: skip
        self._sessions[index] = session
        outcome = session.ask(
            "load", timeout_s=self.options.limits.load_s,
            request=build_to_json(request), artifact=contestant.artifact.to_json(),
            venue=asdict(contestant.venue),
        )  # fmt: skip
        if isinstance(outcome, Answer):
            self._methods[index] = str(outcome.data["method"])
            return session
        if session.alive:
            session.close()
        return _failure(outcome, "loading the kernel")

    def _ask_run(
        self, session: Session, workload: Workload, case: check.Case
    ) -> tuple[Outcome, Slots]:
        signature, arena = self.op.signature, session.arena
        arena.clear()
        wanted = [
            (spec.sizes(workload.dims), spec.resolve(self.dtype)) for spec in signature.outputs
        ]
        blocks = [check.fenced(*form) for form in wanted]
        margins = [check.margins(block) for block in blocks]
        slots = Slots(
            [arena.put(tensor) for tensor in case.inputs], [arena.put(b) for b in blocks],
            [arena.put(check.poison(*form)) for form in wanted],
            [arena.put(t) for t in case.inputs], [arena.put(m) for m in margins], margins,
        )  # fmt: skip
        outcome = session.ask(
            "run", timeout_s=self.options.limits.run_s, inputs=slots.inputs, outputs=slots.outputs,
            results=slots.results, after=slots.after, fences=slots.fences,
            dims=dict(workload.dims), scalars=signature.scalar_values(workload.scalars),
        )  # fmt: skip
        return outcome, slots

    def _race(
        self, racing: Sequence[int], device: str, workload: Workload, case: check.Case,
        results: dict[int, Result],
    ) -> None:  # fmt: skip
        """Time the standing contestants and the baselines of one device in turns."""
        runners: dict[race.Key, Session] = {i: self._sessions[i] for i in racing}
        methods: dict[race.Key, str] = {i: self._methods[i] for i in racing}
        for name in self.options.baselines:
            opened = self._baseline(name, device)
            if not isinstance(opened, Failure):
                runners[name], methods[name] = opened
        targets = {index: self.contestants[index].request.target for index in racing}
        run = race.Race(
            self.op, workload, self.dtype, case.inputs, self.options.plan,
            self.options.limits.run_s, targets,
        )  # fmt: skip
        run.run(runners, trusted="eager")
        samples = {key: Samples(tuple(v), methods[key]) for key, v in run.samples().items()}
        baselines = {name: one for name, one in samples.items() if isinstance(name, str)}
        for index in racing:
            before = results[index]
            if index in run.lost:
                failure = _loss(run.lost[index])
                results[index] = replace(before, verdict=failure.verdict, detail=str(failure))
            else:
                results[index] = replace(before, samples=samples[index], baselines=baselines)

    def _baseline(self, name: str, device: str) -> tuple[Session, str] | Failure:
        known = self._baselines.get((name, device))
        if known is not None and (isinstance(known, Failure) or known[0].alive):
            return known
        if known is not None:
            known[0].close()
        session = Session(("torch",), {})
        outcome = session.ask(
            "reference", timeout_s=self.options.limits.load_s, source=self.op.reference_source,
            device=device, compiled=name == "compile",
        )  # fmt: skip
        if isinstance(outcome, Answer):
            opened: tuple[Session, str] | Failure = (session, str(outcome.data["method"]))
        else:
            session.close()
            opened = _failure(outcome, f"the {name} baseline")
        self._baselines[name, device] = opened
        return opened


def _loss(loss: race.Loss) -> Failure:
    if isinstance(loss, race.Doubt):
        return Failure(Verdict.WRONG if loss.wrong else Verdict.SUSPICIOUS, loss.reason)
    return _failure(loss, "the timed kernel")


def _collect(op: Op, arena: Arena, slots: Slots, claimed: Mapping[str, Any]) -> list[Any] | str:
    """The output tensors, or what is wrong with their form."""
    described = claimed.get("outputs")
    if not isinstance(described, list) or len(described) != len(op.signature.outputs):
        return f"the kernel returned {described} outputs, expected {len(op.signature.outputs)}"
    for spec, claim, slot in zip(op.signature.outputs, described, slots.results, strict=True):
        got = {key: claim.get(key) if isinstance(claim, dict) else None for key in _FORM}
        if got != {key: slot[key] for key in _FORM}:
            return (
                f"output {spec.name!r} is {got['dtype']}{got['shape']}, "
                f"expected {slot['dtype']}{slot['shape']}"
            )
        odd = _oddity(op, claim)
        if odd:
            return f"output {spec.name!r} {odd}"
    return [arena.take(slot) for slot in slots.results]


_FORM = ("shape", "dtype")


def _oddity(op: Op, claim: Mapping[str, Any]) -> str:
    """What is wrong with where an output of the right shape and dtype lies."""
    if "type" in claim:
        return f"is a {claim['type']}, expected a torch.Tensor"
    if "device" in claim:
        return f"is on {claim['device']}, expected the device of the inputs"
    if "input" in claim:
        names = [spec.name for spec in op.signature.inputs]
        which = names[claim["input"]] if claim["input"] in range(len(names)) else "?"
        return f"lies in the memory of the input {which!r}, expected a tensor of its own"
    if "strides" in claim:
        return f"has the strides {claim['strides']}, expected it contiguous"
    return ""


def _trespass(op: Op, arena: Arena, slots: Slots) -> str:
    """What was written around the outputs; '' when nothing was."""
    for spec, slot, margins in zip(op.signature.outputs, slots.fences, slots.margins, strict=True):
        written = arena.take(slot) != margins
        before, behind = (int(side.sum()) for side in written.chunk(2))
        if before or behind:
            return (
                f"the kernel wrote outside of its output {spec.name!r}: "
                f"{before} bytes before it and {behind} behind it"
            )
    return ""


def _changed_input(op: Op, arena: Arena, slots: Slots, case: check.Case) -> str:
    """The name of the first input whose bytes differ after the call; '' when none does."""
    import torch

    for spec, tensor, slot in zip(op.signature.inputs, case.inputs, slots.after, strict=True):
        before = tensor.contiguous().reshape(-1).view(torch.uint8)
        if not torch.equal(arena.take(slot).reshape(-1).view(torch.uint8), before):
            return spec.name
    return ""


def _findings(claimed: Mapping[str, Any], before: Sequence[Finding]) -> tuple[Finding, ...]:
    """Those of the calls before and this one's, each code and place once."""
    known = {(one.code, one.place, one.also): one for one in before}
    for said in claimed.get("findings", []):
        one = Finding.model_validate({k: said[k] for k in Finding.model_fields if k in said})
        known.setdefault((one.code, one.place, one.also), one)
    return tuple(known.values())


def _worst(before: Errors | None, now: check.Comparison) -> Errors:
    names = ("max_abs", "max_rel", "vs_fp64", "reference_vs_fp64")
    return Errors(**{
        name: max(getattr(now, name), getattr(before, name) if before else 0.0) for name in names
    })  # fmt: skip


def close() -> None:
    """End the fork servers; call once the last trial is over."""
    sandbox.close_servers()
