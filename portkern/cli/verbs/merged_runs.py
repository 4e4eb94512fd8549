"""Runs of several machines into one: one page, one gate and one run in MLflow."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from portkern.cli.verbs import run_folder
from portkern.errors import ConfigError
from portkern.printable import printable
from portkern.records import atomic_write, source_store
from portkern.records.jsonl import no_search_for_garbage
from portkern.records.record import Record, RecordFile
from portkern.records.source_store import SourceStore
from portkern.regression import runs
from portkern.regression.merging import merge
from portkern.regression.nights import AGAIN, CALIBRATION
from portkern.regression.runs import RECORDS, RunFacts
from portkern.regression.series import Series

#: Conflicts that are named one by one.
MOST = 20
#: What is said behind the name of a run without records.
ENDED = " has no records: its machine ended before the first"


def into(folder: Path, names: Sequence[str], reports: Path) -> list[str]:
    """Merge runs, by name or by folder, into the one that lies in ``folder``, with what it has
    already. Returns what is to be remarked: runs without records, conflicts, and what was remarked
    of the runs. Raises ConfigError where none has records."""
    sources = {name: _folder(name, reports) for name in names}
    with run_folder.writing(folder), no_search_for_garbage():
        known = {name: _records(place / RECORDS) for name, place in sources.items()}
        empty = [name for name, records in known.items() if not records]
        if len(empty) == len(known):
            raise ConfigError(f"No records in {', '.join(map(str, sources.values()))}")
        again = {name: _records(place / AGAIN) for name, place in sources.items()}
        before: list[str] = []
        if runs.records_of(folder).exists() and folder not in sources.values():
            before = _still_lacking(folder, sources)
            known[folder.name], again[folder.name] = (
                _records(folder / RECORDS),
                _records(folder / AGAIN),
            )
        merged = merge(known)
        place = {Series.of(one): (name, one.environment.machine) for name, one in merged.records}
        races = [
            one
            for name, records in again.items()
            for one in records
            if place.get(Series.of(one)) == (name, one.environment.machine)
        ]
        _keep_sources(folder, list(sources.values()))
        _write(folder / AGAIN, races)
        _write(folder / CALIBRATION, _calibrations([*sources.values(), folder]))
        _write(folder / RECORDS, [one for _, one in merged.records])
        places = list(sources.values())
        runs.note(folder, _tags(places), Path.cwd(), _options(places) or None)
    print(
        f"portkern: note: {len(merged.records)} cells of {', '.join(map(printable, known))} are in "
        f"{printable(str(folder))}",
        file=sys.stderr,
    )
    conflicts = [f"conflict: {line}" for line in merged.conflicts[:MOST]]
    if len(merged.conflicts) > MOST:
        conflicts.append(f"conflict: {len(merged.conflicts) - MOST} more")
    gaps = [f"{runs.GAP}{name}{ENDED}" for name in empty]
    for line in [*gaps, *conflicts]:
        print(f"portkern: {printable(line)}", file=sys.stderr)
    return [*before, *gaps, *conflicts, *_remarks(sources)]


def _still_lacking(folder: Path, names: Iterable[str]) -> list[str]:
    """The merged run's remarks on cells of other machines, which are not looked at now."""
    now = set(map(Path, names))
    told = [line for line in RunFacts.read(folder).remarks if line.startswith(runs.OF_CELLS)]
    return [line for line in told if Path(_whose(line)) not in now]


def _whose(line: str) -> str:
    """The name of the run that a line on cells is about."""
    kind = next(kind for kind in runs.OF_CELLS if line.startswith(kind))
    return line.removeprefix(kind).removesuffix(ENDED).partition(": ")[0]


def _remarks(sources: Mapping[str, Path]) -> list[str]:
    """The remarks on the runs, each with the run's name, and first what kind it is: a gap of one
    machine is a gap of the whole."""
    return [
        _named(name, said) for name, one in sources.items() for said in RunFacts.read(one).remarks
    ]


def _named(name: str, said: str) -> str:
    kind = next((kind for kind in runs.OF_CELLS if said.startswith(kind)), "")
    return f"{kind}{name}: {said.removeprefix(kind)}"


def _folder(name: str, reports: Path) -> Path:
    """The folder of a run that is given by its name or by its path."""
    path = Path(name)
    if len(path.parts) == 1 and ((reports / path).is_dir() or not path.is_dir()):
        return run_folder.run_folder(str(reports), name)
    return path


def _calibrations(places: Iterable[Path]) -> list[Record]:
    """The times of calibration kernels of all runs, each once."""
    found = {one.id: one for place in places for one in _records(place / CALIBRATION)}
    return list(found.values())


def _records(path: Path) -> list[Record]:
    records, torn = RecordFile(path).read()
    if torn:
        print(f"portkern: note: {printable(str(torn))}", file=sys.stderr)
    return records


def _keep_sources(folder: Path, sources: Sequence[Path]) -> None:
    store = SourceStore(folder / source_store.FOLDER)
    for source in sources:
        other = SourceStore(source / source_store.FOLDER)
        digests = {one.source_hash for one in RecordFile(source / RECORDS).read()[0]}
        store.keep(kept for digest in sorted(digests) if (kept := other.of(digest)))


def _tags(sources: Sequence[Path]) -> dict[str, str]:
    return {name: value for one in sources for name, value in RunFacts.read(one).tags.items()}


def _options(sources: Sequence[Path]) -> dict[str, str]:
    """The options that all runs were given alike, by which their kernels are found again."""
    first, *others = (RunFacts.read(one).options for one in sources)
    alike = (pair for pair in first.items() if all(pair in other.items() for other in others))
    return dict(alike)


def _write(path: Path, records: Sequence[Record]) -> None:
    """Whole or not at all."""
    if records or path.exists():
        atomic_write.write(path, "".join(f"{one.to_json()}\n" for one in records))
