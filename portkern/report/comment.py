"""``comment.md``: a pull request's comment: green or red, what changed against what, and by which
command it is seen. CI writes it once and updates it, which its first line is for."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from portkern.printable import printable
from portkern.records.record import Record
from portkern.regression.runs import FAILING
from portkern.regression.series import Series
from portkern.report.markdown import grid, literal, short
from portkern.report.table import MatrixTable, headline

#: The mark by which a comment is found again.
MARK = "<!-- portkern -->"
#: Rows of changes, and commands.
MOST, MOST_COMMANDS = 20, 5
_HEADS = ("cell", "what", "why", "since")


def render(table: MatrixTable, *, title: str) -> str:
    """Below 20 KB: GitHub takes 64."""
    sections = [MARK, f"**{literal(said(table))}**", _remarks(table), _changes(table)]
    sections += [_bad(table), _commands(table)]
    sections.append(f"<sub>portkern, run {literal(title)}, {literal(table.generated)}</sub>")
    return "\n\n".join(section for section in sections if section) + "\n"


def said(table: MatrixTable) -> str:
    """One line: green or red, and why."""
    bad, passed, missed = len(table.failing), table.whole.passed, gaps(table)
    lacking = f"; {missed} of what is expected is not there" if missed else ""
    if table.changes is not None:
        failing = f"; {bad} cells have a bad verdict" if bad else ""
        headline = printable(table.changes.headline)
        if (bad or missed) and headline.startswith("green: "):
            headline = f"red: {headline.removeprefix('green: ')}"  # the run fails all the same
        return headline + failing + lacking
    if bad:
        return f"red: {bad} of {len(table.records)} cells have a bad verdict{lacking}"
    if missed:
        return f"red: {passed} cells passed{lacking}"
    if not passed:
        return f"grey: none of {len(table.records)} cells could run"
    return f"green: {passed} cells passed, none has a bad verdict"


def colour(table: MatrixTable) -> str:
    """``green``, ``red`` or ``grey``."""
    return said(table).partition(":")[0]


def gaps(table: MatrixTable) -> int:
    """How many of the run's remarks are of cells that a project expects and did not get, or of
    kernels that could not be read: it fails by them."""
    return sum(line.startswith(FAILING) for line in table.facts.remarks)


def _changes(table: MatrixTable) -> str:
    if table.changes is None or not table.changes.listed:
        return ""
    listed = table.changes.listed
    rows = [
        (
            literal(str(one.series)),
            f"**{one.change}**" if one.regressed else str(one.change),
            literal(short(f"{one.detail}{one.why}")),
            literal(one.since) if one.since else "",
        )
        for one in listed[:MOST]
    ]
    more = f"\n\n{len(listed) - MOST} more changes are in the report." if len(listed) > MOST else ""
    return grid(_HEADS, rows) + more


def _remarks(table: MatrixTable) -> str:
    return "\n".join(f"- {literal(short(line))}" for line in table.facts.remarks[:MOST])


def _bad(table: MatrixTable) -> str:
    """The bad cells of a run that was compared with none."""
    if table.changes is not None or not table.failing:
        return ""
    lines = [
        f"- {literal(f'{one.row} {table.column(one)}')}: {one.verdict}: "
        f"{literal(short(headline(one.detail)))}"
        for one in table.failing[:MOST]
    ]
    more = len(table.failing) - MOST
    return "\n".join([*lines, *([f"- and {more} more"] if more > 0 else [])])


def _commands(table: MatrixTable) -> str:
    commands = list(dict.fromkeys(_reproducing(table)))[:MOST_COMMANDS]
    seen = "Seen again by\n\n" + "\n".join(f"    {one}" for one in commands) if commands else ""
    return seen + _bisecting(table)


def _bisecting(table: MatrixTable) -> str:
    """The command that looks for the commit, where a kernel that is a file was good before."""
    worse = table.changes.regressed if table.changes else {}
    files = {Series.of(one) for one in table.records if one.author.startswith("file:")}
    if table.changes is None or not any(c.last_good for s, c in worse.items() if s in files):
        return ""
    name = printable(shlex.quote(table.changes.after))
    return f"\n\nSince which commit:\n\n    portkern bisect {name}"


def _reproducing(table: MatrixTable) -> Iterator[str]:
    worse = table.changes.regressed if table.changes else {}
    known = {Series.of(one): one for one in table.records}
    bad = [Series.of(one) for one in table.failing]
    for series in dict.fromkeys([*worse, *bad]):
        change = worse.get(series)
        kernels = table.facts.options.get("kernels", "")
        yield command(series, known.get(series), change.last_good if change else "", kernels)


def command(series: Series, record: Record | None, last_good: str = "", kernels: str = "") -> str:
    """The command that judges the kernels of a cell's kind alone. ``kernels`` is the folder that
    the run was given: what a record says of its file is a path in there."""
    dtype, sizes = series.dtype, series.workload_set
    if record is not None and record.author.startswith("file:"):
        source = record.author.removeprefix("file:")
        words = [f"op={series.op}", f"kernels={kernels}" if kernels else f"source={source}"]
        words += [f"backend={series.backend}", f"target={series.target}"]
        words = ["check", *words, f"workloads={sizes}", f"dtypes={dtype}"]
    else:
        words = ["matrix", f"ops={series.op}", f"backends={series.backend}"]
        words += [f"targets={series.target}", f"workloads={sizes}", f"dtypes={dtype}", "run=again"]
    since = f"   # last good: {last_good}" if last_good else ""
    return printable(" ".join(["portkern", *map(shlex.quote, words)]) + since)
