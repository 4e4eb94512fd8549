"""Rounds of many calls, asked for when those that were timed look as if they hid something, or when
the machine was too busy to tell."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from portkern.evaluator.clock_check import (
    LEAST_EVIDENCE,
    STREAMS_US,
    Suspicion,
    TimedRound,
    Usual,
    at_odds,
    can_tell,
    evidence,
    suspicion,
)
from portkern.evaluator.idle_time import IdleTime


@dataclass
class LongRounds:
    """A kernel's, and beside each the trusted baseline's. ``short`` and ``before`` are those two's
    rounds that were timed; where these are long already, the kernel's count here too. ``few``: the
    baseline's of as many calls as the kernel's short ones have. ``alike``:
    the kernel is timed as the baseline is, on the processors that are counted."""

    short: Sequence[TimedRound]
    before: Sequence[TimedRound]
    calls: int
    alike: bool
    idle: IdleTime
    mine: list[TimedRound] = field(default_factory=list)
    theirs: list[TimedRound] = field(default_factory=list)
    few: list[TimedRound] = field(default_factory=list)
    hiding: Suspicion | None = None
    explained: bool = False  # by what timing took at some time, of which the load has a part
    odd: Suspicion | None = None
    late: bool = False  # what is odd is no more than empty calls in its way take there

    def add(self, mine: TimedRound, theirs: TimedRound, few: TimedRound) -> None:
        self.mine.append(mine)
        self.theirs.append(theirs)
        self.few.append(few)
        usual = Usual.of(self.theirs, alike=self.alike)
        self.idle.measure()
        latest = replace(usual, hidden_s=self.idle.latest(usual.hidden_s))
        usual = replace(usual, hidden_s=self.idle.least(usual.hidden_s))
        self.hiding = suspicion(self._all, usual)
        late = replace(latest, hidden_s=latest.hidden_s + self.calls * self.idle.call_us / 1e6)
        self.explained = self.explained or suspicion(self._all, late) is None
        slack_us = STREAMS_US if self.idle.own_way else 0.0
        self.odd = None if self._alike_in_length else self._at_odds(usual, slack_us)
        self.late = self.odd is not None and self._at_odds(usual, self.idle.call_us) is None

    @property
    def unsuspected(self) -> bool:
        """Whether nothing speaks against the kernel, also where nobody can tell."""
        return self.hiding is None and self.odd is None

    @property
    def clear(self) -> bool:
        return can_tell(self._all, self.theirs)

    @property
    def accused(self) -> Suspicion | None:
        """The suspicion against the kernel that is beyond doubt, if there is one. Long rounds that
        a busy machine alone made us ask for contradict nothing: their tensors fit no cache that
        those of short ones fit, which may cost one thread what it costs the baseline's none."""
        told = self.mine if can_tell(self.short, self.before) else ()
        for suspected, explained, laps in (
            (self.hiding, self.explained, self._all),
            (self.odd, self.late, told),
        ):
            enough = len(evidence(laps)) >= LEAST_EVIDENCE and not explained
            if suspected is not None and (suspected.certain or enough):
                return suspected
        return None

    @property
    def uncertain(self) -> str:
        """Why nobody can tell."""
        suspected = self.hiding or self.odd
        if suspected is None:
            return "the machine was too busy to check its times from outside"
        return f"the machine was too busy to tell why {suspected.reason}"

    @property
    def _alike_in_length(self) -> bool:
        return self.calls <= len(self.short[0].samples)

    @property
    def _all(self) -> list[TimedRound]:
        return [*(self.short if self._alike_in_length else ()), *self.mine]

    def _at_odds(self, usual: Usual, slack_us: float) -> Suspicion | None:
        """The suspicion that long rounds contradict the short ones: a kernel which hid something
        in short rounds may have been honest in these. That the baseline takes longer in them is
        not evidence: tensors of few calls may be in a cache, those of many not."""
        before = min(
            statistics.median(sample for lap in laps for sample in lap.samples)
            for laps in (self.before, self.few)
        )
        honest = [
            (lap, statistics.median(beside.samples) / before)
            for lap, beside in zip(self.mine, self.theirs, strict=True)
            if suspicion([lap], usual) is None
        ]
        if not honest:
            return None
        laps, slower = zip(*honest, strict=True)
        return at_odds(self.short, laps, usual, slower, slack_us)
