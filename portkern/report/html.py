"""``matrix.html``: one file that needs no network; filters and curves are computed in the page."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING
from urllib.parse import quote

from portkern.printable import printable
from portkern.records.record import Environment as MachineFacts
from portkern.records.record import Evidence, Record
from portkern.regression.series import Series
from portkern.report import ci_annotations, comment, lines, page
from portkern.report.table import (
    BASELINE,
    WORST_FIRST,
    MatrixColumn,
    MatrixTable,
    identity,
    reason_of,
)
from portkern.spec import target
from portkern.spec.safe_name import SafeName

if TYPE_CHECKING:
    from portkern.spec.json_types import Json, JsonObject

#: A compiler's log may be megabytes; the page keeps its beginning and points at the records.
MOST_DETAIL = 4000
#: Changes that the page lists; a night on which a driver changed may have as many as cells.
MOST_CHANGES = 500
#: Addresses that may become a link.
_LINK = re.compile(r"https?://[!-~]+")


def render(table: MatrixTable, *, title: str) -> str:
    environment = page.templates("portkern.report")
    listed = table.changes.listed if table.changes else []
    return environment.get_template("matrix.html.j2").render(
        title=printable(title),
        table=table,
        version=version("portkern"),
        runs=sorted({r.run for r in table.records}),
        said=comment.said(table),
        colour=comment.colour(table),
        origin=list(_origin(table)),
        listed=listed[:MOST_CHANGES],
        left_out=max(0, len(listed) - MOST_CHANGES),
        links={one.series: _place(table, one.series) for one in listed[:MOST_CHANGES]},
        style=page.asset("page.css"),
        script=page.asset("dom.js") + page.asset("matrix.js"),
        data=page.embeddable(payload(table)),
    )


def _place(table: MatrixTable, series: Series) -> str:
    """The page's fragment that opens a cell; '' for one that it does not show."""
    row = f"{series.op}.{series.variant}" if series.variant else series.op
    language = series.language if series.backend in table.polyglots else ""
    column = MatrixColumn(*map(printable, (series.backend, series.target, language)))
    known = (row, column) in table.cells
    return f"cell={quote(f'{printable(row)}:{column}', safe='')}" if known else ""


def _origin(table: MatrixTable) -> Iterator[tuple[str, str, str]]:
    """Yields what the run is of, beside which run and by which job: words, a name, and the
    address that it has, '' for none."""
    facts = table.facts
    if facts.git is not None:
        yield "commit ", printable(f"{facts.git} of {facts.git.branch}"), ""
    if table.changes is not None:
        name = table.changes.before
        place = f"../{quote(name, safe='')}/matrix.html" if SafeName.like(name) == name else ""
        yield "compared with ", printable(name), place
    if facts.job:
        yield "by ", "its CI job", facts.job if _LINK.fullmatch(facts.job) else ""


def payload(table: MatrixTable) -> JsonObject:
    """The data that the page's script reads; samples stay in ``records.jsonl``."""
    intern = page.Interned()
    shown = dict.fromkeys(map(_environment, table.environments))  # of several it may be one text
    environments = {text: i for i, text in enumerate(shown)}
    numbers = {identity(e): environments[_environment(e)] for e in table.environments}
    columns = {column: i for i, column in enumerate(table.columns)}
    fields: list[str] = []
    rows: list[list[Json]] = []  # a mapping for each of many records would take twice the memory
    for r in table.records:
        place = columns[table.column(r)], numbers[identity(r.environment)]
        record = _record(table, r, *place, intern)
        fields = fields or list(record)
        rows.append(list(record.values()))
    return {
        "baseline": BASELINE,
        "ops": [printable(op) for op in table.ops],
        "targets": list(table.targets),
        "columns": [
            {"backend": c.backend, "tool": c.tool, "target": c.target} for c in table.columns
        ],
        "products": _products(table),
        "verdicts": list(map(str, WORST_FIRST)),
        "bad": [str(v) for v in WORST_FIRST if v.bad],
        "rungs": list(map(str, Evidence)),
        "environments": list(environments),
        "fields": fields,
        "rows": rows,
        "resources": _resources(table),
        "changes": _changes(table),
        "strings": intern.strings,
    }


def _products(table: MatrixTable) -> list[JsonObject]:
    """The products whose architecture is in the table, by whose names people call it."""
    known = map(target.load, target.names("product"))
    return [
        {"name": product.name, "title": product.title, "arch": product.arch}
        for product in known
        if product.arch in table.targets
    ]


