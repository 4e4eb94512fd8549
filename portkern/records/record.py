"""One line of the results file: what was tried, where, and what came out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    field_serializer,
    field_validator,
    model_validator,
)

from portkern.printable import printable
from portkern.records.jsonl import JsonLine, JsonPart, LineFile
from portkern.spec.safe_name import short

SCHEMA: Final = 1
#: Compilers, kernels and drivers wrote it; a terminal and a page show it.
Text = Annotated[str, AfterValidator(printable)]


class Verdict(StrEnum):
    """Every cell ends in exactly one of these. The order is the order of the stages."""

    UNSUPPORTED = "unsupported"  # the backend does not claim this target, op or dtype
    UNAVAILABLE = "unavailable"  # it does, but this machine cannot show it
    REJECTED = "rejected"  # the guard refused the source
    BUILD_FAILED = "build_failed"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    WRONG = "wrong"
    SUSPICIOUS = "suspicious"
    PASSED = "passed"

    __hash__ = str.__hash__  # Enum's own is a function in Python, and tables count by it

    @property
    def bad(self) -> bool:
        """Whether the kernel was evaluated and failed; a cell nobody could run is not bad."""
        return self not in (Verdict.UNSUPPORTED, Verdict.UNAVAILABLE, Verdict.PASSED)


class Evidence(IntEnum):
    """The evidence behind a cell. Nothing is promoted or dropped silently."""

    NONE = 0
    BUILT = 1  # for the real instruction set
    EMULATED = 2  # correct in an emulator of the target's execution model
    EXECUTED = 3  # the compiled object is correct on a model of the processor
    VERIFIED = 4  # correct on the hardware
    MEASURED = 5  # and timed there

    __hash__ = int.__hash__

    def __str__(self) -> str:
        return self.name.lower()


class WorkloadRef(JsonPart):
    set: Text
    name: Text
    dims: dict[Text, int]
    dtype: Text
    scalars: dict[Text, float | int | bool] = {}


#: The rule by which outputs were compared: within what the framework's own errors grant (tight),
#: with what the op declares of its sums added, or with what was derived from its reference. Each
#: grants what those before it do.
Tolerance = Literal["tight", "declared", "derived"]


class Errors(JsonPart):
    """Worst over all inputs tried. ``vs_fp64`` and ``reference_vs_fp64`` are relative norms of
    the kernel's and of the framework's own error against the float64 reference. ``tolerance`` is
    the widest that was needed; None in records from before there was a choice."""

    max_abs: float
    max_rel: float
    vs_fp64: float
    reference_vs_fp64: float
    tolerance: Tolerance | None = None


class Timing(JsonPart):
    """Microseconds per call, over ``rounds`` in turns with the others. ``method`` says how they
    were taken; ``noise`` is what the medians of even and odd rounds differ by, relatively;
    ``noisy`` why it is too uncertain to be compared or averaged, empty when it is not;
    ``conditions`` are the least and the largest of what the device told meanwhile, see
    :mod:`portkern.evaluator.telemetry`."""

    median_us: float
    ci95_us: tuple[float, float] | None = None
    p20_us: float
    p80_us: float
    n: int
    rounds: int = 0
    noise: float | None = None
    noisy: Text = ""
    conditions: dict[Text, tuple[float, float]] = {}
    samples: list[float]
    method: Text


class Speedup(JsonPart):
    """Ratio of medians, baseline over kernel, from one interleaved run; 95 % bootstrap interval."""

    value: float
    ci95: tuple[float, float]


class Roofline(JsonPart):
    """``fraction`` of the bound that ``basis`` gives; None without a peak for this target."""

    bytes: int
    flops: float
    fraction: float | None = None
    basis: Text = ""


class BuildResources(JsonPart):
    """Per kernel of the build; :class:`portkern.spec.backend.Resources`. ``occupancy`` is 0..1."""

    kernel: Text
    registers: int | None = None
    agprs: int | None = None
    sgprs: int | None = None
    spills: int | None = None
    shared_bytes: int | None = None
    vmem_bytes: int | None = None  # of a TPU
    threads: int | None = None
    occupancy: float | None = None


#: The :class:`Counts` that the launches of an executed call have.
EXECUTED_COUNTS: Final = ("instructions", "lines", "lds_passes")


class Counts(NamedTuple):
    """The counts of a compiled kernel, known without hardware: bytes of instructions, the most
    registers, spilled bytes and shared bytes of one kernel, and of one call that was executed its
    instructions, the lines of memory that they touched and the passes of LDS. None = unknown."""

    code_bytes: int | None = None
    registers: int | None = None
    spills: int | None = None
    shared_bytes: int | None = None
    instructions: int | None = None
    lines: int | None = None
    lds_passes: int | None = None


class Environment(JsonPart):
    """The environment in which a cell ran. ``device`` is the hardware's own name, also for an
    emulator's host; ``containment`` the layers that confined the worker, see
    :mod:`portkern.sandbox.jail`."""

    machine: Text
    device: Text
    driver: Text = ""
    toolchain: dict[Text, Text] = {}
    harness_version: Text
    containment: Text = ""


class Launch(JsonPart):
    """A launch during one evaluated call: a kernel on a GPU or in an executor. ``us`` is its
    time on the device over all ``count`` launches, 0 where an executor has none; ``counts`` are
    what it did in them, as the executor of objects counts it (:mod:`portkern.isa.counts`)."""

    name: Text
    count: int = 1
    us: float = 0.0
    counts: dict[Text, Annotated[int, Field(ge=0, le=1 << 53)]] = {}

    @property
    def told(self) -> str:
        """The counts in a line: what was executed, and what it cost beyond the least."""
        n = Counter(self.counts)
        if not n["instructions"]:
            return ""
        parts = [f"{n['instructions']:,} instructions of {n['waves']:,} waves"]
        parts += [f"{n[kind]:,} {kind}" for kind in ("vector", "matrix", "memory") if n[kind]]
        if n["lane_slots"]:
            parts.append(f"{n['lanes'] / n['lane_slots']:.0%} of lanes active")
        for name, unit in (("lines", "lines of 128 bytes"), ("lds_passes", "passes of LDS")):
            if least := n[f"least_{name}"]:
                parts.append(f"{n[name]:,} {unit}, {n[name] / least:.2f} x the least")
        if n["scratch_bytes"]:
            parts.append(f"{n['scratch_bytes']:,} bytes of scratch moved")
        return "; ".join(parts)


#: The code of a note: an emulator ran the kernel, and nothing looked for races.
RACES_NOT_LOOKED_FOR = "races-not-looked-for"


class Finding(JsonPart):
    """A finding of a checker while the kernel ran. ``severity`` error: the kernel is wrong."""

    code: Text  # "SX201"
    severity: Literal["error", "warning", "note"]
    message: Text
    place: Text = ""  # file:line
    also: Text = ""  # the other place of a race
    kernel: Text = ""
    count: int = 1

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        also = f" (and {self.also})" if self.also else ""
        return f"{where}{self.severity}: {self.code} {self.message}{also}"


class Cost(JsonPart):
    """The charge of a model; None = unknown, which is not 0."""

    usd: float | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None


class Record(JsonLine):
    SCHEMA: ClassVar[int] = SCHEMA

    schema_: Literal[1] = 1
    run: Text
    id: Text
    time: Text  # UTC, ISO 8601
    key: Text  # what must be equal for a result to be reused
    op: Text
    workload: WorkloadRef
    backend: Text
    language: Text
    target: Text
    #: "hardware: NVIDIA H200", "object: AMD executor, gfx942", "emulator: Triton interpreter" or ""
    venue: Text
    source_hash: Text
    author: Text
    variant: Text = ""  # of several kernels for one op in one language
    parents: list[Text] = []
    verdict: Verdict
    detail: Text = ""  # why this verdict, in one line; the log's end after it
    evidence: Evidence
    missing: Text = ""  # why the next rung of evidence is missing
    errors: Errors | None = None
    precision: Text = "strict"
    timing: Timing | None = None
    baselines: dict[Text, Timing] = {}
    speedup: dict[Text, Speedup] = {}  # by baseline
    roofline: Roofline | None = None
    resources: list[BuildResources] = []
    guard: list[Text] = []
    findings: list[Finding] = []
    launches: list[Launch] = []  # none where nobody counts them, such as native code of a CPU
    environment: Environment
    cost: Cost = Cost()
    #: What the cell took: ``build``, ``load``, the ``first`` call, which may still compile or tune,
    #: and all that were evaluated (``run``).
    seconds: dict[Text, float] = {}
    #: The digest of the machine code (:mod:`portkern.toolchain.machine_code`) and the bytes of its
    #: instructions; '' and None where there is none, or before it was kept.
    code: Text = ""
    code_bytes: int | None = None
    #: What must be equal for a result to stand where the machine code is the same as well: ``key``
    #: without the tools that build.
    asked: Text = ""
    #: The run in which it was judged and timed, where it was not again; '' where it was.
    carried: Text = ""

    @property
    def counts(self) -> Counts:
        """The exact counts of the build, over its kernels, and of what a call executed."""
        worst = {
            name: max(
                (n for one in self.resources if (n := getattr(one, name)) is not None),
                default=None,
            )
            for name in ("registers", "spills", "shared_bytes")
        }
        # Of what was counted, a count that is not there is 0.
        counted = [one.counts for one in self.launches if "instructions" in one.counts]
        executed = {
            name: sum(one.get(name, 0) for one in counted) if counted else None
            for name in EXECUTED_COUNTS
        }
        return Counts(self.code_bytes, **worst, **executed)

    @property
    def row(self) -> str:
        """The record's row in a table: ``softmax``, or ``softmax.fast`` of a variant."""
        return f"{self.op}.{self.variant}" if self.variant else self.op

    @property
    def judged(self) -> bool:
        """Whether the kernel could be evaluated: it passed, or it is bad."""
        return self.verdict is Verdict.PASSED or self.verdict.bad

    @property
    def comparable(self) -> bool:
        """Whether its time may be compared with others and enter means."""
        return self.timing is not None and not self.timing.noisy

    @field_validator("evidence", mode="before")
    @classmethod
    def _evidence_by_name(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        if value.upper() not in Evidence.__members__:
            raise ValueError(f"got {short(value)}, expected of {', '.join(map(str, Evidence))}")
        return Evidence[value.upper()]

    @field_serializer("evidence")
    def _evidence_as_name(self, value: Evidence) -> str:
        return str(value)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.timing is not None) != (self.evidence is Evidence.MEASURED):
            raise ValueError(f"timing goes with measured evidence, got {self.evidence}")
        if self.evidence >= Evidence.EMULATED and self.verdict is not Verdict.PASSED:
            raise ValueError(f"only a passed cell is {self.evidence}, got {self.verdict}")
        if self.verdict is Verdict.PASSED and self.evidence < Evidence.EMULATED:
            raise ValueError(f"a passed cell ran somewhere, got {self.evidence}")
        if self.speedup and self.timing is None:
            raise ValueError("a speedup needs a timing")
        return self


