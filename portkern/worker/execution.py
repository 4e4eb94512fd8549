"""Runs a process in the SIMT executor, inside the jail: in a copy of a folder, so that it can write
there, and nothing of that stays."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from portkern.sandbox.session import TEXT_LENGTH
from portkern.sandbox.shared_memory import SharedMemoryView
from portkern.worker.protocol import RECORD, Execute, Executed

if TYPE_CHECKING:
    from portkern.simt.execute.program import ProgramOutcome

#: Characters of a process's output that are kept: its beginning.
MOST_OUTPUT = 1 << 22
#: A folder of more than these bytes or entries is not copied: it can be read then, not written to.
MOST_COPIED, MOST_ENTRIES = 64 << 20, 10_000
#: What a recording may take beside the contents of buffers, and what counts of coverage may take.
MOST_LINES, MOST_COUNTS = 64 << 20, 16 << 20


def run(asked: Execute, memory: SharedMemoryView) -> Executed:
    with tempfile.TemporaryDirectory(prefix="files-") as place:
        outcome = _run(asked, Path(place))
        files = _files(asked, Path(place))
    memory.write_bytes(b"".join(files.values()))
    output = outcome.output[:MOST_OUTPUT]
    pieces = range(0, len(output), TEXT_LENGTH)
    return Executed(
        outcome.status,
        tuple(output[begin : begin + TEXT_LENGTH] for begin in pieces),
        outcome.findings,
        tuple((name, len(content)) for name, content in files.items()),
    )


def _run(asked: Execute, place: Path) -> ProgramOutcome:
    from portkern.simt.execute import options, program
    from portkern.spec import target

    how = options.ExecutorOptions(
        order=asked.order,
        seed=asked.seed,
        record=place / RECORD if asked.record_bytes else None,
        record_bytes=asked.record_bytes,
        launches=asked.launches,
    )
    counts = {"GCOV_PREFIX": str(place / "counts"), "GCOV_PREFIX_STRIP": "99"}
    with _writable(Path(asked.cwd)) as folder:
        return program.run_command(
            asked.argv,
            how.checked(frozenset(asked.checkers)) if asked.checkers else how,
            target=target.load(asked.target),
            language=asked.language,
            warp=asked.warp or None,
            timeout_s=asked.timeout_s,
            cwd=folder,
            environment=counts if asked.coverage else {},
        )


def _files(asked: Execute, place: Path) -> Mapping[str, bytes]:
    """What was asked for and is there; a file that is too long is cut off."""
    files = {}
    if asked.record_bytes and (record := place / RECORD).is_file():
        with record.open("rb") as file:
            files[RECORD] = file.read(asked.record_bytes + MOST_LINES)
    for path in sorted((place / "counts").glob("*.gcda")):
        with path.open("rb") as file:
            files[path.name] = file.read(MOST_COUNTS)
    return files


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
