"""Checks of the times that a worker reports, against what is seen from outside its process: the
evaluator's clock, and the processor time that the system's scheduler counts.

A busy machine delays everything; a round in which threads waited for a processor is not evidence.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

#: A worker may keep silent of this share of the time that it speaks of, and of the jitter of a
#: message, which is so many seconds and in a round that speaks of less than LONG_S proportionally
#: less: what hides there is asked about in longer rounds.
HIDDEN, JITTER_S, LONG_S = 0.25, 0.0003, 0.003
#: Rounds that speak of more and of less must agree on a call but for this factor.
AGREE = 1.5
#: The further microseconds where the kernel is timed in a way of its own: events of a stream that
#: waits for another one happen up to two after what they wait for.
STREAMS_US = 2.5
#: A round whose mean call takes so many times its median call is uneven; a kernel whose rounds
#: mostly are does the work of several calls in one.
UNEVEN, FEW_CALLS = 1.3, 3
#: The busiest thread may have run for so many times its calls, beside what others ran or stood
#: ready for. Reading a request and answering it, and what is between two calls, take a thread whose
#: data is in no cache so long.
PAID, MESSAGE_S, CALL_S = 1.5, 0.0005, 3e-6
#: A call of many that takes so many times the processor time of one of few is another call.
ANOTHER = 4.0
#: The share of all rounds that must show that a thread ran for longer.
MOSTLY = 0.75
#: The same work takes less than so many times the processor time in two processes, beside so much
#: for threads that fall asleep.
STAGING, STAGING_S = 1.5, 0.0005
#: A round is disturbed when threads waited for a processor for more than this share of it.
DISTURBED = 0.1
#: Fewer undisturbed rounds accuse nobody.
LEAST_EVIDENCE = 3


@dataclass
class TimedRound:
    """The calls of one runner in one round, as the worker and the evaluator timed them.
    ``wall_s`` is from asking for the calls to the answer, ``stage_s`` for making their tensors,
    in which its process ran for ``staging_ran_s``. While they were timed, one of its threads ran
    for ``busiest_s``, the others ran or stood ready for ``beside_s``, and all and the
    evaluator's stood ready without a processor for ``waited_s``."""

    samples: list[float]
    wall_s: float
    stage_s: float = 0.0
    staging_ran_s: float = 0.0
    waited_s: float = 0.0
    beside_s: float = 0.0
    busiest_s: float = 0.0

    @property
    def stage_us(self) -> float:
        """The microseconds that it took to make one call's tensors."""
        return self.stage_s * 1e6 / (len(self.samples) + 1)

    @property
    def reported_s(self) -> float:
        return sum(self.samples) / 1e6

    @property
    def call_us(self) -> float:
        """The microseconds of one call by the evaluator's clock, with its share of what timing
        takes."""
        return self.wall_s * 1e6 / (len(self.samples) + 1)

    @property
    def disturbed(self) -> bool:
        return self.waited_s > DISTURBED * self.wall_s

    @property
    def uneven(self) -> bool:
        if len(self.samples) < FEW_CALLS:
            return False
        median, mean = statistics.median(self.samples), statistics.fmean(self.samples)
        return mean > UNEVEN * median

    @property
    def strain(self) -> float:
        """How many times the duration of its calls the busiest thread ran, beyond what timing may
        take. Where threads take turns on a processor, each turn begins with empty caches."""
        calls = len(self.samples) + 1
        median_s = max(statistics.median(self.samples) / 1e6, 1e-9)
        return (self.busiest_s - CALL_S * calls - MESSAGE_S) / (calls * median_s)

    def unpaid_s(self, usual_s: float, strain: float) -> float:
        """The seconds that its busiest thread ran for beyond all calls at their median, of
        which the first may take twice as long, and beyond what timing takes by itself: waiting
        for others does not add to processor time, except for the ``strain`` that the baseline is
        under too, and for what a thread may spin until others of its team are done: at most as
        long as these ran or stood ready."""
        median_s = statistics.median(self.samples) / 1e6
        calls = len(self.samples) + 1
        allowed_s = (PAID * strain * calls + 1) * median_s + CALL_S * calls + MESSAGE_S
        return self.busiest_s - self.beside_s - allowed_s - usual_s

    @property
    def allowed_s(self) -> float:
        """The seconds that may stay hidden without a suspicion."""
        return HIDDEN * self.reported_s + JITTER_S * min(1.0, self.reported_s / LONG_S)

    def some(self, count: int, chosen: random.Random) -> list[int]:
        """At most so many calls by chance, of which one is of the faster half, as only there a
        median is lowered."""
        order = sorted(range(len(self.samples)), key=lambda i: (self.samples[i], chosen.random()))
        faster = order[: (len(order) + 1) // 2]
        return sorted({chosen.choice(order if i else faster) for i in range(count)})

    def hidden_s(self, usual_s: float = 0.0) -> float:
        """The seconds that the evaluator saw and the worker did not report, beyond what timing
        takes by itself and the call that warms up."""
        return self.wall_s - self.reported_s * (1 + 1 / len(self.samples)) - usual_s

    def hides(self, usual_s: float = 0.0) -> bool:
        return self.hidden_s(usual_s) > self.allowed_s


@dataclass(frozen=True)
class Usual:
    """The usual figures of the trusted baseline's rounds: seconds that timing takes by itself,
    and whether its rounds are uneven too. ``ran_s`` and ``staging_ran_s`` are processor seconds
    of its busiest thread for timing alone, and for the tensors of one call, where the kernel is
    timed as the baseline is and on the processors that are counted; else None. ``strain`` is
    that of all but few of its rounds, and 1 at least."""

    hidden_s: float
    uneven: bool
    ran_s: float | None
    staging_ran_s: float | None
    strain: float = 1.0

    @classmethod
    def of(cls, laps: Sequence[TimedRound], *, alike: bool, calls: int = 0) -> Usual:
        """The usual times, from the trusted baseline's rounds; ``alike``: the kernel is timed as it
        is, on the processors that are counted. ``calls``: those of the kernel's rounds where timing
        takes its time for each, as it does where caches are flushed before a call."""

        def hidden_s(lap: TimedRound) -> float:
            return lap.hidden_s() * ((calls + 1) / (len(lap.samples) + 1) if calls else 1.0)

        return cls(
            hidden_s=min(map(hidden_s, laps), default=0.0),
            uneven=mostly_uneven(evidence(laps) or laps),
            # Below 0 where it waited for a processor within its calls: timing costs no less for it.
            ran_s=max([0.0, *(lap.busiest_s - lap.reported_s for lap in laps)]) if alike else None,
            staging_ran_s=max(
                (lap.staging_ran_s / (len(lap.samples) + 1) for lap in laps), default=None
            )
            if alike
            else None,
            strain=max(1.0, _of_most([lap.strain for lap in laps])),
        )


def _of_most(values: Sequence[float]) -> float:
    """The value that all but few do not exceed; 0 where there are none."""
    return sorted(values)[int(MOSTLY * len(values))] if values else 0.0


@dataclass(frozen=True)
class Suspicion:
    """``certain``: other load on the machine cannot make it look so."""

    reason: str
    certain: bool


def at_odds(
    short: Sequence[TimedRound],
    long: Sequence[TimedRound],
    usual: Usual,
    slower: Sequence[float] | None = None,
    slack_us: float = 0.0,
) -> Suspicion | None:
    """Why the times of many short rounds are not believed, given long ones that are, of which the
    fastest speaks for the kernel. ``slower``: how many times longer than in short rounds the
    baseline's calls took beside each of these, as the machine's load changes. ``slack_us``: what a
    call may be longer by chance of the way it is timed in. It is certain where calls of long rounds
    took far more processor time than those of short ones say."""
    quick = statistics.median(sample for lap in short for sample in lap.samples)
    slow = min(
        statistics.median(lap.samples) / max(1.0, factor)
        for lap, factor in zip(long, slower or [1.0] * len(long), strict=True)
    )
    if slow <= AGREE * quick or slow <= quick + slack_us:
        return None
    reason = (
        f"its median call took {quick:.3g} µs in rounds of {len(short[0].samples)} calls, and "
        f"{slow:.3g} µs in rounds of {len(long[0].samples)}"
    )
    certain = usual.ran_s is not None and all(
        replace(lap, samples=[quick] * len(lap.samples)).unpaid_s(
            usual.ran_s, ANOTHER / PAID * usual.strain
        )
        > 0
        for lap in long
    )
    return Suspicion(reason, certain)


def evidence(laps: Sequence[TimedRound]) -> list[TimedRound]:
    return [lap for lap in laps if not lap.disturbed]


def can_tell(mine: Sequence[TimedRound], theirs: Sequence[TimedRound]) -> bool:
    """Whether rounds of a kernel and of the baseline beside it are any evidence. Where most of the
    baseline's are undisturbed, no other process is at work: a kernel's threads that wait then have
    only each other to wait for."""
    quiet = len(evidence(theirs))
    return quiet > 0 and (bool(evidence(mine)) or quiet >= MOSTLY * len(theirs))


def mostly_uneven(laps: Sequence[TimedRound]) -> bool:
    enough = [lap for lap in laps if len(lap.samples) >= FEW_CALLS]
    return 2 * sum(lap.uneven for lap in enough) > len(enough)


def suspicion(laps: Sequence[TimedRound], usual: Usual) -> Suspicion | None:
    """The suspicion against the times of these rounds; None when nothing speaks against them. Of
    rounds that a busy machine may have made look worse, those without it count, and of these the
    most honest."""
    return _unpaid(laps, usual) or _staging(laps, usual) or _delayed(evidence(laps) or laps, usual)


def _unpaid(laps: Sequence[TimedRound], usual: Usual) -> Suspicion | None:
    if usual.ran_s is None:
        return None
    if sum(lap.unpaid_s(usual.ran_s, usual.strain) > 0 for lap in laps) < MOSTLY * len(laps):
        return None
    lap = min(laps, key=lambda lap: lap.unpaid_s(0.0, 1.0))
    calls = len(lap.samples) + 1
    reason = (
        f"its busiest thread ran for {lap.busiest_s * 1e6 / calls:.3g} µs per call, and its median "
        f"call took {statistics.median(lap.samples):.3g} µs by its own clock: some calls do the "
        "work of others, or its clock is wrong"
    )
    return Suspicion(reason, certain=True)


def _staging(laps: Sequence[TimedRound], usual: Usual) -> Suspicion | None:
    if usual.staging_ran_s is None:
        return None
    extra_s, lap = min(
        ((_extra_s(lap, usual.staging_ran_s), lap) for lap in laps), key=lambda pair: pair[0]
    )
    if extra_s <= lap.allowed_s:
        return None
    reason = (
        f"its process ran for {extra_s * 1e3:.3g} ms more than others do while the inputs of calls "
        f"of {lap.reported_s * 1e3:.3g} ms were made"
    )
    return Suspicion(reason, certain=False)


def _extra_s(lap: TimedRound, usual_s: float) -> float:
    return lap.staging_ran_s - STAGING * usual_s * (len(lap.samples) + 1) - STAGING_S


def _delayed(laps: Sequence[TimedRound], usual: Usual) -> Suspicion | None:
    best = min(laps, key=lambda lap: lap.hidden_s() - lap.allowed_s)
    if best.hides(usual.hidden_s):
        reason = (
            f"its calls took {best.reported_s * 1e3:.3g} ms by its own clock, and "
            f"{best.hidden_s(usual.hidden_s) * 1e3:.3g} ms more by the evaluator's"
        )
        return Suspicion(reason, certain=False)
    if mostly_uneven(laps) and not usual.uneven:
        samples = [sample for lap in laps for sample in lap.samples]
        reason = (
            f"its calls take {statistics.median(samples):.3g} µs in the median and "
            f"{statistics.fmean(samples):.3g} µs in the mean: some do the work of others"
        )
        return Suspicion(reason, certain=False)
    return None
