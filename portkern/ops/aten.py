"""Which of the shipped ops are an operator of PyTorch's ATen, and how its arguments become
theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class AtenOp:
    """``name`` is ``op.overload``; ``arguments`` its parameters in Python. ``requires``: what
    they must fulfil for the kernel to be able to take them; ``given`` are the op's inputs and
    ``scalars`` its scalars, as expressions of them; ``result`` is made of ``out``."""

    name: str
    arguments: str
    given: tuple[str, ...]
    requires: str = "True"
    result: str = "out"
    scalars: tuple[str, ...] = ()


_FLOAT = "self.is_floating_point()"
_FLAT = {"given": ("self.reshape(-1)",), "result": "out.reshape(self.shape)"}
#: The last dimension of any tensor.
_ROWS = "self.reshape(-1, self.shape[-1])"
_OVER_LAST = f"{_FLOAT} and self.dim() > 0 and dim in (-1, self.dim() - 1) and self.shape[-1] > 0"

ATEN: Mapping[str, AtenOp] = {
    "relu": AtenOp("relu.default", "self", requires=_FLOAT, **_FLAT),  # type: ignore[arg-type]
    "gelu": AtenOp(
        "gelu.default",
        "self, *, approximate='none'",
        requires=f"{_FLOAT} and approximate == 'none'",
        **_FLAT,  # type: ignore[arg-type]
    ),
    "softmax": AtenOp(
        "_softmax.default",
        "self, dim, half_to_float",
        (_ROWS,),
        f"{_OVER_LAST} and not half_to_float",
        "out.reshape(self.shape)",
    ),
    "cumsum": AtenOp(
        "cumsum.default",
        "self, dim, *, dtype=None",
        (_ROWS,),
        f"{_OVER_LAST} and dtype in (None, self.dtype)",
        "out.reshape(self.shape)",
    ),
    "add": AtenOp(
        "add.Tensor",
        "self, other, *, alpha=1",
        ("self", "other"),
        f"{_FLOAT} and alpha == 1 and isinstance(other, torch.Tensor) and self.dim() == 2 "
        "and other.dim() == 1 and other.shape == self.shape[1:] and other.dtype == self.dtype",
    ),
    "matmul": AtenOp(
        "mm.default", "self, mat2", ("self", "mat2"), f"{_FLOAT} and self.dtype == mat2.dtype"
    ),
    "bmm": AtenOp(
        "bmm.default", "self, mat2", ("self", "mat2"), f"{_FLOAT} and self.dtype == mat2.dtype"
    ),
    "embedding": AtenOp(
        "embedding.default",
        "weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False",
        ("weight", "indices.reshape(-1)"),
        "weight.is_floating_point() and indices.dtype == torch.int64",
        "out.reshape(*indices.shape, weight.shape[1])",
    ),
}

#: Why the others are none.
NOT_ATEN: Mapping[str, str] = {
    "add_rmsnorm": "it is two operators of ATen",
    "argmax": "argmax.default takes any dimension or all of a tensor, of which a kernel has one",
    "attention": "PyTorch has it as a composite operator, which is not overridden by itself",
    "bias_gelu": "it is two operators of ATen",
    "causal_conv1d": "convolution.default also is what is transposed, dilated and not causal",
    "conv2d": "convolution.default also is what is transposed, dilated and grouped",
    "conv2d_relu_maxpool": "it is three operators of ATen",
    "cross_entropy": "it is two operators of ATen",
    "cross_entropy_backward": "ATen's takes the logarithms of what the forward pass left",
    "grouped_linear": "_grouped_mm.default leaves the rows that are nobody's as they are",
    "fp8_linear": "ATen's takes activations of eight bits",
    "group_norm_silu": "it is two operators of ATen",
    "grouped_attention": "PyTorch has it as a composite operator, without windows and caps",
    "int4_linear": "ATen's takes a weight that is packed for one device",
    "int8_matmul": "ATen has none with a scale for each column",
    "layernorm": "native_layer_norm.default returns mean and deviation too",
    "layernorm_backward": "native_layer_norm_backward.default takes mean and deviation too",
    "linear": "linear.default is a composite operator, which becomes mm.default of a view",
    "linear_bias": "linear.default is a composite operator, which becomes addmm.default of a view",
    "maxpool2d": "max_pool2d_with_indices.default returns indices too",
    "moe_combine": "it is three operators of ATen",
    "moe_route": "it is two operators of ATen",
    "paged_attention": "ATen has none of keys in pages",
    "rmsnorm": "_fused_rms_norm.default returns the deviation too",
    "rmsnorm_backward": "_fused_rms_norm_backward.default takes the deviation too",
    "rope": "ATen has none",
    "selective_scan": "ATen has none",
    "scatter_add": "scatter_add.default takes an index of each element, the op one of each row",
    "silu_mul": "it is two operators of ATen",
    "sum": "sum.dim_IntList takes several dimensions and keeps them or not",
    "topk": "topk.default also takes the smallest, unsorted, of any dimension",
    "transpose": "transpose.int gives a view, and no kernel is called for it",
}
