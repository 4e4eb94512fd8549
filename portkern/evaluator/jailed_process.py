"""Processes in the SIMT executor and in the jail: they read some folders, and write to one of their
own that goes with them."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from portkern.errors import ConfigError, WorkerError
from portkern.sandbox import session
from portkern.sandbox.environment import inherited
from portkern.sandbox.message import Failed
from portkern.sandbox.session import COMPILING, Answered, Died, Session, TimedOut
from portkern.simt.diagnostics import Diagnostic
from portkern.simt.execute.program import ProgramOutcome
from portkern.worker.protocol import Execute, Executed

#: What a worker may take to begin and to end beside the process's own time.
_MARGIN_S = 60.0
#: A folder that only root may read is copied for the jail, up to this.
_MOST_COPIED = 256 << 20


@dataclass(frozen=True)
class JailedOutcome:
    """``files``: what the request asked for beside, by name; what a process in the jail wrote."""

    program: ProgramOutcome
    files: Mapping[str, bytes] = field(default_factory=dict)


class JailedProcesses:
    """One worker that runs a process after the other; a new one where the last has died. Raises
    WorkerError where this machine cannot contain it."""

    def __init__(self, reads: Sequence[Path]) -> None:
        self._reads = tuple(dict.fromkeys(reads))
        self._worker: Session | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def begin(self) -> Session:
        """The worker, which gets ready while the caller does something else."""
        if self._worker is None or not self._worker.alive:
            self.close()
            self._worker = Session(COMPILING, inherited(), reads=self._reads, programs=True)
        return self._worker

    def run(self, asked: Execute) -> JailedOutcome:
        worker = self.begin()
        outcome = worker.ask(asked, timeout_s=asked.timeout_s + _MARGIN_S)
        if isinstance(outcome, Answered):
            reply = outcome.reply
            ended = ProgramOutcome(reply.status, "".join(reply.output), reply.findings, ())
            return JailedOutcome(ended, self._files(worker, reply))
        if isinstance(outcome, TimedOut):
            late = Diagnostic("SX405", f"the program ran longer than {asked.timeout_s:g} s")
            return JailedOutcome(ProgramOutcome(None, outcome.log, (late,), ()))
        if isinstance(outcome, Died):
            return JailedOutcome(ProgramOutcome(outcome.status, outcome.log, (), ()))
        said = f"{outcome.error}: {outcome.message}" if isinstance(outcome, Failed) else outcome
        raise WorkerError(f"The program could not be run in the jail: {said}")

    def _files(self, worker: Session, reply: Executed) -> Mapping[str, bytes]:
        """The files that the worker left, as far as they are there as it says."""
        files, offset = {}, 0
        for name, size in reply.files:
            content = worker.memory.bytes(size, offset)
            if content is None:
                break
            files[name] = content
            offset += size
        return files


@contextmanager
def of_command(reads: Sequence[Path]) -> Iterator[JailedProcesses]:
    """The processes of a command that has no others."""
    with session.servers_of_own(), JailedProcesses(reads) as processes:
        yield processes


def run(asked: Execute, reads: Sequence[Path]) -> ProgramOutcome:
    """The only process of this command. Raises WorkerError where this machine cannot contain it."""
    with of_command(reads) as processes:
        return processes.run(asked).program


@contextmanager
def readable(folder: Path) -> Iterator[Path]:
    """The folder, or a copy where it or a file in it is root's alone: in the jail, root's processes
    are nobody's. Links in it stay links. Raises ConfigError for one too large to copy."""
    if os.getuid() != 0 or (_is_open(folder) and all(map(_is_open, _files(folder)))):
        yield folder
        return
    size = sum(path.stat().st_size for path in _files(folder, "**/*"))
    if size > _MOST_COPIED:
        if _is_open(folder):
            yield folder
            return
        raise ConfigError(
            f"{folder} is root's alone and has {size >> 20} MiB: the jail cannot read it, and at "
            f"most {_MOST_COPIED >> 20} are copied; chmod -R o+rX {folder}"
        )
    with tempfile.TemporaryDirectory(prefix="portkern-run-") as place:
        Path(place).chmod(0o755)
        copy = Path(place) / (folder.name or "root")
        with suppress(shutil.Error):  # of pipes and devices; the rest is there
            shutil.copytree(folder, copy, symlinks=True)
        for path in (copy, *copy.rglob("*")):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))
        yield copy


@contextmanager
def shown(place: Path) -> Iterator[Path]:
    """A context in which workers can read a folder, as in :func:`readable`, or a single file."""
    if os.getuid() != 0 or not place.exists():
        yield place
    elif place.is_dir():
        with readable(place) as seen:
            yield seen
    elif _is_open(place):
        yield place
    else:
        with tempfile.TemporaryDirectory(prefix="portkern-run-") as folder:
            Path(folder).chmod(0o755)
            copy = Path(shutil.copyfile(place, Path(folder) / place.name))
            copy.chmod(0o644)
            yield copy


def _is_open(path: Path) -> bool:
    wanted = stat.S_IROTH | (stat.S_IXOTH if path.is_dir() else 0)
    return path.stat().st_mode & wanted == wanted


def _files(folder: Path, pattern: str = "*") -> Iterator[Path]:
    return (path for path in folder.glob(pattern) if path.is_file() and not path.is_symlink())
