"""Records of many runs as columns, read by DuckDB: none becomes an object that nobody asked for.

What a record must be is said once, in :mod:`portkern.records.record`. A file in which DuckDB meets
anything odd is read again as records: these say what is wrong with it, or that nothing is.
"""

from __future__ import annotations

import glob
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from portkern.errors import BackendUnavailable, RecordError
from portkern.printable import printable
from portkern.records import packed
from portkern.records.jsonl import Torn
from portkern.records.record import EXECUTED_COUNTS, Evidence, Record, RecordFile, Verdict
from portkern.spec import foreign_text

if TYPE_CHECKING:
    import duckdb

_TIMING = 'STRUCT(median_us DOUBLE, p20_us DOUBLE, noise DOUBLE, noisy VARCHAR, "method" VARCHAR)'
#: What is read of a line; the rest is not looked at.
_LINE = {
    "schema": "BIGINT",
    **dict.fromkeys(("run", "id", "time", "key", "op"), "VARCHAR"),
    "workload": 'STRUCT("set" VARCHAR, "name" VARCHAR, dims JSON, dtype VARCHAR)',
    **dict.fromkeys(("backend", "language", "variant", "target", "venue"), "VARCHAR"),
    **dict.fromkeys(("source_hash", "author", "verdict", "detail"), "VARCHAR"),
    **dict.fromkeys(("evidence", "missing"), "VARCHAR"),
    "timing": _TIMING,
    "baselines": f"STRUCT(eager {_TIMING})",
    "speedup": 'STRUCT(eager STRUCT("value" DOUBLE))',
    "resources": "STRUCT(registers BIGINT, spills BIGINT, shared_bytes BIGINT)[]",
    "launches": "STRUCT(counts STRUCT("
    f"{', '.join(f'{name} BIGINT' for name in EXECUTED_COUNTS)}))[]",
    **{"code": "VARCHAR", "code_bytes": "BIGINT", "carried": "VARCHAR"},
    "environment": (
        "STRUCT(machine VARCHAR, device VARCHAR, driver VARCHAR, toolchain JSON, "
        "harness_version VARCHAR)"
    ),
}
#: The most threads of DuckDB, which has one for each processor unless told otherwise.
MOST_THREADS = 4
#: The columns of a record as a series over runs; the names of
#: :class:`portkern.regression.series.Series`.
SERIES = {
    "op": "op",
    "workload_set": 'workload."set"',
    "workload": 'workload."name"',
    "dtype": "workload.dtype",
    "backend": "backend",
    "language": "language",
    "variant": "coalesce(variant, '')",
    "target": "target",
}
#: Columns of the table, and what they are in a line. Times are in microseconds; ``eager_us`` and
#: ``eager_p20_us`` are the baseline's. ``toolchain`` is an object of JSON.
COLUMNS = {
    **SERIES,
    **{name: name for name in ("run", "time", "key", "venue", "source_hash", "verdict")},
    "evidence": "evidence",
    "detail": "split_part(coalesce(detail, ''), chr(10), 1)",
    "missing": "coalesce(missing, '')",
    "median_us": "timing.median_us",
    "p20_us": "timing.p20_us",
    "noise": "timing.noise",
    "noisy": "coalesce(timing.noisy, '')",
    "method": 'timing."method"',
    "eager_us": "baselines.eager.median_us",
    "eager_p20_us": "baselines.eager.p20_us",
    "speedup": 'speedup.eager."value"',
    "machine": "environment.machine",
    "device": "environment.device",
    "driver": "coalesce(environment.driver, '')",
    "toolchain": "coalesce(environment.toolchain, '{}')",
    "harness_version": "environment.harness_version",
    "code": "coalesce(code, '')",
    "code_bytes": "code_bytes",
    **{
        name: f"list_max([one.{name} for one in resources])"
        for name in ("registers", "spills", "shared_bytes")
    },
    **{
        name: (  # of what was counted, a count that is not there is 0
            f"TRY_CAST(list_sum([coalesce(one.counts.{name}, 0) for one in launches "
            "if one.counts.instructions IS NOT NULL]) AS BIGINT)"
        )
        for name in EXECUTED_COUNTS
    },
    "carried": "coalesce(carried, '')",
}
_KINDS = {
    **dict.fromkeys(("median_us", "p20_us", "noise", "eager_us", "eager_p20_us"), "DOUBLE"),
    **dict.fromkeys(("code_bytes", "registers", "spills", "shared_bytes"), "BIGINT"),
    **dict.fromkeys(EXECUTED_COUNTS, "BIGINT"),
    "speedup": "DOUBLE",
}
_NEEDED = (
    *("run", "id", "time", "key", "op", "backend", "language", "target", "venue", "author"),
    *("source_hash", 'workload."set"', 'workload."name"', "workload.dims", "workload.dtype"),
    *("environment.machine", "environment.device", "environment.harness_version"),
)


def _sound() -> str:
    """Whether a line is a record, as far as its columns say."""
    verdicts = ", ".join(f"'{verdict}'" for verdict in Verdict)
    rungs = ", ".join(f"'{rung}'" for rung in Evidence)
    ran = ", ".join(f"'{rung}'" for rung in Evidence if rung >= Evidence.EMULATED)
    conditions = [
        "schema = 1",
        *(f"{name} IS NOT NULL" for name in _NEEDED),
        f"verdict IN ({verdicts})",
        f"evidence IN ({rungs})",
        "(timing IS NOT NULL) = (evidence = 'measured')",
        f"(verdict = 'passed') = (evidence IN ({ran}))",
        "(timing IS NULL OR (timing.median_us IS NOT NULL AND timing.p20_us IS NOT NULL"
        ' AND timing."method" IS NOT NULL))',
        "(baselines.eager IS NULL OR (baselines.eager.p20_us IS NOT NULL"
        " AND baselines.eager.median_us IS NOT NULL))",
    ]
    return f"coalesce({' AND '.join(conditions)}, false)"


