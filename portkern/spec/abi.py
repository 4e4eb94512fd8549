"""The C interface of a native kernel, derived from its op's signature.

``extern "C" int softmax(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, stream)``:
inputs, outputs, axes, scalars and, on a GPU, the stream; 0 means that the launch was accepted. An
op of more than :data:`MOST_POINTERS` tensors passes them by name instead, in the structures
``NAME_in``, ``NAME_out`` and ``NAME_axes``: nobody counts thirty pointers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from portkern.spec.op import CELL, Scalar, Signature, TensorSpec

if TYPE_CHECKING:
    from _ctypes import CFuncPtr

#: The most pointers of inputs and outputs together.
MOST_POINTERS = 16
C_SCALARS = {"float32": "float", "int64": "int64_t", "bool": "bool"}
_CTYPES: Mapping[str, type[ctypes.c_float | ctypes.c_int64 | ctypes.c_bool]] = {
    "float32": ctypes.c_float,
    "int64": ctypes.c_int64,
    "bool": ctypes.c_bool,
}


def prototype(
    signature: Signature, entry: str, types: Mapping[str, str], *, stream: str | None = None
) -> str:
    """The declaration that a source is compiled against, in one line; ``types`` maps dtypes to C
    names."""
    parameters = [part for parts in _parts(signature, types).values() for part in parts]
    if passes_structures(signature):
        parameters = [f"const {signature.name}_{part}* {part}" for part in _parts(signature, types)]
    parameters += [f"{C_SCALARS[s.dtype]} {s.name}" for s in signature.scalars]
    if stream:
        parameters.append(f"{stream} stream")
    return f'extern "C" int {entry}({", ".join(parameters)});'


def declaration(
    signature: Signature, entry: str, types: Mapping[str, str], *, stream: str | None = None
) -> str:
    """The prototype after the structures that it takes, if any.

    Put before the source, it turns a wrong prototype into the compiler's own error.
    """
    lines = [prototype(signature, entry, types, stream=stream)]
    if passes_structures(signature):
        parts = _parts(signature, types).items()
        lines[:0] = [f"struct {signature.name}_{part} {{ {_fields(of)} }};" for part, of in parts]
    return "\n".join(lines)


def passes_structures(signature: Signature) -> bool:
    return len(signature.inputs) + len(signature.outputs) > MOST_POINTERS


def _parts(signature: Signature, types: Mapping[str, str]) -> dict[str, list[str]]:
    """The declarations of inputs, outputs and axes, by the names of their structures."""

    def pointer(tensor: TensorSpec, qualifier: str) -> str:
        name = "scalar_t" if tensor.dtype == CELL else types[tensor.dtype]
        return f"{qualifier}{name}* {tensor.name}"

    return {
        "in": [pointer(t, "const ") for t in signature.inputs],
        "out": [pointer(t, "") for t in signature.outputs],
        "axes": [f"int64_t {axis}" for axis in signature.axes],
    }


def _fields(declared: Sequence[str]) -> str:
    return " ".join(f"{one};" for one in declared)


def prelude(
    signature: Signature,
    entry: str,
    dtype: str,
    types: Mapping[str, str],
    *,
    include: str,
    stream: str | None = None,
) -> str:
    """The header that precedes every native source: the cell's ``scalar_t`` and the prototype."""
    return "\n".join(
        [
            "#include <stdint.h>",
            include,
            f"typedef {types[dtype]} scalar_t;",
            f"#define PORTKERN_{dtype.upper()} 1",
            declaration(signature, entry, types, stream=stream),
            "",
        ]
    )


def bind(library: ctypes.CDLL, signature: Signature, entry: str, *, stream: bool) -> CFuncPtr:
    """The C function with its argument types set, so that ctypes converts and checks."""
    function: CFuncPtr = getattr(library, entry)
    pointers = len(signature.inputs) + len(signature.outputs)
    axes = len(signature.axes)
    tensors: list[type[ctypes._CDataType]] = [
        *[ctypes.c_void_p] * pointers,
        *[ctypes.c_int64] * axes,
    ]
    if passes_structures(signature):
        tensors = [ctypes.POINTER(kind) for kind in _structures(signature)]
    function.argtypes = [
        *tensors,
        *[_CTYPES[s.dtype] for s in signature.scalars],
        *[ctypes.c_void_p] * stream,
    ]
    function.restype = ctypes.c_int
    return function


def _structures(signature: Signature) -> list[type[ctypes.Structure]]:
    """The structures that :func:`declaration` declares: of inputs, of outputs and of axes."""
    inputs = tuple(tensor.name for tensor in signature.inputs)
    outputs = tuple(tensor.name for tensor in signature.outputs)
    name = signature.name
    return [
        _structure(f"{name}_in", inputs, ctypes.c_void_p),
        _structure(f"{name}_out", outputs, ctypes.c_void_p),
        _structure(f"{name}_axes", tuple(signature.axes), ctypes.c_int64),
    ]


@lru_cache(maxsize=192)
def _structure(
    name: str, fields: tuple[str, ...], kind: type[ctypes.c_void_p | ctypes.c_int64]
) -> type[ctypes.Structure]:
    """One type for all who ask, since ctypes takes pointers to no other. It is kept by names: a
    signature with a module's parameters cannot be hashed."""
    return type(name, (ctypes.Structure,), {"_fields_": [(field, kind) for field in fields]})


class Arguments:
    """Puts the arguments of calls in order. Made once for a kernel: its calls may take 2 µs."""

    def __init__(self, signature: Signature) -> None:
        self._axes = signature.axes
        self._scalars = tuple(scalar.name for scalar in signature.scalars)
        self._inputs = len(signature.inputs)
        self._structures = _structures(signature) if passes_structures(signature) else []

    def of(
        self, pointers: Sequence[int], dims: Mapping[str, int], scalars: Mapping[str, Scalar]
    ) -> Sequence[object]:
        """The arguments of a call but for the stream, as declared. ``pointers``: of inputs, then
        outputs."""
        axes, values = map(dims.__getitem__, self._axes), map(scalars.__getitem__, self._scalars)
        if not self._structures:
            return [*pointers, *axes, *values]
        parts = (pointers[: self._inputs], pointers[self._inputs :], axes)
        passed = [kind(*part) for kind, part in zip(self._structures, parts, strict=True)]
        return [*map(ctypes.pointer, passed), *values]
