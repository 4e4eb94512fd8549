"""An operator: named tensors over symbolic axes, a PyTorch reference, and what to run it on."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from portkern.errors import ConfigError, no_such

if TYPE_CHECKING:
    import torch

    from portkern.spec.json_types import JsonObject

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


@dataclass(frozen=True)
class TensorSpec:
    """``shape`` names axes (or fixes a length); ``dtype`` is concrete or :data:`CELL`.

    ``within``: what the elements of an input of integers lie between, the upper bound excluded and
    perhaps an axis: ``(0, "rows")`` are indices of rows.
    """

    name: str
    shape: tuple[str | int, ...]
    dtype: str = CELL
    within: tuple[int, int | str] | None = None

    def sizes(self, dims: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(dims[axis] if isinstance(axis, str) else axis for axis in self.shape)

    def resolve(self, dtype: str) -> str:
        return dtype if self.dtype == CELL else self.dtype

    def nbytes(self, dims: Mapping[str, int], dtype: str) -> int:
        return math.prod(self.sizes(dims)) * ITEMSIZE[self.resolve(dtype)]

    def bounds(self, dims: Mapping[str, int]) -> tuple[int, int]:
        """``within`` as numbers. Where nothing is said: all that 8 bits hold, but for a least one
        that has no negative; 0 and 1 of wider integers, which may be indices of anything."""
        low, high = self.within or _BOUNDS.get(self.dtype, (0, 2))
        return low, dims[high] if isinstance(high, str) else high


@dataclass(frozen=True)
class ScalarSpec:
    """A parameter passed by value; ``dtype`` is float32, int64 or bool."""

    name: str
    dtype: str
    default: Scalar


@dataclass(frozen=True)
class Workload:
    """One concrete size of an op."""

    name: str
    dims: Mapping[str, int]
    scalars: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class Signature:
    """What a kernel's author and the jailed worker may know of an op: everything but the answer.

    Native kernels receive the pointers of inputs then outputs, the axes as ``int64_t`` in
    declared order, then the scalars.
    """

    name: str
    axes: tuple[str, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    scalars: tuple[ScalarSpec, ...] = ()

    def __post_init__(self) -> None:
        named = [t.name for t in (*self.inputs, *self.outputs)] + [s.name for s in self.scalars]
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
        if used != set(self.axes):
            raise ConfigError(
                f"Op {self.name!r} declares the axes {sorted(self.axes)}, "
                f"its tensors use {sorted(used)}"
            )

    def scalar_values(self, given: Mapping[str, Scalar]) -> dict[str, Scalar]:
        return {s.name: given.get(s.name, s.default) for s in self.scalars}

    def to_json(self) -> JsonObject:
        return asdict(self)

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

    ``adversaries`` make of normal inputs such as break the op's known shortcuts; each takes the
    cell's torch dtype, a generator and the inputs at float32 (those of integers as they are), and
    returns the inputs.

    ``derived`` gives the lengths of axes that follow from the others and the scalars, as those of
    a convolution's output do. ``reads``: the bytes of inputs, given axes and dtype, that no kernel
    can do without, where that is not all of them. ``baseline`` is the framework's fastest way to
    the same answer where that is not ``reference``; only times are taken of it.
    """

    signature: Signature
    reference: Reference
    flops: Callable[[Mapping[str, int]], float]
    workloads: Mapping[str, tuple[Workload, ...]]
    dtypes: tuple[str, ...] = FLOATS
    precision: Precision = "strict"
    terms: Callable[[Mapping[str, int]], int] = lambda _: 1
    cancels: bool = False
    shifts: bool = False
    adversaries: Mapping[str, Callable[..., Sequence[torch.Tensor]]] = field(default_factory=dict)
    derived: Derive | None = None
    reads: Callable[[Mapping[str, int], str], int] | None = None
    baseline: Reference | None = None
    description: str = ""
    reference_source: str = ""

    def __post_init__(self) -> None:
        if not self.reference_source:
            object.__setattr__(self, "reference_source", _source(self.reference))
        for which, workloads in self.workloads.items():
            if which not in WORKLOAD_SETS:
                raise no_such("workload set", which, WORKLOAD_SETS)
            for workload in workloads:
                self.check(workload)

    @property
    def name(self) -> str:
        return self.signature.name

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
        scalars = self.signature.scalar_values(workload.scalars)
        derived = self.derived(workload.dims, scalars) if self.derived else {}
        for axis, length in derived.items():
            if workload.dims[axis] != length:
                raise ConfigError(
                    f"Workload {workload.name!r} of {self.name!r} has {axis}="
                    f"{workload.dims[axis]}, expected {length} from its other axes and scalars"
                )

    def read_bytes(self, dims: Mapping[str, int], dtype: str) -> int:
        """What has to be read, once: all inputs unless ``reads`` says less."""
        if self.reads:
            return self.reads(dims, dtype)
        return sum(t.nbytes(dims, dtype) for t in self.signature.inputs)

    def nbytes(self, dims: Mapping[str, int], dtype: str) -> int:
        """The least traffic: what has to be read and every output written once, in bytes."""
        written = sum(t.nbytes(dims, dtype) for t in self.signature.outputs)
        return self.read_bytes(dims, dtype) + written

    @cached_property
    def baseline_source(self) -> str:
        """A function ``run`` of torch that the framework's time is taken of."""
        if self.baseline is None:
            return self.reference_source
        return _source(self.baseline)

    @cached_property
    def digest(self) -> str:
        """Changes when a result of this op could mean something else."""
        rules = [self.precision, self.cancels, self.shifts, *sorted(self.adversaries)]
        sources = dict.fromkeys([self.reference_source, self.baseline_source])
        parts = json.dumps([self.signature.to_json(), *sources, *rules])
        return hashlib.sha256(parts.encode()).hexdigest()[:12]


def _source(function: Reference) -> str:
    """As a module's, with the name that a worker calls."""
    source = textwrap.dedent(inspect.getsource(function))
    return source.replace(f"def {function.__name__}(", "def run(", 1)
