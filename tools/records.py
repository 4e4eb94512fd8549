"""Adds runs to the committed records: `python -m tools.records NAME RUN…` merges the records of
runs (folders or files) into reports/records/NAME.jsonl.gz, newer ones of a cell in place of older
ones, and keeps the sources that they speak of."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from portkern.errors import ConfigError, PortkernError
from portkern.records import packed, source_store
from portkern.records.record import Record, RecordFile
from portkern.records.source_store import SourceStore
from portkern.regression.runs import RECORDS
from portkern.spec.safe_name import SafeName

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "reports" / "records"
_OP = re.compile(r'"op":"(\w+)"')


def main(argv: list[str]) -> int:
    if len(argv) < 2:
        raise ConfigError(f"Got {argv}; python -m tools.records NAME RUN…")
    name, *given = argv
    kept = FOLDER / f"{SafeName(name)}.jsonl{packed.SUFFIX}"
    known = {record.key: record for record in RecordFile(kept).read()[0]}
    before = len(known)
    for path in map(Path, given):
        file = path / RECORDS if path.is_dir() else path
        new = {record.key: record for record in RecordFile(file).read()[0]}
        if not new:
            raise ConfigError(f"No records in {file}")
        newer = {
            key: one for key, one in new.items() if key not in known or one.time >= known[key].time
        }
        known |= newer
        _keep_sources(file.parent, list(newer.values()))
    packed.write(kept, [record.to_json() for record in known.values()], op_of_line)
    sys.stderr.write(f"{kept.relative_to(ROOT)}: {len(known)} records ({before} before)\n")
    return 0


def op_of_line(line: str) -> str:
    found = _OP.search(line)
    return found[1] if found else ""


def _keep_sources(folder: Path, records: list[Record]) -> None:
    there = SourceStore(folder / source_store.FOLDER)
    store = SourceStore(FOLDER / source_store.FOLDER)
    digests = sorted({record.source_hash for record in records})
    store.keep(kept for digest in digests if (kept := there.of(digest)))


if __name__ == "__main__":
    try:
        raise SystemExit(main(sys.argv[1:]))
    except PortkernError as error:
        sys.exit(f"records: {error}")
