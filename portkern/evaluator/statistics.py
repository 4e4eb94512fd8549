"""Samples into timings: medians, and ratios that carry their uncertainty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from portkern.records.record import Roofline, Speedup, Timing
from portkern.spec.target import Target

FloatArray = NDArray[np.float64]
#: Samples of each round.
Laps = Sequence[Sequence[float]]

RESAMPLES = 1000
#: More samples than this are kept as evenly spaced order statistics.
KEPT = 50
#: Ends of a 95 % interval that are further apart, as a ratio, make a time noisy.
NOISY = 1.5
#: Medians of one thing in two processes that are further apart, as a ratio, are two modes of it.
MODES = 1.2
#: The range of so many rounds is an interval of its own; that of two has the truth in 6 of 10.
ENOUGH_ROUNDS = 4
#: More samples than this in a round are taken as evenly spaced order statistics of it.
OF_ROUND = 64
_PEAK = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


@dataclass(frozen=True)
class TimingPlan:
    """Rounds alternate between all that are timed: ``rounds``, and more until every median is known
    to ``half_width`` of itself or ``budget_s`` is over. Each has ``burst_s`` of calls in a round,
    at most ``most``, ``round_bytes`` of tensors, as every call has some of its own, and ``stage_s``
    of making them. A baseline that has run for ``slow_s`` in its rounds is known: of one whose
    calls take seconds, more would be minutes. ``patient``: where a machine is too busy to check
    times, another load is waited for and they are taken again; before a kernel is accused,
    always. ``told``: whether anyone is told the times; else those that the machine was too busy to
    check are left at that."""

    rounds: int = 5
    half_width: float = 0.01
    budget_s: float = 1.0
    burst_s: float = 0.01
    most: int = 128
    round_bytes: int = 64 << 20
    stage_s: float = 0.01
    slow_s: float = 5.0
    patient: bool = True
    told: bool = True

    @property
    def silent(self) -> TimingPlan:
        """Few calls on new values whose outputs are looked at, and whose times are not."""
        few = replace(self, rounds=2, budget_s=0.0, burst_s=0.001, most=8)
        return replace(few, patient=False, told=False)

    def calls(self, call_us: float, call_bytes: int, stage_us: float = 0.0) -> int:
        """Calls per round, when one costs ``call_us`` with all that timing it takes, and its
        tensors ``stage_us``."""
        room = self.room(call_bytes)
        burst = int(self.burst_s * 1e6 / max(call_us, 1.0)) + 2
        stage = int(self.stage_s * 1e6 / max(stage_us, 1.0))
        return max(1, min(self.most, room, burst, stage))

    def room(self, call_bytes: int) -> int:
        """Calls whose tensors a round may have, beside those of the one that warms up."""
        return self.round_bytes // max(call_bytes, 1) - 1

    def enough(self, samples: Sequence[float]) -> bool:
        low, high = median_ci(samples)
        return high - low <= 2 * self.half_width * (low + high) / 2


def median_ci(samples: Sequence[float]) -> tuple[float, float]:
    """A 95 % interval of the median, between order statistics: the ranks n/2 ± 0.98 sqrt(n)
    (Conover, Practical Nonparametric Statistics, 3.2). The whole range of few samples."""
    values = np.sort(np.asarray(samples, dtype=np.float64))
    n = len(values)
    reach = 0.98 * n**0.5
    low, high = max(0, int(n / 2 - reach)), min(n - 1, int(np.ceil(n / 2 + reach)))
    return float(values[low]), float(values[high])


def median_of_rounds_ci(laps: Laps) -> tuple[float, float]:
    """A 95 % interval of the median of all samples, which has that of samples that are independent
    and, as a round may have delayed all its calls, that of rounds that are resampled, as wide as so
    few need; the latter no wider than the rounds' medians are."""
    low, high = median_ci(observations(laps))
    medians = [float(np.median(lap)) for lap in laps]
    if len(laps) < 2 or not 0 < min(medians) < max(medians):
        return low, high
    middle = float(np.median(observations(laps)))
    drawn = _medians_of_rounds(laps, np.random.default_rng(0))
    ends = np.log(np.quantile(drawn, [0.025, 0.975]) / middle)
    wider = _t975(len(laps) - 1) / _t975(10**6) * (len(laps) / (len(laps) - 1)) ** 0.5
    least, most = middle * np.exp(wider * np.array([min(ends[0], 0.0), max(ends[1], 0.0)]))
    return min(low, max(least, min(medians))), max(high, min(most, max(medians)))


def observations(laps: Sequence[Sequence[float]]) -> list[float]:
    """All samples; a round whose samples are equal is one: a mean that was told for each call."""
    return [sample for lap in laps for sample in (lap[:1] if len(set(lap)) == 1 else lap)]


def noise(laps: Sequence[Sequence[float]]) -> float | None:
    """The relative difference between two timings of one thing: the medians of the even and of
    the odd rounds, as the larger over the smaller less one. None with one round."""
    if len(laps) < 2:
        return None
    even, odd = (np.median([sample for lap in laps[i::2] for sample in lap]) for i in (0, 1))
    return float(max(even, odd) / min(even, odd) - 1) if min(even, odd) > 0 else None


