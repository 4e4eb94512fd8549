"""Estimates and how sure they are. Intervals are 95 % and reproducible: equal data, equal ends."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

RESAMPLES = 10_000
#: The bootstrap knows no more than its units: an interval over fewer is told to be rough.
FEW = 5
_ENDS = (2.5, 97.5)


@dataclass(frozen=True)
class Estimate:
    """An estimate from ``n`` units; one unit has no ``ci95``, since nothing is known of others."""

    value: float
    ci95: tuple[float, float] | None = None
    n: int = 1

    @property
    def ends(self) -> tuple[float, float]:
        return self.ci95 or (self.value, self.value)

    def overlaps(self, other: Estimate) -> bool:
        return self.ends[0] <= other.ends[1] and other.ends[0] <= self.ends[1]


def pass_at_k(n: int, c: int, k: int) -> float:
    """How likely one of ``k`` samples is right, by ``c`` right ones of ``n``: unbiased, so of
    several problems the mean. Raises ValueError for a ``k`` that was not sampled."""
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ValueError(f"Got n={n} c={c} k={k}, expected 0 <= c <= n and 1 <= k <= n")
    return 1 - math.comb(n - c, k) / math.comb(n, k)


def share(c: int, n: int) -> Estimate:
    """``c`` of ``n``, with Wilson's interval: it holds for few samples and at 0 and 1 too."""
    from scipy.stats import binomtest

    ends = binomtest(c, n).proportion_ci(method="wilson")
    return Estimate(c / n, (float(ends.low), float(ends.high)), n)


def mean(values: Sequence[float]) -> Estimate | None:
    """The mean over units, such as runs; None without any."""
    return means([[value] for value in values])[0] if values else None


def means(rows: Sequence[Sequence[float]]) -> list[Estimate]:
    """The mean of each column, over rows that are drawn as a whole: a unit's values belong
    together."""
    return [
        estimate for estimate in ratios(rows, np.ones_like(np.asarray(rows, float))) if estimate
    ]


def ratio(tops: Sequence[float], bottoms: Sequence[float]) -> Estimate | None:
    """The sum of one over the sum of the other, over units; None where that is over nothing."""
    return ratios([[top] for top in tops], [[bottom] for bottom in bottoms])[0] if tops else None


def ratios(tops: npt.ArrayLike, bottoms: npt.ArrayLike) -> list[Estimate | None]:
    """The same for each column of two tables with a row for each unit."""
    above, below = np.asarray(tops, float), np.asarray(bottoms, float)
    drawn = _quotients(above, below)
    estimates: list[Estimate | None] = []
    for k, units in enumerate((below > 0).sum(axis=0).tolist()):
        value = float(above[:, k].sum() / below[:, k].sum()) if units else 0.0
        estimates.append(Estimate(value, _interval(drawn[:, k], units), units) if units else None)
    return estimates


def difference(
    first: tuple[Sequence[float], Sequence[float]], second: tuple[Sequence[float], Sequence[float]]
) -> Estimate | None:
    """The difference of two ratios whose units are pairs; None where one is over nothing."""
    (a, b), (c, d) = (
        [np.asarray(part, float)[:, None] for part in sides] for sides in (first, second)
    )
    if not len(a) or not b.sum() or not d.sum():
        return None
    value = float(a.sum() / b.sum() - c.sum() / d.sum())
    return Estimate(value, _interval((_quotients(a, b) - _quotients(c, d))[:, 0], len(a)), len(a))


def _quotients(above: Floats, below: Floats) -> Floats:
    """The quotients in each bootstrap sample of the rows; nan where it drew none that counts."""
    drawn = _drawn(len(above))
    with np.errstate(invalid="ignore", divide="ignore"):
        quotients: Floats = (drawn @ above) / (drawn @ below)
    return quotients


@lru_cache(maxsize=8)
def _drawn(count: int) -> Floats:
    """How often each of so many rows is drawn in each sample, which takes less room than the
    rows."""
    chances = [1 / count] * count
    return np.random.default_rng(0).multinomial(count, chances, size=RESAMPLES).astype(float)


