"""Kernels and baselines timed in turns, on inputs that none of them has seen before.

Every call that is timed has data and buffers of its own, so nothing remembered from an earlier one
is of use. Which calls' outputs are looked at is decided once they are over. What a worker says of
its time is held against the judge's own clock.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil

from portkern import check
from portkern.op import Op, Workload
from portkern.sandbox import Answer, Died, Failed, Session, TimedOut
from portkern.target import Target
from portkern.timing import Plan, floor_us

Key = int | str
#: Above this many elements one round's output stands for all: its float64 answer takes seconds.
MANY_ELEMENTS = 1 << 22
#: A worker may keep silent of as much time as it speaks of, and this, beyond the baseline's share.
HIDDEN_S = 0.002
CONFIRMATIONS = 10
#: Datasheets round; clocks are boosted.
FLOOR = 0.9
#: Between calls a worker uses less than this share of a processor, once its pools are asleep: after
#: so many seconds, watched for so many. The second time is for those that seemed busy at first.
BUSY = 0.2
WATCHES = ((0.05, 0.1), (0.5, 0.5))


@dataclass(frozen=True)
class Doubt:
    """Why a kernel's time is not believed; ``wrong``: a timed call's output was not right."""

    reason: str
    wrong: bool = False


Loss = Failed | Died | TimedOut | Doubt


@dataclass
class Lap:
    """What one runner did in one round."""

    samples: list[float]
    wall_s: float

    @property
    def silent_s(self) -> float:
        """Seconds that the judge saw and the worker did not speak of."""
        return self.wall_s - sum(self.samples) / 1e6

    def against(self, usual_s: float) -> tuple[float, float]:
        """Seconds that the worker spoke of, and those that it hid: beyond what is ``usual_s`` per
        call, and the call that warms up."""
        spoken_s = sum(self.samples) / 1e6
        n = len(self.samples)
        return spoken_s, self.silent_s - usual_s * (n + 1) - spoken_s / n


@dataclass
class Race:
    """One workload on one device. ``base`` are inputs that those of all calls are made from."""

    op: Op
    workload: Workload
    dtype: str
    base: Sequence[Any]
    plan: Plan
    limit_s: float
    targets: Mapping[int, Target]
    laps: dict[Key, list[Lap]] = field(default_factory=dict)
    lost: dict[Key, Loss] = field(default_factory=dict)
    _held: list[_Held] = field(default_factory=list)

    def run(self, runners: Mapping[Key, Session], trusted: str) -> None:
        """Fill :attr:`laps` and :attr:`lost`. ``trusted`` is the baseline that doubts are
        measured by."""
        self.laps = {key: [] for key in runners}
        calls: dict[Key, int] = {}
        chosen = random.SystemRandom()
        small = max(t.numel() for t in self.base) <= MANY_ELEMENTS
        checked = set(range(self.plan.rounds)) if small else {chosen.randrange(self.plan.rounds)}
        for turn in range(-1, self.plan.rounds):  # the first says how long a call takes
            data = _Data(self.base, chosen)
            for key, session in runners.items():
                if key in self.lost:
                    continue
                lap = self._lap(session, data, calls.get(key, 1))
                if not isinstance(lap, Lap):
                    self.lost[key] = lap
                elif turn < 0:
                    calls[key] = self.plan.calls(lap.wall_s * 1e6, self._call_bytes())
                else:
                    self.laps[key].append(lap)
                    if turn in checked and isinstance(key, int):
                        self._hold(key, session, data, chosen.randrange(calls[key]))
        self._verify()
        self._compare_clocks(runners, trusted)
        self._compare_floors()
        self._find_busy(runners)

    def samples(self) -> dict[Key, list[float]]:
        return {
            key: [one for lap in laps for one in lap.samples]
            for key, laps in self.laps.items() if key not in self.lost
        }  # fmt: skip

    def _call_bytes(self) -> int:
        return self.op.nbytes(self.workload.dims, self.dtype)

    def _lap(self, session: Session, data: _Data, calls: int) -> Lap | Failed | Died | TimedOut:
        """One call to warm up, then ``calls`` that are timed."""
        arena = session.arena
        arena.clear()
        poisons = [arena.put(poison) for poison in self._poisons()]
        staged = [
            {"inputs": [arena.put(t) for t in data.inputs(n)], "outputs": poisons}
            for n in range(-1, calls)
        ]
        outcome = session.ask(
            "stage", timeout_s=self.limit_s, calls=staged, dims=dict(self.workload.dims),
            scalars=self.op.signature.scalar_values(self.workload.scalars),
        )  # fmt: skip
        if not isinstance(outcome, Answer):
            return outcome
        start = time.perf_counter()
        outcome = session.ask("time", timeout_s=self.limit_s)
        wall_s = time.perf_counter() - start
        if not isinstance(outcome, Answer):
            return outcome
        samples = outcome.data.get("samples")
        if not isinstance(samples, list) or len(samples) != calls:
            return Failed("TypeError", f"it timed {samples}, expected {calls} numbers", "")
        try:
            return Lap([float(one) for one in samples], wall_s)
        except (TypeError, ValueError) as error:
            return Failed("TypeError", f"its times are no numbers: {error}", "")

    def _poisons(self) -> list[Any]:
        return [
            check.poison(spec.sizes(self.workload.dims), spec.resolve(self.dtype))
            for spec in self.op.signature.outputs
        ]

    # ---- were the timed calls right?

    def _hold(self, key: int, session: Session, data: _Data, call: int) -> None:
        session.arena.clear()
        slots = [session.arena.put(poison) for poison in self._poisons()]
        outcome = session.ask("output", timeout_s=self.limit_s, call=call, results=slots)
        if not isinstance(outcome, Answer):
            self.lost[key] = outcome
            return
        self._held.append(_Held(key, data, call, [session.arena.take(slot) for slot in slots]))

    def _verify(self) -> None:
        answers: dict[tuple[int, int], check.Case] = {}
        for held in self._held:
            if held.key in self.lost:
                continue
            which = (id(held.data), held.call)
            if which not in answers:
                inputs = held.data.inputs(held.call)
                answers[which] = check.answer(self.op, self.workload, "timed", inputs)
            found = check.compare(
                actual=held.outputs, case=answers[which], precision=self.op.precision
            )
            if found.problem:
                self.lost[held.key] = Doubt(f"in a timed call, {found.problem}", wrong=True)

    # ---- was the time what they say?

    def _compare_clocks(self, runners: Mapping[Key, Session], trusted: str) -> None:
        """Laps are repeated before anyone is accused: a busy machine hides time now and then, a
        kernel that does hides it always."""
        if not self.laps.get(trusted) or trusted in self.lost:
            return
        seen = {key: list(laps) for key, laps in self.laps.items() if key not in self.lost}
        for left in range(CONFIRMATIONS, -1, -1):
            hiding = _hiding(seen, trusted)
            if not hiding:
                return
            data = _Data(self.base, random.SystemRandom())
            for key in (trusted, *hiding) if left else ():
                lap = self._lap(runners[key], data, len(seen[key][0].samples))
                if isinstance(lap, Lap):
                    seen[key].append(lap)
                else:
                    self.lost[key] = lap
                    del seen[key]
            if trusted in self.lost:
                return
        for key, (spoken_s, hidden_s) in hiding.items():
            self.lost[key] = Doubt(
                f"its calls took {spoken_s * 1e3:.3g} ms by its own clock, and "
                f"{hidden_s * 1e3:.3g} ms more by the judge's"
            )

    def _compare_floors(self) -> None:
        dims, signature = self.workload.dims, self.op.signature
        read_bytes = sum(t.nbytes(dims, self.dtype) for t in signature.inputs)
        for key, target in self.targets.items():
            least_us, why = floor_us(target, read_bytes=read_bytes, flops=self.op.flops(dims))
            samples = [one for lap in self.laps.get(key, []) for one in lap.samples]
            if key in self.lost or not samples:
                continue
            median_us = statistics.median(samples)
            if not median_us >= FLOOR * least_us:  # written so that a NaN fails
                self.lost[key] = Doubt(f"its median is {median_us:.3g} µs, but {why}")

    def _find_busy(self, runners: Mapping[Key, Session]) -> None:
        """Threads that go on between calls take the baseline's time."""
        left = {k: s for k, s in runners.items() if isinstance(k, int) and k not in self.lost}
        for settle_s, watch_s in WATCHES:
            if not left:
                return
            time.sleep(settle_s)
            before = {key: _cpu_seconds(session.pid) for key, session in left.items()}
            time.sleep(watch_s)
            left = {
                key: session for key, session in left.items()
                if _cpu_seconds(session.pid) - before[key] >= BUSY * watch_s
            }  # fmt: skip
        for key in left:
            self.lost[key] = Doubt("it keeps a processor busy between its calls")


