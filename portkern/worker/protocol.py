"""Messages between an evaluator and a worker: a request and its reply are a class each.

A worker holds the code of others and may answer anything; :mod:`portkern.sandbox.message` reads a
reply as what its class says, or not at all. No request of a candidate's worker carries the answer
or a tolerance.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

from portkern.sandbox.message import FormError, Request, brief, read, reader
from portkern.sandbox.shared_memory import Rows, TensorPlace
from portkern.simt.diagnostics import Diagnostic
from portkern.spec import backend
from portkern.spec.file_build import FileBuild, KernelObject
from portkern.spec.from_torch.traced import PlainKernel, Tracing
from portkern.spec.imported import ImportedInputs, ImportedReference
from portkern.spec.op import Precision, Scalar, Signature

#: The name of what launches did to memory among the files of :class:`Executed`.
RECORD = "record"
#: The file of what a device in a process of its own has found.
FOUND = "found"
#: Microseconds and seconds below this are times, whatever was measured.
MOST_TIME = 1e18
#: What a launch did is counted in so many kinds, and up to here; JSON's readers know larger ones
#: not exactly.
MOST_COUNTS, MOST_COUNTED = 1024, 1 << 53


# ---- replies


@dataclass(frozen=True)
class Done:
    """There is nothing more to say."""


@dataclass(frozen=True)
class BuiltFiles:
    """``files``: names in the build's folder and sizes, whose bytes follow each other in the shared
    memory. The artifact's path is one of them."""

    artifact: backend.Artifact
    files: tuple[tuple[str, int], ...]
    seconds: float

    def __post_init__(self) -> None:
        _be_times(self.seconds)
        _be_code(self.artifact.code, self.artifact.code_bytes)


@dataclass(frozen=True)
class Loaded:
    """``method``: how the device takes times, in its own words. ``code`` and ``code_bytes``: of
    what was compiled as it was loaded, as :mod:`portkern.toolchain.machine_code` has them."""

    method: str
    code: str = ""
    code_bytes: int | None = None

    def __post_init__(self) -> None:
        _be_code(self.code, self.code_bytes)


@dataclass(frozen=True)
class Layout:
    """The oddities of where an output lies or what it is; none where all is empty.

    ``type``: it is not a torch.Tensor but this. ``owes``: work that is left for whoever looks at
    it. ``input``: the number of the input whose memory it shares.
    """

    type: str = ""
    attributes: tuple[str, ...] = ()
    owes: str = ""
    device: str = ""
    input: int | None = None
    strides: tuple[int, ...] | None = None


@dataclass(frozen=True)
class OutputForm:
    """The form of what the kernel returned."""

    shape: tuple[int, ...]
    dtype: str
    layout: Layout = Layout()


@dataclass(frozen=True)
class CheckerFinding:
    """A finding of a checker while the kernel ran."""

    code: str
    severity: Literal["error", "warning", "note"]
    message: str
    place: str = ""
    also: str = ""
    kernel: str = ""
    count: int = 1


@dataclass(frozen=True)
class SeenLaunch:
    """A kernel or operator of one call, by name, with its time over all ``count``, and ``counts``
    of what it did."""

    name: str
    count: int = 1
    us: float = 0.0
    counts: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _be_times(self.us)
        most, odd = max(self.counts.values(), default=0), min(self.counts.values(), default=0) < 0
        if odd or most > MOST_COUNTED or len(self.counts) > MOST_COUNTS:
            raise ValueError(
                f"a launch has {len(self.counts)} counts of up to {most}, expected at most "
                f"{MOST_COUNTS} of 0 to {MOST_COUNTED}"
            )


@dataclass(frozen=True)
class Trace:
    """A trace of the work in a call, and of what did it. ``ended``: the kernel ended the
    profile; ``missing``: why the trace does not prove anything."""

    operators: tuple[SeenLaunch, ...] = ()
    launches: tuple[SeenLaunch, ...] = ()
    routines: tuple[str, ...] = ()
    ended: bool = False
    missing: str = ""


@dataclass(frozen=True)
class Ran:
    """``returned``: how many outputs; they are described when there are as many as there should be.
    ``changed``: what the kernel changed that others work with, one line each."""

    returned: int
    outputs: tuple[OutputForm, ...]
    seconds: float
    changed: tuple[str, ...]
    findings: tuple[CheckerFinding, ...] = ()
    trace: Trace | None = None

    def __post_init__(self) -> None:
        _be_times(self.seconds)


@dataclass(frozen=True)
class Changes:
    """The inputs that calls changed, as in :class:`Ran`."""

    changed: tuple[str, ...]


