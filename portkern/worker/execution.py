"""Runs a process in the SIMT executor, inside the jail: in a copy of a folder, so that it can write
there, and nothing of that stays."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from portkern.sandbox.session import TEXT_LENGTH
from portkern.worker.protocol import Execute, Executed

#: Characters of a process's output that are kept: its beginning.
MOST_OUTPUT = 1 << 22
#: A folder of more than these bytes or entries is not copied: it can be read then, not written to.
MOST_COPIED, MOST_ENTRIES = 64 << 20, 10_000


def run(asked: Execute) -> Executed:
    from portkern.simt.execute import options, program
    from portkern.spec import target

    plain = options.ExecutorOptions()
    with _writable(Path(asked.cwd)) as folder:
        outcome = program.run_command(
            asked.argv,
            plain.checked(frozenset(asked.checkers)) if asked.checkers else plain,
            target=target.load(asked.target),
            language=asked.language,
            timeout_s=asked.timeout_s,
            cwd=folder,
        )
    output = outcome.output[:MOST_OUTPUT]
    pieces = range(0, len(output), TEXT_LENGTH)
    return Executed(
        outcome.status,
        tuple(output[begin : begin + TEXT_LENGTH] for begin in pieces),
        outcome.findings,
    )


@contextmanager
def _writable(folder: Path) -> Iterator[Path]:
    if not _is_small(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="run-") as place:
        copy = Path(place) / (folder.name or "folder")
        try:
            shutil.copytree(folder, copy, symlinks=True)
        except shutil.Error:
            pass  # of single files that are no files or may not be read: the rest is there
        yield copy


def _is_small(folder: Path) -> bool:
    size = 0
    for number, path in enumerate(folder.rglob("*")):
        size += path.lstat().st_size
        if size > MOST_COPIED or number > MOST_ENTRIES:
            return False
    return True
