"""Functions that the verbs which compare runs share: which runs, what is shown, and the exit
code."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from portkern.cli.config import Names, names
from portkern.cli.verbs import run_folder
from portkern.errors import ConfigError
from portkern.printable import printable
from portkern.regression import document, past, runs, standing
from portkern.regression.comparison import RunComparison
from portkern.regression.decisions import NightDecisions
from portkern.regression.nights import Night
from portkern.regression.past import KnownPast
from portkern.regression.runs import TAG
from portkern.spec.backend import Missing

LAST_GREEN, WINDOW, PROMOTED = "last_green", "window:", "promoted"
#: Where there is no such run, none is compared with.
NONE = "none"


def check(baseline: str) -> None:
    """Raises ConfigError for what no run can be chosen by."""
    if baseline == NONE:
        return
    number = baseline.removeprefix(WINDOW)
    if baseline.startswith(WINDOW) and not (number.isdecimal() and int(number) >= 1):
        raise ConfigError(f"Got baseline={baseline}, expected a number of runs, as window:10")
    if baseline.startswith(TAG):
        runs.tags(baseline.removeprefix(TAG))
    elif not baseline.startswith(WINDOW) and baseline not in (LAST_GREEN, PROMOTED):
        run_folder.check_name(baseline)


#: Options that say which cells a matrix has, and what they are of a cell.
ASKED = {
    "ops": "op",
    "targets": "target",
    "backends": "backend",
    "workloads": "workload_set",
    "dtypes": "dtype",
}


def asked(baseline: Names) -> list[str]:
    """One, or several of which the first that is there counts."""
    return names(baseline) if baseline else []


def against_first(
    baselines: Sequence[str], after: Night, reports: Path, given: Collection[str] = ()
) -> RunComparison | Missing:
    """Missing where there is none of them and ``none`` is the last. Raises ConfigError."""
    decisions = NightDecisions.read(reports)  # what is wrong with them is not a lack of a run
    missing: list[str] = []
    for baseline in baselines:
        if baseline == NONE:
            return Missing(
                "not compared: " + ("; ".join(dict.fromkeys(missing)) or f"baseline={NONE}")
            )
        try:
            return against(baseline, after, reports, decisions, given)
        except ConfigError as error:
            if baseline == baselines[-1]:
                raise
            missing.append(str(error))
    return Missing("not compared: no baseline was named")


def against(
    baseline: str,
    after: Night,
    reports: Path,
    decisions: NightDecisions,
    given: Collection[str] = (),
) -> RunComparison:
    """``last_green``, ``window:N`` (the newest run before, by references learnt from N),
    ``promoted``, ``tag:NAME`` (the newest with it) or a run's name, whose own times count as well.
    What the command line left out by one of the options ``given`` is not missed.
    ``decisions`` are those that lie in ``reports``. Raises ConfigError where there is no such
    run."""
    named = _named(baseline, after, reports)
    most = int(baseline.removeprefix(WINDOW)) if baseline.startswith(WINDOW) else 0
    known = past.before(after, reports, decisions, most=most, named=named)
    before = named or _learnt(baseline, after, reports, known)
    fields = [ASKED[name] for name in given if name in ASKED]
    return RunComparison(
        before.within(after, fields), after, known, decisions, own=bool(named), given=fields
    )


def _named(baseline: str, after: Night, reports: Path) -> Night | None:
    """The named night; None for a baseline whose references are learnt."""
    if baseline == LAST_GREEN or baseline.startswith(WINDOW):
        return None
    return Night.read(folder(baseline, reports, but=after.name))


def _learnt(baseline: str, after: Night, reports: Path, known: KnownPast) -> Night:
    """The newest, or the newest green one, whose records are still there."""
    files = {run.name: runs.records_of(reports / run.name) for run in known.runs}
    there = [run for run in known.runs if files[run.name].exists()]
    if baseline == LAST_GREEN:
        green = [run for run in there if run.green]
        if not green:
            raise ConfigError(
                f"No earlier run in {reports} shares cells with {after.name} and has no bad "
                "verdict; name one with baseline=RUN"
            )
        return Night.read(reports / green[-1].name)
    if not there:
        raise ConfigError(f"No earlier run in {reports} shares cells with {after.name}")
    return Night.read(reports / there[-1].name)


def folder(named: str, reports: Path, *, but: str = "") -> Path:
    """The folder of a run by its name, by ``tag:NAME``, or ``promoted``; never that of the run
    ``but``. Raises ConfigError where there is none."""
    if named == PROMOTED:
        promoted = [run for run in standing.promoted(reports) if run != but]
        if not promoted:
            raise ConfigError(
                f"No run in {reports} is promoted; portkern baseline promote RUN does that"
            )
        return run_folder.run_folder(str(reports), promoted[0])
    if not named.startswith(TAG):
        return run_folder.run_folder(str(reports), named)
    tag = named.removeprefix(TAG)
    without = standing.demoted(reports) | {but}
    known = [run for run in runs.newest_first(reports) if run.name not in without]
    tagged, problems = runs.tagged(tag, known)
    if not tagged:
        unread = f" ({'; '.join(problems)})" if problems else ""
        raise ConfigError(
            f"No run in {reports} has the tag {tag!r}{unread}; tags=[{tag}] of portkern matrix "
            "gives it to a run"
        )
    return tagged[0].folder


def remarks(comparison: RunComparison | Missing) -> list[str]:
    """Prints and returns what could not be read, or why there was nothing to compare with."""
    told = [str(comparison)] if isinstance(comparison, Missing) else _unread(comparison)
    for line in told:
        print(f"portkern: note: {printable(line)}", file=sys.stderr)
    return told


def _unread(comparison: RunComparison) -> list[str]:
    both = [one for one in (comparison.before, comparison.after) if one.problem]
    problems = [*comparison.past.problems, *(f"{one.name}: {one.problem}" for one in both)]
    return list(dict.fromkeys(problems))


def lines(comparison: RunComparison, *, everything: bool = False) -> Sequence[str]:
    """One for each cell that changed, the worst first, one for all, and why of some times nothing
    is said."""
    changes = document.of(comparison)
    cells = changes.cells if everything else changes.listed
    silent = () if everything else changes.silent
    return [*map(str, cells), str(changes), *changes.machine, *silent]
