"""Comparison of what builds use, which is exact: a gate without noise for hardware that is not
there."""

from __future__ import annotations

from collections.abc import Iterator

from portkern.records.record import Counts

#: A kernel is heavier that has so much more than the least that was known; with spills, any more.
SHARE = 0.10
_WORDS = {
    "code_bytes": "bytes of instructions",
    "registers": "registers",
    "spills": "spills",
    "shared_bytes": "bytes of shared memory",
    "instructions": "executed instructions",
    "lines": "lines of memory",
    "lds_passes": "passes of LDS",
}


def more(known: Counts, now: Counts) -> list[str]:
    """The counts that exceed what is known to be enough, in words; unknown ones are left out."""
    return list(_more(known, now))


def _more(known: Counts, now: Counts) -> Iterator[str]:
    for (name, words), old, new in zip(_WORDS.items(), known, now, strict=True):
        if old is None or new is None or new <= old:
            continue
        if name == "spills" or new > old * (1 + SHARE):
            yield f"{words} {old} → {new}"


def least(known: Counts, now: Counts) -> Counts:
    """The smaller one of each count, where it is known."""
    pairs = zip(known, now, strict=True)
    return Counts(*(min((n for n in pair if n is not None), default=None) for pair in pairs))