@dataclass(frozen=True)
class Timed:
    """Microseconds of each call; of a kernel that returns tensors of its own on a host,
    ``addresses`` of each call's outputs."""

    samples: tuple[float, ...]
    addresses: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        _be_times(*self.samples)


def _be_code(digest: str, size: int | None) -> None:
    if digest and not re.fullmatch("[0-9a-f]{16}", digest):
        raise ValueError(f"{brief(digest)} is not a digest of machine code")
    if not 0 <= (size or 0) < 1 << 40:
        raise ValueError(f"machine code of {size} bytes")


def _be_times(*claimed: float) -> None:
    for time in claimed:
        if not 0 <= time < MOST_TIME:
            raise ValueError(f"{time:g} is not a time")


@dataclass(frozen=True)
class Computed:
    """The forms of what a reference gave, whose elements follow each other in the shared memory."""

    outputs: tuple[OutputForm, ...]


@dataclass(frozen=True)
class BudgetForms:
    """A :class:`portkern.rounding.derived_budget.DerivedBudget` as a message: the forms of
    ``allowed``, None for an output of integers, and of ``integers``, whose elements follow each
    other likewise."""

    allowed: tuple[OutputForm | None, ...]
    integers: tuple[tuple[OutputForm, ...], ...]
    unruled: tuple[str, ...]
    problem: str


@dataclass(frozen=True)
class Executed:
    """The outcome of a process that opens the SIMT executor's runtime, as
    :class:`portkern.simt.execute.program.ProgramOutcome` has it; ``output`` in pieces.
    ``files``: names and sizes of what was asked for, whose bytes follow each other in the shared
    memory."""

    status: int | None
    output: tuple[str, ...]
    findings: tuple[Diagnostic, ...]
    files: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Made:
    """The files that a compiler or another tool made, and what it printed. ``files``: names in
    its folder and sizes, whose bytes follow each other in the shared memory. ``unmodelled``: the
    parts of a program that the SIMT executor does not model; where there are such, ``files`` is
    empty."""

    files: tuple[tuple[str, int], ...]
    log: tuple[str, ...] = ()
    unmodelled: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True)
class ObjectMade:
    """A :class:`portkern.spec.file_build.FileObject` as a message; its object is of
    ``size`` bytes, which lie in the shared memory."""

    size: int
    kernels: tuple[KernelObject, ...]
    headers: tuple[Path, ...]
    log: tuple[str, ...]


@dataclass(frozen=True)
class Replayed:
    """``problem``: why the launches came to no end; empty where all did."""

    problem: str = ""


@dataclass(frozen=True)
class ListedFunctions:
    """Functions of an extension of PyTorch: name, signature and what it says of itself."""

    functions: tuple[tuple[str, str, str], ...]


# ---- requests


@dataclass(frozen=True)
class BuildKernel(Request[BuiltFiles]):
    """Build in a folder of the scratch; the files in it go to the evaluator."""

    build: backend.Build


@dataclass(frozen=True)
class Load(Request[Loaded]):
    """Open an artifact."""

    build: backend.Build
    artifact: backend.Artifact
    venue: backend.Venue


@dataclass(frozen=True)
class Reference(Request[Loaded]):
    """Become the baseline: ``source`` defines ``run``."""

    source: str
    device: str
    compiled: bool
    precision: Precision = "strict"


@dataclass(frozen=True)
class Run(Request[Ran]):
    """One call on fresh buffers that hold ``inputs`` and poisoned ``outputs``; if ``traced``, with
    a look at who does the work.

    Outputs go to ``results``, the inputs as they are afterwards to ``after``. ``outputs`` are bytes
    with a margin on both sides, which goes to ``guards``; buffers that are neither torch tensors
    nor on the host's memory have none, and leave theirs as it was. ``before`` is the number of
    calls that are made first, on other buffers. ``placed``: inputs and results lie in the memory of
    the GPU that was opened, and the call is made on them where they lie; then there are neither
    outputs nor guards nor what is afterwards.
    """

    inputs: tuple[TensorPlace, ...]
    outputs: tuple[TensorPlace, ...]
    results: tuple[TensorPlace, ...]
    after: tuple[TensorPlace, ...]
    guards: tuple[TensorPlace, ...]
    dims: Mapping[str, int]
    scalars: Mapping[str, Scalar]
    traced: bool
    before: int = 0
    placed: bool = False

    def read(self, data: object) -> Ran:
        """A trace comes with the described outputs of a call it is asked of, and with no other."""
        ran = super().read(data)
        expected = self.traced and bool(ran.outputs)
        if (ran.trace is not None) != expected:
            raise FormError(f"trace: {'got none' if expected else 'none was asked for'}")
        return ran


