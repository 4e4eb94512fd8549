"""The sources that records speak of, kept beside them by their hashes: what was measured can be
built, exported and timed again when the kernel has changed since."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

from portkern.errors import RecordError
from portkern.records import atomic_write
from portkern.records.jsonl import JsonLine
from portkern.spec import own_headers
from portkern.spec.candidate import Candidate
from portkern.spec.companions import Companions
from portkern.spec.foreign_text import opened

#: The folder, beside a run's records.
FOLDER = "sources"
_DIGEST = re.compile(r"[0-9a-f]{16}")
#: The most bytes of one file that is unpacked: a kernel with all that it brings has at most half of
#: it.
_MOST_BYTES = 16 << 20


class StoredSource(JsonLine):
    """``headers`` are portkern's own that it was built with, by name, with the digests of their
    texts; ``family`` is equal for all settings of one kernel."""

    SCHEMA: ClassVar[int] = 1

    schema_: Literal[1] = 1
    op: str
    backend: str
    language: str
    entry: str
    style: Literal["dps", "return", "module"]
    variant: str
    author: str
    family: str
    source: str
    path: str
    files: tuple[tuple[str, str], ...]
    include: tuple[str, ...]
    defines: tuple[str, ...]
    sources: tuple[str, ...]
    headers: dict[str, str]


class SourceStore:
    """A folder of compressed files. What is in it may come from elsewhere: a file that is not what
    its name says is as good as absent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, candidates: Iterable[Candidate], *, headers: bool = True) -> int:
        """Writes those that are not there, and returns how many. ``headers``: with those of today;
        not for what was found in the history. Raises StorageError."""
        new = {one.digest: one for one in candidates if not self._file(one.digest).is_file()}
        for one in new.values():
            self.write(one, own_headers.included(one) if headers else {})
        return len(new)

    def write(self, one: Candidate, headers: Mapping[str, str]) -> None:
        """The candidate, built with portkern's own headers of these names and texts. Raises
        StorageError."""
        for text in headers.values():
            file = self._file(digest_of(text))
            if not file.is_file():
                atomic_write.write(file, _packed(text))
        known = {name: digest_of(text) for name, text in sorted(headers.items())}
        atomic_write.write(self._file(one.digest), _packed(_stored(one, known).to_json()))

    def of(self, digest: str) -> Candidate | None:
        """The candidate with the headers that it was built with."""
        stored = self.stored(digest)
        return None if stored is None else self._candidate(stored)

    def stored(self, digest: str) -> StoredSource | None:
        """The stored source of this digest, without its headers' texts."""
        text = self._read(digest)
        try:
            known = StoredSource.from_json(text) if text is not None else None
            good = known is not None and _candidate(known, {}).digest == digest
        except (RecordError, ValueError):
            return None
        return known if good else None

    def _candidate(self, known: StoredSource) -> Candidate:
        """A header that is not what its name says is left out: today's is taken then."""
        texts = {name: self._read(digest) for name, digest in known.headers.items()}
        good = {n: t for n, t in texts.items() if t and digest_of(t) == known.headers[n]}
        return _candidate(known, good)

    @cached_property
    def digests(self) -> frozenset[str]:
        """The digests of all files."""
        return frozenset(file.name.partition(".")[0] for file in self.folder.glob("*.gz"))

    def _file(self, digest: str) -> Path:
        return self.folder / f"{digest}.gz"

    def _read(self, digest: str) -> str | None:
        if not _DIGEST.fullmatch(digest):
            return None
        try:
            with opened(self._file(digest)) as packed, gzip.open(packed) as file:
                data = file.read(_MOST_BYTES + 1)
            return data.decode() if len(data) <= _MOST_BYTES else None
        except (OSError, EOFError, ValueError):
            return None


def _stored(one: Candidate, headers: dict[str, str]) -> StoredSource:
    beside = one.companions
    return StoredSource(
        op=one.op,
        backend=one.backend,
        language=one.language,
        entry=one.entry,
        style=one.style,
        variant=one.variant,
        author=one.author,
        family=one.family,
        source=one.source,
        path=beside.path,
        files=beside.files,
        include=beside.include,
        defines=beside.defines,
        sources=beside.sources,
        headers=headers,
    )


def _candidate(known: StoredSource, headers: dict[str, str]) -> Candidate:
    """Raises ValueError for paths that lead out of a project."""
    return Candidate(
        known.op,
        known.backend,
        known.language,
        known.source,
        known.entry,
        known.author,
        style=known.style,
        companions=Companions(known.path, known.files, known.include, known.defines, known.sources),
        variant=known.variant,
        headers=headers,
    )


def digest_of(text: str) -> str:
    """The name of a header in the store."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _packed(text: str) -> bytes:
    """Equal for equal texts, whenever they are written."""
    return gzip.compress(text.encode(), mtime=0)