def _hiding(laps: Mapping[Key, Sequence[Lap]], trusted: str) -> dict[Key, tuple[float, float]]:
    """Kernels that hid time in all their laps, with their best: seconds spoken of, and hidden. The
    harness's own share of a lap is what the trusted baseline's is, per call."""
    usual = min(lap.silent_s / (len(lap.samples) + 1) for lap in laps[trusted])
    found: dict[Key, tuple[float, float]] = {}
    for key, own in laps.items():
        if isinstance(key, int) and own:
            told = [lap.against(usual) for lap in own]
            spoken_s, hidden_s = min(told, key=lambda both: both[1] - both[0])
            if hidden_s > spoken_s + HIDDEN_S:
                found[key] = spoken_s, hidden_s
    return found


class _Data:
    """The inputs of one round's calls, made when they are asked for: those of the base, rolled and
    scaled by numbers that only the judge knows."""

    def __init__(self, base: Sequence[Any], chosen: random.SystemRandom) -> None:
        self._base = base
        self._seed = chosen.getrandbits(62)

    def inputs(self, call: int) -> list[Any]:
        drawn = random.Random(f"{self._seed} {call}")
        varied = []
        for tensor in self._base:
            rolled = tensor.reshape(-1).roll(drawn.randrange(max(tensor.numel(), 1)))
            if tensor.is_floating_point():
                rolled = (rolled * drawn.uniform(0.75, 1.25)).to(tensor.dtype)
            varied.append(rolled.reshape(tensor.shape))
        return varied


@dataclass(frozen=True)
class _Held:
    """The outputs of one timed call, as they were when its round was over."""

    key: int
    data: _Data
    call: int
    outputs: list[Any]


def _cpu_seconds(pid: int) -> float:
    """Of a worker and all that it started."""
    total = 0.0
    try:
        worker = psutil.Process(pid)
        for process in (worker, *worker.children(recursive=True)):
            times = process.cpu_times()
            total += times.user + times.system
    except psutil.Error:
        pass
    return total
