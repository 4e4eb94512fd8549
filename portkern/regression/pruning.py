"""Which runs of a folder may go: their references are kept, so that no later night needs them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock, Timeout

from portkern.errors import ConfigError, RecordError, StorageError
from portkern.regression import past, reference_file, standing
from portkern.regression.decisions import NightDecisions
from portkern.regression.reference_file import ReferenceOrigin
from portkern.regression.runs import RecordedRun, RunFacts, newest_first

#: Newest runs that always stay, whatever is asked for: trends and the newest green one need some.
LEAST = 2


def superfluous(reports: Path, keep: int) -> list[RecordedRun]:
    """The runs that may go: all but the newest ``keep``, those that people promoted, tagged or
    decided something of, and the newest green one; the oldest first. Only of runs that
    references were learnt from: others say something that is nowhere else. Raises RecordError
    and ConfigError."""
    runs = newest_first(reports)
    origin = _newest_origin(reports, runs)
    decisions = NightDecisions.read(reports)
    needed = {run.name for run in runs[: max(keep, LEAST)]} | {*standing.promoted(reports)}
    needed |= {entry.since for entry in decisions.accepted}
    needed |= {one.name for one in [one for one in origin.runs if one.green][-1:]}
    learnt = {one.name: one.stamp for one in origin.runs}
    return [
        run
        for run in runs[::-1]
        if run.name not in needed
        and learnt.get(run.name) == past.stamp_of(run)  # as it was when it was learnt from
        and not RunFacts.read(run.folder).tags
    ]


def delete(runs: Sequence[RecordedRun]) -> None:
    """Deletes runs, each whole or not at all: a folder is renamed before it goes. Raises
    StorageError, and ConfigError where a command writes to one."""
    for run in runs:
        aside = run.folder.with_name(f".{run.name}.{os.getpid()}.pruned")
        try:
            with FileLock(run.folder / ".lock").acquire(timeout=0):
                run.folder.rename(aside)
            shutil.rmtree(aside)
        except Timeout:
            raise ConfigError(f"Another portkern is writing to {run.folder}; wait") from None
        except OSError as error:
            raise StorageError.of(error, run.folder) from error


def _newest_origin(reports: Path, runs: Sequence[RecordedRun]) -> ReferenceOrigin:
    """The origin of the newest run whose file of references can be read; without any nothing is
    learnt."""
    for run in runs:
        path = reference_file.path_of(reports, run.name)
        try:
            if path.exists():
                return reference_file.origin(path)
        except RecordError:
            continue
    return ReferenceOrigin(runs=())
