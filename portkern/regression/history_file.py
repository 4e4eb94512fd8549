"""A row for each run and cell, as CSV or Parquet: what DuckDB, pandas and Apache Otava read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from portkern.errors import ConfigError, StorageError
from portkern.records.columns import Columns
from portkern.regression.runs import RecordedRun, RunFacts
from portkern.regression.series import Series
from portkern.toolchain.make_once import aside

SUFFIXES = {".csv": "FORMAT csv, HEADER", ".parquet": "FORMAT parquet"}
#: Text, which is anybody's.
_TEXTS = (
    *("time", "run", "commit", "git_branch", "tags", *Series._fields, "verdict", "evidence"),
    *("source_hash", "machine", "device", "venue"),
)
#: What :func:`portkern.printable.cell` does, for tables that spreadsheets and terminals show.
_CELL = (
    r"CREATE OR REPLACE TEMP MACRO cell(t) AS regexp_replace("
    r"regexp_replace(t, '[\x00-\x08\x0b-\x1f\x7f]', '', 'g'), "
    r"'^([-=+@\t\n\x{FF1D}\x{FF0B}\x{FF0D}\x{FF20}])', '''\1')"
)


def check(path: Path) -> None:
    """Raises ConfigError."""
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"Got {path}, expected a file that ends in .csv or .parquet")


def write(
    path: Path,
    columns: Columns,
    runs: Sequence[RecordedRun],
    facts: Mapping[str, RunFacts],
    *,
    timed: bool = False,
) -> int:
    """The number of rows, the oldest run first; ``timed``: only those with a time. ``runs`` are
    the files of ``columns``, ``facts`` by their names. Columns: ``time`` (ISO 8601, UTC) and
    ``run``; ``commit``, ``git_branch`` and ``tags`` (JSON) of the run; the fields of a series;
    ``verdict``, ``evidence``; ``time_us`` (the median), ``p20_us``, ``ratio`` (of p20 to eager's),
    ``noise``, ``noisy``, empty where it was not timed; ``source_hash``, ``machine``, ``device``,
    ``venue``. Raises StorageError."""
    said = [_facts(number, run, facts.get(run.name, RunFacts())) for number, run in enumerate(runs)]
    columns.sql(
        "CREATE TABLE facts (file INTEGER, name VARCHAR, commit_ VARCHAR, branch VARCHAR, "
        "tags VARCHAR)"
    )
    columns.connection.executemany("INSERT INTO facts VALUES (?, ?, ?, ?, ?)", said)
    cell = ", ".join(Series._fields)
    query = (
        f"SELECT time, name AS run, commit_ AS commit, branch AS git_branch, tags, {cell}, "
        "verdict, evidence, median_us AS time_us, p20_us, "
        "p20_us / nullif(eager_p20_us, 0) AS ratio, noise, noisy, source_hash, "
        "machine, device, venue FROM lines JOIN facts USING (file) "
        f"WHERE line IN (SELECT max(line) FROM lines GROUP BY file, {cell}) "
        f"{'AND p20_us IS NOT NULL ' * timed}ORDER BY time, file, line"
    )
    if path.suffix == ".csv":
        columns.sql(_CELL)
        cells = ", ".join(f'cell("{name}") AS "{name}"' for name in _TEXTS)
        query = f"SELECT * REPLACE ({cells}) FROM ({query})"
    import duckdb

    try:
        with aside(path) as made:
            place = str(made).replace("'", "''")
            [(rows,)] = columns.sql(f"COPY ({query}) TO '{place}' ({SUFFIXES[path.suffix]})")
            made.replace(path)
    except duckdb.IOException as error:
        raise StorageError(f"Cannot write {path}: {' '.join(str(error).split())}") from error
    except OSError as error:
        raise StorageError.of(error, path) from error
    return int(str(rows))


def _facts(number: int, run: RecordedRun, facts: RunFacts) -> tuple[int, str, str, str, str]:
    git = facts.git
    tags = json.dumps(dict(facts.tags), ensure_ascii=False) if facts.tags else ""
    return number, run.name, git.commit if git else "", git.branch if git else "", tags
