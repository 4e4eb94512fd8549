"""``junit.xml``: one suite per column, one test case per cell that was judged, for CI systems. A
cell that became worse since the baseline has failed too; one in quarantine was skipped."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from portkern.printable import printable
from portkern.records.record import Record
from portkern.regression.cell_change import CellChange
from portkern.regression.series import Series
from portkern.report import ci_annotations
from portkern.report.table import ColumnTotal, Table, headline
from portkern.spec.backend import Missing

if TYPE_CHECKING:
    from junitparser import TestCase, TestSuite


def render(table: Table, *, title: str) -> bytes | Missing:
    try:
        from junitparser import JUnitXml
    except ImportError:
        return Missing("junitparser is not installed", "pip install 'portkern[report]'")
    xml = JUnitXml(printable(title))
    regressed = dict(table.changes.regressed) if table.changes else {}
    for total in table.totals.values():
        cases = [
            _case(table, total, record, regressed.get(Series.of(record)))
            for record in total.records
            if record.judged or Series.of(record) in regressed
        ]
        if cases:
            xml.add_testsuite(_suite(total, cases))
    gone = [change for series, change in regressed.items() if series not in _known(table)]
    if gone:
        xml.add_testsuite(_lost(gone))
    out = io.BytesIO()
    xml.write(out)
    return out.getvalue()


def _known(table: Table) -> set[Series]:
    return {Series.of(record) for record in table.records}


def _suite(total: ColumnTotal, cases: list[TestCase]) -> TestSuite:
    from junitparser import TestSuite

    suite = TestSuite(str(total.column))
    suite.timestamp = min(record.time for record in total.records)
    suite.hostname = printable(total.records[0].environment.machine)
    suite.add_testcases(cases)
    return suite


def _lost(changes: list[CellChange]) -> TestSuite:
    """Cells that are not in the run at all."""
    from junitparser import Failure, TestCase, TestSuite

    suite = TestSuite("not in this run")
    cases = []
    for change in changes:
        case = TestCase(printable(str(change.series)), "lost")
        case.result = [Failure(printable(f"{change.change}: {change.detail}"), str(change.change))]
        cases.append(case)
    suite.add_testcases(cases)  # one by one the suite is counted anew for each
    return suite


def _case(table: Table, total: ColumnTotal, record: Record, change: CellChange | None) -> TestCase:
    from junitparser import Failure, Skipped, TestCase

    column = total.column
    case = TestCase(_name(record), f"{column.tool}.{column.target}", _seconds(record))
    excused = table.quarantine(record)
    if excused:
        case.result = [Skipped(printable(f"{excused}; {record.verdict}"), "quarantine")]
    elif record.verdict.bad:
        failure = Failure(f"{record.verdict}: {headline(record.detail)}", str(record.verdict))
        failure.text = printable(record.detail)
        case.result = [failure]
    elif change is not None:
        case.result = [Failure(printable(f"{change.change}: {change.detail}"), str(change.change))]
    case.system_out = _outcome(record)
    file = ci_annotations.file_of(table, record)
    if file:
        # pytest's attributes, which GitLab and Jenkins link to.
        case._elem.set("file", file)
        case._elem.set("line", str(ci_annotations.line_of(record)))
    return case


def _name(record: Record) -> str:
    w = record.workload
    return printable(f"{record.row}[{w.set}/{w.name},{w.dtype}]")


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
    return printable("\n".join(lines))