def _interval(drawn: Floats, units: int) -> tuple[float, float] | None:
    if units < 2:
        return None
    low, high = np.nanpercentile(drawn, _ENDS)
    return float(low), float(high)


# ---- tests of paired differences

#: A difference is shown where fewer equal sides than this would differ as much by chance.
SIGNIFICANT: Final = 0.05
#: The draws of signs where there are too many to try all.
FLIPS = 9_999
#: The units from which on hardly any of the drawn signs are all the same.
_MOST_UNITS = 30


def sign_flips(differences: Sequence[float]) -> float:
    """How likely a mean difference this large is where either sign of each is as likely: the paired
    permutation test, two-sided. All signs are tried where these are few, else drawn."""
    values = np.asarray(differences, float)
    if not values.any():
        return 1.0
    signs = _signs(len(values))
    observed = abs(values.sum()) * (1 - 1e-9)  # equal sums in another order are equal
    as_large = int((np.abs(signs @ values) >= observed).sum())
    if len(signs) == FLIPS:  # what was seen is one of them
        return (1 + as_large) / (1 + FLIPS)
    return as_large / len(signs)


@lru_cache(maxsize=256)
def least_p(units: int) -> float:
    """The least that :func:`sign_flips` can say: of units that are all of one mind. Drawn signs of
    many units are never all the same, and would take gigabytes for thousands of them."""
    return sign_flips([1.0] * min(units, _MOST_UNITS))


def fewest_ops(tests: int) -> int | None:
    """The least number of units that can show a difference by one of so many tests; None where
    none can, since signs are drawn and not all tried."""
    few = [n for n in range(1, _MOST_UNITS) if tests * least_p(n) >= SIGNIFICANT]
    return few[-1] + 1 if few[-1] + 1 < _MOST_UNITS else None


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: how likely one of all is found by chance."""
    adjusted, highest = [0.0] * len(p_values), 0.0
    ordered = sorted(range(len(p_values)), key=lambda place: p_values[place])
    for rank, place in enumerate(ordered):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def corrected(p_values: Sequence[float | None]) -> list[float | None]:
    """The same of those that are known."""
    left = iter(holm([p for p in p_values if p is not None]))
    return [None if p is None else next(left) for p in p_values]


@lru_cache(maxsize=4)
def _signs(count: int) -> Floats:
    """A row for each choice of signs."""
    if 2**count <= FLIPS:
        bits = (np.arange(2**count)[:, None] >> np.arange(count)) & 1
    else:
        bits = np.random.default_rng(0).integers(0, 2, size=(FLIPS, count))
    signs: Floats = 1.0 - 2.0 * bits.astype(np.float64)
    return signs


# ---- best-so-far curves


def padded(curve: Sequence[float], length: int) -> list[float]:
    """The curve padded to ``length``: a run that ended early keeps what it found, and one that
    found nothing has 0."""
    last = curve[-1] if curve else 0.0
    return [*curve[:length], *[last] * (length - len(curve))]


def area(curve: Sequence[float]) -> float:
    """The area under the curve, over its length: the mean, over attempts, of the best so far."""
    return sum(curve) / len(curve)


def reached(curve: Sequence[float], level: float) -> int | None:
    """The number of attempts after which a level was reached; None where it never was."""
    return next((k for k, value in enumerate(curve, 1) if value >= level), None)


def median(counts: Sequence[int | None]) -> float | None:
    """The median of counts, where None stands for more than any count; None where half of them or
    more are None."""
    ordered = sorted(math.inf if count is None else float(count) for count in counts)
    if not ordered:
        return None
    half = len(ordered) // 2
    middle = (ordered[half] + ordered[~half]) / 2
    return middle if math.isfinite(middle) else None


def spread(groups: Iterable[Sequence[float]]) -> float | None:
    """How much repeated measurements of one thing differ: the pooled standard deviation of their
    logarithms, so 0.02 is 2 %. None where nothing was repeated."""
    several = [np.log(np.asarray(group, float)) for group in groups if len(group) > 1]
    if not several:
        return None
    squares = sum(float(((group - group.mean()) ** 2).sum()) for group in several)
    return math.sqrt(squares / sum(len(group) - 1 for group in several))
