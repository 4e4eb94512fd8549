"""Rows of a data set's files: Parquet, JSON lines, or one JSON list."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from portkern.errors import ConfigError
from portkern.spec.foreign_text import Malformed, json_value, opened, read_text

T = TypeVar("T")

#: What a Parquet file may unpack to, and of how many rows, so many of which are unpacked at once.
MOST_TABLE, MOST_ROWS, AT_ONCE = 2 << 30, 2_000_000, 16
#: Characters of one row: a kernel and its tests have some ten thousand.
MOST_ROW = 8 << 20
SUFFIXES = (".parquet", ".jsonl", ".json")


@dataclass(frozen=True)
class TableRow:
    """``place`` is the file and its line, of Parquet the row's number from 1. ``values`` are empty
    where ``problem`` says why there are none."""

    place: str
    values: Mapping[str, object]
    problem: str = ""

    def field(self, key: str, kind: type[T]) -> T:
        """Raises ConfigError, without the place."""
        value = self.values.get(key)
        if type(value) is not kind:
            got = "nothing" if value is None else repr(value)[:60]
            known = ", ".join(sorted(self.values)[:12]) or "none"
            raise ConfigError(
                f"has {got} as {key!r}, expected a {kind.__name__}; its columns are {known}"
            )
        checked: T = value
        return checked


def of(path: Path) -> Iterator[TableRow]:
    """The rows of a file or, in order of their names, of all such files of a folder. Raises
    ConfigError for a file that cannot be read as a whole; a single bad line is a row with its
    problem."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES)
        if not files:
            raise ConfigError(f"No file in {path} ends in {', '.join(SUFFIXES)}")
        for file in files:
            yield from of(file)
        return
    if path.suffix == ".parquet":
        yield from _parquet(path)
        return
    text = read_text(path)
    if text.lstrip().startswith("["):  # a list, whatever the file is called
        yield from _list(path, text)
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield _row(f"{path}:{number}", line)


def _row(place: str, line: str) -> TableRow:
    if len(line) > MOST_ROW:
        return TableRow(
            place, {}, f"is longer than {MOST_ROW >> 20} MiB, the most that a row may have"
        )
    try:
        data = json_value(line)
    except Malformed as error:
        return TableRow(place, {}, f"is not JSON: {error}")
    return _of_value(place, data)


def _of_value(place: str, data: object) -> TableRow:
    if not isinstance(data, dict):
        return TableRow(place, {}, f"is a {type(data).__name__}, expected a JSON object")
    return TableRow(place, data)


def _list(path: Path, text: str) -> Iterator[TableRow]:
    try:
        data = json_value(text)
    except Malformed as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error
    for number, value in enumerate(data, 1):
        yield _of_value(f"{path}[{number}]", value)


def _parquet(path: Path) -> Iterator[TableRow]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigError(
            f"{path} needs pyarrow, and it is not installed; pip install 'portkern[formats]'"
        ) from error
    try:
        with opened(path) as file:
            table = pyarrow.parquet.ParquetFile(file)
            groups = map(table.metadata.row_group, range(table.metadata.num_row_groups))
            size = sum(group.total_byte_size for group in groups)
            _check_size(path, table.metadata.num_rows, size)
            count = itertools.count(1)
            size = 0
            # a value that is in the file once may stand in each row
            for several in table.iter_batches(batch_size=AT_ONCE):
                size += several.nbytes
                _check_size(path, table.metadata.num_rows, size)
                for values in several.to_pylist():
                    yield TableRow(f"{path}:{next(count)}", values)
    except (OSError, pyarrow.ArrowException) as error:
        why = " ".join((getattr(error, "strerror", None) or str(error)).split())
        raise ConfigError(f"{path} is not a Parquet file that can be read: {why}") from error


def _check_size(path: Path, rows: int, size: int) -> None:
    if rows > MOST_ROWS or size > MOST_TABLE:
        raise ConfigError(
            f"{path} has {rows:,} rows of {size >> 20:,} MiB, expected at most "
            f"{MOST_ROWS:,} of {MOST_TABLE >> 20:,} MiB"
        )
