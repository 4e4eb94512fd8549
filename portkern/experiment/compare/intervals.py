"""Intervals over ops, whose tasks and samples depend on each other.

The unit is the op: tasks of one op on several targets are one draw, not several. How often these
intervals hold what they should is measured by ``benchmarks/compare_study.py``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from portkern.experiment.statistics import Estimate, Floats, share

LEVEL = 0.95
_STEPS = 50
#: The tilts, as logarithms, from all weight on the least op to hardly any difference between
#: weights.
_TILTS = (-40.0, 20.0)


@dataclass(frozen=True)
class _Unseen:
    """An op of which nothing is known, so that there is room for others where all ops say the
    same. For the lower end it is ``at``; it counts as so much of an op as ``weight`` says, which
    the study has shown to be enough."""

    at: float
    weight: float


#: Mostly wrong, and for the upper end mostly right.
_ALL = _Unseen(0.3, 1.0)
#: Half right by one model and all wrong by the other.
_APART = _Unseen(-0.5, 0.1)


def pooled_share(tops: Floats, bottoms: Floats) -> Estimate:
    """A share between 0 and 1 over all ops: the sum of ``tops`` over that of ``bottoms``, with
    the interval of Owen's empirical likelihood. Its ends are the least and the most that the share
    can be for any weights of the ops which are likely enough, beside one op that nobody has seen.
    Which weights these are does not depend on what the ops say, so that no end falls where an op
    rises."""
    counted = bottoms > 0
    tops, bottoms = tops[counted], bottoms[counted]
    units = len(bottoms)
    if not units:
        return Estimate(0.0, None, 0)
    value = float(tops.sum() / bottoms.sum())
    if units < 2:
        return Estimate(value, None, units)
    low, high = _least(tops, bottoms, _ALL), 1 - _least(bottoms - tops, bottoms, _ALL)
    # Rounding alone parts them from what they enclose.
    return Estimate(value, (max(0.0, min(low, value)), min(1.0, max(high, value))), units)


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


def share_difference(first: Floats, second: Floats, tasks: Floats) -> Estimate | None:
    """The difference between two models' shares over the same ops, which have so many ``tasks``.
    The interval is the one of :func:`pooled_share`, of the differences of each op. None without
    ops."""
    counted = tasks > 0
    apart, tasks = (first - second)[counted], tasks[counted]
    units = len(tasks)
    if not units:
        return None
    value = float(apart.sum() / tasks.sum())
    if units < 2:
        return Estimate(value, None, units)
    low, high = _least(apart, tasks, _APART), -_least(-apart, tasks, _APART)
    return Estimate(value, (min(low, value), max(high, value)), units)


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


def _least(tops: Floats, bottoms: Floats, unseen: _Unseen) -> float:
    """The least ratio of weighted sums, by Dinkelbach's steps, each the least of a difference."""
    size = float(bottoms.mean())
    above, below = np.append(tops / size, unseen.at), np.append(bottoms / size, 1.0)
    counts = np.append(np.ones(len(tops)), unseen.weight)
    ratio = float(tops.sum() / bottoms.sum())
    for _ in range(_STEPS):
        weights = _tilted(above - ratio * below, counts)
        lower = float(weights @ above) / float(weights @ below)
        if abs(lower - ratio) < 1e-12:
            break
        ratio = lower
    return ratio


def _tilted(values: Floats, counts: Floats) -> Floats:
    """Weights that make the mean of ``values`` the least, of those that are likely enough."""
    from scipy.optimize import brentq

    total = float(counts.sum())
    above = values - values.min()
    if above.max() <= 1e-15:
        return counts / total
    above = above / above.max()
    # A little more than the limit of large samples, for what few ops know of each other.
    most = _normal_quantile() ** 2 * (1 + 1 / (len(values) - 2))

    def too_unlikely(log_tilt: float) -> float:
        return -2 * float(counts @ np.log(tilted(log_tilt) * total / counts)) - most

    def tilted(log_tilt: float) -> Floats:
        weights: Floats = counts / (above + math.exp(log_tilt))
        weights /= weights.sum()
        return weights

    return tilted(brentq(too_unlikely, *_TILTS, xtol=1e-12))


def _normal_quantile() -> float:
    from scipy.special import ndtri

    return float(ndtri((1 + LEVEL) / 2))


def _quantile(freedom: float) -> float:
    """Student's."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + LEVEL) / 2))
