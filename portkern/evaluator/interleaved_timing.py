"""Kernels and baselines timed in turns, on inputs that none of them has seen before.

Every call that is timed has data and buffers of its own, so nothing remembered from an earlier one
is of use. Which calls' outputs are looked at is decided once they are over. What a worker says of
its time is held against the evaluator's own clock.
"""

from __future__ import annotations

import itertools
import os
import random
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from portkern.evaluator import (
    busy_threads,
    compare,
    inputs,
    processor_time,
    standstill,
    worker_reports,
)
from portkern.evaluator.busy_threads import AtRest
from portkern.evaluator.clock_check import LONG_S, TimedRound, Usual, can_tell, suspicion
from portkern.evaluator.idle_time import SETTLE_S, IdleTime
from portkern.evaluator.long_rounds import LongRounds
from portkern.evaluator.processor_time import ProcessorTime
from portkern.evaluator.reference import on_host
from portkern.evaluator.statistics import TimingPlan, floor_us, observations, write_back_us
from portkern.evaluator.telemetry import Watch
from portkern.evaluator.timed_buffers import (
    AskedWorker,
    OutputReader,
    ReturnedTensors,
    RoundMemory,
    can_be_read,
    output_forms,
)
from portkern.evaluator.timed_draws import TimedDraws, TimedInputs
from portkern.evaluator.timed_outputs import TimedOutputs, poisons
from portkern.sandbox.message import Failed
from portkern.sandbox.session import Answered, Lost, Outcome, Session
from portkern.spec.op import Op, Workload
from portkern.spec.target import Target
from portkern.worker import protocol

if TYPE_CHECKING:
    import torch

