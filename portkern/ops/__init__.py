"""The reference operations portkern ships with, one module each, and the sets they come in."""

from __future__ import annotations

import importlib
from functools import lru_cache

from portkern.errors import ConfigError, no_such
from portkern.spec.op import Op

#: One of each way to go through memory: a matrix of these is made in minutes.
BASIC = (
    "relu",
    "gelu",
    "add",
    "sum",
    "softmax",
    "layernorm",
    "rmsnorm",
    "matmul",
    "transpose",
    "cumsum",
)
CORE = (
    *BASIC,
    "silu_mul",
    "bias_gelu",
    "cross_entropy",
    "argmax",
    "topk",
    "embedding",
    "scatter_add",
    "rope",
    "bmm",
    "int8_matmul",
    "conv2d",
    "maxpool2d",
    "conv2d_relu_maxpool",
    "attention",
)
#: What layers of today's models call beside those; a backend has kernels where they make sense.
MODELS = (
    "linear",
    "linear_bias",
    "add_rmsnorm",
    "rmsnorm_backward",
    "layernorm_backward",
    "cross_entropy_backward",
    "grouped_attention",
    "causal_conv1d",
    "group_norm_silu",
    "paged_attention",
    "moe_route",
    "grouped_linear",
    "moe_combine",
    "int4_linear",
    "fp8_linear",
    "selective_scan",
)
ALL = (*CORE, *MODELS)
SETS = {"basic": BASIC, "core": CORE, "models": MODELS, "all": ALL}


def names() -> list[str]:
    return sorted(ALL)


@lru_cache
def load(name: str) -> Op:
    """The shipped op of this name. Raises ConfigError with the closest name."""
    if name not in ALL:
        raise no_such("op", name, [*names(), *SETS])
    op = importlib.import_module(f"portkern.ops.{name}").OP
    if not isinstance(op, Op):
        raise ConfigError(f"portkern.ops.{name}.OP is a {type(op).__name__}, expected an Op")
    return op
