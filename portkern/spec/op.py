"""An operator: named tensors over symbolic axes, a PyTorch reference, and what to run it on."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import textwrap
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from portkern.errors import ConfigError, no_such
from portkern.spec.expression import Expression
from portkern.spec.module_form import ModuleForm
from portkern.spec.safe_name import short

if TYPE_CHECKING:
    import torch

    from portkern.spec.imported import ImportedInputs
    from portkern.spec.json_types import JsonObject

#: A longer axis has elements that no index reaches.
MOST_LENGTH = (1 << 63) - 1
#: A tensor of this dtype takes the dtype of the cell it runs in.
CELL = "cell"
ITEMSIZE = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
FLOATS = ("float32", "float16", "bfloat16")
_BOUNDS = {"int8": (-127, 128), "uint8": (0, 256)}
#: ``ci`` is emulator-sized, ``heldout`` is never shown to an author.
WORKLOAD_SETS = ("ci", "typical", "edge", "heldout", "headline")

Scalar = float | int | bool
Derive = Callable[[Mapping[str, int], Mapping[str, Scalar]], Mapping[str, int]]
#: Takes torch tensors, then scalars by name; returns a tensor or a tuple of them.
Reference = Callable[..., Any]
Precision = Literal["strict", "allow_tf32", "allow_reduced"]
#: What each lets a kernel do, for its author.
PRECISIONS: Mapping[Precision, str] = {
    "strict": "strict: inputs are multiplied and added in their own dtype or a wider one, sums are "
    "kept in float32 or wider; no TF32, no narrower dtype on the way",
    "allow_tf32": "allow tf32: products of float32 may be taken in TF32; sums are kept in float32",
    "allow_reduced": "allow reduced: products of float32 may be taken in TF32, float16 or "
    "bfloat16; sums are kept in float32",
}


@dataclass(frozen=True)
class TensorSpec:
    """``shape`` names axes (or fixes a length); ``dtype`` is concrete or :data:`CELL`.

    ``within``: what the elements of an input of integers lie between, the upper bound excluded and
    perhaps an axis or an expression of axes: ``(0, "rows")`` are indices of rows,
    ``(0, "pages * page + 1")`` numbers of what lies in pages.
    """

    name: str
    shape: tuple[str | int, ...]
    dtype: str = CELL
    within: tuple[int, int | str] | None = None

    def sizes(self, dims: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(dims[axis] if isinstance(axis, str) else axis for axis in self.shape)

    def nelements(self, dims: Mapping[str, int]) -> int:
        return math.prod(self.sizes(dims))

    def resolve(self, dtype: str) -> str:
        return dtype if self.dtype == CELL else self.dtype

    def nbytes(self, dims: Mapping[str, int], dtype: str) -> int:
        return math.prod(self.sizes(dims)) * ITEMSIZE[self.resolve(dtype)]

    def bounds(self, dims: Mapping[str, int]) -> tuple[int, int]:
        """``within`` as numbers. Where nothing is said: all that 8 bits hold, but for a least one
        that has no negative; 0 and 1 of wider integers, which may be indices of anything."""
        low, high = self.within or _BOUNDS.get(self.dtype, (0, 2))
        return low, int(Expression(high)(dims)) if isinstance(high, str) else high

    @property
    def bound_axes(self) -> frozenset[str]:
        """The axes that ``within`` depends on."""
        high = self.within[1] if self.within else 0
        return Expression(high).names if isinstance(high, str) else frozenset()


@dataclass(frozen=True)
class ScalarSpec:
    """A parameter passed by value; ``dtype`` is float32, int64 or bool."""

    name: str
    dtype: str
    default: Scalar


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a safetensors file, by its key there."""

    path: Path
    key: str

    @property
    def identity(self) -> list[str | int]:
        """The identity of the stored tensor, which changes when the file is written anew."""
        try:
            status = self.path.stat()
        except OSError:
            return [str(self.path), self.key]
        return [str(self.path), self.key, status.st_size, status.st_mtime_ns]