@dataclass(frozen=True)
class State(Request[Changes]):
    """Say what the candidate has changed that others work with, since before it was loaded."""


@dataclass(frozen=True)
class Base(Request[Done]):
    """Keep what the tensors of timed calls are made from: inputs of one or more distributions."""

    inputs: tuple[tuple[TensorPlace, ...], ...]
    outputs: tuple[TensorPlace, ...]


@dataclass(frozen=True)
class Forget(Request[Done]):
    """Give back the memory of what was kept and of the calls that were timed."""


@dataclass(frozen=True)
class Stage(Request[Done]):
    """Make the tensors of so many calls, and of one for warming up, from the base of this number;
    ``rolled``: its values go to other places too; ``structured``: see
    :func:`portkern.worker.timed_inputs.inputs`."""

    seeds: tuple[int, ...]
    calls: int
    dims: Mapping[str, int]
    scalars: Mapping[str, Scalar]
    base: int = 0
    rolled: bool = True
    structured: bool = False


@dataclass(frozen=True)
class Open(Request[Done]):
    """Map so many bytes of the GPU that the kernel is on, whose handle was given beside: tensors of
    :class:`Place` then lie there."""

    nbytes: int


@dataclass(frozen=True)
class Place(Request[Done]):
    """Take the tensors of so many calls, and of one for warming up, as they lie in the shared
    memory, where their outputs belong too. ``masks``: keys of what lies over each call's inputs on
    a GPU (:mod:`portkern.worker.masks`), which is taken off before that call."""

    inputs: tuple[Rows, ...]
    outputs: tuple[Rows, ...]
    calls: int
    dims: Mapping[str, int]
    scalars: Mapping[str, Scalar]
    masks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Time(Request[Timed]):
    """Time the staged calls one by one; the first is not counted."""


@dataclass(frozen=True)
class Idle(Request[Timed]):
    """Time as many calls that do nothing: what timing takes by itself."""

    calls: int


@dataclass(frozen=True)
class Fetch(Request[Done]):
    """The outputs of a timed call; 0 is the first that was counted."""

    call: int
    results: tuple[TensorPlace, ...]


@dataclass(frozen=True)
class Look(Request[Done]):
    """Copy what the outputs of timed calls hold at these places, which count elements in
    row-major order; ``results`` get a row for each call, and as many places of each output."""

    calls: tuple[int, ...]
    places: tuple[tuple[int, ...], ...]
    results: tuple[TensorPlace, ...]


@dataclass(frozen=True)
class Compute(Request[Computed]):
    """Compute what this reference gives for these inputs."""

    reference: ImportedReference
    inputs: tuple[TensorPlace, ...]
    scalars: Mapping[str, Scalar]


@dataclass(frozen=True)
class Derive(Request[BudgetForms]):
    """How far rounding may move its outputs from ``exact``; ``own`` are those at the cell's
    dtype."""

    reference: ImportedReference
    inputs: tuple[TensorPlace, ...]
    scalars: Mapping[str, Scalar]
    exact: tuple[TensorPlace, ...]
    own: tuple[TensorPlace, ...]
    seed: int


@dataclass(frozen=True)
class Draw(Request[Computed]):
    """The inputs that a file makes itself where its numbers are these axes; the named ones, in
    order."""

    inputs: ImportedInputs
    dims: Mapping[str, int]
    seed: int


@dataclass(frozen=True)
class Describe(Request[Tracing]):
    """Say which operator this text of a file holds: ``wanted``, or its only one, which is called
    ``name``. ``lift``: parameters and buffers are inputs. ``as_in_file``: inputs keep the file's
    sizes, as what it makes itself may be right at no others."""

    source: str
    filename: str
    wanted: str
    name: str
    lift: bool
    as_in_file: bool = False


@dataclass(frozen=True)
class WritePlain(Request[PlainKernel]):
    """A plain kernel of what :class:`Describe` would say of the same, as the sheet's ``signature``
    has it; in a ``language`` of a backend's."""

    source: str
    filename: str
    wanted: str
    name: str
    lift: bool
    signature: Signature
    backend: str
    language: str


