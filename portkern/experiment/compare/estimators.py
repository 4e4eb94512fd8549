"""Estimates of what k of n samples of one task would give. A k above n is an error, never n."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from portkern.experiment.statistics import Floats


def best_of_k(values: Sequence[float], k: int) -> float:
    """The expected largest of ``k`` values drawn without replacement: unbiased. Raises ValueError
    for a ``k`` that was not sampled."""
    return float(_weights(len(values), k) @ np.sort(np.asarray(values, float)))


def best_of_k_geometric(values: Sequence[float], k: int) -> float:
    """The same in the geometric mean over draws, of values above 0."""
    return math.exp(best_of_k([math.log(value) for value in values], k))


@lru_cache(maxsize=512)
def _weights(n: int, k: int) -> Floats:
    """How likely the j-th smallest of n is the largest of k."""
    if not 1 <= k <= n:
        raise ValueError(f"Got k={k} of n={n} samples, expected 1 <= k <= n")
    chosen = math.comb(n, k)
    return np.array([math.comb(j - 1, k - 1) / chosen for j in range(1, n + 1)])
