"""The work that an operator has, by the words of its reference and the axes of its tensors."""

from __future__ import annotations

import re

from portkern.spec.op import Op

#: Words of references that multiply matrices.
_PRODUCTS = re.compile(
    r"(?<=[\w)\]])[ \t]*@=?[ \t]*[\w(]|_mm\(|conv(_\w+)?\dd|attention"
    r"|\b(\w*mm|matmul|mv|inner|outer|einsum|tensordot|(bi)?linear)\s*\("
    r"|\bnn\.(\w*Linear|Transformer\w*|LSTM|GRU|RNN)\b",
    re.IGNORECASE,
)
#: Words of references that add to places which several threads may name.
_SCATTERS = re.compile(r"scatter|index_(add|put|reduce)|accumulate|bincount|histc|segment_reduce")


def has_products(op: Op) -> bool:
    """Whether matrices are multiplied in it."""
    return _PRODUCTS.search(f"{op.reference_source}\n{op.definition}") is not None


def adds_up(op: Op) -> bool:
    """Whether blocks may add to the same element of an output: it scatters, or a float output lacks
    an axis of an input that has all of its own. Products of matrices have no need of that."""
    if _SCATTERS.search(f"{op.reference_source}\n{op.definition}"):
        return True
    outputs = [set(tensor.shape) for tensor in op.signature.outputs if tensor.dtype != "int64"]
    inputs = [set(tensor.shape) for tensor in op.signature.inputs]
    return not has_products(op) and any(mine < of for mine in outputs for of in inputs)
