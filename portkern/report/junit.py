"""``junit.xml``: one suite per column, one test case per cell, for CI systems."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from portkern.records.record import Record, Verdict
from portkern.report.table import ColumnTotal, Table, clean, headline, reason_of
from portkern.spec.backend import Missing

if TYPE_CHECKING:
    from junitparser import TestSuite


def render(table: Table, *, title: str) -> bytes | Missing:
    try:
        from junitparser import JUnitXml
    except ImportError:
        return Missing("junitparser is not installed", "pip install 'portkern[report]'")
    xml = JUnitXml(clean(title))
    for total in table.totals.values():
        xml.add_testsuite(_suite(total))
    out = io.BytesIO()
    xml.write(out)
    return out.getvalue()


def _suite(total: ColumnTotal) -> TestSuite:
    from junitparser import Failure, Skipped, TestCase, TestSuite

    suite = TestSuite(str(total.column))
    classname = f"{total.column.tool}.{total.column.target}"
    for record in total.records:
        case = TestCase(_name(record), classname, _seconds(record))
        if record.verdict.bad:
            failure = Failure(f"{record.verdict}: {headline(record.detail)}", str(record.verdict))
            failure.text = clean(record.detail)
            case.result = [failure]
        elif record.verdict is not Verdict.PASSED:
            case.result = [Skipped(f"{record.verdict} ({record.evidence}): {reason_of(record)}")]
        case.system_out = _outcome(record)
        suite.add_testcase(case)
    return suite


def _name(record: Record) -> str:
    w = record.workload
    return clean(f"{record.op}[{w.set}/{w.name},{w.dtype}]")


def _seconds(record: Record) -> float:
    """What the cell took; of a record without it, one call of the kernel."""
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
    if record.venue:
        lines.append(f"venue: {record.venue}")
    return clean("\n".join(lines))
