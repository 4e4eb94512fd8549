"""A red cell of a run as what ``portkern bisect`` is asked: its kernel, and the commits of the run
that was good last and of the one in which it is bad."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from portkern.cli.config import quoted
from portkern.cli.verbs import regressions
from portkern.errors import ConfigError, RecordError
from portkern.printable import printable
from portkern.project.project import is_file
from portkern.records.record import Record, RecordFile
from portkern.regression import document
from portkern.regression.cell_change import CellChange
from portkern.regression.runs import RECORDS, RunFacts
from portkern.regression.series import Series

#: Options that say which of the red cells is meant, and what they are of a cell.
NAMED = {
    "op": "op",
    "backend": "backend",
    "target": "target",
    "workloads": "workload_set",
    "dtypes": "dtype",
}
_FILE = "file:"


@dataclass(frozen=True)
class RedCell:
    """``words`` are those for ``portkern check``."""

    change: CellChange
    good: str
    bad: str
    words: Sequence[str]


def find(run: str, reports: Path, named: Sequence[str]) -> RedCell:
    """The worst of the run's red cells that the options ``named`` fit. Raises ConfigError where
    there is none, or the commits are not known."""
    folder = regressions.folder(run, reports)
    changes = document.read(folder)
    if changes is None:
        raise ConfigError(f"{run} was compared with no run; give matrix or report a baseline=")
    wanted = dict(word.split("=", 1) for word in named)
    red = [one for one in changes.regressed.values() if _fits(one.series, wanted)]
    if not red:
        said = f" with {' '.join(named)}" if named else ""
        raise ConfigError(f"{run} has no red cell{said}; {changes.headline}")
    change = red[0]
    if not change.last_good:
        raise ConfigError(f"{change.series} was good in no earlier run; name a commit with good=")
    bad, good = _commit(folder), _commit(reports, change.last_good)
    if bad == good:
        raise ConfigError(
            f"{run} and {change.last_good}, which was the last good one, are of one commit; "
            f"cause: {change.cause or 'unknown'}: {', '.join(change.because) or 'nothing recorded'}"
        )
    return RedCell(change, good, bad, list(_words(change.series, folder)))


def _fits(series: Series, wanted: dict[str, str]) -> bool:
    return all(getattr(series, NAMED[name]) == value for name, value in wanted.items())


def _commit(place: Path, run: str = "") -> str:
    """The commit of the run in a folder, or of one by its name in the folder of runs."""
    folder = regressions.folder(run, place) if run else place
    facts = RunFacts.read(folder)
    if facts.git is None:
        name = run or folder.name
        raise ConfigError(f"The commit of {name} is not known; name revisions with good= and bad=")
    return facts.git.commit


def _words(series: Series, folder: Path) -> Iterator[str]:
    """The options of ``portkern check`` by which the cell's kernel is judged alone."""
    options, record = RunFacts.read(folder).options, _record(series, folder)
    if not record.author.startswith(_FILE):
        raise ConfigError(
            f"The kernel of {series} is {printable(record.author)!r} and no file of a repository; "
            "expected one that matrix source=, kernels= or project= named"
        )
    asked = options.get("ops", "")
    yield f"op={_plain(asked if is_file(asked) else series.op)}"
    yield from (
        f"{name}={_plain(options[name])}" for name in ("project", "kernels") if options.get(name)
    )
    if options.get("source"):
        yield f"source={_plain(record.author.removeprefix(_FILE))}"
    yield f"backend={_plain(series.backend)}"
    yield f"target={_plain(series.target)}"
    yield f"workloads={_plain(series.workload_set)}"
    yield f"dtypes={_plain(series.dtype)}"


def _plain(word: str) -> str:
    """A word of a run's, which may be a stranger's, as it is; quoted where it has a meaning."""
    return word if re.fullmatch(r"[\w.][\w./-]*", word) else quoted(word)


def _record(series: Series, folder: Path) -> Record:
    records, _ = RecordFile(folder / RECORDS).read()
    found = [one for one in records if Series.of(one) == series]
    if not found:
        raise RecordError(f"{folder / RECORDS} has no record of {series}: it is not in the run")
    return found[-1]
