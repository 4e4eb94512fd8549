"""``matrix.md``: the matrix as GitHub shows it, and the short one that a README embeds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from portkern.printable import printable
from portkern.records.record import BuildResources, Evidence, Record, Verdict
from portkern.report.table import (
    ColumnTotal,
    MatrixColumn,
    MatrixTable,
    TableCell,
    TableGroup,
    headline,
    natural,
    speedup_of,
)

LEGEND = (
    "Evidence: none < built (for the real instruction set) < emulated (correct in emulation) < "
    "executed (the compiled object is correct on a model of the processor) < verified (correct on "
    "the hardware) < measured (timed there). A cell is the worst of its "
    "workloads and dtypes; only measured cells have a speedup, the geometric mean against the "
    "framework's eager kernel of those that are not noisy."
)
MOST_FAILURES = 50
MOST_CHANGES = 50
_SPECIAL = re.compile(r"([\\`*_{}\[\]~#$])")


def render(table: MatrixTable, *, title: str) -> str:
    reasons = _Reasons()
    sections = [
        f"# {literal(title)}",
        _facts(table),
        _changes(table),
        LEGEND,
        _summary(table, reasons),
        *(_target(table, target, reasons) for target in _ran_on(table)),
        _rungs(table),
        _builds(table),
        _failures(table),
        reasons.section(),
        _environments(table),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def overview(records: Sequence[Record], *, targets: Sequence[str] = (), most: int = 6) -> str:
    """A short table for a README: backends down, ``targets`` across.

    Unless named, they are the ``most`` targets with the best evidence. The same records, in any
    order, give the same text.
    """
    table = MatrixTable.of(sorted(records, key=lambda r: (r.time, r.id)))
    if not table.records:
        return "No records yet.\n"
    targets = [t for t in targets if t in table.targets] or table.targets[:most]
    tools = sorted({c.tool for c in table.columns if c.target in targets})
    totals = {(c.tool, c.target): total for c, total in table.totals.items()}
    rows = [
        [_code(tool), *(_standing(totals.get((tool, target)), None) for target in targets)]
        for tool in tools
    ]
    left_out = len(table.targets) - len(targets)
    more = f" {left_out} more targets are in the full report." if left_out else ""
    lines = grid(["", *map(_code, targets)], rows)
    return f"{lines}\n\n{LEGEND}{more}\n"


def _facts(table: MatrixTable) -> str:
    whole = table.whole
    if not table.records:
        return "No records."
    parts = [
        f"{len(whole)} cells ({len(table.ops)} ops, {len(table.columns)} backend-target pairs)",
        f"{whole.passed} passed",
        f"**{len(table.failing)} failed**" if table.failing else "0 failed",
        *([f"{len(table.quarantined)} in quarantine"] if table.quarantined else []),
    ]
    measured = {table.column(r) for r in table.records if speedup_of(r) is not None}
    if whole.speedup and len(measured) == 1:  # of a CPU and a GPU it would say nothing
        parts.append(f"{whole.speedup} over {whole.speedup.n} measured")
    if whole.noisy:
        parts.append(f"{whole.noisy} measured with too much noise to be compared")
    if table.superseded:
        parts.append(f"{table.superseded} earlier attempts superseded")
    remarks = "".join(f"\n\n{literal(line)}." for line in table.facts.remarks)
    return f"{', '.join(parts)}. Newest record: {literal(table.generated)}.{remarks}"


def _changes(table: MatrixTable) -> str:
    """The changes since an earlier run, the worst first."""
    changes = table.changes
    if changes is None:
        return ""
    rows = [
        [
            _code(str(cell.series)),
            f"**{cell.change}**" if cell.regressed else str(cell.change),
            literal("; ".join(filter(None, (cell.detail + cell.age, cell.quarantined)))),
            literal(": ".join(filter(None, (cell.cause, ", ".join(cell.because))))),
        ]
        for cell in changes.listed[:MOST_CHANGES]
    ]
    left_out = len(changes.listed) - len(rows)
    more = f"\n\n{left_out} more are in `regressions.json`." if left_out else ""
    more += "".join(f"\n\n{literal(line)}." for line in changes.machine)
    listed = grid(["cell", "what", "detail", "cause"], rows) if rows else ""
    head = f"**{literal(changes.headline)}**"
    return "\n\n".join(filter(None, (head, f"## {literal(str(changes))}", listed + more)))


class _Reasons:
    """Numbers the reasons for missing evidence in the order in which the tables use them."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def mark(self, group: TableGroup) -> str:
        numbers = [self._numbers.setdefault(r, len(self._numbers) + 1) for r in group.missing]
        shown = ",".join(map(str, sorted(numbers)[:3])) + (",…" if len(numbers) > 3 else "")
        return f" <sup>{shown}</sup>" if numbers else ""

    def section(self) -> str:
        if not self._numbers:
            return ""
        lines = (f"{number}. {literal(reason)}" for reason, number in self._numbers.items())
        return "## Why the next rung is missing\n\n" + "\n".join(lines)


