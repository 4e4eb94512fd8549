"""A process in the SIMT executor and in the jail: it reads some folders, and writes to one of its
own that goes with it."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from portkern.errors import ConfigError, WorkerError
from portkern.sandbox import session
from portkern.sandbox.environment import inherited
from portkern.sandbox.session import Answered, Died, Session, TimedOut
from portkern.simt.diagnostics import Diagnostic
from portkern.simt.execute.program import ProgramOutcome
from portkern.worker.protocol import Execute

#: What a worker may take to begin and to end beside the process's own time.
_MARGIN_S = 60.0
#: A folder that only root may read is copied for the jail, up to this.
_MOST_COPIED = 256 << 20


def run(asked: Execute, reads: Sequence[Path]) -> ProgramOutcome:
    """Raises WorkerError where this machine cannot contain it."""
    try:
        with Session((), inherited(), reads=tuple(dict.fromkeys(reads))) as worker:
            outcome = worker.ask(asked, timeout_s=asked.timeout_s + _MARGIN_S)
    finally:
        session.close_servers()
    if isinstance(outcome, Answered):
        reply = outcome.reply
        return ProgramOutcome(reply.status, "".join(reply.output), reply.findings, ())
    if isinstance(outcome, TimedOut):
        late = Diagnostic("SX405", f"the program ran longer than {asked.timeout_s:g} s")
        return ProgramOutcome(None, outcome.log, (late,), ())
    if isinstance(outcome, Died):
        return ProgramOutcome(outcome.status, outcome.log, (), ())
    raise WorkerError(f"The program could not be run in the jail: {outcome}")


@contextmanager
def readable(folder: Path) -> Iterator[Path]:
    """The folder, or a copy where it is root's alone: in the jail, root's processes are nobody's.
    Raises ConfigError for one too large to copy."""
    if os.getuid() != 0 or _open_to_all(folder):
        yield folder
        return
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if size > _MOST_COPIED:
        raise ConfigError(
            f"{folder} is root's alone and has {size >> 20} MiB: the jail cannot read it, and at "
            f"most {_MOST_COPIED >> 20} are copied; chmod -R o+rX {folder}"
        )
    with tempfile.TemporaryDirectory(prefix="portkern-run-") as place:
        Path(place).chmod(0o755)
        copy = Path(shutil.copytree(folder, Path(place) / folder.name))
        for path in (copy, *copy.rglob("*")):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))
        yield copy


def _open_to_all(folder: Path) -> bool:
    wanted = stat.S_IROTH | stat.S_IXOTH
    return folder.stat().st_mode & wanted == wanted
