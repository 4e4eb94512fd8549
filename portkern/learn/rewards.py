"""Published rewards as pure functions of one turn, and how turns and groups share them.

One law holds for all of them: an attempt that was rejected, is suspicious, or whose time is too
uncertain is never rewarded, and what the machine could not evaluate has no reward at all. A ratio
of times pays by the lower end of its interval, and is only punished where the upper end is too
small as well: noise alone does neither.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from portkern.errors import PortkernError, no_such
from portkern.records.record import Verdict

#: What an attempt is paid for which breaks rules, or seems to.
_UNLAWFUL = (Verdict.REJECTED, Verdict.SUSPICIOUS)


class Unavailable(PortkernError):
    """The machine could not evaluate the attempt: it has no reward, which is not a reward of 0."""

    exit_code = 3


@dataclass(frozen=True)
class Ratio:
    """How many times faster than something, as an interval."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high < math.inf:
            raise ValueError(f"expected 0 < low <= high, got {self.low!r} and {self.high!r}")

    @classmethod
    def exactly(cls, value: float) -> Ratio:
        return cls(value, value)

    def beyond(self, bound: float) -> bool:
        """Whether all of it is at or above ``bound``."""
        return self.low >= bound


@dataclass(frozen=True)
class Turn:
    """The outcome of one attempt, from which its reward follows. ``eager`` and ``compiled`` are its
    speedups over PyTorch and over torch.compile, None where there was no time; ``noisy`` says that
    its time is too uncertain to be compared. ``coverage`` is the share of the device's time that
    the attempt's own kernels took; ``decoy``: they were launched and did nothing that counts.

    Raises Unavailable for a verdict that says nothing of the attempt.
    """

    verdict: Verdict
    eager: Ratio | None = None
    compiled: Ratio | None = None
    noisy: bool = False
    coverage: float = 1.0
    decoy: bool = False

    def __post_init__(self) -> None:
        if self.verdict in (Verdict.UNAVAILABLE, Verdict.UNSUPPORTED):
            raise Unavailable(
                f"An attempt that is {self.verdict} has no reward; ask again elsewhere"
            )
        if not 0 <= self.coverage <= 1:
            raise ValueError(f"expected a coverage from 0 to 1, got {self.coverage!r}")

    @property
    def right(self) -> bool:
        return self.verdict is Verdict.PASSED

    @property
    def rewardable(self) -> bool:
        """Whether its reward may be positive."""
        return self.right and not self.noisy and not self.decoy

    @property
    def speedup(self) -> float:
        """The speedup over PyTorch: the low end of its interval; 0 without a time."""
        return self.eager.low if self.eager else 0.0


Reward = Callable[[Turn], float]


def lawful(reward: Reward, turn: Turn) -> float:
    """A reward, which is never positive for what may not be rewarded."""
    value = reward(turn)
    return value if turn.rewardable else min(value, 0.0)


def _paid(turn: Turn, value: float) -> float:
    return value if turn.rewardable else 0.0


# Of single turns


def kevin(turn: Turn) -> float:
    """Cognition's Kevin (arXiv 2507.11948): 0.3 for a right kernel, and its speedup."""
    return _paid(turn, 0.3 + turn.speedup)


def autotriton(turn: Turn) -> float:
    """AutoTriton (arXiv 2507.05687, eq. 3): 1 for a right kernel in the language asked for."""
    return _paid(turn, 1.0)


def tritonrl_code(turn: Turn) -> float:
    """TritonRL (arXiv 2510.17891), for tokens of code: whether the kernel is valid and right."""
    return _paid(turn, 1.0)


def tritonrl_plan(turn: Turn, *, cap: float = 2.0) -> float:
    """TritonRL, for tokens of the plan: the speedup of a right kernel, up to ``cap``."""
    return _paid(turn, min(turn.speedup, cap))


def cuda_l1(turn: Turn) -> float:
    """CUDA-L1 (arXiv 2507.14111): the speedup of a right kernel."""
    return _paid(turn, turn.speedup)


def milestones(turn: Turn, *, margin: float = 0.05) -> float:
    """CUDA Agent (arXiv 2602.24286): -1 for a wrong kernel, 1 for a right one, 2 if it is faster
    than PyTorch by more than ``margin``, 3 if than torch.compile as well."""
    if not turn.right or turn.decoy:
        return -1.0
    if turn.noisy:
        return 0.0
    bound = 1.0 + margin
    if not (turn.eager and turn.eager.low > bound):
        return 1.0
    return 3.0 if turn.compiled and turn.compiled.low > bound else 2.0


def kernelgym(
    turn: Turn,
    *,
    correct: float = 0.5,
    fast: float = 0.5,
    covered: float = 0.0,
    epsilon: float = 0.05,
    cap: float = 0.0,
) -> float:
    """KernelGYM's weighted reward: ``correct`` for a right kernel, ``fast`` for one that is faster
    by ``epsilon`` at least (with a ``cap``: times its speedup up to that), ``covered`` times the
    share of time in its own kernels."""
    if cap:
        pace = min(turn.speedup, cap)
    else:
        pace = float(turn.eager is not None and turn.eager.beyond(1.0 + epsilon))
    return _paid(turn, correct + fast * pace + covered * turn.coverage)


#: KernelGYM's ladder: the speedup of each rung, and its reward.
LADDER = ((3.0, 1.0), (2.0, 0.8), (1.5, 0.6), (1.2, 0.4), (1.0, 0.2))