def _summary(table: MatrixTable, reasons: _Reasons) -> str:
    tools = sorted({c.tool for c in table.columns})
    if not tools:
        return ""
    totals = {(c.tool, c.target): total for c, total in table.totals.items()}
    rows = [
        [_code(target), *(_standing(totals.get((tool, target)), reasons) for tool in tools)]
        for target in table.targets
    ]
    return "## Targets and backends\n\n" + grid(["target", *map(_code, tools)], rows)


def _standing(total: ColumnTotal | None, reasons: _Reasons | None) -> str:
    """``8/10 measured, 1/10 built, **1 failed**``: ops by the least that holds for each."""
    if total is None:
        return "—"
    parts = []
    for rung, cells in total.ops_by_rung.items():
        count = f"{len(cells)}/{len(total.cells)} "
        if total.best is Evidence.NONE and len(cells) == len(total.cells):
            count = ""  # "unsupported" says it
        parts.append(count + _rung(rung, cells))
    if total.speedup:
        parts.append(f"{total.speedup}")
    if total.ops_failing:
        parts.append(f"**{len(total.ops_failing)} failed**")
    return ", ".join(parts) + (reasons.mark(total) if reasons else "")


def _rung(rung: Evidence, cells: Sequence[TableCell]) -> str:
    records = TableGroup.together(cells)
    if records.best > rung:  # the lowest of some dtype or size; say how far the others came
        return f"partly {records.best} ({records.rungs[records.best]} of {len(records)} cells)"
    if rung is not Evidence.NONE:
        return str(rung)
    return str(min((c.verdict for c in cells), key=lambda v: v is not Verdict.UNAVAILABLE))


def _ran_on(table: MatrixTable) -> list[str]:
    """Targets on whose hardware something ran."""
    return [
        target
        for target in table.targets
        if any(max(t.rungs) >= Evidence.VERIFIED for t in _of_target(table, target))
    ]


def _of_target(table: MatrixTable, target: str) -> list[ColumnTotal]:
    return [total for column, total in table.totals.items() if column.target == target]


def _target(table: MatrixTable, target: str, reasons: _Reasons) -> str:
    totals = _of_target(table, target)
    rows = []
    for op in table.ops:
        cells = [table.cells.get((op, total.column)) for total in totals]
        if any(cells):
            rows.append([literal(op), *(_cell(cell, reasons) for cell in cells)])
    rows.append(["**all**", *(f"**{t.speedup}**" if t.speedup else "" for t in totals)])
    devices = sorted({r.venue for t in totals for r in t.records if r.venue})
    head = f"## {literal(target)}\n\n" + (f"{literal('; '.join(devices))}.\n\n" if devices else "")
    return head + grid(["op", *(_code(total.column.tool) for total in totals)], rows, right=True)


def _cell(cell: TableCell | None, reasons: _Reasons) -> str:
    if cell is None:
        return "—"
    if cell.verdict.bad:
        failed = f"**{_words(cell.verdict)}** {len(cell.failing)}/{len(cell)}"
        return f"{failed}, {cell.speedup}" if cell.speedup else failed
    if cell.speedup is not None:
        partial = f" ({cell.speedup.n}/{len(cell)})" if cell.speedup.n < len(cell) else ""
        return f"{cell.speedup}{partial}{reasons.mark(cell)}"
    if cell.best > cell.evidence:
        return f"{cell.rungs[cell.best]}/{len(cell)} {cell.best}{reasons.mark(cell)}"
    return _RUNG_TEXT[cell.evidence] + reasons.mark(cell)


_RUNG_TEXT = {
    Evidence.NONE: "—",
    Evidence.BUILT: "built",
    Evidence.EMULATED: "✓ emulated",
    Evidence.EXECUTED: "✓ executed",
    Evidence.VERIFIED: "✓ verified",
    Evidence.MEASURED: "✓ measured",
}


def _rungs(table: MatrixTable) -> str:
    """The columns without a table of their own: which ops reached which rung."""
    ran = set(_ran_on(table))
    totals = [t for c, t in table.totals.items() if c.target not in ran]
    totals = [t for t in totals if max(t.rungs) > Evidence.NONE or t.failing]
    rows = []
    for total in totals:
        rungs = total.ops_by_rung
        row = [_code(str(total.column))]
        row += [
            _names(rungs.get(rung, ()), total)
            for rung in (Evidence.EXECUTED, Evidence.EMULATED, Evidence.BUILT, Evidence.NONE)
        ]
        rows.append([*row, f"**{failed}**" if (failed := _names(total.ops_failing, total)) else ""])
    if not rows:
        return ""
    heads = ["", "✓ executed", "✓ emulated", "built", "none", "failed"]
    return "## Executed, emulated and built, not yet on the hardware\n\n" + grid(heads, rows)


