"""Records as rows of plain values, for data frames and files of columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence

from portkern.errors import BackendUnavailable
from portkern.printable import cell
from portkern.records.record import BuildResources, Record

Value = str | int | float | None
#: Columns that are not text; those of baselines are times and ratios too.
WHOLE_NUMBERS = {"registers", "spills", "shared_bytes", "instructions", "tokens_in", "tokens_out"}
NUMBERS = {
    *("max_abs", "max_rel", "vs_fp64", "reference_vs_fp64", "roofline", "occupancy", "usd"),
}


def row(record: Record) -> dict[str, Value]:
    """One value per column; times in microseconds, None where there is none. A speedup's columns
    are ``speedup_<baseline>``, ``…_low`` and ``…_high``, of its 95 % interval."""
    return {
        "run": record.run,
        "time": record.time,
        "op": record.op,
        "variant": record.variant,
        "backend": record.backend,
        "language": record.language,
        "target": record.target,
        "workload_set": record.workload.set,
        "workload": record.workload.name,
        "dtype": record.workload.dtype,
        "dims": _pairs(record.workload.dims),
        "scalars": _pairs(record.workload.scalars),
        "verdict": str(record.verdict),
        "evidence": str(record.evidence),
        "detail": record.detail,
        "missing": record.missing,
        **_errors(record),
        **_times(record),
        **_speedups(record),
        **_resources(record),
        "instructions": record.counts.instructions,
        "findings": "\n".join(map(str, record.findings)),
        "author": record.author,
        "source_hash": record.source_hash,
        "venue": record.venue,
        "machine": record.environment.machine,
        "device": record.environment.device,
        "usd": record.cost.usd,
        "tokens_in": record.cost.tokens_in,
        "tokens_out": record.cost.tokens_out,
    }


def rows(records: Iterable[Record]) -> list[dict[str, Value]]:
    """The records as rows, all with the same columns: those of a baseline are empty where it was
    not timed."""
    made = [row(record) for record in records]
    columns = dict.fromkeys(name for one in made for name in one)
    return [{name: one.get(name) for name in columns} for one in made]


def csv_file(records: Sequence[Record]) -> bytes:
    """UTF-8, as RFC 4180 has it, with a line of names; no cell is a formula."""
    made = [
        {name: cell(value) if isinstance(value, str) else value for name, value in one.items()}
        for one in rows(records)
    ]
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(made[0]) if made else [])
    writer.writerow({name: cell(name) for name in writer.fieldnames})
    writer.writerows(made)
    return text.getvalue().encode()


def parquet_file(records: Sequence[Record]) -> bytes:
    """Files of all runs have the same types, also where a column is empty. Raises
    BackendUnavailable without pyarrow."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise BackendUnavailable(
            "Parquet files need pyarrow, and it is not installed; pip install 'portkern[report]'"
        ) from None
    made = rows(records)
    types = {int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string()}
    schema = pyarrow.schema([(name, types[kind(name)]) for name in (made[0] if made else {})])
    sink = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(made, schema), sink)
    return sink.getvalue()


def kind(column: str) -> type[int | float | str]:
    """The type of the values of a column that are not None."""
    if column in WHOLE_NUMBERS:
        return int
    of_baseline = column.startswith("speedup_") or column.endswith("_us")
    return float if column in NUMBERS or of_baseline else str


def _pairs(values: Mapping[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def _errors(record: Record) -> dict[str, Value]:
    errors = record.errors
    return {
        "max_abs": errors.max_abs if errors else None,
        "max_rel": errors.max_rel if errors else None,
        "vs_fp64": errors.vs_fp64 if errors else None,
        "reference_vs_fp64": errors.reference_vs_fp64 if errors else None,
        "tolerance": errors.tolerance if errors else None,
    }


def _times(record: Record) -> dict[str, Value]:
    timing, roofline = record.timing, record.roofline
    low, high = (timing and timing.ci95_us) or (None, None)
    return {
        "median_us": timing.median_us if timing else None,
        "ci95_low_us": low,
        "ci95_high_us": high,
        "noisy": timing.noisy if timing else None,
        "roofline": roofline.fraction if roofline else None,
    }


def _speedups(record: Record) -> dict[str, Value]:
    """``speedup_eager`` is there always, so that every frame can be sorted by it."""
    columns: dict[str, Value] = {}
    for name in dict.fromkeys(("eager", *record.speedup, *record.baselines)):
        ratio, baseline = record.speedup.get(name), record.baselines.get(name)
        columns[f"{name}_us"] = baseline.median_us if baseline else None
        columns[f"speedup_{name}"] = ratio.value if ratio else None
        columns[f"speedup_{name}_low"] = ratio.ci95[0] if ratio else None
        columns[f"speedup_{name}_high"] = ratio.ci95[1] if ratio else None
    return columns


def _resources(record: Record) -> dict[str, Value]:
    """The most of each resource that a kernel of the build uses, and the least occupancy."""

    def most(of: Callable[[BuildResources], int | None]) -> int | None:
        return max((v for r in record.resources if (v := of(r)) is not None), default=None)

    occupancies = [r.occupancy for r in record.resources if r.occupancy is not None]
    return {
        "registers": most(lambda r: r.registers),
        "spills": most(lambda r: r.spills),
        "shared_bytes": most(lambda r: r.shared_bytes),
        "occupancy": min(occupancies, default=None),
    }