def summarize(
    laps: Sequence[Sequence[float]],
    method: str,
    conditions: Mapping[str, tuple[float, float]] | None = None,
) -> Timing:
    values = np.sort(np.asarray(observations(laps), dtype=np.float64))
    p20, median, p80 = np.quantile(values, [0.2, 0.5, 0.8])
    if len(values) > KEPT:
        kept = values[np.linspace(0, len(values) - 1, KEPT).round().astype(int)]
    else:
        kept = values
    return Timing(
        median_us=float(median),
        p20_us=float(p20),
        p80_us=float(p80),
        n=len(values),
        ci95_us=median_of_rounds_ci(laps),
        rounds=len(laps),
        noise=noise(laps),
        conditions=dict(conditions or {}),
        samples=[round(float(v), 3) for v in kept],
        method=method,
    )


def noisy(timing: Timing, speedups: Mapping[str, Speedup]) -> str:
    """Why a time is too uncertain to be compared; '' when it is not: a 95 % interval whose ends are
    more than :data:`NOISY` apart says little of either."""
    low, high = timing.ci95_us or (timing.median_us, timing.median_us)
    if not high <= NOISY * low:
        return (
            f"the 95 % interval of its median, {low:.3g} to {high:.3g} µs, is wider than "
            f"a ratio of {NOISY:g}"
        )
    if timing.noise is not None and timing.noise > NOISY - 1:
        return f"the medians of its even and odd rounds are {1 + timing.noise:.3g} times apart"
    for name, ratio in speedups.items():
        low, high = ratio.ci95
        if not high <= NOISY * low:
            return (
                f"the 95 % interval of its speedup over {name}, {low:.3g} to {high:.3g}, is wider "
                f"than a ratio of {NOISY:g}"
            )
    return ""


def speedup(kernel: Sequence[float], baseline: Sequence[float]) -> Speedup:
    """Median of the baseline over median of the kernel, with a percentile bootstrap interval
    (Efron and Tibshirani, An Introduction to the Bootstrap, 13.3)."""
    samples = (np.asarray(kernel), np.asarray(baseline))
    value = float(np.median(samples[1]) / np.median(samples[0]))
    if min(map(len, samples)) < 2 or all(len(set(map(float, s))) == 1 for s in samples):
        return Speedup(value=value, ci95=(value, value))
    # A few lines of NumPy: the same in scipy.stats costs an import of a second.
    chance = np.random.default_rng(0)
    medians = [_resampled_medians(values, chance) for values in samples]
    low, high = np.quantile(medians[1] / medians[0], [0.025, 0.975])
    return Speedup(value=value, ci95=(float(low), float(high)))


def speedup_of_rounds(kernel: Laps, baseline: Laps, again: Laps = ()) -> Speedup:
    """The speedup as :func:`speedup` has it, of calls that a round may have delayed together:
    rounds are resampled, and the interval is as wide as so few of them need (Cameron, Gelbach and
    Miller, Review of Economics and Statistics 90, 2008). ``again``: the baseline's rounds in
    another process, of which the interval has the speedup too. The value is that over the first,
    whose rounds alternated with the kernel's, unless they are another mode: then it is that over
    the faster."""
    first = _speedup_of_rounds(kernel, baseline)
    if not again:
        return first
    other = _speedup_of_rounds(kernel, again)
    ends = [*first.ci95, *other.ci95]
    value = min(first.value, other.value) if modes(baseline, again) else first.value
    return Speedup(value=value, ci95=(min(ends), max(ends)))


def modes(first: Laps, again: Laps) -> str:
    """A sentence on two processes in which one thing takes times that no chance explains; '' where
    they agree, or there is no second."""
    if not first or not again:
        return ""
    medians = [float(np.median(observations(laps))) for laps in (first, again)]
    if min(medians) <= 0 or max(medians) <= MODES * min(medians):
        return ""
    ratio = _speedup_of_rounds(first, again)
    if ratio.ci95[0] <= 1 <= ratio.ci95[1]:
        return ""
    return f"takes {medians[0]:.3g} µs in one process and {medians[1]:.3g} µs in another"


def _speedup_of_rounds(kernel: Laps, baseline: Laps) -> Speedup:
    few = min(len(kernel), len(baseline))
    plain = speedup(observations(kernel), observations(baseline))
    if few < 2 or plain.ci95[0] == plain.ci95[1]:
        return plain
    chance = np.random.default_rng(0)
    mine, theirs = (_medians_of_rounds(laps, chance) for laps in (kernel, baseline))
    if plain.value <= 0 or min(mine.min(), theirs.min()) <= 0:
        return plain
    low, high = np.quantile(np.log(theirs / mine), [0.025, 0.975]) - np.log(plain.value)
    wider = _t975(len(kernel) + len(baseline) - 2) / _t975(10**6) * (few / (few - 1)) ** 0.5
    ends = np.exp(np.log(plain.value) + wider * np.array([min(low, 0.0), max(high, 0.0)]))
    if few < ENOUGH_ROUNDS:
        return Speedup(value=plain.value, ci95=(float(ends[0]), float(ends[1])))
    # No wider than the rounds themselves: of times with a long tail there is no t.
    own, its = ([float(np.median(lap)) for lap in laps] for laps in (kernel, baseline))
    least, most = min(its) / max(own), max(its) / min(own)
    return Speedup(value=plain.value, ci95=(max(float(ends[0]), least), min(float(ends[1]), most)))