def _names(cells: Sequence[TableCell], total: ColumnTotal) -> str:
    if len(cells) == len(total.cells) > 1:
        return f"all {len(cells)}"
    return ", ".join(literal(cell.op) for cell in cells)


def _builds(table: MatrixTable) -> str:
    """Registers, spills and shared memory of the GPU builds: the worst over kernels and dtypes."""
    worst: dict[tuple[str, MatrixColumn], list[BuildResources]] = {}
    for record in table.records:
        if any(r.registers is not None for r in record.resources):
            key = record.row, table.column(record)
            worst.setdefault(key, []).extend(record.resources)
    tables = []
    for tool in sorted({column.tool for _, column in worst}):
        columns = sorted({c for _, c in worst if c.tool == tool}, key=lambda c: natural(c.target))
        rows = [
            [literal(op), *(_resources(worst.get((op, column), [])) for column in columns)]
            for op in table.ops
            if any((op, column) in worst for column in columns)
        ]
        tables.append(grid([_code(tool), *(_code(c.target) for c in columns)], rows, right=True))
    if not tables:
        return ""
    note = (
        "Registers per thread (VGPRs on AMD, `+` AGPRs) / shared memory or LDS in bytes; the most "
        "over kernels and dtypes. Spills are bold."
    )
    body = "\n\n".join([note, *tables])
    return "## Builds\n\n" + _details("Registers, spills, shared memory", body)


def _resources(builds: Sequence[BuildResources]) -> str:
    if not builds:
        return "—"
    registers = max((b.registers for b in builds if b.registers is not None), default=None)
    agprs = max((b.agprs or 0 for b in builds), default=0)
    shared = max((b.shared_bytes or 0 for b in builds), default=0)
    spills = max((b.spills or 0 for b in builds), default=0)
    text = f"{'?' if registers is None else registers}{f'+{agprs}' if agprs else ''} / {shared}"
    return f"{text}, **{spills} spilled**" if spills else text


def _failures(table: MatrixTable) -> str:
    return "\n\n".join(filter(None, (_bad(table, "Failures", table.failing), _quarantined(table))))


def _quarantined(table: MatrixTable) -> str:
    whys = dict.fromkeys(map(table.quarantine, table.quarantined))
    listed = _bad(table, "In quarantine, which fails nothing", table.quarantined)
    return "\n\n".join(filter(None, (listed, "\n".join(f"- {literal(why)}" for why in whys))))


def _bad(table: MatrixTable, head: str, failing: Sequence[Record]) -> str:
    if not failing:
        return ""
    rows = [
        [
            literal(r.row),
            _code(str(table.column(r))),
            literal(f"{r.workload.set}/{r.workload.name}"),
            literal(r.workload.dtype),
            f"**{_words(r.verdict)}**",
            literal(short(headline(r.detail) or "no detail recorded")),
        ]
        for r in failing[:MOST_FAILURES]
    ]
    left = len(failing) - len(rows)
    more = f"\n\n{left} more in summary.json and records.jsonl." if left else ""
    heads = ["op", "backend@target", "workload", "dtype", "verdict", "detail"]
    return f"## {head} ({len(failing)})\n\n{grid(heads, rows)}{more}"


def _environments(table: MatrixTable) -> str:
    rows = [
        [
            literal(e.machine),
            literal(e.device),
            literal(e.driver) or "—",
            literal(", ".join(f"{k} {v}" for k, v in sorted(e.toolchain.items()))) or "—",
            literal(e.harness_version),
        ]
        for e in table.machines
    ]
    if not rows:
        return ""
    heads = ["machine", "device", "driver", "toolchain", "portkern"]
    body = grid(heads, rows)
    return _details("Environments", body)


def _details(summary: str, body: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{body}\n\n</details>"


def grid(heads: Sequence[str], rows: Iterable[Sequence[str]], *, right: bool = False) -> str:
    rule = ["---"] + ["---:" if right else "---"] * (len(heads) - 1)
    return "\n".join(f"| {' | '.join(row)} |" for row in [heads, rule, *rows])


def literal(text: str) -> str:
    """Plain text as Markdown that shows it literally, on one line, also inside a table."""
    text = " ".join(printable(text).split())
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", text).replace("|", "&#124;")


def _code(text: str) -> str:
    """A name that may stand in a code span; one that may not is escaped."""
    return f"`{text}`" if re.fullmatch(r"[\w@./+ -]+", text) else literal(text)


def short(text: str, most: int = 160) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _words(verdict: Verdict) -> str:
    return str(verdict).replace("_", " ")
