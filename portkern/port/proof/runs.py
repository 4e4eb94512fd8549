"""Builds programs for the SIMT executor and runs them in the jail, recording what launches did."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from portkern.errors import BackendUnavailable, BuildError
from portkern.evaluator import object_program
from portkern.evaluator.jailed_compilers import JailedCompilers
from portkern.evaluator.jailed_process import JailedProcesses, readable
from portkern.port.proof.outcome import ProofLimits, ProofSource
from portkern.port.proof.recording import LaunchRecord, read
from portkern.simt.diagnostics import Diagnostic
from portkern.simt.execute import runtime_library
from portkern.simt.execute.compile_options import CompileOptions, UnmodelledSource
from portkern.simt.execute.options import Mode, Order
from portkern.simt.execute.program import ProgramOutcome
from portkern.simt.execute.ring import Ring
from portkern.spec.target import Target
from portkern.worker.protocol import RECORD, Execute

#: What is asked of an original and its port where there is a checked build.
CHECKERS = ("arithmetic", "bounds", "races", "uninitialised")
_COMPILERS_AT_ONCE = 2
#: A program that never ends is waited for so many times its limit at most.
_MOST_CROWDED = 8.0


@dataclass(frozen=True)
class ProgramNotBuilt:
    """``unmodelled``: what the executor has no model of, where that is why."""

    reason: str
    unmodelled: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True)
class Program:
    """``notes`` is where the compiler's notes for coverage lie; ``object`` its code as it is
    compiled for the target, where that is executed."""

    path: Path
    source: ProofSource
    target: Target
    mode: Mode
    object: Path | None = None

    @property
    def notes(self) -> Path:
        return self.path.parent


@dataclass(frozen=True)
class ProgramRun:
    """``counts`` are the files of GCC's coverage, by the name that their notes have."""

    outcome: ProgramOutcome
    launches: tuple[LaunchRecord, ...]
    counts: Mapping[str, bytes]
    seconds: float = 0.0

    @property
    def is_late(self) -> bool:
        return self.outcome.status is None


@dataclass(frozen=True)
class Wanted:
    """A program to build; ``executed``: as it is compiled for the target."""

    source: ProofSource
    target: Target
    mode: Mode
    name: str
    executed: bool = False


