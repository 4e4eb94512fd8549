"""The contract a toolchain fulfils. Implementations live in the top-level ``backends/``.

The evaluator's process calls ``supports``, ``probe`` and ``venues``; ``build`` and ``load`` run in
the jailed worker, because both touch the candidate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias

from portkern.spec.candidate import Candidate
from portkern.spec.op import Scalar, Signature
from portkern.spec.target import Target

if TYPE_CHECKING:
    import torch

    from portkern.spec.json_types import Json, JsonObject

#: A device's own: a torch tensor, an array of another framework, a buffer of OpenCL.
Buffer: TypeAlias = Any


@dataclass(frozen=True)
class Ready:
    """The toolchain works here; ``toolchain`` names its parts and their versions, ``terms`` of
    those that are not free software the terms that they are under."""

    toolchain: Mapping[str, str]
    terms: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Missing:
    """Something is not here: the reason, and what would bring it (``''`` if nothing would)."""

    reason: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}" if self.remedy else self.reason


VenueKind = Literal["hardware", "object", "emulator"]


@dataclass(frozen=True)
class Venue:
    """Where an artifact runs. ``device`` is what the worker opens: ``cpu``, ``cuda:0``, …

    An ``emulator`` runs the source on a model of the target, ``object`` the instructions that its
    compiler emitted, on a model of the processor.

    ``environment`` is set in the worker before anything is imported. ``baseline`` is the torch
    device on which the framework's own kernels are timed beside it; ``device`` unless given.
    ``sanitize`` names checkers that look on while the kernel runs. ``version`` changes with an
    emulator's own code: results of another are not reused.
    """

    kind: VenueKind
    name: str
    device: str = "cpu"
    environment: Mapping[str, str] = field(default_factory=dict)
    baseline: str = ""
    sanitize: tuple[str, ...] = ()
    version: str = ""

    def __str__(self) -> str:
        watched = f", sanitize: {' '.join(self.sanitize)}" if self.sanitize else ""
        return f"{self.kind}: {self.name}{watched}"


NO_OBJECTS = Missing("nothing here executes compiled objects of it")


@dataclass(frozen=True)
class Venues:
    """The target's own hardware, an emulator of its execution model, and what executes compiled
    objects of it; or why not."""

    hardware: Venue | Missing
    emulator: Venue | Missing
    object: Venue | Missing = NO_OBJECTS

    @property
    def best(self) -> Venue | Missing:
        known = (self.hardware, self.object, self.emulator)
        return next((venue for venue in known if isinstance(venue, Venue)), self.hardware)

    @property
    def reasons(self) -> str:
        """Why there is none, where there is none."""
        known = (self.hardware, self.emulator, self.object)
        return "; ".join(dict.fromkeys(str(venue) for venue in known if venue != NO_OBJECTS))


@dataclass(frozen=True)
class Resources:
    """The resources of the target that a build uses, as its compiler or its object file says; None
    = unknown.

    ``registers``, ``agprs``: per thread; AMD's count VGPRs (``agprs`` accumulation VGPRs) and
    ``sgprs`` per wave. ``spills``: bytes stored and loaded per thread; on AMD VGPRs
    spilled, or a quarter of the scratch bytes where those are more.
    ``shared_bytes``: static shared memory or LDS per block. ``threads``: per block, when fixed.
    ``vmem_bytes``: of a TPU's vector memory, blocks and scratch as they are buffered.
    """

    kernel: str
    registers: int | None = None
    agprs: int | None = None
    sgprs: int | None = None
    spills: int | None = None
    shared_bytes: int | None = None
    threads: int | None = None
    vmem_bytes: int | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Resources:
        """Raises ValueError for what :func:`dataclasses.asdict` does not make."""
        names = {entry.name for entry in fields(cls)}
        numbers = [value for name, value in data.items() if name != "kernel"]
        if not data.keys() <= names or type(data.get("kernel")) is not str:
            raise ValueError(f"resources are of {sorted(names)}, got {sorted(data)}")
        if not all(
            number is None or (type(number) is int and 0 <= number < 1 << 63) for number in numbers
        ):
            raise ValueError(f"resources are counted, got {numbers}")
        return cls(**data)


@dataclass(frozen=True)
class Build:
    """One request to a toolchain: this source, for this op and dtype, on this target.

    ``dims`` are the sizes of a representative workload, for toolchains that specialise on them.
    ``runnable`` asks for something :meth:`Backend.load` can open on this machine; without it the
    target's object code is enough. ``emulated`` asks for what an emulator runs as well,
    ``executed`` for what is needed to execute the object code here, and ``checked`` for what
    checkers can look into; ``emulator`` is the version of the one or of the other. ``ahead`` asks
    for a plan of what this very call launches (:mod:`portkern.spec.launch_plan`).
    """

    candidate: Candidate
    signature: Signature
    dtype: str
    target: Target
    dims: Mapping[str, int]
    scalars: Mapping[str, Scalar]
    runnable: bool = True
    emulated: bool = False
    executed: bool = False
    checked: bool = False
    emulator: str = ""
    ahead: bool = False


@dataclass(frozen=True)
class Recipe:
    """How one text becomes a shared library where no portkern is: the command's name (``c++``
    stands for any compiler of C++), its flags, and the file's suffix."""

    compiler: str
    flags: tuple[str, ...]
    suffix: str


