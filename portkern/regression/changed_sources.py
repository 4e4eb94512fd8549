"""The changes of kernels from one run to another, where both kept their sources."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path

from portkern.records import source_store
from portkern.records.source_store import SourceStore
from portkern.regression.comparison import RunComparison
from portkern.spec.candidate import Candidate


def lines(comparison: RunComparison, after: Path, before: Path) -> Iterator[str]:
    """One line for each pair of sources of a cell that is in both runs, which are folders."""
    told: set[tuple[str, str]] = set()
    stores = SourceStore(before / source_store.FOLDER), SourceStore(after / source_store.FOLDER)
    for series, old in comparison.before.cells.items():
        new = comparison.after.cells.get(series)
        if new is None or new.source_hash == old.source_hash:
            continue
        pair = old.source_hash, new.source_hash
        if pair in told:
            continue
        told.add(pair)
        kept = [store.of(digest) for store, digest in zip(stores, pair, strict=True)]
        if kept[0] and kept[1]:
            count = _changed(kept[0], kept[1])
            yield (
                f"source: {kept[1].op} {kept[1].backend}: {count} "
                f"{'line' if count == 1 else 'lines'} changed, {pair[0]} → {pair[1]}"
            )


def _changed(old: Candidate, new: Candidate) -> int:
    """Lines that were added, removed or replaced in the source and all that it was built with."""
    total = 0
    one, two = _files(old), _files(new)
    for name in {*one, *two}:
        a, b = (files.get(name, "").splitlines() for files in (one, two))
        for tag, start, end, other, last in difflib.SequenceMatcher(a=a, b=b).get_opcodes():
            total += 0 if tag == "equal" else max(end - start, last - other)
    return total


def _files(candidate: Candidate) -> dict[str, str]:
    return {"": candidate.source, **candidate.companions.texts, **candidate.headers}
