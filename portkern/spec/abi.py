"""The C interface of a native kernel, derived from its op's signature.

``extern "C" int softmax(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, stream)``:
inputs, outputs, axes, scalars and, on a GPU, the stream; 0 means that the launch was accepted.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from portkern.spec.op import CELL, Scalar, Signature, TensorSpec

if TYPE_CHECKING:
    from _ctypes import CFuncPtr

_C_SCALARS = {"float32": "float", "int64": "int64_t", "bool": "bool"}
_CTYPES: Mapping[str, type[ctypes.c_float | ctypes.c_int64 | ctypes.c_bool]] = {
    "float32": ctypes.c_float,
    "int64": ctypes.c_int64,
    "bool": ctypes.c_bool,
}


def prototype(
    signature: Signature, entry: str, types: Mapping[str, str], *, stream: str | None = None
) -> str:
    """The declaration that a source is compiled against; ``types`` maps dtypes to C names.

    Put before the source, it turns a wrong prototype into the compiler's own error.
    """

    def pointer(tensor: TensorSpec, qualifier: str) -> str:
        name = "scalar_t" if tensor.dtype == CELL else types[tensor.dtype]
        return f"{qualifier}{name}* {tensor.name}"

    parameters = [pointer(t, "const ") for t in signature.inputs]
    parameters += [pointer(t, "") for t in signature.outputs]
    parameters += [f"int64_t {axis}" for axis in signature.axes]
    parameters += [f"{_C_SCALARS[s.dtype]} {s.name}" for s in signature.scalars]
    if stream:
        parameters.append(f"{stream} stream")
    return f'extern "C" int {entry}({", ".join(parameters)});'


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
            prototype(signature, entry, types, stream=stream),
            "",
        ]
    )


def bind(library: ctypes.CDLL, signature: Signature, entry: str, *, stream: bool) -> CFuncPtr:
    """The C function with its argument types set, so that ctypes converts and checks."""
    function: CFuncPtr = getattr(library, entry)
    pointers = len(signature.inputs) + len(signature.outputs)
    function.argtypes = [
        *[ctypes.c_void_p] * pointers,
        *[ctypes.c_int64] * len(signature.axes),
        *[_CTYPES[s.dtype] for s in signature.scalars],
        *[ctypes.c_void_p] * stream,
    ]
    function.restype = ctypes.c_int
    return function


def by_value(
    signature: Signature, dims: Mapping[str, int], scalars: Mapping[str, Scalar]
) -> Sequence[Scalar]:
    """The arguments after the pointers: axes, then scalars, in declared order."""
    return [*(dims[a] for a in signature.axes), *(scalars[s.name] for s in signature.scalars)]
