"""Kernels and baselines timed in turns, on inputs that none of them has seen before.

Every call that is timed has data and buffers of its own, so nothing remembered from an earlier one
is of use. Which calls' outputs are looked at is decided once they are over. What a worker says of
its time is held against the evaluator's own clock.
"""

from __future__ import annotations

import itertools
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from portkern.evaluator import busy_threads, compare, processor_time, worker_reports
from portkern.evaluator.busy_threads import AtRest
from portkern.evaluator.clock_check import LONG_S, TimedRound, Usual, can_tell, suspicion
from portkern.evaluator.idle_time import SETTLE_S, IdleTime
from portkern.evaluator.long_rounds import LongRounds
from portkern.evaluator.reference import on_host
from portkern.evaluator.statistics import TimingPlan, floor_us, observations, write_back_us
from portkern.evaluator.telemetry import Watch
from portkern.evaluator.timed_outputs import TimedInputs, TimedOutputs, poisons
from portkern.sandbox.message import Failed
from portkern.sandbox.session import Answered, Lost, Session
from portkern.spec.op import Op, Workload
from portkern.spec.target import Target
from portkern.worker import protocol

if TYPE_CHECKING:
    import torch

Key = int | str
#: A distribution and the inputs drawn from it.
Base = tuple[str, Sequence["torch.Tensor"]]
#: Calls of a round whose outputs are looked at.
LOOKS = 2
#: Seconds before each lap that is repeated before a kernel is accused: at once, then further and
#: further apart, since what else keeps a machine busy mostly lasts for seconds.
CONFIRMATIONS = (0.0, 0.0, 0.0, 0.0, 0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)
#: Calls of the round that says how many the others have.
FIRST_CALLS = 4
#: Calls of a round that is asked for when shorter ones look as if they hid something, at most.
LONG_CALLS = 512
#: Datasheets round; clocks are boosted.
FLOOR = 0.9


@dataclass(frozen=True)
class Doubt:
    """Why a kernel's time is not believed; ``wrong``: a timed call's output was not right."""

    reason: str
    wrong: bool = False


Loss = Lost | Doubt


