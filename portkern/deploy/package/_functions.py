"""Functions whose call is one operator's, by the arguments that allow it."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.nn import functional as F

from ._match import GraphMatch, Make, plainly
from ._nodes import bound, calls

Node = fx.Node
_Said = Mapping[str, Any]
#: What each node of the graph gave.
_Values = Mapping[Any, Any]
_Found = tuple[str, Sequence[Any], Make] | None


def of(node: Node, values: _Values) -> GraphMatch | None:
    """The match of one call."""
    rule = _RULES.get(node.target) if node.op in ("call_function", "call_method") else None
    if rule is None or (node.op == "call_method") != isinstance(node.target, str):
        return None
    names, find = rule
    arguments = bound(node, names)
    if arguments is None or (made := find(values, arguments)) is None:
        return None
    operator_name, inputs, make = made
    if not all(isinstance(one, Node) for one in inputs):
        return None
    return GraphMatch(operator_name, (node,), tuple(inputs), make)


def _softmax(values: _Values, said: _Said) -> _Found:
    del values
    if said.get("dim") != -1 or said.get("dtype") is not None:
        return None
    return "softmax", [said["input"]], plainly


def _last(name: str) -> Any:
    def find(values: _Values, said: _Said) -> _Found:
        del values
        plain = said.get("dim") == -1 and not said.get("keepdim") and said.get("dtype") is None
        return (name, [said["input"]], plainly) if plain else None

    return find


def _relu(values: _Values, said: _Said) -> _Found:
    del values
    return None if said.get("inplace") else ("relu", [said["input"]], plainly)


def _gelu(values: _Values, said: _Said) -> _Found:
    del values
    return ("gelu", [said["input"]], plainly) if said.get("approximate", "none") == "none" else None


def _over_last(values: _Values, said: _Said) -> bool:
    """Whether a normalisation is over the last axis, whatever the input's length."""
    shape, weight = said.get("normalized_shape"), values.get(said.get("weight"))
    if not isinstance(weight, torch.Tensor) or weight.dim() != 1:
        return False
    if isinstance(shape, Node):
        sliced = calls(shape, (operator.getitem,)) and shape.args[1] == slice(-1, None, None)
        return sliced and values[shape] == weight.shape
    return isinstance(shape, tuple | list) and tuple(shape) == tuple(weight.shape)


def _layer_norm(values: _Values, said: _Said) -> _Found:
    eps = said.get("eps", 1e-5)
    if not _over_last(values, said) or not isinstance(eps, float) or said.get("bias") is None:
        return None

    def make(called: Any, theirs: Any) -> Any:
        del theirs
        return lambda x, weight, bias: called(x, weight, bias, eps)

    return "layernorm", [said["input"], said["weight"], said["bias"]], make


def _rms_norm(values: _Values, said: _Said) -> _Found:
    eps = said.get("eps")
    if not _over_last(values, said) or not isinstance(eps, float):
        return None

    def make(called: Any, theirs: Any) -> Any:
        del theirs
        return lambda x, weight: called(x, weight, eps)

    return "rmsnorm", [said["input"], said["weight"]], make


def _attention(values: _Values, said: _Said) -> _Found:
    del values
    plain = said.get("is_causal") is True and said.get("attn_mask") is None
    plain = plain and said.get("dropout_p", 0.0) == 0.0 and said.get("scale") is None
    if not plain or said.get("enable_gqa"):
        return None

    def make(called: Any, theirs: Any) -> Any:
        del theirs
        # Heads are a view of what a projection gave; the race counts what it costs to copy them.
        return lambda q, k, v: called(q.contiguous(), k.contiguous(), v.contiguous())

    return "attention", [said["query"], said["key"], said["value"]], make


def _cross_entropy(values: _Values, said: _Said) -> _Found:
    odd = ("weight", "size_average", "reduce")
    reduction = said.get("reduction", "mean")
    if any(said.get(name) is not None for name in odd) or said.get("label_smoothing", 0.0):
        return None
    target = values.get(said["target"])
    if said.get("ignore_index", -100) != -100 or not isinstance(target, torch.Tensor):
        return None
    return "cross_entropy", [said["input"], said["target"]], reduced(reduction)


def reduced(reduction: str) -> Any:
    """The losses of rows as the framework sums them up; of other inputs its own loss."""

    def make(called: Any, theirs: Any) -> Any:
        def run(logits: Any, target: Any) -> Any:
            if logits.dim() != 2 or target.dim() != 1 or target.dtype != torch.int64:
                return theirs(logits, target)
            losses = called(logits, target)
            if reduction == "none":
                return losses
            if reduction == "sum":
                return losses.sum()
            # Rows of the index that is ignored have no loss, and do not count. The sum of many may
            # be beyond 16 bits where their mean is not.
            wide = losses.dtype in (torch.float16, torch.bfloat16)
            total = losses.sum(dtype=torch.float32 if wide else None)
            return (total / (target != -100).sum()).to(losses.dtype)

        return run

    return make


def _embedding(values: _Values, said: _Said) -> _Found:
    del values
    odd = ("padding_idx", "max_norm", "scale_grad_by_freq", "sparse")
    if any(said.get(name) not in (None, False) for name in odd):
        return None
    return "embedding", [said["weight"], said["input"]], plainly


def _linear(values: _Values, said: _Said) -> _Found:
    del values
    given = [said["input"], said["weight"]]
    bias = said.get("bias")
    return ("linear", given, plainly) if bias is None else ("linear_bias", [*given, bias], plainly)


def _matmul(values: _Values, said: _Said) -> _Found:
    a, b = (values.get(said.get(name)) for name in ("input", "other"))
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
        return None
    kind = "matmul" if a.dim() >= 2 and b.dim() == 2 else "bmm" if a.dim() == b.dim() == 3 else ""
    return (kind, [said["input"], said["other"]], plainly) if kind else None


_LOSS = (
    "input target weight size_average ignore_index reduce reduction label_smoothing".split(),
    _cross_entropy,
)
_PRODUCT = (("input", "other"), _matmul)
_RULES: Mapping[Any, tuple[Sequence[str], Any]] = {
    F.softmax: (("input", "dim", "_stacklevel", "dtype"), _softmax),
    torch.softmax: (("input", "dim", "dtype"), _softmax),
    "softmax": (("input", "dim", "dtype"), _softmax),
    F.relu: (("input", "inplace"), _relu),
    torch.relu: (("input",), _relu),
    "relu": (("input",), _relu),
    F.gelu: (("input", "approximate"), _gelu),
    F.layer_norm: (("input", "normalized_shape", "weight", "bias", "eps"), _layer_norm),
    F.rms_norm: (("input", "normalized_shape", "weight", "eps"), _rms_norm),
    F.scaled_dot_product_attention: (
        "query key value attn_mask dropout_p is_causal scale enable_gqa".split(),
        _attention,
    ),
    F.cross_entropy: _LOSS,
    F.embedding: (
        "input weight padding_idx max_norm norm_type scale_grad_by_freq sparse".split(),
        _embedding,
    ),
    F.linear: (("input", "weight", "bias"), _linear),
    torch.matmul: _PRODUCT,
    torch.bmm: _PRODUCT,
    operator.matmul: _PRODUCT,
    "matmul": _PRODUCT,
    "bmm": _PRODUCT,
    torch.cumsum: (("input", "dim", "dtype"), _last("cumsum")),
    "cumsum": (("input", "dim", "dtype"), _last("cumsum")),
    torch.argmax: (("input", "dim", "keepdim"), _last("argmax")),
    "argmax": (("input", "dim", "keepdim"), _last("argmax")),
}