def _t975(degrees: int) -> float:
    """Student's t at 0.975, by its expansion around the normal's quantile (Abramowitz and Stegun,
    26.7.5)."""
    z = 1.959964
    return (
        z
        + (z**3 + z) / (4 * degrees)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * degrees**3)
    )


def _medians_of_rounds(laps: Laps, chance: np.random.Generator) -> FloatArray:
    """The medians of all samples of ``RESAMPLES`` draws of as many rounds, by how often each round
    was drawn."""
    sizes = [len(lap) for lap in laps]
    kept = [
        np.quantile(lap, (np.arange(OF_ROUND) + 0.5) / OF_ROUND) if n > OF_ROUND else lap
        for lap, n in zip(laps, sizes, strict=True)
    ]
    values = np.concatenate([np.asarray(lap, dtype=np.float64) for lap in kept])
    weight = np.concatenate([np.full(len(k), n / len(k)) for k, n in zip(kept, sizes, strict=True)])
    which = np.repeat(np.arange(len(laps)), [len(lap) for lap in kept])
    order = np.argsort(values, kind="stable")
    drawn = chance.multinomial(len(laps), np.full(len(laps), 1 / len(laps)), size=RESAMPLES)
    mass = (drawn[:, which[order]] * weight[order]).cumsum(axis=1)
    half = mass[:, -1:] / 2
    ends = [(mass >= half * (1 - 1e-9)).argmax(axis=1), (mass > half * (1 + 1e-9)).argmax(axis=1)]
    return np.asarray(values[order][np.stack(ends)].mean(axis=0))


def _resampled_medians(values: FloatArray, chance: np.random.Generator) -> FloatArray:
    """The medians of ``RESAMPLES`` bootstrap samples of two values or more, without drawing
    these: the ranks of a sample's two middle elements are uniform order statistics, whose
    distribution is known (David and Nagaraja, Order Statistics, 2.5)."""
    n, middle = len(values), (len(values) + 1) // 2
    lower = chance.beta(middle, n - middle + 1, RESAMPLES)
    upper = lower if n % 2 else lower + (1 - lower) * chance.beta(1, n - middle, RESAMPLES)
    ranks = np.minimum((np.stack([lower, upper]) * n).astype(np.int64), n - 1)
    return np.asarray(np.sort(values)[ranks].mean(axis=0))


def roofline(
    target: Target, *, nbytes: int, flops: float, dtype: str, median_us: float | None
) -> Roofline:
    """The share of what the target's peaks allow: max(bytes / bandwidth, flops / rate) / time."""
    memory, compute = target.peaks.get("memory"), target.peaks.get(_PEAK.get(dtype, ""))
    if memory is None or median_us is None:
        return Roofline(bytes=nbytes, flops=flops)
    seconds = nbytes / (memory.value * 1e9)
    basis = f"{memory.basis} memory {memory.value:g} {memory.unit}"
    if compute is not None and flops / (compute.value * 1e12) > seconds:
        seconds = flops / (compute.value * 1e12)
        basis = f"{compute.basis} {dtype} {compute.value:g} {compute.unit}"
    fraction = seconds * 1e6 / median_us if median_us > 0 else None
    return Roofline(bytes=nbytes, flops=flops, fraction=fraction, basis=basis)


def write_back_us(target: Target, written_bytes: int) -> float:
    """The microseconds that it takes to write to memory what a call leaves in a GPU's last-level
    cache, for whoever flushes that; 0 where it is not known."""
    memory = target.peaks.get("memory")
    if memory is None or not target.is_gpu:
        return 0.0
    left = min(written_bytes, target.llc_bytes or target.l2_bytes or 0)
    return left / (memory.value * 1e9) * 1e6


def floor_us(target: Target, *, read_bytes: int, flops: float) -> tuple[float, str]:
    """The least microseconds that a call can take, and why: its inputs come from memory, where
    caches were flushed, and its arithmetic runs at the fastest rate that the target has for any
    type. 0 without peaks."""
    rates = [peak.value * 1e12 for peak in target.peaks.values() if peak.unit == "TFLOP/s"]
    arithmetic_us = flops / max(rates) * 1e6 if rates else 0.0
    memory = target.peaks.get("memory")
    reading_us = read_bytes / (memory.value * 1e9) * 1e6 if memory and target.is_gpu else 0.0
    if reading_us >= arithmetic_us:
        return reading_us, f"reading its inputs takes {reading_us:.3g} µs at {target.name}'s peak"
    return arithmetic_us, f"its arithmetic takes {arithmetic_us:.3g} µs at {target.name}'s peak"
