"""Kernels and baselines timed in turns, on inputs that none of them has seen before.

Every call that is timed has data and buffers of its own, so nothing remembered from an earlier one
is of use. Which calls' outputs are looked at is decided once they are over. What a worker says of
its time is held against the evaluator's own clock.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from portkern.evaluator import busy_threads, compare, reference, worker_reports
from portkern.evaluator.statistics import TimingPlan, floor_us, observations
from portkern.evaluator.telemetry import Watch
from portkern.sandbox.message import Failed
from portkern.sandbox.session import Answered, Lost, Session, Unreadable
from portkern.sandbox.shared_memory import Slot
from portkern.spec.op import Op, Workload
from portkern.spec.target import Target
from portkern.worker import output_guards, protocol, timed_inputs

if TYPE_CHECKING:
    import torch

Key = int | str
#: Above this many elements one round's output stands for all: its float64 answer takes seconds.
MANY_ELEMENTS = 1 << 22
#: Of the rounds beyond the plan's first, one in so many is looked at.
SELDOM = 4
#: Calls that are looked at in such a round.
LOOKS = 2
#: A worker may keep silent of this share of the time that it speaks of, and of as much beside.
HIDDEN, HIDDEN_S = 0.25, 0.0003
#: Seconds before each lap that is repeated before a kernel is accused: at once, then further and
#: further apart, since what else keeps a machine busy mostly lasts for seconds.
CONFIRMATIONS = (0.0, 0.0, 0.0, 0.0, 0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)
#: Other ways of timing than the baseline's, as OpenCL's, take no more than so many times its time.
OWN_IDLE = 4.0
#: Calls of the round that says how many the others have.
FIRST_CALLS = 4
#: OpenMP threads of another worker spin for about a millisecond after their last call.
SETTLE_S = 0.0015
#: Datasheets round; clocks are boosted.
FLOOR = 0.9


@dataclass(frozen=True)
class Doubt:
    """Why a kernel's time is not believed; ``wrong``: a timed call's output was not right."""

    reason: str
    wrong: bool = False


Loss = Lost | Doubt


@dataclass
class TimedRound:
    """What one runner did in one round."""

    samples: list[float]
    wall_s: float
    stage_s: float = 0.0

    @property
    def stage_us(self) -> float:
        """Of one call's tensors."""
        return self.stage_s * 1e6 / (len(self.samples) + 1)

    @property
    def reported_s(self) -> float:
        return sum(self.samples) / 1e6

    @property
    def call_us(self) -> float:
        """Of one call, with its share of what timing takes, by the evaluator's clock."""
        return self.wall_s * 1e6 / (len(self.samples) + 1)

    def some(self, count: int, chosen: random.Random) -> set[int]:
        """At most so many calls: any, but for one of the faster half, where alone a median is
        lowered."""
        order = sorted(range(len(self.samples)), key=lambda i: (self.samples[i], chosen.random()))
        faster = order[: (len(order) + 1) // 2]
        return {chosen.choice(order if i else faster) for i in range(count)}

    def hidden_s(self, usual_s: float = 0.0) -> float:
        """What the evaluator saw and the worker did not speak of, beyond what timing takes by
        itself and the call that warms up."""
        return self.wall_s - self.reported_s * (1 + 1 / len(self.samples)) - usual_s

    def hides(self, usual_s: float = 0.0) -> bool:
        return self.hidden_s(usual_s) > HIDDEN * self.reported_s + HIDDEN_S


@dataclass
class InterleavedTiming:
    """One workload on one device. ``base`` are inputs that those of all calls are made from."""

    op: Op
    workload: Workload
    dtype: str
    base: Sequence[torch.Tensor]
    plan: TimingPlan
    limit_s: float
    targets: Mapping[int, Target]
    methods: Mapping[Key, str]
    watch: Watch
    rounds: dict[Key, list[TimedRound]] = field(default_factory=dict)
    lost: dict[Key, Loss] = field(default_factory=dict)
    _held: list[_Held] = field(default_factory=list)
    _only: int = 0  # the round that is looked at, when one is

    def run(self, runners: Mapping[Key, Session], trusted: str) -> None:
        """Fill :attr:`rounds` and :attr:`lost`. ``trusted`` is the baseline that doubts are
        measured by."""
        self.rounds = {key: [] for key in runners}
        calls = dict.fromkeys(runners, min(FIRST_CALLS, self.plan.calls(0.0, self._call_bytes())))
        chosen = random.SystemRandom()
        now = None
        for key, session in runners.items():
            self._hand_out(key, session)
        start = time.perf_counter()
        for turn in itertools.count(-1):  # the first says how long a call takes
            now = _Round.after(now, chosen)
            looks = self._looks(turn, chosen)
            for key, session in runners.items():
                if key in self.lost:
                    continue
                lap = self._lap(session, now, calls[key])
                if not isinstance(lap, TimedRound):
                    self.lost[key] = lap
                    continue
                calls[key] = self._calls(lap, 1 if turn < 0 else calls[key])
                if turn >= 0:
                    self.rounds[key].append(lap)
                    if isinstance(key, int):
                        for call in lap.some(looks, chosen):
                            self._hold(key, session, now, call)
            self.watch.look()
            if turn + 1 >= self.plan.rounds and (
                time.perf_counter() - start > self.plan.budget_s or self._is_enough()
            ):
                break
        self._find_busy(runners, meanwhile=self._verify)
        self._compare_clocks(runners, trusted)
        self._compare_floors()

    def _looks(self, turn: int, chosen: random.SystemRandom) -> int:
        """How many outputs of this round are kept, to be compared when all is over."""
        if max(t.numel() for t in self.base) > MANY_ELEMENTS:
            self._only = chosen.randrange(self.plan.rounds) if turn < 0 else self._only
            return int(turn == self._only)
        often = 0 <= turn < self.plan.rounds or (turn > 0 and chosen.randrange(SELDOM) == 0)
        return LOOKS if often else 0

    def _is_enough(self) -> bool:
        samples = self.samples().values()
        return all(self.plan.enough(observations(laps)) for laps in samples)

    def samples(self) -> dict[Key, list[list[float]]]:
        """Microseconds of each round's calls, of those whose time is believed."""
        return {
            key: [lap.samples for lap in laps]
            for key, laps in self.rounds.items()
            if key not in self.lost
        }

    def _calls(self, lap: TimedRound, least: int) -> int:
        """How many the next lap has."""
        calls = self.plan.calls(lap.call_us, self._call_bytes(), lap.stage_us)
        return max(least, calls)

    def _call_bytes(self) -> int:
        return self.op.nbytes(self.workload.dims, self.dtype)

    def _hand_out(self, key: Key, session: Session) -> None:
        """What the tensors of all calls are made from, and what outputs are poisoned with."""
        memory = session.memory
        memory.clear()
        asked = protocol.Base(tuple(map(memory.put, self.base)), self._poisons(session))
        outcome = session.ask(asked, timeout_s=self.limit_s)
        if not isinstance(outcome, Answered):
            self.lost[key] = outcome

    def _lap(self, session: Session, now: _Round, calls: int) -> TimedRound | Loss:
        """One call to warm up, then ``calls`` that are timed."""
        if not session.alive:
            return Doubt("its worker ended while its clock was looked at")
        staged = time.perf_counter()
        scalars = self.op.signature.scalar_values(self.workload.scalars)
        asked = protocol.Stage(now.seeds, calls, self.workload.dims, scalars)
        done = session.ask(asked, timeout_s=self.limit_s)
        if not isinstance(done, Answered):
            return done
        stage_s = time.perf_counter() - staged
        time.sleep(SETTLE_S)
        start = time.perf_counter()
        outcome = session.ask(protocol.Time(), timeout_s=self.limit_s)
        wall_s = time.perf_counter() - start
        if not isinstance(outcome, Answered):
            return outcome
        try:
            return TimedRound(worker_reports.samples(outcome.reply, calls), wall_s, stage_s)
        except ValueError as error:
            return Failed("ValueError", str(error), "")

    def _poisons(self, session: Session) -> tuple[Slot, ...]:
        forms = [
            (spec.sizes(self.workload.dims), spec.resolve(self.dtype))
            for spec in self.op.signature.outputs
        ]
        return tuple(session.memory.put(output_guards.poison(*form)) for form in forms)

    # ---- were the timed calls right?

    def _hold(self, key: int, session: Session, now: _Round, call: int) -> None:
        session.memory.clear()
        slots = self._poisons(session)
        outcome = session.ask(protocol.Fetch(call, slots), timeout_s=self.limit_s)
        if not isinstance(outcome, Answered):
            self.lost[key] = outcome
            return
        self._held.append(_Held(key, now, call, [session.memory.take(slot) for slot in slots]))

    def _verify(self) -> None:
        known: dict[tuple[_Round, int], reference.Case] = {}
        for held in self._held:
            if held.key in self.lost:
                continue
            which = (held.round, held.call)
            if which not in known:
                inputs = timed_inputs.inputs(self.base, held.round.seeds, held.call)
                known[which] = reference.answer(self.op, self.workload, "timed", inputs)
            compared = compare.compare(
                actual=held.outputs, case=known[which], precision=self.op.precision
            )
            if compared.problem:
                self.lost[held.key] = Doubt(f"in a timed call, {compared.problem}", wrong=True)

    def _idle_s(self, session: Session, calls: int) -> float:
        """Seconds that timing so many calls takes by itself; who does not answer loses nothing."""
        time.sleep(SETTLE_S)
        start = time.perf_counter()
        outcome = session.ask(protocol.Idle(calls), timeout_s=self.limit_s)
        wall_s = time.perf_counter() - start
        if isinstance(outcome, Unreadable):
            return 0.0
        if not isinstance(outcome, Answered):
            return math.inf
        try:
            return wall_s - sum(worker_reports.samples(outcome.reply, calls)) / 1e6
        except ValueError:
            return 0.0

    # ---- was the time what they say?

    def _compare_clocks(self, runners: Mapping[Key, Session], trusted: str) -> None:
        """Laps are repeated before anyone is accused: a busy machine hides time now and then, a
        kernel that does hides it always."""
        standing = [key for key in self.rounds if isinstance(key, int) and key not in self.lost]
        for key in standing if trusted not in self.lost else ():
            usual_s = partial(self._usual_s, key, trusted, runners)
            loss = self._hiding(key, runners[key], usual_s)
            if loss is not None:
                self.lost[key] = loss

    def _hiding(self, key: Key, session: Session, usually_s: Callable[[int], float]) -> Loss | None:
        n = max(len(lap.samples) for lap in self.rounds[key])
        laps = [lap for lap in self.rounds[key] if len(lap.samples) == n]  # few calls hide little
        usual_s = 0.0 if not all(lap.hides() for lap in laps) else usually_s(n)
        for pause_s in CONFIRMATIONS:
            if not _most_open(laps).hides(usual_s):
                return None
            time.sleep(pause_s)
            lap = self._lap(session, _Round.after(None, random.SystemRandom()), n)
            if not isinstance(lap, TimedRound):
                return lap
            laps.append(lap)
            usual_s = min(usual_s, usually_s(n))
        best = _most_open(laps)
        return _hidden(best, usual_s) if best.hides(usual_s) else None

    def _usual_s(self, key: Key, trusted: Key, runners: Mapping[Key, Session], calls: int) -> float:
        """What a lap of so many calls may hide: as much as the trusted baseline does, with calls
        of this workload or with empty ones. A worker with a way of timing of its own is asked too,
        and believed within bounds."""
        least = [
            lap.hidden_s() * min(1.0, (calls + 1) / (len(lap.samples) + 1))
            for lap in self.rounds[trusted]
        ]
        usual_s = max(self._idle_s(runners[trusted], calls), min(least, default=0.0))
        if self.methods[key] != self.methods[trusted]:
            return max(usual_s, min(self._idle_s(runners[key], calls), OWN_IDLE * usual_s))
        return usual_s

    def _compare_floors(self) -> None:
        dims = self.workload.dims
        read_bytes = self.op.read_bytes(dims, self.dtype)
        for key, target in self.targets.items():
            least_us, why = floor_us(target, read_bytes=read_bytes, flops=self.op.flops(dims))
            samples = [sample for lap in self.rounds.get(key, []) for sample in lap.samples]
            if key in self.lost or not samples:
                continue
            median_us = statistics.median(samples)
            if not median_us >= FLOOR * least_us:  # written so that a NaN fails
                self.lost[key] = Doubt(f"its median is {median_us:.3g} µs, but {why}")

    def _find_busy(self, runners: Mapping[Key, Session], meanwhile: Callable[[], None]) -> None:
        """Threads that go on between calls take the baseline's time."""
        workers = {
            session.pid: key
            for key, session in runners.items()
            if isinstance(key, int) and key not in self.lost
        }
        for pid in busy_threads.processes_at_work(workers, meanwhile):
            self.lost.setdefault(workers[pid], Doubt("it keeps a processor busy between its calls"))


def _most_open(laps: Sequence[TimedRound]) -> TimedRound:
    return min(laps, key=lambda lap: lap.hidden_s() - HIDDEN * lap.reported_s)


def _hidden(lap: TimedRound, usual_s: float) -> Doubt:
    return Doubt(
        f"its calls took {lap.reported_s * 1e3:.3g} ms by its own clock, and "
        f"{lap.hidden_s(usual_s) * 1e3:.3g} ms more by the evaluator's"
    )


@dataclass(frozen=True)
class _Round:
    """What :func:`variations.inputs` makes the inputs of its calls from."""

    seeds: tuple[int, ...]

    @classmethod
    def after(cls, last: _Round | None, chosen: random.SystemRandom) -> _Round:
        """New values and nearly equal ones in turns."""
        seed = chosen.getrandbits(62)
        return cls((seed,)) if last is None or len(last.seeds) > 1 else cls((*last.seeds, seed))


@dataclass(frozen=True)
class _Held:
    """The outputs of one timed call, as they were when its round was over."""

    key: int
    round: _Round
    call: int
    outputs: list[torch.Tensor]