class Runs:
    """Programs in a folder of their own, run in one jail. ``data`` is the folder that they find
    themselves in, a copy of which they may write to; ``compilers`` see the workdir."""

    #: Whether findings and recordings go through handles, which processes that a script starts
    #: do not have.
    seals = True

    def __init__(
        self, workdir: Path, data: Path, limits: ProofLimits, compilers: JailedCompilers
    ) -> None:
        self._limits = limits
        self._folder = workdir
        self._built: dict[tuple[Wanted, bytes], Program | ProgramNotBuilt] = {}
        self._copies = ExitStack()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o755)  # in the jail, root's processes are nobody's
        self._data = self._copies.enter_context(readable(data))
        self._reads = [self._folder, runtime_library.ready().folder, self._data]
        if limits.objects:
            self._reads += object_program.reads()
        if limits.ring:
            with suppress(BackendUnavailable):  # which each build says
                self._reads.append(runtime_library.ready("ring").folder)
        self._processes = JailedProcesses(self._reads)
        self.compilers = compilers

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._processes.close()
        self._copies.close()

    def build_all(self, wanted: Sequence[Wanted]) -> list[Program | ProgramNotBuilt]:
        """Builds programs, each once, whoever asks, as long as its file is the same."""
        keys = [(item, item.source.path.read_bytes()) for item in wanted]
        new = list(dict.fromkeys(key for key in keys if key not in self._built))
        with ThreadPoolExecutor(_COMPILERS_AT_ONCE) as pool:
            made = pool.map(self._build, [item for item, _ in new])
            self._built.update(zip(new, made, strict=True))
        return [self._built[key] for key in keys]

    @property
    def programs(self) -> list[Path]:
        """The programs whose own processes execute kernels, without those that count coverage,
        which the compiler puts functions of its own into."""
        built = (made for made in self._built.values() if isinstance(made, Program))
        return [p.path for p in built if p.object is None and p.mode != "cover"]

    def _build(self, wanted: Wanted) -> Program | ProgramNotBuilt:
        source = wanted.source
        kind = "object" if wanted.executed else wanted.mode
        folder = self._folder / f"{wanted.name}-{wanted.target.arch}-{kind}"
        folder.mkdir(exist_ok=True)
        options = CompileOptions(
            target=wanted.target,
            language=source.language,
            mode=wanted.mode,
            defines=source.defines,
            search=source.include,
            timeout_s=self._limits.build_s,
            statements=not wanted.executed and wanted.mode != "cover",
        )
        out = folder / source.path.stem
        try:
            if wanted.executed:
                path, object_ = object_program.build(
                    self.compilers, source.path, out, options, further=source.further
                )
                object_.chmod(0o644)
                return Program(path, source, wanted.target, wanted.mode, object_)
            path = self.compilers.program(source.path, out, options, further=source.further)
        except BackendUnavailable as error:
            return ProgramNotBuilt(str(error))
        except UnmodelledSource as error:
            return ProgramNotBuilt(str(error.diagnostics[0]), error.diagnostics)
        except BuildError as error:
            return ProgramNotBuilt(first_error(error, source.path.name))
        return Program(path, source, wanted.target, wanted.mode)

    def run(
        self,
        program: Program,
        *,
        order: Order = "forward",
        seed: int = 1,
        arguments: Sequence[str] | None = None,
        record: bool = True,
        launches: int = 0,
        ring: Ring | None = None,
    ) -> ProgramRun:
        """Runs a program and records it. A checked build that is run without ``record`` has all
        checkers and is recorded all the same; others are not recorded then. Only the first
        ``launches`` are made, if that is not 0. ``ring`` is for a program that is built so."""
        checked = program.mode == "check" and not record
        notes = program.notes.rglob("*.gcno") if program.mode == "cover" else ()
        counted = sorted({f"{path.stem}.gcda" for path in notes})
        limit_s = self._limits.run_s * crowding()
        asked = Execute(
            self._argv(program, arguments, limit_s),
            str(self._place(program)),
            str(program.target),
            program.source.language,
            CHECKERS if checked else (),
            limit_s,
            order=order,
            seed=seed,
            record_bytes=self._limits.record_bytes if record or checked else 0,
            counts=tuple(counted),
            launches=launches,
            apart=program.object is not None,
            sealed=self.seals and program.object is None,
            ring=str(ring or ""),
        )
        begin = time.monotonic()
        ended = self._processes.run(asked)
        seconds = time.monotonic() - begin
        counts = {name: data for name, data in ended.files.items() if name != RECORD}
        return ProgramRun(ended.program, read(ended.files.get(RECORD, b"")), counts, seconds)

    def _argv(
        self, program: Program, arguments: Sequence[str] | None, limit_s: float
    ) -> tuple[str, ...]:
        argv: tuple[str, ...] = (str(program.path),)
        if program.object is not None:
            argv = object_program.command(
                program.path,
                program.object,
                program.target,
                ("lds",),
                limit_s=limit_s,
                record_bytes=self._limits.record_bytes,
            )
        return (*argv, *(self._limits.arguments if arguments is None else arguments))

    def _place(self, program: Program) -> Path:
        """The folder that it finds itself in a copy of."""
        return self._data


def crowding() -> float:
    """How many processes wait for each processor: a limit that is meant for a processor's time is
    so much longer by the clock."""
    waiting = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    return min(max(waiting, 1.0), _MOST_CROWDED)


def first_error(error: BuildError, name: str) -> str:
    """The first, and from where in the source of that name a header was asked for it."""
    lines = [line.strip() for line in error.log.splitlines()]
    first = next((line for line in lines if "error" in line.lower()), str(error))[:300]
    asked = (line for line in lines if f"{name}:" in line and "required from" in line)
    place = next(asked, "").partition(":   ")[0]
    return f"{place}: {first}" if place and name not in first else first
