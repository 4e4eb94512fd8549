"""Texts as vectors: the cosine of two says how near they are.

Without a model, latent semantic analysis over the catalogue puts words that occur in the same
kernels near each other; it is fitted in half a second and needs no download. With a folder of a
sentence encoder, that is asked (encoder.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from portkern import ops
from portkern.agent.memory import documents
from portkern.agent.memory.ranking import words
from portkern.spec import catalogue, registry

Vectors = npt.NDArray[np.float64]
#: As many dimensions as kernels have subjects, about: of 32 to 128 the best in answering questions.
RANK = 48


class Embedding(Protocol):
    @property
    def kind(self) -> str: ...

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """A row of length 1 for each text, of zeros where nothing in it is known."""
        ...


class Nearness:
    """A ranking by cosines."""

    def __init__(self, embedding: Embedding) -> None:
        self.embedding = embedding

    @property
    def kind(self) -> str:
        return f"embed/{self.embedding.kind}"

    def scores(self, question: str, texts: Sequence[str]) -> list[float]:
        if not texts:
            return []
        asked = self.embedding.vectors([question])[0]
        return [float(value) for value in self.embedding.vectors(texts) @ asked]


class Latent:
    """Latent semantic analysis: TF-IDF over words, on the leading singular vectors of a corpus."""

    kind = "lsa"

    def __init__(self, corpus: Sequence[str], rank: int = RANK) -> None:
        self._column = {word: column for column, word in enumerate(_vocabulary(corpus))}
        counts = self._counts(corpus)
        self._weight = np.log((1 + len(corpus)) / (1 + (counts > 0).sum(axis=0)))
        rows = _unit(counts * self._weight)
        # the right singular vectors by way of the small side: words by far outnumber texts
        values, left = np.linalg.eigh(rows @ rows.T)
        kept = [i for i in np.argsort(-values, kind="stable")[:rank] if values[i] > 1e-9]
        self._axes = rows.T @ (left[:, kept] / np.sqrt(values[kept]))

    def vectors(self, texts: Sequence[str]) -> Vectors:
        return _unit((self._counts(texts) * self._weight) @ self._axes)

    def _counts(self, texts: Sequence[str]) -> Vectors:
        """Damped: the tenth occurrence of a word says little more than the first."""
        table = np.zeros((len(texts), len(self._column)))
        for row, text in enumerate(texts):
            for word, count in Counter(words(text)).items():
                if word in self._column:
                    table[row, self._column[word]] = np.log1p(count)
        return table


def _vocabulary(corpus: Sequence[str]) -> list[str]:
    return sorted({word for text in corpus for word in words(text)})


def _unit(rows: Vectors) -> Vectors:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Vectors = rows / np.maximum(lengths, 1e-12)
    return unit


@cache
def of_catalogue() -> Latent:
    """All kernels that ship with portkern: what plugins add does not change the vectors."""
    return Latent(
        [
            documents.of_kernel(kernel).key
            for backend in sorted(registry.BUILTIN)
            for op in ops.names()
            for kernel in catalogue.candidates(op, registry.load(backend))
        ]
    )
