"""Intervals over ops, whose tasks and samples depend on each other.

The unit is the op: tasks of one op on several targets are one draw, not several. How often these
intervals hold what they should is measured by ``benchmarks/compare_study.py``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from portkern.experiment.statistics import Estimate, Floats, share

LEVEL = 0.95


def pooled_share(tops: Floats, bottoms: Floats) -> Estimate:
    """A share between 0 and 1 over all ops: the sum of ``tops`` over that of ``bottoms``, with
    Wilson's interval for the number of independent samples that would vary as the ops do. That
    number is at least the number of ops, so that ops which all say 0 leave room for others; the
    bootstrap would say 0 to 0."""
    value, error, units, reach = _ratio(tops, bottoms)
    if units < 2:
        return Estimate(value, None, units)
    spread = value * (1 - value)
    count = max(spread / error**2, units) if error > 0 else units
    return Estimate(value, _wilson(value, count, reach), units)


def share_over_ops(values: Iterable[tuple[str, float]]) -> Estimate:
    """The mean of shares, each of an op, which may have several."""
    return pooled_share(*_by_op(values))


def mean_over_ops(values: Iterable[tuple[str, float]]) -> Estimate | None:
    """The same of what is never below 0."""
    return pooled_mean(*_by_op(values))


def pooled_geometric(logs: Floats, bottoms: Floats) -> Estimate:
    """The geometric mean, by Student's interval of its logarithm. None of an interval where all
    ops say the same: nothing is known of how others would differ."""
    value, error, units, reach = _ratio(logs, bottoms)
    if units < 2 or error == 0:
        return Estimate(math.exp(value), None, units)
    low, high = value - reach * error, value + reach * error
    return Estimate(math.exp(value), (math.exp(low), math.exp(high)), units)


def pooled_mean(tops: Floats, bottoms: Floats) -> Estimate | None:
    """The mean over all ops of a quantity that is never below 0, such as a speedup or a cost,
    with Student's interval on a logarithmic scale, since the few large ones weigh most. None
    without ops."""
    value, error, units, reach = _ratio(tops, bottoms)
    if not units:
        return None
    if units < 2 or error == 0 or value <= 0:
        return Estimate(value, None, units)
    factor = math.exp(reach * error / value)
    return Estimate(value, (value / factor, value * factor), units)


@lru_cache(maxsize=4096)
def task_share(c: int, n: int, k: int) -> tuple[float, float]:
    """The interval of a task's pass@k: Wilson's of its rate, through 1 - (1 - rate)^k."""
    low, high = share(c, n).ends
    return 1 - (1 - low) ** k, 1 - (1 - high) ** k


def share_difference(
    first: tuple[Floats, Floats], second: tuple[Floats, Floats]
) -> Estimate | None:
    """The difference between two models' shares over the same ops, with Newcombe's interval from
    the intervals of both and their correlation over ops. None without ops."""
    a, b = pooled_share(*first), pooled_share(*second)
    if not a.n:
        return None
    value = a.value - b.value
    if a.n < 2:
        return Estimate(value, None, a.n)
    rho = _correlation(_residuals(*first), _residuals(*second))
    (low_a, high_a), (low_b, high_b) = a.ends, b.ends
    below = _reach(a.value - low_a, high_b - b.value, rho)
    above = _reach(high_a - a.value, b.value - low_b, rho)
    return Estimate(value, (value - below, value + above), a.n)


def _by_op(values: Iterable[tuple[str, float]]) -> tuple[Floats, Floats]:
    found: dict[str, list[float]] = defaultdict(list)
    for op, value in values:
        found[op].append(value)
    tops = np.array([math.fsum(several) for several in found.values()])
    return tops, np.array([float(len(several)) for several in found.values()])


def _ratio(tops: Floats, bottoms: Floats) -> tuple[float, float, int, float]:
    """The ratio of sums, its standard error over units, how many units there are, and Student's
    quantile for that."""
    units = int((bottoms > 0).sum())
    if not units:
        return 0.0, 0.0, 0, 0.0
    total = float(bottoms.sum())
    value = float(tops.sum()) / total
    if units < 2:
        return value, 0.0, units, 0.0
    squares = _residuals(tops, bottoms) ** 2
    error = math.sqrt(units / (units - 1) * float(squares.sum())) / total
    if error <= 1e-12 * max(1.0, abs(value)):
        return value, 0.0, units, _quantile(units - 1)
    return value, error, units, _quantile(_freedom(squares, units))


def _freedom(squares: Floats, units: int) -> float:
    """Degrees of freedom after Satterthwaite: how much the ops vary is itself known from few of
    them only, above all where it is a few rare ones that differ."""
    sum_of_squares = float(squares.sum())
    spread = len(squares) * float(squares.var(ddof=1)) / sum_of_squares**2
    return max(2.0, min(units - 1, 2 / spread)) if spread > 0 else units - 1


def _residuals(tops: Floats, bottoms: Floats) -> Floats:
    residuals: Floats = tops - tops.sum() / bottoms.sum() * bottoms
    return residuals


def _correlation(first: Floats, second: Floats) -> float:
    size = math.sqrt(float((first**2).sum() * (second**2).sum()))
    return float((first * second).sum()) / size if size > 1e-12 else 0.0


def _reach(own: float, other: float, rho: float) -> float:
    return math.sqrt(max(0.0, own**2 + other**2 - 2 * rho * own * other))


def _wilson(value: float, count: float, z: float) -> tuple[float, float]:
    middle = value + z * z / (2 * count)
    half = z * math.sqrt(value * (1 - value) / count + (z / (2 * count)) ** 2)
    size = 1 + z * z / count
    return max(0.0, (middle - half) / size), min(1.0, (middle + half) / size)


def _quantile(freedom: float) -> float:
    """Student's."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + LEVEL) / 2))
