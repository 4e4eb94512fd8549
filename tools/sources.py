"""Fills the store of sources beside the committed records with what the tree and its history still
have: `python -m tools.sources`. A run of today keeps its own. Headers of portkern's own are those
of the last commit before a kernel was measured that has it as it was measured."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from portkern.errors import PortkernError
from portkern.records import source_store
from portkern.records.record import Record, RecordFile
from portkern.records.source_store import SourceStore
from portkern.spec import catalogue, own_headers, registry
from portkern.spec.backend import Backend
from portkern.spec.candidate import Candidate

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "reports" / "records"
#: Settings of one version of a kernel that are tried.
_MOST_SETTINGS = 3_000
_KERNEL = re.compile(r"backends/(\w+)/kernels/(\w+)(\.\w+)")

#: The hashes that are looked for, by op, backend and language.
_Wanted = dict[tuple[str, str, str], set[str]]


def main() -> int:
    store = SourceStore(RECORDS / source_store.FOLDER)
    wanted: _Wanted = defaultdict(set)
    measured: dict[str, str] = {}
    for file in sorted(RECORDS.glob("*.jsonl.gz")):
        for record in RecordFile(file).read()[0]:
            if record.source_hash and _lacks(store, record.source_hash):
                wanted[_key(record)].add(record.source_hash)
                known = measured.get(record.source_hash, "")
                measured[record.source_hash] = max(known, record.time)
    looked, total = 0, sum(map(len, wanted.values()))
    for version in _versions():
        for candidate in _candidates(version.path, version.text):
            for one in _found(candidate, wanted):
                at = version.commit_at(measured[one.digest])
                store.write(one, own_headers.included(one, partial(_header, at)))
                wanted[_key(one)].discard(one.digest)
                looked += 1
    sys.stderr.write(f"{looked} of {total} sources found\n")
    return 0


def _lacks(store: SourceStore, digest: str) -> bool:
    """Whether it is not kept, or without the headers that it includes."""
    known = store.stored(digest)
    if known is None:
        return digest not in store.digests
    needs = any("/" in name for name in own_headers.taken(known.source))
    return (needs or known.language in own_headers.HARNESS) and not known.headers


def _key(one: Record | Candidate) -> tuple[str, str, str]:
    return one.op, one.backend, one.language


def _found(candidate: Candidate, wanted: _Wanted) -> list[Candidate]:
    """The settings of a candidate that are looked for. Most kernels stand as they are or with one
    knob turned, so that the search ends when all are found."""
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


@dataclass(frozen=True)
class _Version:
    """A text that a kernel of the tree had, from a commit on."""

    path: str
    blob: str
    commit: str

    @property
    def text(self) -> str:
        return _git("cat-file", "blob", self.blob)

    def commit_at(self, time: str) -> str:
        """The last commit before a time that has this text, else the first one that has it."""
        last = _git("rev-list", "-1", f"--before={time}", "HEAD").strip()
        has = last and _git("ls-tree", last, "--", self.path).split()[2:3] == [self.blob]
        return last if has else self.commit


def _versions() -> Iterator[_Version]:
    """The newest first."""
    log = ["log", "--format=%H", "--raw", "--no-abbrev", "--no-renames"]
    seen: set[tuple[str, str]] = set()
    commit = ""
    for line in _git(*log, "--", "backends/*/kernels/*").splitlines():
        fields = line.split()
        if len(fields) == 1:
            commit = fields[0]
        elif fields:
            blob, path = fields[3], fields[5]
            if (blob, path) not in seen and set(blob) != {"0"}:
                seen.add((blob, path))
                yield _Version(path, blob, commit)


@cache
def _header(commit: str, name: str, backend: str) -> str | None:
    """A header's text as it was in the tree of a commit."""
    for package in own_headers.packages(backend):
        home = "backends/" + package.rpartition(".")[2]
        folders = _git("ls-tree", "-d", "--name-only", commit, "--", f"{home}/include/").split()
        for folder in (home, f"{home}/include", *folders):
            done = _asked("show", f"{commit}:{folder}/{name}")
            if done is not None:
                return done
    return None


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True)
    return done.stdout.decode(errors="replace")


def _asked(*words: str) -> str | None:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False)
    return None if done.returncode else done.stdout.decode(errors="replace")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PortkernError as error:
        sys.exit(str(error))