@dataclass(frozen=True)
class Execute(Request[Executed]):
    """Run ``argv`` in a copy of the folder ``cwd`` with the SIMT executor's checkers for a target,
    by its name; it is killed after ``timeout_s``. ``warp`` overrides the target's width.
    ``record_bytes`` of what launches did to memory come back as the file RECORD, beside the files
    of ``counts``, in which GCC's coverage has a program count. It ends after ``launches`` launches,
    if that is not 0. ``apart``: kernels are executed in a process of ours, whose word findings and
    the recording are (:mod:`portkern.worker.object_program`). ``sealed``: they have no name that
    the program finds, and what is written stays as it is; for a process that opens the runtime
    itself and is not a script. ``ring``: the parameters of a program that is built so."""

    argv: tuple[str, ...]
    cwd: str
    target: str
    language: Literal["cuda", "hip"]
    checkers: tuple[str, ...]
    timeout_s: float
    warp: int = 0
    order: Literal["forward", "lockstep", "reverse", "random", "priority"] = "forward"
    seed: int = 1
    record_bytes: int = 0
    counts: tuple[str, ...] = ()
    launches: int = 0
    apart: bool = False
    sealed: bool = False
    ring: str = ""

    def read(self, data: object) -> Executed:
        """Files by the names that were asked for, each once."""
        executed = super().read(data)
        asked = {RECORD, *self.counts} if self.record_bytes else set(self.counts)
        for name, size in executed.files:
            if name not in asked or size < 0:
                raise FormError(f"files: {brief(name)} of {size} bytes was not asked for")
            asked.remove(name)
        return executed


@dataclass(frozen=True)
class BuildProgram(Request[Made]):
    """Compile sources for the SIMT executor, as :func:`portkern.simt.execute.build.build_program`
    does, to a program called ``name``, or to an ``extension`` of PyTorch. ``target`` is a name, or
    empty; so is ``language``. ``objects``: its kernels are executed as they are compiled for the
    target; ``statements`` of assembler are listed."""

    source: Path
    further: tuple[Path, ...]
    name: str
    target: str
    language: Literal["", "cuda", "hip"]
    mode: Literal["fast", "kernel", "check", "asan", "cover", "ring"]
    defines: tuple[str, ...]
    search: tuple[Path, ...]
    timeout_s: float
    objects: bool = False
    extension: bool = False
    statements: bool = False


@dataclass(frozen=True)
class ListExtension(Request[ListedFunctions]):
    """Compile an extension of PyTorch for the SIMT executor, load it, and say what is in it."""

    source: Path
    target: str
    defines: tuple[str, ...]
    search: tuple[Path, ...]
    timeout_s: float


@dataclass(frozen=True)
class BuildFile(Request[ObjectMade]):
    """Compile a whole file for a GPU by a backend's own compiler."""

    backend: str
    build: FileBuild


@dataclass(frozen=True)
class Replay(Request[Replayed]):
    """Make the launches of a plan, as JSON, with these code objects by their digests, on a call's
    ``tensors`` where they lie, and with its scalars."""

    objects: Mapping[str, TensorPlace]
    plan: str
    tensors: tuple[TensorPlace, ...]
    numbers: tuple[float, ...]


@dataclass(frozen=True)
class RunTool(Request[Made]):
    """Run a tool in an empty folder, in which it finds ``links`` to files, and leaves what is to
    come back under the names ``made``."""

    argv: tuple[str, ...]
    links: tuple[Path, ...]
    made: tuple[str, ...]
    timeout_s: float


AnyRequest = (
    BuildKernel
    | Load
    | Reference
    | Run
    | State
    | Base
    | Forget
    | Stage
    | Open
    | Place
    | Time
    | Idle
    | Fetch
    | Look
    | Compute
    | Derive
    | Draw
    | Describe
    | WritePlain
    | Execute
    | BuildProgram
    | ListExtension
    | BuildFile
    | Replay
    | RunTool
)
REQUESTS: Mapping[str, type[AnyRequest]] = {kind.__name__: kind for kind in get_args(AnyRequest)}


def anonymous(build: backend.Build) -> backend.Build:
    """The build without who wrote it, which is not a worker's business."""
    written = replace(build.candidate, author="", parents=(), variant="")
    return replace(build, candidate=written, emulator="")


def make_readers() -> None:
    """Makes what :func:`request_of` reads requests with, which it would do when they first come."""
    for kind in REQUESTS.values():
        reader(kind)


def request_of(data: object) -> AnyRequest:
    """The request in a line of :meth:`Request.line`. Raises FormError."""
    match data:
        case {"do": str(name), "with": dict(given)} if name in REQUESTS:
            return read(REQUESTS[name], given)
    raise FormError(f"Unknown request {str(data)[:100]}")
