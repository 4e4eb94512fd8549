"""Which records are of kernels that have changed since."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum

from portkern.errors import ConfigError
from portkern.records.record import Record
from portkern.records.source_store import SourceStore, digest_of
from portkern.spec import catalogue, own_headers, registry
from portkern.spec.candidate import Candidate

SHIPPED = "catalogue"


class Age(StrEnum):
    """``current``: the kernel that ships now, under any settings of its knobs; ``changed``: an
    earlier one, whose source is kept; ``lost``: one whose source is nowhere; ``own``: a kernel that
    does not ship."""

    CURRENT = "current"
    CHANGED = "changed"
    LOST = "lost"
    OWN = "own"


class KernelAges:
    """The ages of the kernels in records beside ``store``; each source is looked at once."""

    def __init__(self, store: SourceStore) -> None:
        self._store = store
        self._kept = store.folder.is_dir()
        self._known: dict[tuple[str, str], Age] = {}
        self._shipped: dict[tuple[str, str], list[Candidate]] = {}

    def of(self, record: Record) -> Age:
        key = record.author, record.source_hash
        if key not in self._known:
            self._known[key] = self._age(record)
        return self._known[key]

    def _age(self, record: Record) -> Age:
        if record.author != SHIPPED:
            return Age.OWN
        today = self._today(record.op, record.backend)
        stored = self._store.stored(record.source_hash) if self._kept else None
        if stored is None:
            known = record.source_hash in {one.digest for one in today}
            return Age.CURRENT if known else Age.LOST
        same = [one for one in today if one.family == stored.family]
        if not same:
            return Age.CHANGED
        now = own_headers.included(same[0]) if stored.headers else {}
        return Age.CURRENT if _digests(now) == stored.headers else Age.CHANGED

    def _today(self, op: str, backend: str) -> list[Candidate]:
        if (op, backend) not in self._shipped:
            self._shipped[op, backend] = []
            with suppress(ConfigError):
                self._shipped[op, backend] = catalogue.in_all_languages(op, registry.load(backend))
        return self._shipped[op, backend]


def _digests(texts: dict[str, str]) -> dict[str, str]:
    return {name: digest_of(text) for name, text in texts.items()}


def counted(records: Sequence[Record], store: SourceStore) -> Counter[Age]:
    """The number of records of each age, among those that have a source."""
    ages = KernelAges(store)
    return Counter(ages.of(record) for record in records if record.source_hash)


def note(counts: Counter[Age]) -> str:
    """One line; empty where all is current."""
    parts = []
    if counts[Age.CHANGED]:
        parts.append(f"{counts[Age.CHANGED]} of an earlier kernel, whose source is kept")
    if counts[Age.LOST]:
        parts.append(f"{counts[Age.LOST]} of a kernel whose source was not kept")
    return f"of {counts.total()} cells {' and '.join(parts)}" if parts else ""
