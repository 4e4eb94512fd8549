"""How near texts are to a question: by their words (BM25), or as vectors (see embedding.py)."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import lru_cache
from typing import Protocol

from portkern.errors import ConfigError

_NAME = re.compile(r"[A-Za-z_]\w*|\d+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


class Ranking(Protocol):
    """``kind`` marks the blocks that it found."""

    @property
    def kind(self) -> str: ...

    def scores(self, question: str, texts: Sequence[str]) -> list[float]:
        """One for each text, higher is nearer; equal inputs give equal scores."""
        ...


@lru_cache(maxsize=4096)
def words(text: str) -> tuple[str, ...]:
    """Lower-case words of prose and code. An identifier counts as its parts and as a whole:
    ``__shfl_xor_sync`` is shfl, xor, sync and shflxorsync."""
    pieces: list[str] = []
    for name in _NAME.findall(text):
        parts = [part.lower() for part in _PART.findall(name)]
        pieces += parts
        if len(parts) > 1:
            pieces.append("".join(parts))
    return tuple(pieces)


class Bm25:
    """Ranks texts by sqlite's FTS5, which comes with Python and is fast enough to index anew
    each time."""

    kind = "bm25"

    def __init__(self) -> None:
        try:
            self.scores("", [])
        except sqlite3.OperationalError as error:
            raise ConfigError(
                f"knowledge=bm25 needs FTS5, which this Python's sqlite lacks ({error}); "
                "use knowledge=embed"
            ) from error

    def scores(self, question: str, texts: Sequence[str]) -> list[float]:
        with closing(sqlite3.connect(":memory:")) as base:
            base.execute("CREATE VIRTUAL TABLE texts USING fts5(words, tokenize='ascii')")
            base.executemany("INSERT INTO texts VALUES (?)", [[" ".join(words(t))] for t in texts])
            wanted = " OR ".join(f'"{word}"' for word in dict.fromkeys(words(question)))
            if not wanted:
                return [0.0] * len(texts)
            # FTS5's bm25() is negative: a better match is less
            rows = base.execute(
                "SELECT rowid, -bm25(texts) FROM texts WHERE texts MATCH ?", [wanted]
            )
            near = dict(rows.fetchall())
        return [near.get(row, 0.0) for row in range(1, len(texts) + 1)]
