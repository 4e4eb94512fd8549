"""Proofs of Triton kernels on what the library's own tests launch.

Each recorded launch is made again, with new floating-point numbers between the same bounds: in
Triton's interpreter as on the original's GPU and as on the target, with each configuration that the
library has there, and as Triton compiles it for the target, in the executor of AMD's instructions.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from portkern.evaluator import object_program
from portkern.port import triton_tests
from portkern.port.kernel_port import PortResources, ProofLine
from portkern.port.proof import Outcome
from portkern.port.triton_answers import (
    Answer,
    coverage,
    differs,
    differs_in_small_ones,
    formed,
    missed,
    of_original,
    problem,
    worth,
)
from portkern.port.triton_library import TritonResources, resources, too_large
from portkern.port.triton_tests import ORIGINAL, LaunchWay, SuiteLaunch, TestedLibrary
from portkern.port.triton_worker import WorkerRequest, answers
from portkern.spec import target as targets

_INTERPRETER = "portkern.backends.triton.library_interpreter"
_EXECUTOR = "portkern.backends.triton.library_executed"
_SEED = 17
#: Ways of a launch that the recorder tells at most; of compiled code the first one runs.
_MOST_WAYS = 16
#: So many requests' answers fit into what a process may print.
_AT_ONCE = 12
_EACH_S, _EACH_EXECUTED_S = 30, 60

NO_TEST = "no test launches it"


@dataclass(frozen=True)
class _Request(WorkerRequest):
    constants: Mapping[str, object]
    grid: tuple[int, ...]
    knobs: Mapping[str, int]
    recorded: Mapping[str, object]
    whole: bool = False
    backwards: bool = False
    seed: int = _SEED


@dataclass
class _Asked:
    """Requests, and what has been said to each, by its number."""

    requests: dict[int, tuple[str, _Request]] = field(default_factory=dict)
    said: dict[int, Answer] = field(default_factory=dict)

    def ask(
        self,
        worker: str,
        target: str,
        launch: SuiteLaunch,
        way: LaunchWay,
        *,
        backwards: bool = False,
    ) -> int:
        """The number of the request."""
        number = len(self.requests)
        request = _Request(
            number,
            launch.path,
            launch.kernel,
            launch.line,
            target,
            way.constants,
            way.grid,
            way.knobs,
            _recorded(launch),
            target == ORIGINAL and not backwards,
            backwards,
        )
        self.requests[number] = worker, request
        return number

    def answer(self, root: Path, timeout_s: float) -> None:
        """Asks all, kernel by kernel, so that what has no answer when the time is over are the last
        kernels' requests. A process answers some of a kind, and imports the library once."""
        until = time.monotonic() + timeout_s
        waiting: dict[tuple[str, str], list[_Request]] = {}
        for worker, request in self.requests.values():
            own = waiting.setdefault((worker, request.target), [])
            own.append(request)
            if len(own) == _AT_ONCE:
                self._ask(worker, root, own, until)
                own.clear()
        for (worker, _), own in waiting.items():
            self._ask(worker, root, own, until)

    def _ask(self, worker: str, root: Path, some: Sequence[_Request], until: float) -> None:
        left_s = until - time.monotonic()
        if not some or left_s <= 0:
            return
        each_s = _EACH_EXECUTED_S if worker == _EXECUTOR else _EACH_S
        reads = object_program.reads() if worker == _EXECUTOR else ()
        for number, answer in answers(worker, root, some, left_s, each_s, reads).items():
            told = ["written"] * (worker == _INTERPRETER)
            told += ["whole"] * (worker == _EXECUTOR or self.requests[number][1].whole)
            self.said[number] = formed(answer, *told)

    def of(self, number: int) -> Answer:
        return self.said.get(number, {"unknown": "the time for this library was over"})


def _recorded(launch: SuiteLaunch) -> dict[str, object]:
    """The inputs as the workers make them anew."""
    tensors = {name: asdict(tensor) for name, tensor in launch.tensors.items()}
    memory = [asdict(one) for one in launch.memory]
    return {
        "line": launch.line,
        "scalars": launch.scalars,
        "tensors": tensors,
        "memory": memory,
    }


@dataclass(frozen=True)
class _Pair:
    """A launch of the original with the target's: numbers of their requests. ``ways`` are the
    target's, each with the request of the original's that has the same constants, if there is one.
    ``executed`` is None where this machine has no model of the target."""

    original: SuiteLaunch
    ported: SuiteLaunch
    back: int
    ways: Sequence[tuple[LaunchWay, int, int | None]]
    first: int
    executed: int | None


