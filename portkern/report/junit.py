"""``junit.xml``: one suite per column, one test case per cell that was judged, for CI systems. A
cell that became worse since the baseline has failed too; one in quarantine was skipped. Properties
of each suite say which commit and which job the run is of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from portkern.printable import printable
from portkern.records.record import Record
from portkern.regression.cell_change import CellChange
from portkern.regression.runs import RunFacts
from portkern.regression.series import Series
from portkern.report import ci_annotations
from portkern.report.table import ColumnTotal, MatrixTable, headline

_DECLARATION = "<?xml version='1.0' encoding='UTF-8'?>"
#: Attributes of a suite that count its cases by what became of them.
_COUNTED = {"failures": "failure", "errors": "error", "skipped": "skipped"}


@dataclass(frozen=True)
class _Case:
    """A test case as XML; ``ended`` is the element that says that it did not pass, if any."""

    text: str
    ended: str
    seconds: float


def render(table: MatrixTable, *, title: str) -> bytes:
    regressed = dict(table.changes.regressed) if table.changes else {}
    suites = [
        (_about(total), cases)
        for total in table.totals.values()
        if (cases := _cases(table, total, regressed))
    ]
    known = {Series.of(record) for record in table.records} if regressed else set()
    gone = [_lost(change) for series, change in regressed.items() if series not in known]
    if gone:
        suites.append(({"name": "not in this run"}, gone))
    every = [case for _, cases in suites for case in cases]
    properties = _properties(table.facts)
    lines = [_DECLARATION, _opened("testsuites", {"name": title, **_counts(every)})]
    for about, cases in suites:
        lines += [_opened("testsuite", {**about, **_counts(cases)}), *properties]
        lines += [case.text for case in cases]
        lines.append("</testsuite>")
    return "\n".join([*lines, "</testsuites>\n"]).encode()


def _cases(
    table: MatrixTable, total: ColumnTotal, regressed: Mapping[Series, CellChange]
) -> list[_Case]:
    return [
        _case(table, total, record, regressed.get(Series.of(record)) if regressed else None)
        for record in total.records
        if record.judged or (regressed and Series.of(record) in regressed)
    ]


def _about(total: ColumnTotal) -> dict[str, object]:
    return {
        "name": total.column,
        "timestamp": min(record.time for record in total.records),
        "hostname": total.records[0].environment.machine,
    }


def _counts(cases: Sequence[_Case]) -> dict[str, object]:
    ended = Counter(case.ended for case in cases)
    counts = {name: ended[element] for name, element in _COUNTED.items()}
    return {"tests": len(cases), **counts, "time": round(sum(one.seconds for one in cases), 3)}


def _properties(facts: RunFacts) -> list[str]:
    """Properties that say what the run is of; no line where nothing is known."""
    said = {"ci.job": facts.job}
    if git := facts.git:
        changes = "true" if git.dirty else ""
        said |= {"git.commit": git.commit, "git.branch": git.branch, "git.dirty": changes}
    said = {name: value for name, value in said.items() if value}
    said |= {f"tag.{name}": value for name, value in facts.tags.items()}
    known = [_alone("property", {"name": name, "value": value}) for name, value in said.items()]
    return ["<properties>", *known, "</properties>"] if known else []


def _lost(change: CellChange) -> _Case:
    """A cell that is not in the run at all."""
    failure = _alone("failure", _change(change))
    case = _opened("testcase", {"name": change.series, "classname": "lost"})
    return _Case(f"{case}{failure}</testcase>", "failure", 0.0)


def _case(
    table: MatrixTable, total: ColumnTotal, record: Record, change: CellChange | None
) -> _Case:
    column, seconds = total.column, _seconds(record)
    about: dict[str, object] = {"name": _name(record)}
    about |= {"classname": f"{column.tool}.{column.target}", "time": seconds}
    file = ci_annotations.file_of(table, record)
    if file:
        # pytest's attributes, which GitLab and Jenkins link to.
        about |= {"file": file, "line": ci_annotations.line_of(record)}
    ended, why = _ended(table, record, change)
    said = f"<system-out>{escape(printable(_outcome(record)))}</system-out>"
    return _Case(f"{_opened('testcase', about)}{why}{said}</testcase>", ended, seconds)


def _ended(table: MatrixTable, record: Record, change: CellChange | None) -> tuple[str, str]:
    """The name of the element that says why a cell did not pass, and the element; both are ''
    where it did."""
    excused = table.quarantine(record)
    if excused:
        said = {"message": f"{excused}; {record.verdict}", "type": "quarantine"}
        return "skipped", _alone("skipped", said)
    if record.verdict.bad:
        said = {"message": f"{record.verdict}: {headline(record.detail)}", "type": record.verdict}
        detail = escape(printable(record.detail))
        return "failure", f"{_opened('failure', said)}{detail}</failure>"
    return ("failure", _alone("failure", _change(change))) if change else ("", "")


def _change(change: CellChange) -> dict[str, str]:
    return {"message": f"{change.change}: {change.detail}", "type": change.change}


def _opened(element: str, attributes: Mapping[str, object]) -> str:
    return f"<{element} {' '.join(_attributes(attributes))}>"


def _alone(element: str, attributes: Mapping[str, object]) -> str:
    return f"<{element} {' '.join(_attributes(attributes))} />"


def _attributes(attributes: Mapping[str, object]) -> Iterable[str]:
    return (f"{name}={_quoted(said)}" for name, said in attributes.items())


def _quoted(said: object) -> str:
    if isinstance(said, int | float):
        return f'"{said}"'
    return quoteattr(printable(str(said)))


def _name(record: Record) -> str:
    w = record.workload
    return f"{record.row}[{w.set}/{w.name},{w.dtype}]"


def _seconds(record: Record) -> float:
    """The time that the cell took; for a record without it, that of one call of the kernel."""
    if record.seconds:
        return round(sum(record.seconds.values()), 6)
    return record.timing.median_us / 1e6 if record.timing else 0.0


def _outcome(record: Record) -> str:
    """The figures that JUnit has no place for."""
    lines = [f"evidence: {record.evidence}"]
    if record.timing:
        lines.append(f"median_us: {record.timing.median_us:g}")
    for name, speedup in record.speedup.items():
        low, high = speedup.ci95
        lines.append(f"speedup_vs_{name}: {speedup.value:.4g} [{low:.4g}, {high:.4g}]")
    if record.timing and record.timing.noisy:
        lines.append(f"noisy: {record.timing.noisy}")
    if record.venue:
        lines.append(f"venue: {record.venue}")
    return "\n".join(lines)