Key = int | str
#: A distribution and the inputs drawn from it.
Base = tuple[str, Sequence["torch.Tensor"]]
#: Is called with a kernel, how its outputs are read, the inputs of a round and that round.
Look = Callable[[int, OutputReader, TimedInputs, TimedRound], None]
#: Calls of a round whose outputs are looked at.
LOOKS = 2
#: Seconds before each lap that is repeated before a kernel is accused: at once, then further and
#: further apart, since what else keeps a machine busy mostly lasts for seconds.
CONFIRMATIONS = (0.0, 0.0, 0.0, 0.0, 0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)
#: Seconds that are waited at most before a lap where no load can explain what is suspected.
SURE_S = 0.2
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

    ``unsure``: whose times could not be checked, as the machine was too busy, and why. ``placed``:
    whose calls work on memory of the evaluator's, on ``device``, which reads outputs there while
    nothing of the worker runs; but those of ``returning``, who leave them elsewhere on a GPU.
    ``unplaced``: why nobody's do, where the GPU's memory cannot be shared.
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
    placed: frozenset[Key] = frozenset()
    device: str = "cpu"
    returning: frozenset[Key] = frozenset()
    unplaced: str = ""

    def __post_init__(self) -> None:
        self._draws = TimedDraws(self.op, self.workload, self.dtype, self.bases)
        self._outputs = TimedOutputs(self.op, self.workload, self.dtype, self._draws)
        self._memory: dict[Key, RoundMemory] = {}
        self._without: dict[Key, str] = {}
        self._readable = False

    def run(self, runners: Mapping[Key, Session], trusted: str) -> None:
        """Fill :attr:`rounds` and :attr:`lost`. ``trusted`` is the baseline that doubts are
        measured by."""
        try:
            self._run(runners, trusted)
        finally:
            for memory in self._memory.values():
                memory.close()
            self._draws.release()

    def _run(self, runners: Mapping[Key, Session], trusted: str) -> None:
        self.rounds = {key: [] for key in runners}
        self._at_rest = AtRest(
            {key: session.pid for key, session in runners.items() if isinstance(key, int)}
        )
        calls = dict.fromkeys(runners, min(FIRST_CALLS, self.plan.calls(0.0, self._call_bytes())))
        chosen = random.SystemRandom()
        whole = chosen.randrange(self.plan.rounds)  # the round whose outputs are kept as a whole
        others = chosen.sample(range(1, len(self.bases)), len(self.bases) - 1)
        now = None
        self._hand_out(trusted, runners[trusted])
        with ThreadPoolExecutor(len(runners)) as pool:
            further = {key: session for key, session in runners.items() if key != trusted}
            list(pool.map(self._hand_out, further, further.values()))
        self._readable = can_be_read(runners[trusted])
        start = time.perf_counter()
        for turn in itertools.count(-1):  # the first says how long a call takes
            now = self._inputs_after(now, chosen)
            self._make(now, max(calls.values()))
            for key, session in runners.items():
                if key in self.lost or self._is_slow(key):
                    continue
                look = partial(self._look, turn, whole=turn == whole) if turn >= 0 else None
                with self._at_rest.watched(key == trusted):
                    lap = self._lap(key, session, now, calls[key], look)
                if not isinstance(lap, TimedRound):
                    self.lost[key] = lap
                    continue
                calls[key] = self._calls(lap, 1 if turn < 0 else calls[key])
                if turn >= 0 or self._is_slow(key, lap.wall_s):
                    self.rounds[key].append(lap)
                    if isinstance(key, int):
                        for made in self._untimed(now, others, turn, chosen):
                            # what is near to no call of the round nobody can have remembered
                            most = calls[key] if len(made.seeds) == 1 else len(lap.samples)
                            self._untimed_round(key, session, turn, made, chosen, most)
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
        self._verify()  # of long rounds
        self._compare_floors()

    def _inputs_after(self, last: TimedInputs | None, chosen: random.Random) -> TimedInputs:
        """Drawn for each call where all work on the evaluator's memory."""
        if self._draws.fresh and self._memory.keys() >= self.rounds.keys() - self.lost.keys():
            return TimedInputs.drawn(chosen, structured=self.op.structured)
        return TimedInputs.after(last, chosen, structured=self.op.structured)

    def _make(self, now: TimedInputs, calls: int) -> None:
        if now.fresh:
            self._draws.of_round(now, calls)

    def _untimed(
        self, now: TimedInputs, others: Sequence[int], turn: int, chosen: random.Random
    ) -> Iterator[TimedInputs]:
        """The inputs of rounds whose outputs alone count: of all ``others`` in the rounds there
        always are, and of one in each of those beyond; and in one of two nearly those of the round
        that was timed, which who remembers results by a look at a part takes for the same."""
        if now.fresh and not now.structured and turn % 2:
            yield now.near(chosen)
        beyond = turn >= self.plan.rounds
        last = [others[turn % len(others)]] if others else []
        for base in last if beyond else others[turn :: self.plan.rounds]:
            yield TimedInputs(
                (chosen.getrandbits(62),), base, rolled=False, structured=self.op.structured
            )

    def _untimed_round(
        self,
        key: int,
        session: Session,
        turn: int,
        made: TimedInputs,
        chosen: random.Random,
        most: int,
    ) -> None:
        """A round whose time does not count. It begins as any other and ends after a call by
        chance, at most the last of a timed round, whose output is looked at: no call is safe for
        its place in a round."""
        if key in self.lost:
            return  # in the round before
        calls = chosen.randint(1, most)
        # Of the rounds that are planned: a whole output is kept for each until all are over.
        whole = turn < self.plan.rounds and self.bases[made.base][0] == inputs.IN_PART
        last = partial(self._look, turn, calls=[calls - 1], whole=whole)
        lap = self._lap(key, session, made, calls, last, counted=False)
        if not isinstance(lap, TimedRound):
            self.lost[key] = lap

    def _look(
        self,
        turn: int,
        key: int,
        reader: OutputReader,
        made: TimedInputs,
        lap: TimedRound,
        *,
        calls: Sequence[int] = (),
        whole: bool = False,
    ) -> None:
        """Keep outputs of these calls, or of some, of a round that is over."""
        calls = calls or lap.some(LOOKS, random.SystemRandom())
        lost = self._outputs.keep(key, reader, turn, made, calls, whole=whole)
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

    def _hand_out(self, key: Key, session: Session) -> None:
        """Hands a worker what the tensors of all calls are made from, and what outputs are
        poisoned with; or sets up memory for the tensors of all calls of a round. The trusted
        baseline is first: what it cannot map, nobody is asked to."""
        if key in self.placed and not self.unplaced and self._shares(key, session):
            return
        memory = session.memory
        memory.clear()
        given = self.bases if isinstance(key, int) else self.bases[:1]
        asked = protocol.Base(
            tuple(tuple(map(memory.put, on_host(base))) for _, base in given),
            poisons(self.op, self.workload, self.dtype, session),
        )
        outcome = session.ask(asked, timeout_s=self.limit_s)
        if not isinstance(outcome, Answered):
            self.lost[key] = outcome

    def _shares(self, key: Key, session: Session) -> bool:
        """Whether there is memory for a worker's calls, or the worker is lost; else it is noted why
        not."""
        most = max(1, min(max(self.plan.most, LONG_CALLS), self.plan.room(self._call_bytes())))
        asked = self.op, self.workload, self.dtype, session, most
        if self.device == "cpu":
            self._memory[key] = RoundMemory.on_host(*asked)
            return True
        try:
            made = RoundMemory.on_device(*asked, device=self.device, limit_s=self.limit_s)
        except OSError as error:  # the evaluator's own
            self._has_none(key, str(error))
            return False
        if isinstance(made, RoundMemory):
            self._memory[key] = made
            return True
        if self._memory or not isinstance(made, Failed):  # others could
            self.lost[key] = made
            return True
        self._has_none(key, made.message)
        return False

    def _has_none(self, key: Key, why: str) -> None:
        """Notes that there is no memory for a worker's calls; if it is the first, for nobody's."""
        if self._memory:
            self._without[key] = f"no more of this GPU's memory can be shared: {why}"
        else:
            self.unplaced = f"this GPU's memory cannot be shared: {why}"

    def _stage(
        self, key: Key, session: Session, now: TimedInputs, calls: int
    ) -> Outcome[protocol.Done]:
        scalars = self.op.signature.scalar_values(self.workload.scalars)
        dims = self.workload.dims
        if key not in self._memory:
            stage = protocol.Stage(
                now.seeds, calls, dims, scalars, now.base, now.rolled, now.structured
            )
            return session.ask(stage, timeout_s=self.limit_s)
        memory = self._memory[key]
        memory.fill(self._draws.of_round(now, calls), calls)
        rows = memory.inputs, memory.outputs
        place = protocol.Place(*rows, calls, dims, scalars, memory.masks)
        return session.ask(place, timeout_s=self.limit_s)

    def _lap(
        self,
        key: Key,
        session: Session,
        now: TimedInputs,
        calls: int,
        look: Look | None = None,
        *,
        counted: bool = True,
    ) -> TimedRound | Loss:
        """One call to warm up, then ``calls`` that are timed. A kernel on the host then stands
        still, with all that it started, until ``look`` has seen its outputs. A round whose time is
        not ``counted`` has no processor time either, to look at which takes as long as a call."""
        if not session.alive:
            return Doubt("its worker ended while its clock was looked at")
        uncounted = ProcessorTime(0.0, {})
        before = processor_time.of_family(session.pid) if counted else uncounted
        staged = time.perf_counter()
        done = self._stage(key, session, now, calls)
        if not isinstance(done, Answered):
            return done
        stage_s = time.perf_counter() - staged
        if key in self._memory:
            stage_s += self._draws.call_s * (calls + 1)
        time.sleep(SETTLE_S if counted else 0.0)
        family = list(processor_time.family(session.pid))
        ready = processor_time.of_family(session.pid, family) if counted else uncounted
        own_wait_s = processor_time.own_wait_s()
        start = time.perf_counter()
        outcome = session.ask(protocol.Time(), timeout_s=self.limit_s)
        if isinstance(outcome, Answered) and key in self._memory:
            # What a GPU still does is waited for here, and so is on the clock.
            self._memory[key].glance()
        wall_s = time.perf_counter() - start
        if not isinstance(outcome, Answered):
            return outcome
        with self._standing_still(key, session, outcome.reply, family) as stopped:
            if not stopped:
                return Doubt("its processes could not be stopped to look at its outputs")
            stood_s = processor_time.ran_s(session.pid, stopped)  # what runs from here on is late
            after = processor_time.of_family(session.pid, stopped) if counted else uncounted
            timed = after.since(ready)
            waited_s = timed.waited_s + processor_time.own_wait_s() - own_wait_s
            try:
                samples = worker_reports.samples(outcome.reply, calls)
            except ValueError as error:
                return Failed("ValueError", str(error), "")
            staging_s = ready.since(before).ran_s
            lap = TimedRound(
                samples, wall_s, stage_s, staging_s, waited_s, timed.beside_s, timed.busiest_s
            )
            if look is not None and isinstance(key, int):
                look(key, self._reader(key, session, outcome.reply), now, lap)
                late = self._late(key, session, outcome.reply, stood_s, stopped)
                if late is not None:
                    return late
        return lap

    @contextmanager
    def _standing_still(
        self, key: Key, session: Session, timed: protocol.Timed, family: Sequence[int]
    ) -> Iterator[Collection[int]]:
        """A context in which nothing of a kernel's worker runs, if its outputs can be read without
        it; it yields the worker's processes, none where they do not stand still. ``family``: those
        before it was timed, which are stopped first."""
        if not isinstance(key, int) or not self._is_read_here(key, timed):
            yield list(processor_time.family(session.pid))
            return
        stopped: Collection[int] = ()
        try:
            stopped = standstill.stop(session.pid, family)
            yield stopped
        finally:
            standstill.go_on(session.pid, stopped)

    def _late(
        self,
        key: Key,
        session: Session,
        timed: protocol.Timed,
        ran_s: float,
        stopped: Collection[int],
    ) -> Doubt | None:
        """The doubt about a worker whose ``stopped`` processes had run for so long, where one of
        them went on."""
        if not self._is_read_here(key, timed):
            return None
        if self._memory[key].changed():
            return Doubt("an output of a timed call changed when the round was over", wrong=True)
        if standstill.woke(session.pid, ran_s, stopped):
            return Doubt("it ran on while its outputs were looked at")
        return None

    def _is_read_here(self, key: Key, timed: protocol.Timed) -> bool:
        """Whether outputs are read without the worker."""
        if key not in self._memory or key in self.returning:
            return False
        return self._readable or not self._addresses(timed)

    def _addresses(self, timed: protocol.Timed) -> Sequence[Sequence[int]]:
        """Where outputs lie on a host that are not in the buffers that were given."""
        return timed.addresses if self.device == "cpu" else ()

    def asked(self, key: int) -> str:
        """Why outputs of its calls were asked of its worker; '' where they were not."""
        if key in self.lost or not self.rounds.get(key):
            return ""
        if key not in self._memory:
            why = self.unplaced or self._without.get(key)
            return why or "its backend has no buffers on memory that is there"
        return "it returns tensors of its own" if key in self.returning else ""

    def _reader(self, key: Key, session: Session, timed: protocol.Timed) -> OutputReader:
        """How outputs of the round that has just been timed are read."""
        forms = output_forms(self.op, self.workload, self.dtype)
        if self._is_read_here(key, timed):
            addresses = self._addresses(timed)
            there = ReturnedTensors(session, forms, addresses)
            return there if addresses else self._memory[key]
        return AskedWorker(session, forms, self.limit_s)

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
        if suspected is None and (not self.plan.told or can_tell(short, before)):
            return
        calls = self._calls_of_a_long_round(short)
        written = self.op.written_bytes(self.workload.dims, self.dtype)
        left_s = (calls + 1) * write_back_us(target, written) / 1e6
        idle = IdleTime(runners, key, trusted, calls, self.methods, self.limit_s, left_s)
        long = LongRounds(short, before, calls, alike, idle)
        for pause_s in CONFIRMATIONS:
            if pause_s and (long.unsuspected or not (self.plan.patient or long.accused)):
                break
            if pause_s > SURE_S and long.accused and long.accused.certain:
                break
            time.sleep(pause_s)
            asked = (key, calls), (trusted, calls), (trusted, most)
            laps = [self._long_round(who, runners[who], count) for who, count in asked]
            if laps[0] is None or laps[1] is None or laps[2] is None:
                return
            long.add(laps[0], laps[1], laps[2])
            if long.unsuspected and long.clear:
                return
        if (accused := long.accused) is None:
            self.unsure[key] = long.uncertain
        elif others := self.watch.others(processor_time.family(os.getpid())):
            self.unsure[key] = (
                f"process {others[0]} was at work on the GPU too, so that nobody can tell why "
                f"{accused.reason}"
            )
        else:
            self.lost[key] = Doubt(accused.reason)

    def _with_own_way(
        self, usual: Usual, key: int, runners: Mapping[Key, Session], trusted: str, calls: int
    ) -> Usual:
        """The usual figures for a kernel which is timed in another way than the baseline: it may
        take what its way takes, within bounds; else all of it would have to be confirmed in long
        rounds."""
        idle = IdleTime(runners, key, trusted, calls, self.methods, self.limit_s)
        if not idle.own_way:
            return usual
        idle.measure()
        return replace(usual, hidden_s=idle.least(usual.hidden_s))

    def _long_round(self, key: Key, session: Session, calls: int) -> TimedRound | None:
        """A long round of a kernel; None where the worker is lost."""
        now = self._inputs_after(None, random.SystemRandom())
        lap = self._lap(key, session, now, calls, partial(self._look, len(self.rounds[key])))
        if isinstance(lap, TimedRound):
            return lap
        self.lost[key] = lap
        return None

    def _calls_of_a_long_round(self, laps: Sequence[TimedRound]) -> int:
        """The number of calls in a round so long that messages take little beside the calls; no
        fewer than there were."""
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
