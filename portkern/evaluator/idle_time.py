"""The time that timing takes by itself: how long workers need for rounds of calls that do
nothing."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from portkern.evaluator import worker_reports
from portkern.sandbox.session import Answered, Session, Unreadable
from portkern.worker import protocol

#: Other ways of timing than the baseline's, as OpenCL's, take no more than so many times its time.
OWN_IDLE = 4.0
#: OpenMP threads of another worker spin for about a millisecond after their last call.
SETTLE_S = 0.0015


@dataclass
class IdleTime:
    """Seconds of rounds of so many calls; of several, the least is what timing takes, and the rest
    is the machine's. ``key`` is whose rounds are looked at; of an empty call in a way of its own,
    ``call_us`` is what was told last: more where the host is late with its calls. ``write_back_s``:
    what flushing caches takes longer in a round because of what calls wrote; of a slower one, more
    is in memory by then."""

    runners: Mapping[int | str, Session]
    key: int
    trusted: str
    calls: int
    methods: Mapping[int | str, str]
    limit_s: float
    write_back_s: float = 0.0
    least_s: dict[int | str, float] = field(default_factory=dict)
    latest_s: dict[int | str, float] = field(default_factory=dict)
    call_us: float = 0.0

    @property
    def own_way(self) -> bool:
        """Whether ``key`` is timed in another way than the baseline."""
        return self.methods[self.key] != self.methods[self.trusted]

    def measure(self) -> None:
        """Once more. A worker with a way of timing of its own is asked too."""
        for key in (self.trusted, self.key) if self.own_way else (self.trusted,):
            self.latest_s[key], call_us = self._asked(self.runners[key])
            self.call_us = call_us if key == self.key else 0.0
            self.least_s[key] = min(self.least_s.get(key, math.inf), self.latest_s[key])

    def least(self, hidden_s: float) -> float:
        """Seconds that a round may hide: as many as the trusted baseline's do, with calls of this
        workload or with empty ones."""
        return self._usual(hidden_s, self.least_s)

    def latest(self, hidden_s: float) -> float:
        """The idle time as :meth:`least` has it, by what was measured last, of which the machine's
        load has a part."""
        return self._usual(hidden_s, self.latest_s)

    def _usual(self, hidden_s: float, idle_s: Mapping[int | str, float]) -> float:
        """The seconds that timing takes by itself: a kernel which is timed in a way of its own
        is believed within bounds."""
        usual_s = max(hidden_s, idle_s[self.trusted] + self.write_back_s)
        own_s = idle_s.get(self.key, 0.0)
        return max(usual_s, min(own_s, OWN_IDLE * usual_s))

    def _asked(self, session: Session) -> tuple[float, float]:
        """The seconds of a round beside its calls, and the microseconds of one. A worker that does
        not answer loses nothing."""
        time.sleep(SETTLE_S)
        start = time.perf_counter()
        outcome = session.ask(protocol.Idle(self.calls), timeout_s=self.limit_s)
        wall_s = time.perf_counter() - start
        if isinstance(outcome, Unreadable):
            return 0.0, 0.0
        if not isinstance(outcome, Answered):
            return math.inf, 0.0
        try:
            samples = worker_reports.samples(outcome.reply, self.calls)
        except ValueError:
            return 0.0, 0.0
        return wall_s - sum(samples) / 1e6, statistics.median(samples)