class Columns:
    """A table ``records`` of the lines of files, in their order (``line``), each with the number of
    its file (``file``). ``torn`` and ``problems`` are of files, by their place among those given:
    the former are complete but for their last line, of the latter there are no rows. ``only``: what
    columns of :data:`COLUMNS` must be for a line to be read. Raises BackendUnavailable."""

    def __init__(
        self, files: Sequence[Path], *, only: Mapping[str, str] | None = None, memory: str = "1GB"
    ) -> None:
        self.files = [packed.standing(path) for path in files]
        self._only = dict(only or {})
        self.torn: dict[int, Torn] = {}
        self.problems: dict[int, str] = {}
        self._scratch = tempfile.TemporaryDirectory(prefix="portkern-columns-")
        try:
            self.connection = _connected(Path(self._scratch.name), memory)
            self._create()
            self._fill()
        except BaseException:
            self._scratch.cleanup()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.connection.close()
        self._scratch.cleanup()

    def sql(self, query: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        return self.connection.execute(query, list(parameters)).fetchall()

    def _create(self) -> None:
        columns = ", ".join(f"{name} {_KINDS.get(name, 'VARCHAR')}" for name in COLUMNS)
        self.sql(f"CREATE TABLE records ({columns}, sound BOOLEAN, file INTEGER)")
        paths = [*map(str, self.files), *(str(self._copy(n)) for n in range(len(self.files)))]
        quoted = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
        self.sql(f"CREATE TYPE path AS ENUM ({quoted})")

    def _fill(self) -> None:
        whole = {number: path for number, path in enumerate(self.files) if _ends_whole(path)}
        odd = {*range(len(self.files))} - {*whole} | {*self._read(whole)}
        again: dict[int, Path] = {}
        for number in sorted(odd):
            try:
                known, torn = RecordFile(self.files[number]).read()
            except (RecordError, OSError) as error:
                self.problems[number] = str(error)
                continue
            if torn:
                self.torn[number] = torn
            again[number] = self._copy(number)
            _write(again[number], known)
        for number in self._read(again):
            self.problems[number] = f"{self.files[number]}: DuckDB cannot read what is in it"
        self.sql("CREATE VIEW lines AS SELECT * EXCLUDE (sound), rowid AS line FROM records")

    def _copy(self, number: int) -> Path:
        return Path(self._scratch.name) / f"{number}.jsonl"

    def _read(self, files: Mapping[int, Path]) -> list[int]:
        """Add the lines of files by their numbers. Those that have an odd one are left out, and
        returned."""
        import duckdb

        if not files:
            return []
        try:
            self._insert(list(files.values()))
        except duckdb.Error:  # a line that is longer than its buffer, and no word on which file's
            if len(files) == 1:
                return list(files)
            return [odd for number, path in files.items() for odd in self._read({number: path})]
        found = self.sql("SELECT DISTINCT file FROM records WHERE NOT sound")
        odd = [int(str(number)) for (number,) in found]
        self.sql("DELETE FROM records WHERE file IN (SELECT unnest(?))", [odd])
        return odd

    def _insert(self, paths: Sequence[Path]) -> None:
        line = ", ".join(f"{name}: '{kind}'" for name, kind in _LINE.items())
        chosen = ", ".join(f"{what} AS {name}" for name, what in COLUMNS.items())
        wanted = " AND ".join([f"{COLUMNS[name]} = ?" for name in self._only] or ["true"])
        self.sql(
            f"INSERT INTO records SELECT {chosen}, {_sound()} AS sound, "
            f"enum_code(filename::path) % {len(self.files)} FROM read_json(?, "
            f"format = 'newline_delimited', columns = {{{line}}}, filename = true, "
            f"ignore_errors = true) WHERE ({wanted}) OR NOT sound",
            [[glob.escape(str(path)) for path in paths], *self._only.values()],
        )


def _connected(scratch: Path, memory: str) -> duckdb.DuckDBPyConnection:
    try:
        import duckdb
    except ImportError:
        raise BackendUnavailable(
            "Records of several runs are read by DuckDB, and it is not installed; "
            "pip install duckdb"
        ) from None
    # Extensions that are not in the wheel would be fetched from the network.
    return duckdb.connect(
        config={
            "memory_limit": memory,
            # Each has buffers of its own: on 64 processors they alone take more than the memory.
            "threads": str(min(MOST_THREADS, len(os.sched_getaffinity(0)))),
            "temp_directory": str(scratch / "spilled"),
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        }
    )


def _ends_whole(path: Path) -> bool:
    """Whether the last line has its end, and the file can be read at all. What is compressed is
    read line by line, as only then its size is bounded."""
    if path.suffix == packed.SUFFIX:
        return False
    try:
        with foreign_text.opened(path) as file:
            if not file.seek(0, 2):
                return True
            file.seek(-1, 2)
            return file.read(1) == b"\n"
    except OSError:
        return False


def _write(path: Path, records: Sequence[Record]) -> None:
    """Writes records without the long parts that no column has."""
    with path.open("w", encoding="utf-8") as file:
        for record in records:
            short: dict[str, object] = {"detail": record.detail.partition("\n")[0]}
            short |= {"findings": [], "guard": []}
            file.write(record.model_copy(update=short).to_json() + "\n")


class Texts(dict[str, str]):
    """Text as a terminal may have it, each text once: records repeat nearly all of theirs."""

    def __missing__(self, text: str) -> str:
        self[text] = printable(text)
        return self[text]
