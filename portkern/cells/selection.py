"""Which cells a matrix has: op × workload × dtype × backend × kernel × target."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Literal, Protocol, TypedDict, get_args

from portkern import guard, ops
from portkern.cells import shapes as model_shapes
from portkern.errors import BackendUnavailable, ConfigError, no_such
from portkern.evaluator import from_torch
from portkern.evaluator.artifact_cache import backends_digest
from portkern.evaluator.build import BuildRequest
from portkern.evaluator.code_digest import evaluator_digest
from portkern.records.record import Verdict
from portkern.spec import catalogue, flashinfer, registry, target
from portkern.spec.backend import Backend, Build, Missing, Ready, Venue, VenueKind, Venues
from portkern.spec.candidate import Candidate
from portkern.spec.op import FLOATS, ITEMSIZE, WORKLOAD_SETS, Op, Workload
from portkern.spec.target import Target
from portkern.toolchain import host
from portkern.tuning import database

#: What ``make demo`` shows: this machine, and one target of each family that needs no device.
DEMO = ("host", "opencl_generic", "sm_90", "gfx942", "gfx1100")


#: The checkers that look on in an emulator that has them, unless others are asked for.
LOOKED_FOR = ("races", "bounds")

VenueChoice = Literal["best", "hardware", "object", "emulator"]


@dataclass(frozen=True)
class RunStage:
    """Where cells are to run: the ``best`` venue there is, or one kind of venue only; and the
    checkers that look on in an executor that has them."""

    venue: VenueChoice = "best"
    sanitize: tuple[str, ...] = ()

    @classmethod
    def parse(cls, venue: str, sanitize: Sequence[str] | None) -> RunStage:
        """``sanitize`` takes names of checkers, ``all`` or ``none``; None is what is looked for
        where nobody says it. Raises ConfigError for a venue or a checker that does not exist."""
        sanitize = LOOKED_FOR if sanitize is None else sanitize
        kinds: tuple[VenueChoice, ...] = get_args(VenueChoice)
        kind = next((kind for kind in kinds if kind == venue), None)
        if kind is None:
            raise no_such("venue", venue, kinds)
        if set(sanitize) <= {"none", *LOOKED_FOR}:  # to know all, all backends are imported
            return cls(kind, tuple(name for name in dict.fromkeys(sanitize) if name != "none"))
        backends = map(registry.load, registry.names())
        known = {name for b in backends for name in {**b.checkers, **b.object_checkers}}
        chosen: dict[str, None] = {}
        for name in sanitize:
            if name not in known | {"all", "none"}:
                raise no_such("checker", name, known | {"all", "none"})
            chosen |= dict.fromkeys(sorted(known) if name == "all" else [name] * (name != "none"))
        return cls(kind, tuple(chosen))

    def of(self, venues: Venues, backend: Backend, candidate: Candidate | None = None) -> Venues:
        """The venues, each with those checkers asked for that it has. Where the emulator has some
        that look into the source alone, it is better than what executes objects."""
        only = Missing(f"only the {self.venue} was asked for")
        if candidate is not None and isinstance(venues.emulator, Venue):
            venues = replace(venues, emulator=backend.emulator(candidate, venues.emulator))
        kinds: tuple[VenueKind, ...] = ("hardware", "emulator", "object")
        hardware, emulator, executor = (
            _watched(getattr(venues, kind), self.sanitize, checkers)
            if self.venue in ("best", kind)
            else only
            for kind, checkers in zip(
                kinds,
                (backend.hardware_checkers, backend.checkers, backend.object_checkers),
                strict=True,
            )
        )
        able = candidate is None or backend.executes(candidate)
        executor = able if isinstance(able, Missing) else executor
        in_source = set(self.sanitize) & set(backend.checkers) - set(backend.object_checkers)
        if self.venue == "best" and in_source and isinstance(emulator, Venue):
            names = ",".join(sorted(in_source))
            executor = Missing(f"sanitize={names} looks into the source, not into the object")
        return Venues(hardware, emulator, executor)


def _watched(
    venue: Venue | Missing, sanitize: Sequence[str], checkers: Mapping[str, str]
) -> Venue | Missing:
    if isinstance(venue, Missing) or not checkers:
        return venue
    return replace(venue, sanitize=tuple(name for name in sanitize if name in checkers))


#: The place of the tools that build in a cell's question.
_TOOLS = "tools"


@dataclass(frozen=True)
class SelectedCell:
    """One question. ``candidate`` is None when there is no kernel for the op; ``absent`` says so
    where it is not the backend that ships none."""

    op: Op
    workload_set: str
    workload: Workload
    dtype: str
    backend: Backend
    target: Target
    candidate: Candidate | None
    stage: RunStage = field(default_factory=lambda: RunStage())
    torch_ops: guard.TorchOps = "forbid"
    absent: str = ""
    library: guard.Library = "allow"

    @property
    def language(self) -> str:
        return self.candidate.language if self.candidate else self.backend.language_on(self.target)

    @property
    def ready(self) -> Ready | Missing:
        return _probe(self.backend, self.target)

    @cached_property
    def venues(self) -> Venues:
        return self.stage.of(venues(self.backend, self.target), self.backend, self.candidate)

    @cached_property
    def hits(self) -> tuple[guard.Hit, ...]:
        """The guard's findings in the source."""
        if self.candidate is None:
            return ()
        policy = guard.GuardPolicy(self.torch_ops, self.op.precision, self.library)
        return guard.inspect(self.candidate, policy)

    @cached_property
    def ruled_out(self) -> tuple[Verdict, str] | None:
        """The verdict that needs no build, with its reason; None when there is work to do."""
        if not self.backend.supports(self.target):
            reason = f"{self.backend.name} does not compile for {self.target.name}"
            return Verdict.UNSUPPORTED, reason
        if self.candidate is None:
            reason = f"{self.backend.name} ships no kernel for {self.op.name}"
            return Verdict.UNSUPPORTED, self.absent or reason
        if self.dtype not in self.op.dtypes:
            return Verdict.UNSUPPORTED, f"{self.op.name} has no {self.dtype} form"
        for accepted in (
            self.backend.fits(self.candidate, self.target),
            self.backend.accepts(self.candidate, self.dtype),
        ):
            if isinstance(accepted, Missing):
                return Verdict.UNSUPPORTED, str(accepted)
        module = self.op.signature.module
        if self.candidate.style == "module" and module:
            shapes = {tensor.name: tensor.shape for tensor in self.op.signature.inputs}
            axis = module.fixed(self.workload.dims, shapes)
            if axis:
                return Verdict.UNSUPPORTED, (
                    f"the constructor of {self.op.name} cannot be told a length of {axis!r}: no "
                    f"number of its file is {module.lengths[axis]}; give it a name there"
                )
        alone = self.candidate.language not in self.backend.companions
        if self.candidate.companions and alone:
            reason = f"{self.candidate.language} sources of {self.backend.name} stand alone"
            return Verdict.UNSUPPORTED, f"{reason}: no include paths, defines or further sources"
        if isinstance(self.ready, Missing):
            return Verdict.UNAVAILABLE, str(self.ready)
        refused = guard.rejection(self.hits)
        if refused:
            return Verdict.REJECTED, refused
        misfit = catalogue.misfit(self.candidate, self.op.signature, self.backend)
        return (Verdict.BUILD_FAILED, misfit) if misfit else None

    @property
    def build_request(self) -> BuildRequest:
        """The build that is asked for: of the judged size where the toolchain specialises on it,
        else for the op's first typical size, which all workloads share."""
        assert self.candidate is not None
        typical = () if self.backend.specialises else self.op.workloads.get("typical", ())
        shown = (*typical, self.workload)[0]
        build = Build(
            self.candidate,
            self.op.signature,
            self.dtype,
            self.target,
            shown.dims,
            self.op.signature.scalar_values(shown.scalars),
            runnable=isinstance(self.venues.hardware, Venue),
            **built_to_run(self.venues.best),
        )
        return BuildRequest(self.backend, build)

    @cached_property
    def key(self) -> str:
        """Equal keys mean that a result may be reused: nothing that decides it has changed."""
        ready = self.ready
        parts = list(self._question)
        at = parts.index(_TOOLS)
        parts[at] = dict(ready.toolchain) if isinstance(ready, Ready) else str(ready)
        return _digest(parts)

    @cached_property
    def asked(self) -> str:
        """The same without the tools that build: where it and the machine code are equal, so is
        the result."""
        return _digest(self._question)

    @cached_property
    def _question(self) -> list[object]:
        return [
            _portkern(),
            evaluator_digest(),
            backends_digest(),
            host.cpu_name(),
            self.op.digest,
            self.workload_set,
            self.workload.name,
            dict(self.workload.dims),
            dict(self.workload.scalars),
            {name: stored.identity for name, stored in self.workload.stored.items()},
            self.dtype,
            self.backend.name,
            self.language,
            self.candidate.digest if self.candidate else self.absent,
            self.candidate.variant if self.candidate else "",
            _facts(self.target),
            _TOOLS,
            str(self.venues.hardware),
            str(self.venues.emulator),
            str(self.venues.object),
            _version(self.venues.best),
            self.torch_ops,
        ]