#: The list of a time's samples in a line; within a text its quotes would have a backslash.
_SAMPLES = re.compile(r'"samples": ?\[[^\]"]*\]')


def _without_samples(line: str) -> Record:
    record = Record.from_json(_SAMPLES.sub('"samples":[]', line))
    _share(record)
    return record


#: Pydantic keeps for each part of a record the set of the fields that its line named: of a hundred
#: thousand records they take more than all else. Equal ones are one set, which no part changes.
_NAMES: dict[frozenset[str], set[str]] = {}
#: Parts that many records have alike, such as environments, one each; and how many are kept.
_ALIKE: dict[tuple[object, ...], Any] = {}
_MOST_ALIKE = 200_000
_PARTS = ("workload", "errors", "environment", "cost", "roofline")
_SEVERAL = ("parents", "resources", "guard", "findings", "launches")
_NONE: list[Any] = []


def _share(record: Record) -> None:
    """Puts one part in the place of equal ones, which takes half of the memory."""
    if len(_ALIKE) > _MOST_ALIKE:
        _ALIKE.clear()
    said = vars(record)
    for name in _PARTS:
        if said[name] is not None:
            said[name] = _one_of(_key(said[name]), said[name])
    for name in _SEVERAL:
        several = said[name]
        said[name] = _one_of((name, *map(_key, several)), several) if several else _NONE
    _share_names(record)
    for timing in filter(None, (record.timing, *record.baselines.values())):
        _share_names(timing)
        for name in ("samples", "conditions"):
            vars(timing)[name] = vars(timing)[name] or _one_of((name,), vars(timing)[name])
    for speedup in record.speedup.values():
        _share_names(speedup)


def _one_of(key: tuple[object, ...], part: Any) -> Any:
    known = _ALIKE.setdefault(key, part)
    if known is part:
        for one in part if isinstance(part, list) else [part]:
            if isinstance(one, BaseModel):
                _share_names(one)
    return known


def _key(part: object) -> tuple[object, ...]:
    """Equal for equal ones; 1 and 1.0 are not."""
    if not isinstance(part, BaseModel):
        return (part,)
    said = vars(part).values()
    return (type(part), *(_items(one) if type(one) is dict else one for one in said))


def _items(said: Mapping[str, object]) -> tuple[object, ...]:
    return (*said.items(), *map(type, said.values()))


def _share_names(part: BaseModel) -> None:
    names = part.__pydantic_fields_set__
    object.__setattr__(part, "__pydantic_fields_set__", _NAMES.setdefault(frozenset(names), names))


class RecordFile(LineFile[Record]):
    """A run's ``records.jsonl``; without ``samples``, which are most of it, where nobody looks at
    the times one by one."""

    def __init__(self, path: Path, *, samples: bool = True) -> None:
        super().__init__(path, Record.from_json if samples else _without_samples)
