"""Sources into artifacts, in workers, by way of the cache."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from signal import SIGKILL

from portkern.errors import StorageError, WorkerError
from portkern.evaluator import host_shortage
from portkern.evaluator.artifact_cache import ArtifactCache, build_key
from portkern.records.record import Verdict
from portkern.sandbox import session as sandbox
from portkern.sandbox.session import (
    Answered,
    Died,
    Lost,
    Session,
    TimedOut,
    Unconfined,
    Unreadable,
)
from portkern.spec.backend import Artifact, Backend, Build, Missing
from portkern.spec.candidate import Candidate
from portkern.spec.launch_plan import BINARIES, PLAN
from portkern.spec.target import Target
from portkern.toolchain.compiler_log import first_error, renamed
from portkern.worker import protocol

LOG_LINES = 12
#: What one build may leave: a compiler's intermediate files come to a few megabytes.
MOST_BYTES, MOST_FILES, MOST_FOLDERS = 512 << 20, 10_000, 32
#: A harness that says it ended something for its time has waited for a second at least.
LEAST_TIMEOUT_S = 1.0
#: How a build ends when its tools find no processes or memory, and seconds until it is tried again.
_OF_TOOLS = (Verdict.BUILD_FAILED, Verdict.CRASHED, Verdict.TIMED_OUT)
SHORTAGE_PAUSE_S = 1.0
#: What a program prints when an allocation fails in C++.
_BAD_ALLOC = "std::bad_alloc"
#: A file cannot be written whatever is in it: a full disk or quota, one that is read-only or
#: broken, a limit on the size of files.
_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG}


@dataclass(frozen=True)
class StageLimits:
    """Seconds after which a worker is killed."""

    build_s: float = 180.0
    load_s: float = 120.0
    run_s: float = 120.0


@dataclass(frozen=True)
class Failure:
    """Why a kernel got no further, in one line; ``log`` holds the tool's or the worker's words.

    ``harness``: the kernel had no part in it, and may be asked again.
    """

    verdict: Verdict
    detail: str
    log: str = ""
    harness: bool = False

    def __str__(self) -> str:
        kept = self.log.strip("\n").rstrip().splitlines()[:LOG_LINES]
        return "\n".join([self.detail, *kept])


@dataclass(frozen=True)
class BuildRequest:
    """A build and the backend that does it. Workers are sent the build alone; they are processes
    of their own, and look the backend up by its name."""

    backend: Backend
    build: Build

    def __post_init__(self) -> None:
        if self.build.candidate.backend != self.backend.name:
            raise ValueError(
                f"A build of {self.build.candidate.backend} is not a request to {self.backend.name}"
            )

    @property
    def candidate(self) -> Candidate:
        return self.build.candidate

    @property
    def target(self) -> Target:
        return self.build.target

    def reads(self) -> tuple[Path, ...]:
        """Files and folders that its worker needs, once they are there."""
        return tuple(self.backend.prepare(self.build))


@dataclass(frozen=True)
class Built:
    """The artifact or why there is none; ``seconds`` is 0 when it came from the cache."""

    request: BuildRequest
    outcome: Artifact | Failure
    seconds: float = 0.0


def build_all(
    requests: Sequence[BuildRequest],
    toolchains: Sequence[Mapping[str, str]],
    *,
    limits: StageLimits,
    cache: ArtifactCache,
) -> list[Built]:
    """Build one candidate for several targets, in one worker for each environment they need."""
    keys = [_key(r, t) for r, t in zip(requests, toolchains, strict=True)]
    # First what is waited for first: who imports torch keeps others from running for 0.3 s.
    unbuilt = [r for r, key in zip(requests, keys, strict=True) if cache.get(key) is None]
    for preload in {r.backend.builds_with(r.build.candidate) for r in unbuilt}:
        sandbox.server(preload).begin()
    loaded = [
        request
        for request in requests
        if request.build.runnable or request.build.emulated or request.build.executed
    ]  # when they are built
    for preload in {request.backend.preload for request in loaded}:
        sandbox.warm(preload)
    with _Builders(limits, cache) as builders:
        built = [builders.build(r, key) for r, key in zip(requests, keys, strict=True)]
        return [_again_if_short(builders, b, key) for b, key in zip(built, keys, strict=True)]


def _again_if_short(builders: _Builders, built: Built, key: str) -> Built:
    """Once more when a tool could not be started, or had no memory; where the machine is short of
    these even so, this is not a verdict on the source."""
    failure = built.outcome
    if not isinstance(failure, Failure) or failure.verdict not in _OF_TOOLS:
        return built
    if not host_shortage.is_said(f"{failure.detail}\n{failure.log}") and not host_shortage.seen():
        return built
    time.sleep(SHORTAGE_PAUSE_S)
    again = builders.build(built.request, key)
    if isinstance(again.outcome, Failure) and again.outcome.verdict in _OF_TOOLS:
        why = host_shortage.seen()
        if why:
            return replace(again, outcome=Failure(Verdict.UNAVAILABLE, why, harness=True))
    return again


def _key(request: BuildRequest, toolchain: Mapping[str, str]) -> str:
    backend = request.backend
    return build_key(request.build, backend.builds_for(request.target), toolchain)


#: What is said when a tool was killed: by run_tool of one that it had started, or of a shell's; by
#: g++, its linker's collect2, clang, nvcc and Triton of a program of theirs, whose version Triton
#: had asked for as well.
_SHOT = (
    "failed with status -9",
    "failed with status 137",
    "Killed signal terminated program",
    "terminated with signal 9",
    "unable to execute command: Killed",
    "died due to signal 9",
    "failed with error code -9",
    "Cannot find ptxas",
)


def tool_was_killed(detail: str, log: str) -> bool:
    """Whether a build failed since somebody killed a tool, by whom the tool cannot know."""
    return any(words in detail or words in log for words in _SHOT)


def _killed(outcome: object) -> bool:
    """Whether a worker was killed for another reason than its memory: nobody can tell by whom,
    so no toolchain has rejected anything."""
    return isinstance(outcome, Died) and outcome.status == -SIGKILL and outcome.cause != "memory"


def explained(failure: Failure, candidate: Candidate) -> Failure:
    """A rejected source: the first error in it comes first, under the name of the author's file."""
    failure = replace(failure, verdict=Verdict.BUILD_FAILED)
    own = {candidate.op, candidate.entry, "SOURCE"}  # the last is what OpenCL's programs are called
    author, _, file = candidate.author.partition(":")
    name = file if author == "file" else ""
    error = first_error(failure.detail, failure.log, own=own, name=name)
    if error is None:
        return replace(failure, detail=renamed([failure.detail], own, name))
    return replace(failure, detail=error.headline, log=error.rest)