#: Artifacts of these kinds are still source: they are not evidence of a build for the target.
SOURCE_KINDS = ("python", "opencl", "stablehlo")


@dataclass(frozen=True)
class Artifact:
    """The product of a build: files beneath ``path``'s folder, enough to load in another
    process. ``code`` and ``code_bytes``: of the machine code that a build left beside a module, of
    which the module alone is kept, as :mod:`portkern.toolchain.machine_code` has them."""

    path: Path
    kind: str
    resources: tuple[Resources, ...] = ()
    log: str = ""
    code: str = ""
    code_bytes: int | None = None

    def to_json(self) -> JsonObject:
        return asdict(self) | {"path": str(self.path)}

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Artifact:
        """Raises ValueError for what :meth:`to_json` does not make."""
        match data:
            case {
                "path": str(path),
                "kind": str(kind),
                "log": str(log),
                "resources": [*used],
                "code": str(code),
                "code_bytes": None | int() as size,
            }:
                parts = [entry for entry in used if isinstance(entry, dict)]
                if len(parts) == len(used):
                    resources = tuple(map(Resources.from_json, parts))
                    return cls(Path(path), kind, resources, log, code, size)
        raise ValueError(f"not an artifact: {str(data)[:200]}")


@dataclass(frozen=True)
class Call:
    """The arguments of one launch; buffers belong to the kernel's :class:`Device`. ``counted``: the
    venue is to count what the kernels do, if it can."""

    inputs: Sequence[Buffer]
    outputs: Sequence[Buffer]
    dims: Mapping[str, int]
    scalars: Mapping[str, Scalar]
    counted: bool = False


class Device(Protocol):
    """Where a loaded kernel's buffers live and its time passes. Host tensors are torch's."""

    #: How ``time`` measures, for the record: ``"cuda events, L2 flushed clean"``.
    method: str

    def upload(self, host: torch.Tensor) -> Buffer: ...
    def refill(self, buffer: Buffer, host: torch.Tensor) -> Buffer:
        """``host`` in the memory of ``buffer``, which has its form, where the framework's buffers
        can be written; else in another one."""
        ...

    @property
    def hosts(self) -> bool:
        """Whether :meth:`place` works: there is one memory, the host's."""
        return False

    def place(self, host: torch.Tensor) -> Buffer:
        """A buffer on the memory of ``host`` itself, of which there is more behind: on a CPU, of a
        backend with ``host_memory``. What is beside it shows what was written there."""
        kind = type(self).__name__
        raise NotImplementedError(f"{kind} has no buffers on memory that is there")

    def download(self, buffer: Buffer) -> torch.Tensor: ...
    def synchronize(self) -> None: ...

    def keep(self, host: torch.Tensor) -> torch.Tensor:
        """A copy that torch makes the tensors of timed calls from, which ``upload`` and ``refill``
        take too: where the buffers live, if torch opens that device, else on the host."""
        return host.clone()

    def view(self, buffer: Buffer) -> torch.Tensor:
        """The buffer as a tensor: where it lies, if torch can read it there, else downloaded."""
        return self.download(buffer)

    def release(self) -> None:
        """Memory that the framework keeps for later, for other processes to have."""
        return

    def time(self, calls: Sequence[Callable[[], object]]) -> list[float]:
        """Microseconds of each call; caches are cold where the device allows it."""
        ...

    def idle_call(self) -> None:
        """Does what is timed in place of a launch, which says how long timing takes by itself:
        nothing, or as little as a launch's surroundings need to be there."""
        ...


