"""The workers that a trial keeps: one for each contestant, and those of the baselines."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from portkern.errors import StorageError, WorkerError
from portkern.evaluator import attribution, code_pages, standstill
from portkern.evaluator.build import BuildRequest, Failure, StageLimits, explained, failure_of
from portkern.guard import TorchOps
from portkern.records.record import Verdict
from portkern.sandbox.message import Failed, Request, brief
from portkern.sandbox.session import Answered, Session
from portkern.spec.backend import Artifact, Missing, Venue
from portkern.spec.op import Op
from portkern.toolchain.machine_code import MachineCode
from portkern.worker import protocol

#: Calls of a kernel that is emulated: as many as timed rounds have elsewhere.
LATER = 200
#: The baseline that times are checked by, asked for or not.
TRUSTED = "eager"


@dataclass(frozen=True)
class Baseline:
    """Somebody else's way to an op's answer: ``source`` defines ``run``, which takes the inputs,
    then the scalars by name. ``reads``: folders that it needs."""

    source: str
    reads: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Contestant:
    """A built kernel and where it runs. ``torch_ops``: whether a library may do the work."""

    request: BuildRequest
    artifact: Artifact
    venue: Venue
    torch_ops: TorchOps = "forbid"

    @property
    def preload(self) -> tuple[str, ...]:
        return self.request.backend.preload

    @property
    def work(self) -> attribution.AttributedKernel:
        return attribution.AttributedKernel(
            self.request.candidate,
            self.artifact.resources,
            self.torch_ops,
            gpu=self.request.target.is_gpu,
            untimed=self.venue.kind != "hardware",
        )

    @property
    def device(self) -> str:
        """The torch device of its baseline; empty where nothing is timed."""
        return "" if self.venue.kind != "hardware" else self.venue.baseline or self.venue.device


@dataclass
class Opened:
    """A worker that has loaded its kernel, and what it said of it.
    ``seconds``: what that took, empty once it was told. ``code``: the libraries that were there
    before the kernel, and ``faults`` the signals of a bad access that were handled then, see
    :mod:`portkern.evaluator.code_pages`. ``later``: calls beyond those that are always made, which
    an emulator is still asked for."""

    session: Session
    loaded: protocol.Loaded
    seconds: Mapping[str, float]
    code: Mapping[str, code_pages.MappedCode]
    faults: frozenset[str]
    later: int = 0

    @property
    def method(self) -> str:
        """How it takes times, in its own words."""
        return brief(self.loaded.method)


class Workers:
    """Contestants are known by their number, baselines by their name and torch device. Who has
    ended is opened anew when asked for. Thread-safe for different ones."""

    def __init__(
        self,
        op: Op,
        contestants: Sequence[Contestant],
        limits: StageLimits,
        others: Mapping[str, Baseline] | None = None,
    ) -> None:
        self.op, self.limits, self._others = op, limits, others or {}
        self.contestants = list(contestants)
        self._opened: dict[int, Opened] = {}
        self._baselines: dict[tuple[str, str], Opened | Failure] = {}
        self._failed_ahead: dict[int, Failure] = {}  # by index, until open() is asked for it
        self._at_rest: list[int] = []
        self._rejected: dict[int, Failure] = {}  # by a compiler that works where it is loaded

    def open(self, index: int) -> Opened | Failure:
        if index in self._failed_ahead:
            return self._failed_ahead.pop(index)
        if index in self._rejected:
            return self._rejected[index]
        known = self._opened.get(index)
        if known is not None and known.session.alive:
            return known
        if known is not None:
            known.session.close()
        contestant = self.contestants[index]
        request, folder = contestant.request, contestant.artifact.path.parent
        able = request.backend.runs(contestant.artifact, contestant.venue)
        if isinstance(able, Missing):
            return Failure(Verdict.UNAVAILABLE, str(able))
        try:
            session = Session(
                contestant.preload,
                contestant.venue.environment,
                reads=[*request.reads(), folder],
                device=contestant.venue.kind == "hardware" and request.target.is_gpu,
            )
        except (WorkerError, StorageError) as error:
            return Failure(Verdict.UNAVAILABLE, str(error))
        asked = protocol.Load(
            protocol.anonymous(request.build), contestant.artifact, contestant.venue
        )
        opened = self._load(session, "loading the kernel", asked)
        if isinstance(opened, Opened):
            opened.later = 0 if contestant.venue.kind == "hardware" else LATER
            self._opened[index] = opened
        elif opened.verdict is Verdict.BUILD_FAILED:
            opened = self._rejected[index] = explained(opened, request.candidate)
        return opened

    def opened(self, index: int) -> Opened:
        """The last that was opened, alive or not: another one can say nothing of what it did."""
        return self._opened[index]

    def _load(
        self, session: Session, stage: str, asked: Request[protocol.Loaded]
    ) -> Opened | Failure:
        """Loads the kernel into its worker, which is closed when that fails. A BuildError is a
        compiler's, or the candidate's word for its own bad end."""
        kernel = isinstance(asked, protocol.Load)  # nobody asks what a baseline has changed
        code = code_pages.written(session.pid) if kernel else {}
        faults = code_pages.handled_faults(session.pid) if kernel else frozenset()
        start = time.perf_counter()
        outcome = session.ask(asked, timeout_s=self.limits.load_s)
        if isinstance(outcome, Answered):
            seconds = {"load": time.perf_counter() - start}
            return Opened(session, outcome.reply, seconds, code, faults)
        session.close()
        failure = failure_of(outcome, stage)
        if isinstance(outcome, Failed) and outcome.error == "BuildError":
            return replace(failure, verdict=Verdict.BUILD_FAILED)
        return failure

    def code(self, index: int) -> MachineCode | None:
        """The machine code of a kernel that was compiled as it was loaded; None before that, and
        where the artifact has it."""
        loaded = self._opened[index].loaded if index in self._opened else None
        return MachineCode(loaded.code, loaded.code_bytes) if loaded and loaded.code else None

    def open_ahead(
        self, asked: Iterable[int], pool: Executor, *, at_rest: bool = False
    ) -> list[Future[None]]:
        """Opens workers ahead of time: :meth:`open` has its answers once the futures returned
        are done. ``at_rest``: workers that have loaded their kernels stand still until
        :meth:`go_on`."""

        def open_worker(index: int) -> None:
            opened = self.open(index)
            if isinstance(opened, Failure):
                self._failed_ahead[index] = opened
            elif at_rest:
                self._stop(index, opened.session)

        return [pool.submit(open_worker, index) for index in asked]

    def _stop(self, index: int, session: Session) -> None:
        """One that cannot be stopped is closed, and opened anew when it is asked for."""
        if standstill.stop(session.pid):
            self._at_rest.append(index)
        else:
            session.close()

    def forget(self) -> None:
        """Has all workers give back what they keep for timing. One that does not answer loses
        nothing now."""
        for session in self._sessions():
            if session.alive:
                session.ask(protocol.Forget(), timeout_s=self.limits.run_s)

    def rest(self) -> None:
        """Contestants that are open stand still until :meth:`go_on`."""
        for index, opened in self._opened.items():
            if opened.session.alive and index not in self._at_rest:
                self._stop(index, opened.session)

    def go_on(self) -> None:
        while self._at_rest:
            session = self._opened[self._at_rest.pop()].session
            if session.alive:
                standstill.go_on(session.pid)

    def close(self, index: int) -> None:
        if index in self._opened:
            self._opened[index].session.close()

    def baseline(self, name: str, device: str) -> Opened | Failure:
        known = self._baselines.get((name, device))
        if isinstance(known, Failure) or (known is not None and known.session.alive):
            return known
        if known is not None:
            known.session.close()
        baseline = self._others.get(name, Baseline(self.op.baseline_source))
        try:
            session = Session(("torch",), {}, reads=baseline.reads, device=device != "cpu")
        except (WorkerError, StorageError) as error:
            return Failure(Verdict.UNAVAILABLE, str(error))
        asked = protocol.Reference(
            baseline.source, device, compiled=name == "compile", precision=self.op.precision
        )
        opened = self._load(session, f"the {name} baseline", asked)
        self._baselines[name, device] = opened
        return opened

    def close_baseline(self, name: str, device: str) -> None:
        """The next that is asked for is another process."""
        known = self._baselines.get((name, device))
        if isinstance(known, Opened):
            known.session.close()

    def close_all(self) -> None:
        """Closes all workers at the same time, as a GPU's context takes 0.1 s to be gone."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(Session.close, self._sessions()))

    def _sessions(self) -> list[Session]:
        """The sessions of all workers that were opened, alive or not."""
        opened = [*self._opened.values(), *self._baselines.values()]
        return [worker.session for worker in opened if isinstance(worker, Opened)]