class _Builders:
    """The workers that build, one for each environment."""

    def __init__(self, limits: StageLimits, cache: ArtifactCache) -> None:
        self._limits, self._cache = limits, cache
        self._sessions: dict[tuple[tuple[str, str], ...], Session] = {}

    def __enter__(self) -> _Builders:
        return self

    def __exit__(self, *_: object) -> None:
        for session in self._sessions.values():
            session.close()

    def build(self, request: BuildRequest, key: str) -> Built:
        hit = self._cache.get(key)
        if hit is not None:
            return Built(request, hit)
        able = request.backend.builds(request.build)
        if isinstance(able, Missing):
            return Built(request, Failure(Verdict.UNAVAILABLE, str(able)))
        try:
            built = self._build(request, key)
            if isinstance(built.outcome, Failure) and built.outcome.harness:
                built = self._build(request, key)
        except (WorkerError, StorageError) as error:
            return Built(request, Failure(Verdict.UNAVAILABLE, str(error)))
        return built

    def _build(self, request: BuildRequest, key: str) -> Built:
        session = self._open(request)
        asked = protocol.BuildKernel(protocol.anonymous(request.build))
        outcome = session.ask(asked, timeout_s=self._limits.build_s)
        if isinstance(outcome, Answered):
            try:
                return _unpacked(session, request, outcome.reply, key, self._cache)
            except ValueError as error:
                detail = f"the build's files cannot be read: {error}"
                return Built(request, Failure(Verdict.BUILD_FAILED, detail, session.log()))
        untouched = not request.backend.runs_at_build(request.candidate)
        failure = failure_of(outcome, "the build", untouched=untouched)
        if tool_was_killed(failure.detail, failure.log):
            return Built(request, replace(failure, harness=True))
        if failure.verdict is Verdict.CRASHED and not _killed(outcome):
            failure = explained(failure, request.candidate)
        return Built(request, failure)

    def _open(self, request: BuildRequest) -> Session:
        backend = request.backend
        environment = tuple(backend.environment(request.target).items())
        session = self._sessions.get(environment)
        if session is not None and session.alive:
            return session
        if session is not None:
            session.close()
        opened = self._sessions[environment] = Session(
            backend.builds_with(request.candidate),
            dict(environment),
            reads=request.reads(),
            device=request.build.runnable and request.target.is_gpu,
        )
        return opened


