"""Launches of a library's Triton kernels that its own tests make, as these run in Triton's
interpreter on the original's GPU and on each target."""

from __future__ import annotations

import json
import secrets
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from portkern.evaluator import jailed_process
from portkern.evaluator.jailed_process import readable
from portkern.port.proof.suite import SuiteCommand, told_in
from portkern.port.triton_worker import lines
from portkern.sandbox.message import FormError, read
from portkern.simt.torch_extension.suite import OUT_OF_TIME, Told
from portkern.worker.protocol import Execute

#: The recorder's, found by name: the core imports no backend.
_WORKER = "portkern.backends.triton.library_tests"
ORIGINAL = "sm_90"
#: The part of a run's time after which the first one leaves the tests that have not ended, so that
#: those which have end in the others, beside which more may be at work.
_FIRST = 0.4
#: A kernel's file and name.
Place = tuple[str, str]
#: A launch: its kernel as the recorder names it, its test, and its number among that one's.
Key = tuple[str, str, int]


_Scalar = bool | int | float


@dataclass(frozen=True)
class LaunchWay:
    """The constants of a launch, by a configuration where it is tuned, its programs, and the
    compiler's knobs."""

    constants: dict[str, _Scalar | str | dict[str, str] | None]
    grid: tuple[int, ...]
    knobs: dict[str, int]


@dataclass(frozen=True)
class SuiteTensor:
    """A tensor in the memory of that name; ``offset`` and ``stride`` in elements."""

    memory: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class SuiteMemory:
    """The memory of tensors: its values ``exactly``, or one ``of`` these each, or ``between``
    two."""

    name: str
    dtype: str
    bytes: int
    exactly: str | None = None
    of: tuple[float, ...] | None = None
    between: tuple[float, float] | None = None


@dataclass(frozen=True)
class SuiteLaunch:
    """One launch; ``why`` says why it cannot be made again."""

    path: str
    kernel: str
    line: int
    test: str
    number: int
    ways: tuple[LaunchWay, ...]
    instance: str
    shape: str
    why: str
    scalars: dict[str, _Scalar] = field(default_factory=dict)
    tensors: dict[str, SuiteTensor] = field(default_factory=dict)
    memory: tuple[SuiteMemory, ...] = ()

    def __post_init__(self) -> None:
        if not self.ways:
            raise FormError(f"a launch of {self.kernel!r:.40} has no way")

    @property
    def place(self) -> Place:
        return self.path, self.kernel

    @property
    def key(self) -> Key:
        return f"{self.path}:{self.kernel}", self.test, self.number

    @property
    def inputs(self) -> object:
        """All that it is given but the values in memory."""
        sizes = [(one.name, one.dtype, one.bytes) for one in self.memory]
        return self.scalars, self.tensors, sizes

    @property
    def types(self) -> str:
        """The types of its tensors, each once."""
        return ", ".join(dict.fromkeys(tensor.dtype for tensor in self.tensors.values()))


@dataclass(frozen=True)
class _Counted:
    """How often a kernel was launched with one instance; ``tests`` is a digest of how often each
    test launched the kernel, ``lost`` one that launched the instance and does not pass."""

    path: str
    kernel: str
    line: int
    instance: str
    count: int
    tests: str = ""
    lost: str | None = None


@dataclass(frozen=True)
class TritonRecording:
    """The tests of the library on one GPU: ``counts`` are launches of each instance. ``problem``
    says why there is none."""

    told: tuple[Told, ...] = ()
    launches: tuple[SuiteLaunch, ...] = ()
    counts: tuple[_Counted, ...] = ()
    problem: str = ""

    @property
    def passed(self) -> frozenset[str]:
        return frozenset(one.test for one in self.told if one.outcome == "passed")

    def instances(self, place: Place) -> Mapping[str, int]:
        """The launches of a kernel by their instances."""
        return {one.instance: one.count for one in self._of(place)}

    def by_test(self, place: Place) -> frozenset[str]:
        """A text that is the same where each test launches the kernel as often."""
        return frozenset(one.tests for one in self._of(place))

    def lost(self, place: Place) -> str | None:
        """A test that launches the kernel and does not pass."""
        return next((one.lost for one in self._of(place) if one.lost is not None), None)

    def _of(self, place: Place) -> list[_Counted]:
        return [one for one in self.counts if (one.path, one.kernel) == place]


