"""A donor that another run found: the best verified kernel in its folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from portkern.agent import outcome
from portkern.agent.attempt import Attempt
from portkern.agent.log import FILE, Log
from portkern.agent.task import Task
from portkern.errors import ConfigError
from portkern.formats.exported import NoSuchForm
from portkern.formats.inlined import inlined
from portkern.spec import own_headers, registry
from portkern.spec.candidate import Candidate


def is_run(donor: str) -> bool:
    """Whether a folder is meant: no backend's name has a slash."""
    return "/" in donor


def of_run(donor: str, task: Task) -> Candidate:
    """The best kernel of a run, whose author is the run and the attempt. Raises ConfigError, and
    RecordError for a damaged file."""
    folder = Path(donor)
    log = Log.read(folder / FILE)
    ops = sorted({attempt.op for attempt in log})
    if not ops:
        what = f"a folder without {FILE}" if folder.is_dir() else "which is not a folder"
        raise _wrong(donor, what, "the folder of a run of portkern generate, such as reports/RUN")
    if ops != [task.op.name]:
        raise _wrong(donor, f"a run of {' '.join(ops)}", f"one of {task.op.name}")
    best = _best(folder, log)
    if best is None:
        raise _wrong(donor, "a run without a verified kernel", "a run that has one")
    here = (task.backend.name, task.language, task.target.name)
    if (best.backend, best.language, best.target) == here:
        what = f"a run for {best.target} in {best.language} too, of which nothing is to translate"
        raise _wrong(donor, what, "a run for another backend, language or target")
    return Candidate(
        best.op,
        best.backend,
        best.language,
        best.source,
        entry=best.op,
        author=f"{folder.resolve().name} {best.id}",
        style=registry.load(best.backend).style,
    )


def whole(kernel: Candidate) -> Candidate:
    """The kernel with the text of portkern's headers in place of their includes, where it has such:
    a Python source has modules, which have no such form."""
    if not own_headers.taken(kernel.source):
        return kernel
    try:
        return replace(kernel, source=inlined(kernel))
    except NoSuchForm:
        return kernel


def _best(folder: Path, log: Log) -> Attempt | None:
    """The best attempt as the summary of the run names it; where there is no summary yet, the
    fastest so far."""
    if not (folder / outcome.FILE).exists():
        return next(iter(log.best()), None)
    named = outcome.read(folder).get("best") or ""
    return next(iter(log.some([named])), None)


def _wrong(donor: str, what: str, expected: str) -> ConfigError:
    return ConfigError(
        f"Got proposer.donor={donor}, {what}; expected {expected}. Name another run, or take "
        "proposer.donor=catalogue"
    )