class Recorded:
    """The proofs of kernels that the library's tests launch, by kernel and target."""

    def __init__(self, root: Path, tested: TestedLibrary, timeout_s: float) -> None:
        self._root, self._tested = root, tested
        self._asked = _Asked()
        self._originals: dict[tuple[triton_tests.Key, str, bool], int] = {}
        self._pairs: dict[tuple[triton_tests.Place, str], list[_Pair]] = {}
        for place in dict.fromkeys(one.place for one in tested.original.launches):
            for name in tested.by_target:
                self._pairs[place, name] = list(self._plan(place, name))
        self._asked.answer(root, timeout_s)

    def _plan(self, place: triton_tests.Place, target: str) -> Iterator[_Pair]:
        there = self._tested.by_target[target].launches
        pairs, _ = triton_tests.paired(self._tested.of(place), there)
        has_model = object_program.lacking(targets.load(target)) is None
        for launch, ported in pairs:
            if launch.why or ported.why or max(map(len, (launch.ways, ported.ways))) >= _MOST_WAYS:
                continue
            back = self._of_original(launch, launch.ways[0], backwards=True)
            # Data that a test draws without a seed has other bounds in each process.
            given, ways = replace(ported, memory=launch.memory), []
            for way in _distinct(ported.ways):
                same = [own for own in launch.ways if own.constants == way.constants][:1]
                number = self._asked.ask(_INTERPRETER, target, given, way)
                ways.append((way, number, self._of_original(launch, same[0]) if same else None))
            first = ways[0][2]
            if first is None:
                first = self._of_original(launch, launch.ways[0])
            own = ported.ways[0]
            executed = self._asked.ask(_EXECUTOR, target, given, own) if has_model else None
            yield _Pair(launch, ported, back, ways, first, executed)

    def _of_original(self, launch: SuiteLaunch, way: LaunchWay, *, backwards: bool = False) -> int:
        """The number of its request, which all targets share."""
        key = launch.key, _text(way), backwards
        if key not in self._originals:
            self._originals[key] = self._asked.ask(
                _INTERPRETER, ORIGINAL, launch, way, backwards=backwards
            )
        return self._originals[key]

    def proof(self, place: triton_tests.Place, target: str) -> ProofLine | None:
        """The proof of a kernel; None where no test launches it."""
        tested = self._tested
        launches = tested.of(place)
        if not launches:
            return None
        other, instances = tested.by_target[target], tested.original.instances(place)
        types = ", ".join(dict.fromkeys(one.types for one in launches if one.types))
        inputs = (
            f"recorded from {tested.command}{tested.without_time}: {sum(instances.values())} "
            f"launches of {len(instances)} instances, of {types or 'no tensors'}"
        )
        pairs = self._pairs[place, target]
        said = [self._asked.of(number) for pair in pairs for number in (pair.first, pair.back)]
        said += [self._asked.of(number) for pair in pairs for _, number, _ in pair.ways]
        covered = coverage(said)
        line = ProofLine(outcome=Outcome.UNPROVEN, inputs=inputs, coverage=covered)
        found = [self._outcome(pair, target) for pair in pairs]
        for kind in (Outcome.WRONG, Outcome.UNPROVEN):
            if why := next((why for outcome, why in found if outcome is kind), ""):
                return line.model_copy(update={"outcome": kind, "why": why})
        if why := other.problem and f"on {target}: {other.problem}":
            return line.model_copy(update={"why": why})
        if why := self._open(place, target, launches):
            return line.model_copy(update={"why": why})
        if covered is None or covered.lines < covered.lines_total:
            lines = _named(sorted(missed(said), key=_by_line))
            why = f"no test launches an instance that reaches {lines}"
            return line.model_copy(update={"why": why})
        return line.model_copy(update={"outcome": Outcome.PROVEN, "why": self._remark(pairs)})

    def built(self, place: triton_tests.Place, target: str) -> PortResources | None:
        """The resources of what the tests launch, as compiled for the target; None where not all
        of it was, or fits."""
        facts, made = targets.load(target), list[TritonResources]()
        for pair in self._pairs.get((place, target), ()):
            number = pair.executed
            told = None if number is None else self._asked.of(number).get("resources")
            if told is None or too_large(told.get("lds_bytes", 0), facts):
                return None
            made.append(resources(told, facts))
        return PortResources.of(made) if made else None

    def _open(self, place: triton_tests.Place, target: str, launches: Sequence[SuiteLaunch]) -> str:
        """Why not all that the tests launch is shown."""
        _, why = triton_tests.paired(launches, self._tested.by_target[target].launches)
        if why:
            return f"the library's host code goes another way on {target}: {why}"
        there = [o for o in self._tested.by_target[target].launches if o.place == place]
        for of, own, recording in (
            ("", launches, self._tested.original),
            (f" on {target}", there, self._tested.by_target[target]),
        ):
            if why := next((one.why for one in own if one.why), ""):
                return f"a launch{of} cannot be made again: {why}"
            if any(len(one.ways) >= _MOST_WAYS for one in own):
                return f"a launch{of} has {_MOST_WAYS} configurations or more"
            if (lost := recording.lost(place)) is not None:
                return f"{lost or 'a test'} launches it{of} and does not pass there"
            left = recording.instances(place).keys() - {one.instance for one in own}
            if left:
                return f"{len(left)} instances{of} are beyond those that are kept: {min(left)}"
        return self._other_number(place, target)

    def _other_number(self, place: triton_tests.Place, target: str) -> str:
        """How the tests launch the kernel more often on the target, or less."""
        before, after = self._tested.original, self._tested.by_target[target]
        by_instance, there = before.instances(place), after.instances(place)
        is_same = by_instance == there or by_instance.keys() != there.keys()  # of other constants
        if is_same and before.by_test(place) == after.by_test(place):
            return ""
        counts = f"{sum(there.values())} times, {sum(by_instance.values())} in the original"
        return f"the library's host code goes another way on {target}: it launches it {counts}"

    def _outcome(self, pair: _Pair, target: str) -> tuple[Outcome, str]:
        first, back = self._asked.of(pair.first), self._asked.of(pair.back)
        where = f"in {pair.original.test}" if pair.original.test else "in the script"
        if why := of_original(first, back):
            return Outcome.UNPROVEN, f"{where}: {why}"
        if found := worth(first):
            return found
        for way, number, same in pair.ways:
            ported = self._asked.of(number)
            expected = first if same is None else self._asked.of(same)
            how = f"on {target}, {where}{_settings(way)}"
            if why := problem(ported) or problem(expected):
                return Outcome.UNPROVEN, f"{how}: {why}"
            if why := _other_integers(pair, expected, ported):
                return Outcome.UNPROVEN, f"{how}: {why}"
            if why := differs(expected, ported):
                is_known = same is not None or len(pair.ways) == 1
                return Outcome.WRONG if is_known else Outcome.UNPROVEN, f"{how}: {why}"
        if pair.executed is None:
            return Outcome.PROVEN, ""
        executed = self._asked.of(pair.executed)
        how = f"the code compiled for {target}, {where}"
        if why := problem(executed):
            return Outcome.UNPROVEN, f"{how}: {why}"
        wholes = {"written": first["whole"]}, {"written": executed["whole"]}
        if why := differs(*wholes) or differs_in_small_ones(*wholes):
            return Outcome.UNPROVEN, f"{how}, does not do what the interpreter does: {why}"
        return Outcome.PROVEN, ""

    def _remark(self, pairs: Sequence[_Pair]) -> str:
        ways = sum(len(pair.ways) for pair in pairs)
        executed = sum(pair.executed is not None for pair in pairs)
        as_compiled = f", {executed} of them as compiled" if executed else ", none as compiled"
        return f"{len(pairs)} launches, {ways} with their configurations{as_compiled}"


