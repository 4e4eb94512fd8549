"""The C interface that a native kernel is compiled against."""

from __future__ import annotations

import ctypes

from portkern import ops
from portkern.spec import abi

from .test_op import moments

TYPES = {"float32": "float", "bfloat16": "bf16"}


def test_parameters_are_inputs_outputs_axes_scalars_and_the_stream() -> None:
    assert abi.prototype(moments().signature, "moments", TYPES, stream="cudaStream_t") == (
        'extern "C" int moments(const scalar_t* x, scalar_t* mean, scalar_t* var, '
        "int64_t rows, int64_t cols, int64_t correction, cudaStream_t stream);"
    )


def test_a_cpu_kernel_has_no_stream() -> None:
    assert abi.prototype(ops.load("softmax").signature, "softmax", TYPES) == (
        'extern "C" int softmax(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols);'
    )


def test_the_prelude_fixes_the_cells_type() -> None:
    text = abi.prelude(
        ops.load("relu").signature, "relu", "bfloat16", TYPES, include='#include "harness.h"'
    )
    assert "typedef bf16 scalar_t;" in text
    assert "#define PORTKERN_BFLOAT16 1" in text


def test_binding_sets_one_type_per_parameter() -> None:
    libc = ctypes.CDLL(None)
    bound = abi.bind(libc, ops.load("layernorm").signature, "abs", stream=True)
    assert bound.argtypes == [
        *[ctypes.c_void_p] * 4,
        ctypes.c_int64,
        ctypes.c_int64,
        ctypes.c_float,
        ctypes.c_void_p,
    ]