def _record(
    table: MatrixTable, record: Record, column: int, environment: int, intern: page.Interned
) -> JsonObject:
    w, timing, errors, roof = record.workload, record.timing, record.errors, record.roofline
    size = {**w.dims, **w.scalars}
    return {
        "op": intern[record.row],
        "column": column,
        "set": intern[w.set],
        "workload": intern[w.name],
        "size": intern[" ".join(f"{k}={v}" for k, v in size.items())],
        "elements": math.prod(w.dims.values()),
        "dtype": intern[w.dtype],
        "verdict": intern[str(record.verdict)],
        "evidence": int(record.evidence),
        "reason": intern[reason_of(record)],
        "detail": intern[_capped(record.detail)],
        "errors": _numbers(errors.vs_fp64, errors.reference_vs_fp64, errors.max_abs, errors.max_rel)
        if errors
        else None,
        "tolerance": intern[(errors and errors.tolerance) or ""],
        "precision": intern[record.precision],
        "timing": [*_numbers(timing.median_us, timing.p20_us, timing.p80_us), timing.n]
        if timing
        else None,
        "noisy": intern[timing.noisy if timing else ""],
        "method": intern[timing.method if timing else ""],
        "baselines": {printable(k): _number(t.median_us) for k, t in record.baselines.items()},
        "speedup": {printable(k): _numbers(s.value, *s.ci95) for k, s in record.speedup.items()},
        "bytes": roof.bytes if roof else None,
        "roofline": _number(roof.fraction) if timing and roof and roof.fraction else None,
        "basis": intern[roof.basis if roof else ""],
        "venue": intern[record.venue],
        "environment": environment,
        "quarantine": intern[table.quarantine(record)],
        "carried": intern[record.carried],
        "author": intern[record.author],
        "source": intern[record.source_hash[:12]],
        "guard": [intern[remark] for remark in record.guard],
        "findings": [intern[str(finding)] for finding in record.findings],
        "counted": [intern[printable(line)] for line in lines.counts(record)],
        "file": intern[ci_annotations.file_of(table, record)],
        "seconds": _number(sum(record.seconds.values())),
    }


def _changes(table: MatrixTable) -> list[Sequence[Json]]:
    """The change of each cell since an earlier run, with its values in the runs before."""
    if table.changes is None:
        return []
    columns = {(c.backend, c.target, c.language): i for i, c in enumerate(table.columns)}
    rows: list[Sequence[Json]] = []
    for cell in table.changes.cells:
        series = cell.series
        language = series.language if series.backend in table.polyglots else ""
        column = columns.get((series.backend, series.target, language))
        if column is not None:
            row = f"{series.op}.{series.variant}" if series.variant else series.op
            place = map(printable, (row, series.workload_set, series.workload, series.dtype))
            told = printable(f"{cell.detail}{cell.why}{cell.age}")
            said: list[Json] = [str(cell.change), cell.regressed, told]
            recent: list[Json] = [*_numbers(*cell.recent)]
            rows.append([*place, column, *said, recent])
    return rows


def _capped(text: str) -> str:
    if len(text) <= MOST_DETAIL:
        return text
    return text[:MOST_DETAIL] + "\n… cut here; the whole text is in records.jsonl"


def _number(value: float) -> float | str:
    """Six significant digits; JSON has no infinity, and an infinite error must still be shown."""
    return float(f"{value:.6g}") if math.isfinite(value) else str(value)


def _numbers(*values: float) -> list[float | str]:
    return [_number(value) for value in values]


def _environment(environment: MachineFacts) -> str:
    e = environment
    parts = [e.machine, e.device, e.driver, *(f"{k} {v}" for k, v in sorted(e.toolchain.items()))]
    return printable(" · ".join(part for part in (*parts, f"portkern {e.harness_version}") if part))


def _resources(table: MatrixTable) -> list[Sequence[Json]]:
    """One row per distinct build: workloads share a kernel, so do most dtypes."""
    columns = {column: i for i, column in enumerate(table.columns)}
    rows: dict[tuple[Json, ...], None] = {}
    for record in table.records:
        for b in record.resources:
            place = [printable(b.kernel), printable(record.row), printable(record.workload.dtype)]
            used = [b.registers, b.agprs, b.sgprs, b.spills, b.shared_bytes, b.threads]
            rows[(*place, columns[table.column(record)], *used, b.occupancy)] = None
    return list(rows)