def _distinct(ways: Sequence[LaunchWay]) -> list[LaunchWay]:
    """The ways that differ to the interpreter, which knows no number of warps."""
    found: dict[str, LaunchWay] = {}
    for way in ways:
        found.setdefault(_text(way), way)
    return list(found.values())


def _other_integers(pair: _Pair, *said: Answer) -> str:
    """Which integers that the kernel reads have other values on the target: data without a seed,
    or other host code."""
    before = {one.name: one for one in pair.original.memory}
    read = {name for answer in said for name in answer["read"]}
    for one in pair.ported.memory:
        is_float = "float" in one.dtype
        if one.name in read and not is_float and one.exactly != before[one.name].exactly:
            return f"the test gives '{one.name}' other values there"
    return ""


def _text(way: LaunchWay) -> str:
    return json.dumps([way.constants, way.grid], sort_keys=True)


def _named(lines: Sequence[str]) -> str:
    return f"line{'s' * (len(lines) > 1)} {', '.join(lines[:6])}"


#: Digits of a line's number; a stranger's may have more than Python reads.
_MOST_DIGITS = 9


def _by_line(named: str) -> tuple[str, int]:
    file, _, line = named.rpartition(":")
    return file, int(line) if line.isdecimal() and len(line) < _MOST_DIGITS else 0


def _settings(way: LaunchWay) -> str:
    return "".join(f" {name}={value}" for name, value in way.constants.items())
