"""Sources into artifacts, in workers, by way of the cache."""

from __future__ import annotations

import io
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from portkern import registry
from portkern.backend import Artifact, Build
from portkern.cache import ArtifactCache, build_key
from portkern.record import Verdict
from portkern.sandbox import Answer, Died, Failed, Session, TimedOut
from portkern.worker import build_to_json

LOG_LINES = 12


@dataclass(frozen=True)
class Limits:
    """Seconds after which a worker is killed."""

    build_s: float = 180.0
    load_s: float = 120.0
    run_s: float = 120.0


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
                    backend.preload, dict(environment), reads=shared(request),
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
    failure = failure_of(outcome, "the build")
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


def shared(request: Build) -> tuple[Path, ...]:
    return tuple(registry.load(request.candidate.backend).prepare(request))


def failure_of(outcome: Failed | Died | TimedOut, stage: str) -> Failure:
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