def kernelgym_ladder(turn: Turn) -> float:
    """KernelGYM's ladder: -1 for a decoy, -0.5 for a source that is not built, -0.3 for a wrong
    kernel, -0.1 for a slower one, else from 0.2 to 1 by speedup."""
    if turn.decoy:
        return -1.0
    if turn.verdict is Verdict.BUILD_FAILED:
        return -0.5
    if not turn.right:
        return -0.3
    if turn.noisy or turn.eager is None:
        return 0.0
    if turn.eager.high < 1.0:
        return -0.1
    return next((reward for rung, reward in LADDER if turn.eager.beyond(rung)), 0.0)


def dr_kernel(turn: Turn) -> float:
    """Dr. Kernel's profiling reward (arXiv 2602.05885): 1 for a right kernel, and the share of the
    device's time that its own kernels take, so that replacing a trifle pays little."""
    return _paid(turn, 1.0 + turn.coverage)


def fast_p(turn: Turn, *, p: float = 1.0) -> float:
    """KernelBench's fast_p as a reward: 1 for a right kernel that is more than ``p`` times as fast;
    ``p`` of 0 asks for a right one alone."""
    return _paid(turn, float(p == 0 or (turn.eager is not None and turn.eager.low > p)))


def kernelband(turn: Turn, *, over_parent: Ratio | None = None) -> float:
    """KernelBand's reward of a step: the share of its parent's time that it saves, 0 if none."""
    if over_parent is None:
        return 0.0
    return _paid(turn, max(0.0, 1.0 - 1.0 / over_parent.low))


REWARDS: Mapping[str, Reward] = {
    "autotriton": autotriton,
    "cuda_l1": cuda_l1,
    "dr_kernel": dr_kernel,
    "fast_p": fast_p,
    "kernelgym": kernelgym,
    "kernelgym_ladder": kernelgym_ladder,
    "kevin": kevin,
    "milestones": milestones,
    "tritonrl_code": tritonrl_code,
    "tritonrl_plan": tritonrl_plan,
}


def named(name: str) -> Reward:
    """The reward that is called so, under the law. Raises ConfigError."""
    if name not in REWARDS:
        raise no_such("reward", name, REWARDS)
    chosen = REWARDS[name]
    return lambda turn: lawful(chosen, turn)


def composed(weights: Mapping[str, float]) -> Reward:
    """The weighted sum of rewards by name, under the law as a whole: a negative weight cannot turn
    the punishment of a wrong kernel into a prize. Raises ConfigError."""
    parts = [(weight, named(name)) for name, weight in weights.items()]

    def reward(turn: Turn) -> float:
        value = sum(weight * part(turn) for weight, part in parts)
        return value if turn.rewardable else min(value, 0.0)

    return reward


# Of several places


def portability(
    places: Mapping[str, Turn],
    *,
    how: Literal["all", "share"] = "all",
    speed: float = 0.0,
    cap: float = 2.0,
) -> float:
    """One source on several places: whether it is right on ``all`` of them, or on which ``share``;
    where it is, ``speed`` times the geometric mean of its speedups on those places that have times,
    each up to ``cap``. Nothing is paid for a source that breaks rules on one of them."""
    if not places:
        raise ValueError("expected one place at least")
    turns = list(places.values())
    if any(turn.verdict in _UNLAWFUL or turn.decoy for turn in turns):
        return 0.0
    right = [turn for turn in turns if turn.rewardable]
    whole = len(right) == len(turns)
    value = float(whole) if how == "all" else len(right) / len(turns)
    timed = [min(turn.speedup, cap) for turn in right if turn.eager]
    if whole and timed:
        value += speed * statistics.geometric_mean(timed)
    return value


# Of turns and groups


def discounted(
    scores: Sequence[float], *, gamma: float = 0.4, how: Literal["sum", "max"] = "sum"
) -> list[float]:
    """Each turn's return: its own score and those after it, ``gamma`` less for each turn between;
    Kevin found the sum to be better than the largest of them."""
    combine = math.fsum if how == "sum" else max
    count = len(scores)
    return [combine(gamma ** (i - t) * scores[i] for i in range(t, count)) for t in range(count)]


def bucketed(ratios: Sequence[Sequence[float]]) -> float:
    """CUDA-L1's speedup: the median of the means of its buckets, which an outlier does not move."""
    return statistics.median(map(statistics.fmean, ratios))


def smoothed(rewards: Sequence[float], *, reach: float = 1.5) -> list[float]:
    """CUDA-L1's smoothing of a group: deviations from the mean in units of their spread, cut off at
    ``reach``."""
    mean, spread = statistics.fmean(rewards), statistics.pstdev(rewards)
    if spread == 0:
        return [0.0] * len(rewards)
    return [max(-reach, min(reach, (reward - mean) / spread)) for reward in rewards]


def centred(rewards: Sequence[float], *, weight: float = 1.0) -> list[float]:
    """TritonRL's advantages of a group: less its mean, not divided by its spread; ``weight`` is
    what tokens of the plan get less than those of code."""
    mean = statistics.fmean(rewards)
    return [weight * (reward - mean) for reward in rewards]


def leave_one_out(rewards: Sequence[float]) -> list[float]:
    """Dr. Kernel's advantages of a group of turns: each less the mean of the others. A group of one
    has nothing to be compared with."""
    count, total = len(rewards), math.fsum(rewards)
    if count < 2:
        return [0.0] * count
    return [reward - (total - reward) / (count - 1) for reward in rewards]