def _digest(parts: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


@cache
def _probe(backend: Backend, target: Target) -> Ready | Missing:
    if not backend.supports(target):
        return Missing(f"{backend.name} does not compile for {target.name}")
    return backend.probe(target)


@cache
def venues(backend: Backend, target: Target) -> Venues:
    """Where this machine runs what the backend builds for the target, and why not elsewhere."""
    if not backend.supports(target):
        no = Missing(f"{backend.name} does not compile for {target.name}")
        return Venues(no, no)
    return backend.venues(target)


class BuiltToRun(TypedDict):
    """The fields of a :class:`Build` that depend on where it is to run without the hardware."""

    emulated: bool
    executed: bool
    checked: bool
    emulator: str


def built_to_run(venue: Venue | Missing) -> BuiltToRun:
    kind = venue.kind if isinstance(venue, Venue) else ""
    return {
        "emulated": kind == "emulator",
        "executed": kind == "object",
        "checked": isinstance(venue, Venue) and bool(venue.sanitize),
        "emulator": _version(venue),
    }


def _version(venue: Venue | Missing) -> str:
    return venue.version if isinstance(venue, Venue) else ""


@cache
def _portkern() -> str:
    return version("portkern")  # which reads and parses a file each time


@cache
def _facts(target: Target) -> str:
    return hashlib.sha256(target.model_dump_json().encode()).hexdigest()[:12]


class Kernels(Protocol):
    """Kernels other than those that ship; ``name`` is what messages call them all."""

    @property
    def name(self) -> str: ...
    def candidates(self, op: str, backend: Backend) -> Sequence[Candidate]: ...


@dataclass(frozen=True)
class GivenFiles:
    """Kernels of one op, whatever their files are called; a suffix says the language."""

    files: Sequence[Path]

    @property
    def name(self) -> str:
        return f"source={','.join(map(str, self.files))}"

    def candidates(self, op: str, backend: Backend) -> Sequence[Candidate]:
        fitting = [path for path in self.files if path.suffix in catalogue.languages_of(backend)]
        return [catalogue.from_file(path, op=op, backend=backend) for path in fitting]


@dataclass(frozen=True)
class Selection:
    """The cells to ask for, by name: single names, or the sets ``core``, ``all``, ``host``,
    ``demo``. ``databases`` are asked for the settings of kernels, the first before the next;
    ``kernels`` stand in for the catalogue. ``elsewhere``: other machines run the cells, so that
    a backend that cannot work here is not an error. ``shapes``, where there are any, are the
    workloads."""

    ops: Sequence[str]
    targets: Sequence[str]
    backends: Sequence[str]
    workloads: Sequence[str]
    dtypes: Sequence[str]
    stage: RunStage = field(default_factory=RunStage)
    torch_ops: guard.TorchOps = "forbid"
    databases: Sequence[database.Database] = ()
    kernels: Kernels | None = None
    elsewhere: bool = False
    shapes: Sequence[model_shapes.Shape] = ()

    @property
    def op_names(self) -> list[str]:
        """The operators, with sets replaced by their members."""
        return _expand(self.ops, ops.SETS)

    def cells(self) -> list[SelectedCell]:
        """All cells in reading order, one at least. Raises ConfigError for a name that is not
        there, and BackendUnavailable when there is none, or no backend asked for by name can work
        for any of the targets."""
        cells = self.cells_if_any()
        if not cells:
            raise BackendUnavailable(self._why_none(_load_ops(self.op_names)))
        return cells

    def cells_if_any(self) -> list[SelectedCell]:
        """The same; of operators without a workload that is asked for there is none."""
        loaded = _load_ops(self.op_names)
        if isinstance(self.kernels, GivenFiles) and len(loaded) > 1:
            raise ConfigError(f"Got source= with {len(loaded)} operators, expected kernels of one")
        targets = [target.load(name) for name in _expand(self.targets, target_sets())]
        backends = [
            registry.load(name) for name in _expand(self.backends, {"all": registry.names()})
        ]
        if "all" not in self.backends and not self.elsewhere:
            _require(backends, targets)
        return [
            cell for op in loaded for backend in backends for cell in self._of(op, backend, targets)
        ]

    def _why_none(self, loaded: Sequence[Op]) -> str:
        """Why nothing is to be run: no operator has a workload of the sets that are asked for."""
        op = loaded[0]
        has = [name for name, several in op.workloads.items() if several]
        more = f" (nor have {len(loaded) - 1} others)" if len(loaded) > 1 else ""
        remedy = (
            f"take workloads=[{','.join(has)}]"
            if has
            else "put a file of workloads beside its Definition, of the same name with .jsonl"
        )
        return (
            f"Nothing to run: {op.name} has no workloads in {', '.join(self.workloads)}{more}; "
            f"{remedy}"
        )

    def _of(self, op: Op, backend: Backend, targets: Sequence[Target]) -> Iterator[SelectedCell]:
        own = self.kernels
        given = own.candidates(op.name, backend) if own else []
        absent = f"{own.name} has no {backend.name} kernel for {op.name}" if own else ""
        for where in targets:
            # what ships for the name of a definition is another's
            ships = own is None and not op.definition
            shipped = catalogue.candidates(op.name, backend, where) if ships else given
            kernels: Sequence[Candidate | None] = shipped or [None]
            for candidate in kernels:
                for dtype in _expand(self.dtypes, {"all": FLOATS}):
                    if dtype not in ITEMSIZE:
                        raise no_such("dtype", dtype, FLOATS)
                    for which, workload in self._workloads(op, dtype):
                        kernel = candidate and database.with_tuned_knobs(
                            candidate, where, dtype, workload, self.databases
                        )
                        yield SelectedCell(
                            op,
                            which,
                            workload,
                            dtype,
                            backend,
                            where,
                            kernel,
                            self.stage,
                            self.torch_ops,
                            absent,
                        )

    def _workloads(self, op: Op, dtype: str) -> Iterator[tuple[str, Workload]]:
        """The workloads that are asked for, each with the name of its set."""
        if self.shapes:
            own = model_shapes.workloads(self.shapes, op, dtype)
            yield from ((model_shapes.SET, one) for one in own)
            return
        for which in _expand(self.workloads, {"all": WORKLOAD_SETS}):
            if which not in WORKLOAD_SETS:
                raise no_such("workload set", which, WORKLOAD_SETS)
            yield from ((which, workload) for workload in op.workloads.get(which, ()))


def _load_ops(names: Sequence[str]) -> list[Op]:
    """Raises ConfigError for two of one name: records know operators by it."""
    loaded: dict[str, tuple[str, Op]] = {}
    for name in names:
        op = load_op(name)
        if op.name in loaded:
            raise ConfigError(
                f"{loaded[op.name][0]} and {name} are both called {op.name!r}; give one of them "
                "another name, or ask for them in runs of their own"
            )
        loaded[op.name] = name, op
    return [op for _, op in loaded.values()]


def load_op(name: str) -> Op:
    """A shipped op, the operator of a PyTorch file (``FILE.py[:NAME]``), or a FlashInfer-Bench
    Definition when ``name`` is a ``.json`` file; workloads in the ``.jsonl`` file beside it are its
    ``ci`` set. Raises ConfigError."""
    if from_torch.is_file(name):
        return from_torch.load(name)
    if not name.endswith(".json"):
        return ops.load(name)
    return replace(flashinfer.load(Path(name)), file=name)


def _expand(chosen: Sequence[str], sets: Mapping[str, Sequence[str]]) -> list[str]:
    """Names with the sets among them replaced by their members, each once, in order."""
    if not chosen:
        raise ConfigError("An empty list selects nothing; name at least one, or 'all'")
    expanded: dict[str, None] = {}
    for name in chosen:
        expanded |= dict.fromkeys(sets.get(name, (name,)))
    return list(expanded)


@cache
def target_sets() -> dict[str, Sequence[str]]:
    everything = target.names()
    here = host_targets()
    return {
        "all": everything,
        "host": here,
        "demo": [name for which in DEMO for name in (here if which == "host" else [which])],
        "architectures": target.names("architecture"),
        "products": target.names("product"),
    }


def host_targets() -> list[str]:
    """The most specific targets that this machine is: its CPU's level and its GPU products."""
    cpus = [t for t in map(target.load, target.names("architecture")) if host.runs_here(t)]
    best = max(cpus, key=lambda t: len(t.cpu_flags) + 100 * ("512" in t.name), default=None)
    names = [best.name] if best else []
    for gpu in host.gpus():
        matches = [t for t in map(target.load, target.names()) if gpu.is_a(t)]
        names += [max(matches, key=lambda t: t.kind).name] if matches else []
    return list(dict.fromkeys(names))


def default_target(backend: Backend) -> Target:
    """The target that is closest to this machine: one whose hardware is here, the machine's own
    first; else one that is executed or emulated, the backend's usual one first.

    Raises BackendUnavailable, with the reason, when there is neither.
    """
    usual = [backend.usual_target] if backend.usual_target else []
    known = map(target.load, [*host_targets(), *usual, *target.names()])
    claimed = dict.fromkeys(where for where in known if backend.supports(where))
    places = [(where, venues(backend, where)) for where in claimed]
    if here := next((w for w, known in places if isinstance(known.hardware, Venue)), None):
        return here
    if modelled := next((w for w, known in places if isinstance(known.best, Venue)), None):
        return modelled
    reason = places[0][1].hardware if places else "it claims no target"
    raise BackendUnavailable(f"Nothing here runs {backend.name} kernels: {reason}; name a target=")


def _require(backends: Sequence[Backend], targets: Sequence[Target]) -> None:
    """Raises BackendUnavailable if none of the backends works here; of several, the report says
    why one does not."""
    first: BackendUnavailable | None = None
    for backend in backends:
        probes = [_probe(backend, t) for t in targets if backend.supports(t)]
        if not probes or any(isinstance(p, Ready) for p in probes):
            return
        reason = f"Backend {backend.name!r} cannot work here: {probes[0]}"
        first = first or BackendUnavailable(reason)
    if first:
        raise first