def _unpacked(
    session: Session,
    request: BuildRequest,
    made: protocol.BuiltFiles,
    key: str,
    cache: ArtifactCache,
) -> Built:
    """Puts the files that the worker lists into the cache; their bytes follow each other in the
    shared memory. A module's text has to be what was asked for, and is all that is kept: whatever
    lies beside it may have been left there by the module. So may a plan, which is read as a
    stranger's (:mod:`portkern.spec.launch_plan`). Raises ValueError for a list that no
    build leaves."""
    files = dict(listed(made.files))
    size = sum(files.values())
    packed = session.memory.bytes(size) if size <= MOST_BYTES else None
    if packed is None:
        raise ValueError(f"{size} bytes are not there")
    if str(made.artifact.path) not in files:
        raise ValueError("its artifact is not among them")
    module = str(made.artifact.path) if made.artifact.path.suffix == ".py" else ""
    kept_files = {*files} if not module else {module}
    if request.build.ahead:
        kept_files = {name for name in files if name == PLAN or name.startswith(f"{BINARIES}/")}
        if str(made.artifact.path) not in kept_files:
            raise ValueError(f"{made.artifact.path} is not a plan")
    elif not module and request.backend.runs_at_build(request.candidate):
        raise ValueError(f"{made.artifact.path} is not a module")
    try:
        with cache.workdir() as workdir:
            offset = 0
            for name, length in files.items():
                content = packed[offset : offset + length]
                offset += length
                if name not in kept_files:
                    continue
                if module and bytes(content) != request.candidate.source.encode():
                    raise ValueError(f"{name} is no longer the source that was to be built")
                file = workdir / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
            kept = replace(made.artifact, path=workdir / made.artifact.path)
            return Built(request, cache.put(key, workdir, kept), made.seconds)
    except OSError as error:
        if error.errno in _MACHINE:
            raise StorageError.of(error, cache.folder) from error
        raise ValueError(str(error)) from error  # a name that is too long, say


def listed(files: Sequence[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Names and sizes; names are of files beneath a folder, however they are spelt."""
    if len(files) > MOST_FILES:
        raise ValueError(f"expected a list of at most {MOST_FILES} files")
    for name, size in files:
        path = PurePosixPath(name)
        if size < 0:
            raise ValueError(f"{name[:100]!r} has the size {size}")
        if path.is_absolute() or ".." in path.parts or not 0 < len(path.parts) <= MOST_FOLDERS:
            raise ValueError(f"{name[:100]!r} is not a file of the build's folder")
        yield str(path), size


def failure_of(outcome: Lost, stage: str, *, untouched: bool = False) -> Failure:
    """``untouched``: no code of the candidate can have run in its worker. Only then the worker's
    word for what went wrong may excuse the candidate: afterwards it may be the candidate's own, and
    so may the class of what was raised."""
    if isinstance(outcome, Unconfined):
        return Failure(Verdict.UNAVAILABLE, str(outcome), outcome.log)
    if isinstance(outcome, TimedOut):
        detail = f"{stage} took longer than {outcome.limit_s:g} s"
        return Failure(Verdict.TIMED_OUT, detail, outcome.log)
    if isinstance(outcome, Died):
        detail, harness = f"{stage} was {outcome}", outcome.cause == "harness"
        if _BAD_ALLOC in outcome.log:
            detail += " when there was no memory left for it"
        return Failure(Verdict.CRASHED, detail, outcome.log, harness)
    if isinstance(outcome, Unreadable):
        detail = f"{stage.removeprefix('loading ')}'s worker {outcome}"
        return Failure(Verdict.CRASHED, detail, outcome.log)
    if untouched and outcome.error == "BackendUnavailable":
        return Failure(Verdict.UNAVAILABLE, outcome.message)
    late = outcome.error in ("LaunchTimeout", "BuildTimeout")
    if late and outcome.after_s >= LEAST_TIMEOUT_S:
        return Failure(Verdict.TIMED_OUT, outcome.message)
    if outcome.error == "NeedsHardware":
        # It excuses nobody: what is unavailable is evidence of nothing.
        return Failure(Verdict.UNAVAILABLE, outcome.message)
    if outcome.error in ("BuildError", "LaunchError"):
        return Failure(Verdict.CRASHED, outcome.message, outcome.log)
    last = outcome.log.strip().splitlines()[-LOG_LINES:]
    detail = f"{stage} raised {outcome.error}: {outcome.message.partition(chr(10))[0]}"
    if outcome.error == "MemoryError":
        detail = f"{stage} ran out of memory: MemoryError"
    return Failure(Verdict.CRASHED, detail, "\n".join(last))