@dataclass(frozen=True)
class Workload:
    """One concrete size of an op. ``stored``: inputs, by name, that it comes with; the others are
    drawn."""

    name: str
    dims: Mapping[str, int]
    scalars: Mapping[str, Scalar] = field(default_factory=dict)
    stored: Mapping[str, StoredTensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Signature:
    """The part of an op that a kernel's author and the jailed worker may know: everything but the
    answer.

    Native kernels receive the pointers of inputs then outputs, the axes as ``int64_t`` in
    declared order, then the scalars. ``module``: how a class is constructed and called, where the
    op is one.
    """

    name: str
    axes: tuple[str, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    scalars: tuple[ScalarSpec, ...] = ()
    module: ModuleForm | None = None

    def __post_init__(self) -> None:
        named = [t.name for t in (*self.inputs, *self.outputs)] + [s.name for s in self.scalars]
        odd = [name for name in (self.name, *named, *self.axes) if not name.isidentifier()]
        if odd:
            raise ConfigError(
                f"Op {short(self.name)} uses the name {short(odd[0])}, expected one that code can "
                "have: letters, digits and underscores"
            )
        twice = sorted({name for name in named if named.count(name) > 1})
        if twice:
            raise ConfigError(f"Op {self.name!r} uses the name {twice[0]!r} more than once")
        for tensor in (*self.inputs, *self.outputs):
            if tensor.within and (tensor.dtype == CELL or "float" in tensor.dtype):
                raise ConfigError(
                    f"Tensor {tensor.name!r} of {self.name!r} is of {tensor.dtype}, "
                    "expected integers where `within` is given"
                )
        used = {a for t in (*self.inputs, *self.outputs) for a in t.shape if isinstance(a, str)}
        bounding = {axis for tensor in self.inputs for axis in tensor.bound_axes}
        if not bounding <= used:
            raise no_such("axis", min(bounding - used), sorted(used))
        if used != set(self.axes):
            raise ConfigError(
                f"Op {self.name!r} declares the axes {sorted(self.axes)}, "
                f"its tensors use {sorted(used)}"
            )

    def nelements(self, dims: Mapping[str, int]) -> int:
        """The number of elements of all inputs and outputs together."""
        return sum(tensor.nelements(dims) for tensor in (*self.inputs, *self.outputs))

    def scalar_values(self, given: Mapping[str, Scalar]) -> dict[str, Scalar]:
        return {s.name: given.get(s.name, s.default) for s in self.scalars}

    def to_json(self) -> JsonObject:
        data = asdict(self)
        if self.module is None:
            del data["module"]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Signature:
        def tensors(key: str) -> tuple[TensorSpec, ...]:
            return tuple(
                TensorSpec(
                    t["name"],
                    tuple(t["shape"]),
                    t["dtype"],
                    tuple(t["within"]) if t.get("within") else None,
                )
                for t in data[key]
            )

        return cls(
            data["name"],
            tuple(data["axes"]),
            tensors("inputs"),
            tensors("outputs"),
            tuple(ScalarSpec(**s) for s in data["scalars"]),
            ModuleForm.from_json(data["module"]) if data.get("module") else None,
        )


@dataclass(frozen=True)
class Op:
    """``reference`` takes the inputs in order, then the scalars by name, and returns the output
    tensor or a tuple of them. It works at any float dtype: the evaluator runs it at float64.

    ``flops`` counts floating-point operations as a function of the axes (an exponential or a
    division counts as one). ``terms`` says how many terms an output sums (1: none), and
    ``cancels`` that they may cancel; the reference of the inputs' absolute values is then the sum
    of their sizes. Both widen what a float32 sum may err by. ``shifts`` says that the mean of the
    inputs is taken out of them, or that powers are taken of sums: a kernel may then err as if each
    input were off by a roundoff of float32, which is how far the mean or the sum can be known.
    Where ``terms`` is None nothing is declared, and the evaluator derives from the reference what
    a kernel may err by.

    ``adversaries`` make of normal inputs such as break the op's known shortcuts; each takes the
    cell's torch dtype, a generator and the inputs at float32 (those of integers as they are), and
    returns the inputs.

    ``derived`` gives the lengths of axes that follow from the others and the scalars, as those of
    a convolution's output do. ``reads``: the bytes of inputs, given axes and dtype, that no kernel
    can do without, where that is not all of them. ``baseline`` is the framework's fastest way to
    the same answer where that is not ``reference``; only times are taken of it.

    ``requires``: what the lengths of a workload must fulfil. ``draws``: of inputs by name, how
    values are made of those of a distribution (:data:`portkern.evaluator.inputs.DRAWS`);
    ``own_inputs``: where the inputs come from when no distribution stands for them.
    ``definition``: the text that the op was read from, if it was, which its digest covers.
    ``reference_source`` is what authors are shown; ``run_source`` is a module with ``run`` where
    that is none. ``file``: of an op that was read from one, what ``op=`` takes.
    """

    signature: Signature
    reference: Reference
    flops: Callable[[Mapping[str, int]], float]
    workloads: Mapping[str, tuple[Workload, ...]]
    dtypes: tuple[str, ...] = FLOATS
    precision: Precision = "strict"
    terms: Callable[[Mapping[str, int]], int] | None = None
    cancels: bool = False
    shifts: bool = False
    adversaries: Mapping[str, Callable[..., Sequence[torch.Tensor]]] = field(default_factory=dict)
    derived: Derive | None = None
    reads: Callable[[Mapping[str, int], str], int] | None = None
    baseline: Reference | None = None
    description: str = ""
    reference_source: str = ""
    requires: tuple[Expression, ...] = ()
    draws: Mapping[str, str] = field(default_factory=dict)
    own_inputs: ImportedInputs | None = None
    definition: str = ""
    run_source: str = ""
    file: str = ""

    def __post_init__(self) -> None:
        if not self.reference_source:
            object.__setattr__(self, "reference_source", _source(self.reference))
        if self.terms is None and (self.cancels or self.shifts):
            raise ConfigError(
                f"Op {self.name!r} declares that its sums cancel or that a mean is taken out, and "
                "not how many terms they have; expected `terms` with `cancels` and `shifts`"
            )
        for which, workloads in self.workloads.items():
            if which not in WORKLOAD_SETS:
                raise no_such("workload set", which, WORKLOAD_SETS)
            for workload in workloads:
                self.check(workload)

    @staticmethod
    def from_torch(
        module: Callable[..., object],
        inputs: Sequence[object],
        *,
        name: str = "",
        folder: str | Path = "operators",
    ) -> Op:
        """The op that a live module or function is, called with example ``inputs``; written to
        ``folder/name.py``. See :func:`portkern.evaluator.from_module.load`. Raises ConfigError."""
        from_module = import_module("portkern.evaluator.from_module")  # is made of this module
        op: Op = from_module.load(module, inputs, name=name, folder=folder)
        return op

    @property
    def name(self) -> str:
        return self.signature.name

    @property
    def structured(self) -> bool:
        """Whether values of inputs may not be changed one by one: what they are to one another, or
        what they lie between, is what the op is for."""
        if self.own_inputs is not None or "unit" in self.draws.values():
            return True
        return any(work.stored for several in self.workloads.values() for work in several)

    def check(self, workload: Workload) -> None:
        """Raise ConfigError unless ``workload`` gives every axis a length, and only axes."""
        if set(workload.dims) != set(self.signature.axes):
            raise ConfigError(
                f"Workload {workload.name!r} of {self.name!r} has the axes "
                f"{sorted(workload.dims)}, expected {sorted(self.signature.axes)}"
            )
        unknown = set(workload.scalars) - {s.name for s in self.signature.scalars}
        if unknown:
            raise no_such("scalar", min(unknown), (s.name for s in self.signature.scalars))
        for name in workload.stored:
            if name not in (spec.name for spec in self.signature.inputs):
                raise no_such("input", name, (spec.name for spec in self.signature.inputs))
        scalars = self.signature.scalar_values(workload.scalars)
        derived = self.derived(workload.dims, scalars) if self.derived else {}
        for axis, length in derived.items():
            if workload.dims[axis] != length:
                raise ConfigError(
                    f"Workload {workload.name!r} of {self.name!r} has {axis}="
                    f"{workload.dims[axis]}, expected {length} from its other axes and scalars"
                )
        if max(workload.dims.values(), default=0) > MOST_LENGTH:
            axis = max(workload.dims, key=workload.dims.__getitem__)
            raise ConfigError(
                f"Workload {short(workload.name)} of {self.name!r} has an axis {axis} longer than "
                f"{MOST_LENGTH}, the most that an index can count"
            )
        if min(workload.dims.values(), default=0) < 0:
            axis = min(workload.dims, key=workload.dims.__getitem__)
            raise ConfigError(
                f"Workload {workload.name!r} of {self.name!r} has {axis}={workload.dims[axis]}, "
                "expected a length"
            )
        for condition in self.requires:
            if not condition.holds(workload.dims):
                lengths = ", ".join(f"{a}={workload.dims[a]}" for a in sorted(condition.names))
                raise ConfigError(
                    f"Workload {workload.name!r} of {self.name!r} has {lengths}; the operator "
                    f"requires {condition}"
                )

    def read_bytes(self, dims: Mapping[str, int], dtype: str) -> int:
        """The bytes that have to be read, once: those of all inputs unless ``reads`` says less."""
        if self.reads:
            return self.reads(dims, dtype)
        return sum(t.nbytes(dims, dtype) for t in self.signature.inputs)

    def nbytes(self, dims: Mapping[str, int], dtype: str) -> int:
        """The least traffic: what has to be read and every output written once, in bytes."""
        return self.read_bytes(dims, dtype) + self.written_bytes(dims, dtype)

    def written_bytes(self, dims: Mapping[str, int], dtype: str) -> int:
        """The bytes of all outputs."""
        return sum(t.nbytes(dims, dtype) for t in self.signature.outputs)

    def tensor_bytes(self, dims: Mapping[str, int], dtype: str) -> int:
        """The memory that the tensors of a call take, in bytes, whether all of it is read or
        not."""
        return sum(t.nbytes(dims, dtype) for t in (*self.signature.inputs, *self.signature.outputs))

    @cached_property
    def baseline_source(self) -> str:
        """A function ``run`` of torch that the framework's time is taken of."""
        if self.baseline is None:
            return self.run_source or self.reference_source
        return _source(self.baseline)

    @cached_property
    def digest(self) -> str:
        """Changes when a result of this op could mean something else; equal in all processes."""
        rules = [self.precision, self.cancels, self.shifts, self.dtypes]
        sources = dict.fromkeys([self.reference_source, self.baseline_source])
        counts = [_text(rule) for rule in (self.flops, self.terms, self.derived, self.reads)]
        drawn = {name: _text(draws) for name, draws in self.adversaries.items()}
        said = [self.signature.to_json(), *sources, *rules, counts, drawn]
        said += [self.definition] if self.definition else []
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:12]


def _text(function: Callable[..., object] | None) -> list[str]:
    """A function's source with the plain values that it was made with; for a lambda, the lines it
    is in. What has no source is known by its code."""
    if function is None:
        return []
    code: types.CodeType | None = getattr(function, "__code__", None)
    try:
        text = inspect.getsource(function)
    except (OSError, TypeError):
        text = type(function).__qualname__ if code is None else code.co_code.hex()
        text += "" if code is None else f" {code.co_names} {_plain(code.co_consts)}"
    held = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    given = getattr(function, "__defaults__", None) or ()
    return [text, *_plain(held), *_plain(given)]


def _plain(values: Sequence[object]) -> list[str]:
    """Objects would be told with their addresses."""
    return [repr(value) for value in values if isinstance(value, int | float | str)]


def _source(function: Reference) -> str:
    """The reference's source as a module's, with the name that a worker calls."""
    source = textwrap.dedent(inspect.getsource(function))
    return source.replace(f"def {function.__name__}(", "def run(", 1)