@dataclass(frozen=True)
class Kernel:
    """A loaded artifact: ``launch`` enqueues one call and returns the output buffers.

    ``findings`` are what checkers saw in the last call: mappings with at least ``code``,
    ``severity`` and ``message``. ``launches`` counts the kernels of the last call by name, where
    the venue does; a GPU's are profiled without it. ``counts`` are what these did in the last call,
    by their names, if that was counted. ``code`` is what a compiler made for the target's hardware
    as it was loaded: an object file, or a driver's binary without what differs from one process to
    the next; empty where the artifact has it, or it cannot be had.
    """

    device: Device
    launch: Callable[[Call], Sequence[Buffer]]
    findings: Callable[[], Sequence[Mapping[str, Json]]] = tuple
    launches: Callable[[], Mapping[str, int]] | None = None
    counts: Callable[[], Mapping[str, Mapping[str, int]]] = dict
    code: Callable[[], bytes] = bytes


class Backend(ABC):
    """One toolchain. Holds no state; a target is data and never imports a toolchain."""

    name: ClassVar[str]
    #: File suffix → language, e.g. ``{".cpp": "c++", ".py": "numba"}``.
    languages: ClassVar[Mapping[str, str]]
    #: The target that kernels are for where none is named, and no hardware that it compiles for is
    #: here.
    usual_target: ClassVar[str] = ""
    #: Packages with kernels that it shares with other backends, and what suffixes mean to it there,
    #: e.g. ``{"portkern.backends.gpu": {".cu": "hip"}}``.
    shared: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    #: Languages in files of the same suffix that only some targets take, and the package of the
    #: kernels that ship in each.
    dialects: ClassVar[Mapping[str, str]] = {}
    #: Whether buffers of its kernels on CPUs can be memory that is there: its ``Device.place``. The
    #: evaluator then reads outputs of timed calls itself, and asks no worker for them.
    host_memory: ClassVar[bool] = False
    #: Likewise on GPUs that torch opens.
    device_memory: ClassVar[bool] = False
    #: Modules that the fork server imports once so that each worker starts with them.
    preload: ClassVar[tuple[str, ...]] = ()
    #: What its emulator's ``sanitize`` may name, and what each checker looks for.
    checkers: ClassVar[Mapping[str, str]] = {}
    #: The same of what it runs beside kernels on hardware.
    hardware_checkers: ClassVar[Mapping[str, str]] = {}
    #: The same of what executes its objects.
    object_checkers: ClassVar[Mapping[str, str]] = {}
    #: What its emulator has no model of, as a target's features and hints call it.
    unmodelled: ClassVar[tuple[str, ...]] = ()
    #: The knobs of targets that its authors turn, and what each is; authors in a dialect turn none.
    turns: ClassVar[Mapping[str, str]] = {}
    #: The maker of matrix instructions from products: its authors, by intrinsic or inline assembly,
    #: its compiler, or nobody.
    matrix_units: ClassVar[Literal["author", "compiler", "nobody"]] = "nobody"
    #: Names of knobs that are a block's number of threads, a target's ``block``.
    thread_knobs: ClassVar[tuple[str, ...]] = ()
    #: What tells its Python sources from those of others: a module that they import, or a name that
    #: they give a value.
    marks: ClassVar[tuple[str, ...]] = ()
    #: Languages whose sources it builds with headers, macros and further sources.
    companions: ClassVar[tuple[str, ...]] = ()
    #: The language of Python files that define a class ModelNew; empty where it takes none.
    modules: ClassVar[str] = ""
    #: Whether what it builds is for one size alone: a kernel is then built for the largest that is
    #: judged, and not for one that nobody asked for.
    specialises: ClassVar[bool] = False
    #: Whether kernels of this backend take outputs (``dps``) or return them.
    style: ClassVar[Literal["dps", "return"]] = "dps"

    @abstractmethod
    def supports(self, target: Target) -> bool:
        """Whether this toolchain can compile for ``target`` at all. Pure; touches no device."""

    @abstractmethod
    def probe(self, target: Target) -> Ready | Missing:
        """Look for the compiler. Never raises for something that is absent."""

    @abstractmethod
    def venues(self, target: Target) -> Venues:
        """Where an artifact for ``target`` runs on this machine. Never raises, opens no device."""

    def emulator(self, candidate: Candidate, venue: Venue) -> Venue | Missing:
        """The emulator that runs such a candidate, where the target's ``venue`` is not for all
        languages."""
        return venue

    @abstractmethod
    def build(self, request: Build, workdir: Path) -> Artifact:
        """Compile into ``workdir``. Raises :class:`BuildError` with the compiler's log."""

    def builds(self, request: Build) -> bool | Missing:
        """Whether this machine can build this request, asked before the candidate's code runs:
        what a worker says once it has is not an excuse."""
        return True

    def runs(self, artifact: Artifact, venue: Venue) -> bool | Missing:
        """Whether the venue can run what was built, asked before it is loaded."""
        return True

    def executes(self, candidate: Candidate) -> bool | Missing:
        """Whether the object venue takes such a candidate, asked before it is built."""
        return True

    def compiled_twin(self, request: Build, venue: Venue) -> tuple[Target, Venue] | Missing | None:
        """Where an emulator interprets a candidate's source: the target and the venue in which what
        is compiled of the same artifact is executed, or why it cannot be; None elsewhere."""
        return None

    def runs_at_build(self, candidate: Candidate) -> bool:
        """Whether building runs the candidate's code, as importing a Python module does; a compiler
        only reads it. The artifact of such a build is the module itself, as it was written."""
        suffixes = [self.languages, *self.shared.values()]
        return candidate.style == "module" or any(
            known.get(".py") == candidate.language for known in suffixes
        )

    @abstractmethod
    def load(self, artifact: Artifact, request: Build, venue: Venue) -> Kernel:
        """Open the device and the artifact, in the worker."""

    def builds_with(self, candidate: Candidate) -> tuple[str, ...]:
        """The modules of :attr:`preload` that building needs: a compiler needs none."""
        return self.preload

    def builds_for(self, target: Target) -> str:
        """Targets with equal answers share builds: products share their architecture's."""
        return f"{target.arch} {target.march or ''}".strip()

    def prepare(self, request: Build) -> Sequence[Path]:
        """Make, outside of the jail, what all candidates share; folders that builds and runs read.

        Must not look at the candidate's source.
        """
        return ()

    def refuses(self, target: Target, knob: str, value: int) -> str:
        """Why no kernel with this setting can run on ``target``; empty when one might."""
        threads = knob in self.thread_knobs
        if knob == "BLOCK" and not threads:
            return ""  # elements, of which there may be any number
        legal = target.knobs.get("block" if threads else knob.lower())
        if legal is None or value in legal:
            return ""
        return f"{target.name} takes {knob} of {' '.join(map(str, legal))}"

    def environment(self, target: Target) -> Mapping[str, str]:
        """The variables that the worker which builds for ``target`` needs in its environment
        before any import."""
        return {}

    def recipe(self, target: Target) -> Recipe | None:
        """How a kernel's text, with all its headers in it, is compiled for a target elsewhere; None
        where it takes this backend."""
        return None

    def declaration(self, signature: Signature, language: str) -> str:
        """The head of the function that a kernel in ``language`` defines, for its author; Python's
        unless said otherwise."""
        taken = [t.name for t in signature.inputs]
        taken += [t.name for t in signature.outputs] if self.style == "dps" else []
        taken += [f"{s.name}={s.default}" for s in signature.scalars]
        return f"def {signature.name}({', '.join(taken)}):"

    def languages_on(self, target: Target) -> list[str]:
        """The languages that kernels for a target are written in; the first where none is named.
        A backend with dialects says itself which are for whom."""
        return list(self.languages.values())

    def language_on(self, target: Target) -> str:
        return self.languages_on(target)[0]

    def language_of(self, suffix: str, source: str) -> str:
        """The language of a file. Raises KeyError for a suffix that the backend does not read."""
        known = [*self.shared.values(), self.languages]
        return {end: language for ends in known for end, language in ends.items()}[suffix]

    def fits(self, candidate: Candidate, target: Target) -> bool | Missing:
        """Whether a kernel is in a language that ``target`` takes, or why it is not."""
        taken = self.languages_on(target)
        if candidate.language in taken or not {candidate.language, *taken} & set(self.dialects):
            return True
        wanted = " and ".join(taken)
        return Missing(f"{target.name} takes {wanted}, and this kernel is in {candidate.language}")

    def accepts(self, candidate: Candidate, dtype: str) -> bool | Missing:
        """Whether this language can express ``dtype`` at all; :class:`Missing` says why not."""
        return True