@dataclass(frozen=True)
class TestedLibrary:
    """The recordings of the original and of each target, by its name."""

    command: str
    original: TritonRecording
    by_target: Mapping[str, TritonRecording]

    @property
    def lines(self) -> list[str]:
        """The account for a reader: how many tests, and what of them is not used, with causes."""
        if self.original.problem:
            return [f"{self.command}: {self.original.problem}"]
        told, passed = self.original.told, self.original.passed
        count = sum(one.count for one in self.original.counts)
        lines = [
            f"{self.command}: {len(passed)} of {len(told)} tests pass in Triton's interpreter as "
            f"on {_NVIDIA}; {count} launches of {len(self.original.counts)} instances"
        ]
        causes = Counter(one.why for one in told if one.outcome != "passed")
        lines += [f"{number} × not used: {why}" for why, number in causes.most_common()]
        for name, other in self.by_target.items():
            lost = sorted(passed - other.passed)
            why = {one.test: one.why for one in other.told}
            lines += [f"{t} passes as on {_NVIDIA}, not as on {name}: {why.get(t)}" for t in lost]
        return lines

    @property
    def without_time(self) -> str:
        """How many of the tests had no time, in words; '' for none."""
        late = sum(one.why == OUT_OF_TIME for one in self.original.told)
        return f" ({late} of {len(self.original.told)} tests had no time)" if late else ""

    def of(self, place: Place) -> list[SuiteLaunch]:
        """The launches of a kernel that can be told of, in tests that pass."""
        return [one for one in self.original.launches if one.place == place]


_NVIDIA = "NVIDIA's GPU"


def recorded(root: Path, command: str, targets: Sequence[str], timeout_s: float) -> TestedLibrary:
    """Runs the tests as on each GPU. Those that do not pass on the original's are not run again.
    Raises ConfigError for another command and WorkerError without a jail."""
    asked = SuiteCommand.parse(command)
    first = _run(root, asked, ORIGINAL, None, None, timeout_s, within_s=timeout_s * _FIRST)
    if not first.problem and first.told and not first.passed:
        causes = Counter(one.why for one in first.told)
        why = "; ".join(f"{count} × {cause}" for cause, count in causes.most_common(5))
        first = TritonRecording(first.told, problem=f"no test passes: {why}")
    if not first.problem and len(first.passed) < len(first.told):
        only = sorted(first.passed)
        told = first.told  # the launches of tests that fail show nothing
        again = _run(root, asked, ORIGINAL, only, None, timeout_s)
        first = TritonRecording(told, again.launches, again.counts, again.problem)
    if first.problem:
        return TestedLibrary(command, first, {})
    keys = [launch.key for launch in first.launches]
    only = sorted(first.passed)
    others = {name: _run(root, asked, name, only, keys, timeout_s) for name in targets}
    return TestedLibrary(command, first, others)


def _run(
    root: Path,
    command: SuiteCommand,
    target: str,
    only: Sequence[str] | None,
    wanted: Sequence[Key] | None,
    timeout_s: float,
    *,
    within_s: float = 0,
) -> TritonRecording:
    """Runs the tests as on one GPU; ``within_s``: those that have not ended then are left."""
    mark = secrets.token_hex(16)
    with readable(root) as seen, tempfile.TemporaryDirectory(prefix="portkern-triton-") as place:
        Path(place).chmod(0o755)
        file = Path(place) / "tests.json"
        asked: dict[str, object] = {"target": target, "mark": mark}
        asked |= {"kind": command.kind, "words": command.words}
        asked |= {"only": only, "wanted": wanted, "within_s": within_s}
        file.write_text(json.dumps(asked), encoding="utf-8")
        file.chmod(0o644)
        argv = (sys.executable, "-P", "-m", _WORKER, str(file))
        ran = jailed_process.run(
            Execute(argv, str(seen), target, "hip", (), timeout_s), (seen, Path(place))
        )
    told = tuple(told_in(ran.output))
    if ran.status is None:
        return TritonRecording(told, problem=f"its tests did not end in {timeout_s:g} s")
    said = list(lines(ran.output, mark))
    if not said or "end" not in said[-1]:
        tail = next(reversed(ran.output.strip().splitlines()), "it said nothing")
        return TritonRecording(told, problem=f"its tests did not come to their end: {tail[:300]}")
    try:
        launches = tuple(read(SuiteLaunch, one) for one in said if "ways" in one)
        counts = tuple(read(_Counted, one) for one in said if "count" in one)
    except ValueError as error:
        return TritonRecording(
            told, problem=f"its process answered in no form that is known: {error}"
        )
    if not told:
        return TritonRecording(told, problem="no test is run")
    return TritonRecording(told, launches, counts)


def paired(
    original: Sequence[SuiteLaunch], other: Sequence[SuiteLaunch]
) -> tuple[list[tuple[SuiteLaunch, SuiteLaunch]], str]:
    """Each launch with that of another GPU, and why one has none."""
    by_key: dict[Key, SuiteLaunch] = {one.key: one for one in other}
    pairs: list[tuple[SuiteLaunch, SuiteLaunch]] = []
    for launch in original:
        there = by_key.get(launch.key)
        if there is None:
            return pairs, f"{launch.test} does not launch it so often there"
        if not launch.why and not there.why and there.inputs != launch.inputs:
            return pairs, f"{launch.test} gives launch {launch.number + 1} other inputs there"
        pairs.append((launch, there))
    return pairs, ""