@dataclass
class InterleavedTiming:
    """One workload on one device. ``bases`` are distributions and inputs that those of all calls
    are made from, the first for calls that are timed; answers to these are made where they are.

    ``unsure``: whose times could not be checked, as the machine was too busy, and why.
    """

    op: Op
    workload: Workload
    dtype: str
    bases: Sequence[Base]
    plan: TimingPlan
    limit_s: float
    targets: Mapping[int, Target]
    methods: Mapping[Key, str]
    watch: Watch
    rounds: dict[Key, list[TimedRound]] = field(default_factory=dict)
    lost: dict[Key, Loss] = field(default_factory=dict)
    unsure: dict[Key, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._outputs = TimedOutputs(self.op, self.workload, self.dtype, self.bases, self.limit_s)

    def run(self, runners: Mapping[Key, Session], trusted: str) -> None:
        """Fill :attr:`rounds` and :attr:`lost`. ``trusted`` is the baseline that doubts are
        measured by."""
        self.rounds = {key: [] for key in runners}
        self._at_rest = AtRest(
            {key: session.pid for key, session in runners.items() if isinstance(key, int)}
        )
        calls = dict.fromkeys(runners, min(FIRST_CALLS, self.plan.calls(0.0, self._call_bytes())))
        chosen = random.SystemRandom()
        whole = chosen.randrange(self.plan.rounds)  # the round whose outputs are kept as a whole
        others = chosen.sample(range(1, len(self.bases)), len(self.bases) - 1)
        now = None
        given = [on_host(base) for _, base in self.bases]
        with ThreadPoolExecutor(len(runners)) as pool:
            list(pool.map(partial(self._hand_out, given), runners.keys(), runners.values()))
        start = time.perf_counter()
        for turn in itertools.count(-1):  # the first says how long a call takes
            now = TimedInputs.after(now, chosen, structured=self.op.structured)
            for key, session in runners.items():
                if key in self.lost or self._is_slow(key):
                    continue
                with self._at_rest.watched(key == trusted):
                    lap = self._lap(session, now, calls[key])
                if not isinstance(lap, TimedRound):
                    self.lost[key] = lap
                    continue
                calls[key] = self._calls(lap, 1 if turn < 0 else calls[key])
                if turn >= 0 or self._is_slow(key, lap.wall_s):
                    self.rounds[key].append(lap)
                    if isinstance(key, int):
                        looked = lap.some(LOOKS, chosen)
                        self._keep(key, session, turn, now, looked, whole=turn == whole)
                        for base in self._untimed_bases(others, turn):
                            self._untimed_round(key, session, turn, base, chosen, calls[key])
            self.watch.look()
            if turn + 1 >= self.plan.rounds and (
                time.perf_counter() - start > self.plan.budget_s or self._is_enough()
            ):
                break
        self._find_busy(runners, meanwhile=self._verify)
        for key in self._at_rest.disturbing():
            reason = "it keeps a processor busy while the baseline is timed"
            self.lost.setdefault(key, Doubt(reason))
        self._compare_clocks(runners, trusted)
        self._compare_floors()

    def _untimed_bases(self, others: Sequence[int], turn: int) -> Sequence[int]:
        """The bases of rounds whose outputs alone count: all of ``others`` in the rounds there
        always are, and one in each of those beyond."""
        if turn < self.plan.rounds:
            return others[turn :: self.plan.rounds]
        return [others[turn % len(others)]] if others else ()

    def _untimed_round(
        self,
        key: int,
        session: Session,
        turn: int,
        base: int,
        chosen: random.Random,
        most: int,
    ) -> None:
        """A round on inputs of another distribution, whose time does not count. It begins as any
        other and ends after a call by chance, at most the last of a timed round, whose output is
        looked at: no call is safe for its place in a round."""
        if key in self.lost:
            return  # in the round before
        made = TimedInputs(
            (chosen.getrandbits(62),), base, rolled=False, structured=self.op.structured
        )
        calls = chosen.randint(1, most)
        lap = self._lap(session, made, calls, settle_s=0.0)
        if isinstance(lap, TimedRound):
            self._keep(key, session, turn, made, [calls - 1], whole=False)
        else:
            self.lost[key] = lap

    def _keep(
        self,
        key: int,
        session: Session,
        turn: int,
        made: TimedInputs,
        calls: Sequence[int],
        *,
        whole: bool,
    ) -> None:
        lost = self._outputs.keep(key, session, turn, made, calls, whole=whole)
        if lost is not None:
            self.lost[key] = lost

    def _is_slow(self, key: Key, now_s: float = 0.0) -> bool:
        """Whether it is a baseline that has had time enough, with what it took ``now_s``; a kernel
        is looked at in all rounds."""
        ran_s = sum(lap.wall_s for lap in self.rounds[key]) + now_s
        return not isinstance(key, int) and ran_s > self.plan.slow_s

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
        return self.op.tensor_bytes(self.workload.dims, self.dtype)

    def _hand_out(
        self, bases: Sequence[Sequence[torch.Tensor]], key: Key, session: Session
    ) -> None:
        """What the tensors of all calls are made from, and what outputs are poisoned with."""
        memory = session.memory
        memory.clear()
        given = bases if isinstance(key, int) else bases[:1]
        asked = protocol.Base(
            tuple(tuple(map(memory.put, base)) for base in given),
            poisons(self.op, self.workload, self.dtype, session),
        )
        outcome = session.ask(asked, timeout_s=self.limit_s)
        if not isinstance(outcome, Answered):
            self.lost[key] = outcome

    def _lap(
        self, session: Session, now: TimedInputs, calls: int, *, settle_s: float = SETTLE_S
    ) -> TimedRound | Loss:
        """One call to warm up, then ``calls`` that are timed."""
        if not session.alive:
            return Doubt("its worker ended while its clock was looked at")
        before, staged = processor_time.of_family(session.pid), time.perf_counter()
        scalars = self.op.signature.scalar_values(self.workload.scalars)
        dims = self.workload.dims
        asked = protocol.Stage(
            now.seeds, calls, dims, scalars, now.base, now.rolled, now.structured
        )
        done = session.ask(asked, timeout_s=self.limit_s)
        if not isinstance(done, Answered):
            return done
        stage_s = time.perf_counter() - staged
        time.sleep(settle_s)
        ready, own_wait_s = processor_time.of_family(session.pid), processor_time.own_wait_s()
        start = time.perf_counter()
        outcome = session.ask(protocol.Time(), timeout_s=self.limit_s)
        wall_s = time.perf_counter() - start
        if not isinstance(outcome, Answered):
            return outcome
        after = processor_time.of_family(session.pid)
        timed = after.since(ready)
        waited_s = timed.waited_s + processor_time.own_wait_s() - own_wait_s
        try:
            samples = worker_reports.samples(outcome.reply, calls)
        except ValueError as error:
            return Failed("ValueError", str(error), "")
        staging_s = ready.since(before).ran_s
        return TimedRound(
            samples, wall_s, stage_s, staging_s, waited_s, timed.beside_s, timed.busiest_s
        )

    # ---- were the timed calls right?

    @property
    def compared(self) -> Mapping[int, compare.Comparison]:
        """How outputs of timed calls were compared, by the widest rule that was needed."""
        return self._outputs.compared

    def _verify(self) -> None:
        for key, problem in self._outputs.problems():
            self.lost.setdefault(key, Doubt(problem, wrong=True))

    # ---- was the time what they say?

    def _compare_clocks(self, runners: Mapping[Key, Session], trusted: str) -> None:
        """Rounds are repeated before anyone is accused: a busy machine hides time now and then, a
        kernel that does hides it always. Where it is busy in all of them, nobody can tell."""
        standing = [key for key in self.rounds if isinstance(key, int) and key not in self.lost]
        for key in standing if trusted not in self.lost else ():
            self._compare_clock(key, runners, trusted)

    def _compare_clock(self, key: int, runners: Mapping[Key, Session], trusted: str) -> None:
        target = self.targets[key]
        alike = self.methods[key] == self.methods[trusted] and not target.is_gpu
        most = max(len(lap.samples) for lap in self.rounds[key])
        short = [lap for lap in self.rounds[key] if len(lap.samples) == most]
        before = self.rounds[trusted]
        usual = Usual.of(before, alike=alike, calls=most if target.is_gpu else 0)
        suspected = suspicion(short, usual)
        if suspected is not None:
            suspected = suspicion(short, self._with_own_way(usual, key, runners, trusted, most))
        if suspected is None and can_tell(short, before):
            return
        calls = self._calls_of_a_long_round(short)
        written = self.op.written_bytes(self.workload.dims, self.dtype)
        left_s = (calls + 1) * write_back_us(target, written) / 1e6
        idle = IdleTime(runners, key, trusted, calls, self.methods, self.limit_s, left_s)
        long = LongRounds(short, before, calls, alike, idle)
        for pause_s in CONFIRMATIONS:
            if pause_s and (long.unsuspected or not (self.plan.patient or long.accused)):
                break
            time.sleep(pause_s)
            asked = (key, calls), (trusted, calls), (trusted, most)
            laps = [self._long_round(who, runners[who], count) for who, count in asked]
            if laps[0] is None or laps[1] is None or laps[2] is None:
                return
            long.add(laps[0], laps[1], laps[2])
            if long.unsuspected and long.clear:
                return
        if (accused := long.accused) is not None:
            self.lost[key] = Doubt(accused.reason)
        else:
            self.unsure[key] = long.uncertain

    def _with_own_way(
        self, usual: Usual, key: int, runners: Mapping[Key, Session], trusted: str, calls: int
    ) -> Usual:
        """Who is timed in another way than the baseline may take what his way takes, within
        bounds; else all of it would have to be confirmed in long rounds."""
        idle = IdleTime(runners, key, trusted, calls, self.methods, self.limit_s)
        if not idle.own_way:
            return usual
        idle.measure()
        return replace(usual, hidden_s=idle.least(usual.hidden_s))

    def _long_round(self, key: Key, session: Session, calls: int) -> TimedRound | None:
        """None where it is lost."""
        now = TimedInputs.after(None, random.SystemRandom(), structured=self.op.structured)
        lap = self._lap(session, now, calls)
        if isinstance(lap, TimedRound):
            return lap
        self.lost[key] = lap
        return None

    def _calls_of_a_long_round(self, laps: Sequence[TimedRound]) -> int:
        """In which messages take little beside the calls; no fewer than there were."""
        median_s = statistics.median(s for lap in laps for s in lap.samples) / 1e6
        room = self.plan.room(self._call_bytes())
        wanted = min(LONG_CALLS, room, int(LONG_S / max(median_s, 1e-9)) + 1)
        return max(wanted, len(laps[0].samples))

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
