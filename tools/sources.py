"""Fills the store of sources beside the committed records with what the tree and its history still
have: `python -m tools.sources`. A run of today keeps its own."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from portkern.errors import PortkernError
from portkern.records import source_store
from portkern.records.record import Record, RecordFile
from portkern.records.source_store import SourceStore
from portkern.spec import catalogue, registry
from portkern.spec.backend import Backend
from portkern.spec.candidate import Candidate

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "reports" / "records"
#: Settings of one version of a kernel that are tried.
_MOST_SETTINGS = 3_000
_KERNEL = re.compile(r"backends/(\w+)/kernels/(\w+)(\.\w+)")

#: By op, backend and language, the hashes that are looked for.
_Wanted = dict[tuple[str, str, str], set[str]]


def main() -> int:
    store = SourceStore(RECORDS / source_store.FOLDER)
    wanted: _Wanted = defaultdict(set)
    for file in sorted(RECORDS.glob("*.jsonl.gz")):
        for record in RecordFile(file).read()[0]:
            if record.source_hash and record.source_hash not in store.digests:
                wanted[_key(record)].add(record.source_hash)
    looked, total = 0, sum(map(len, wanted.values()))
    for path, text in _versions():
        for candidate in _candidates(path, text):
            found = _found(candidate, wanted)
            looked += store.keep(found, headers=False)
            for one in found:
                wanted[_key(one)].discard(one.digest)
    sys.stderr.write(f"{looked} of {total} sources found\n")
    return 0


def _key(one: Record | Candidate) -> tuple[str, str, str]:
    return one.op, one.backend, one.language


def _found(candidate: Candidate, wanted: _Wanted) -> list[Candidate]:
    """Its settings that are looked for. Most kernels stand as they are or with one knob turned, so
    that the search ends when all are found."""
    left = wanted.get(_key(candidate), set())
    found: list[Candidate] = []
    for one in itertools.islice(_settings(candidate), _MOST_SETTINGS) if left else ():
        if one.digest in left:
            found.append(one)
            if len(found) == len(left):
                break
    return found


def _settings(candidate: Candidate) -> Iterator[Candidate]:
    """The candidate's other settings, those nearest to its own first."""
    knobs = candidate.knobs
    for turned in range(len(knobs) + 1):
        for names in itertools.combinations(knobs, turned):
            choices = [
                [value for value in knobs[name].choices if value != knobs[name].value]
                for name in names
            ]
            for values in itertools.product(*choices):
                yield candidate.turn(dict(zip(names, values, strict=True)))


def _candidates(path: str, text: str) -> Iterator[Candidate]:
    match = _KERNEL.fullmatch(path)
    if match is None:
        return
    home, op, suffix = match.groups()
    for backend in map(registry.load, registry.names()):
        language = _language(backend, home, suffix)
        if language:
            source = catalogue.of_one(text, language)
            yield Candidate(op, backend.name, language, source, op, style=backend.style)


def _language(backend: Backend, home: str, suffix: str) -> str:
    if backend.name == home:
        return backend.languages.get(suffix, "")
    shared = {package.rpartition(".")[2]: known for package, known in backend.shared.items()}
    return shared.get(home, {}).get(suffix, "")


def _versions() -> Iterator[tuple[str, str]]:
    """Each text that a kernel of the tree ever had, the newest first."""
    log = ["log", "--format=", "--raw", "--no-abbrev", "--no-renames", "--", "backends/*/kernels/*"]
    seen: set[tuple[str, str]] = set()
    for line in _git(*log).splitlines():
        fields = line.split()
        blob, path = fields[3], fields[5]
        if (blob, path) not in seen and set(blob) != {"0"}:
            seen.add((blob, path))
            yield path, _git("cat-file", "blob", blob)


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True)
    return done.stdout.decode(errors="replace")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PortkernError as error:
        sys.exit(str(error))
