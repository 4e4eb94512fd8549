"""The matrix as a terminal shows it when a run ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from portkern.records.record import Evidence, Verdict
from portkern.report.table import ColumnTotal, MatrixTable, headline

#: Failing cells that are named; the report names the rest.
MOST_FAILURES = 20
#: What is known of a cell that passed, by its evidence.
_KNOWN = {
    Evidence.MEASURED: "right and timed on the hardware",
    Evidence.VERIFIED: "right on the hardware and not timed",
    Evidence.EXECUTED: "right as a compiled object on a model of the processor",
    Evidence.EMULATED: "right in an emulator",
    Evidence.BUILT: "built and not run",
}


def show(table: MatrixTable, console: Console) -> None:
    """A row per backend and target, targets without times together; then what failed."""
    rows = RichTable("backend", "target", "passed", "evidence", "speedup", "next rung needs")
    for (tool, passed, rungs, speedup), totals in _alike(table).items():
        missing = {headline(why) for total in totals for why in total.missing}
        why = f"{min(missing)}{', …' if len(missing) > 1 else ''}" if missing else ""
        targets = " ".join(total.column.target for total in totals)
        cells = (tool, targets, passed, rungs, speedup, why)
        rows.add_row(*map(Text, cells))  # not markup, whatever is in brackets
    console.print(rows)
    if table.whole.noisy:
        what = "1 time is" if table.whole.noisy == 1 else f"{table.whole.noisy} times are"
        mean = "enters" if table.whole.noisy == 1 else "enter"
        console.print(
            f"{what} too noisy to be compared and {mean} no mean: the machine was busy, or the "
            "kernel's time varies; see timing.noisy in records.jsonl"
        )
    failing = table.failing
    for record in failing[:MOST_FAILURES]:
        work = f"{record.row}[{record.workload.name}, {record.workload.dtype}]"
        where = f"{record.backend}@{record.target}"
        line = Text.assemble(
            (str(record.verdict), "bold"), f" {where} {work}: {headline(record.detail)}"
        )
        console.print(line)
    if len(failing) > MOST_FAILURES:
        console.print(f"… and {len(failing) - MOST_FAILURES} more; see the report")
    if table.quarantined:
        console.print(f"{len(table.quarantined)} bad in quarantine, which fail nothing")
    console.print(Text(" ".join(in_words(table))))


def in_words(table: MatrixTable) -> Iterator[str]:
    """A sentence on the cells that passed and how that is known, and one on the others."""
    whole = table.whole
    known = Counter(r.evidence for r in table.records if r.verdict is Verdict.PASSED)
    how = ", ".join(f"{known[rung]} {said}" for rung, said in _KNOWN.items() if known[rung])
    total = f"{len(whole)} cell{'s' * (len(whole) != 1)}"
    yield f"{whole.passed} of {total} passed{': ' * bool(how)}{how}."
    failed = len(table.failing)
    if others := len(whole) - whole.passed - failed - len(table.quarantined):
        yield f"{others} could not be run or built here; the report says why of each."
    if failed:
        yield f"{failed} failed."


def _alike(table: MatrixTable) -> dict[tuple[str, str, str, str], list[ColumnTotal]]:
    """Claimed columns by what their rows would say; a measured column has a row of its own."""
    groups: dict[tuple[str, str, str, str], list[ColumnTotal]] = {}
    for total in table.totals.values():
        if set(total.verdicts) != {Verdict.UNSUPPORTED}:
            said = (f"{total.passed}/{len(total)}", _rungs(total), str(total.speedup or "—"))
            groups.setdefault((total.column.tool, *said), []).append(total)
    return groups


def _rungs(total: ColumnTotal) -> str:
    counts = {rung: count for rung, count in total.rungs.items() if count}
    said = [f"{counts[rung]} {rung}" for rung in sorted(counts, reverse=True)]
    noisy = [f"{total.noisy} of them noisy"] if total.noisy else []
    return ", ".join([*said[:1], *noisy, *said[1:]]) or str(Evidence.NONE)
