"""Which axis of an operator stands for all leading dimensions of a tensor, as rows do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from portkern import ops
from portkern.spec.op import Op, Signature, TensorSpec

if TYPE_CHECKING:
    import torch

#: Leading dimensions that the reference is tried with: none, two and three of them.
_TRIED = ((), (2, 3), (2, 1, 3))


def leading_axis(op: Op) -> str | None:
    """The axis that may be several dimensions or none, as the operator's own reference shows: it
    gives with them what it gives with one. None where there is no such axis, and where the
    reference is a user's code, which does not run in this process."""
    if op.name not in ops.names() or op is not ops.load(op.name):
        return None
    return _of_shipped(op.name)


@lru_cache(maxsize=64)
def _of_shipped(name: str) -> str | None:
    op = ops.load(name)
    return next((axis for axis in _candidates(op.signature) if _shown(op, axis)), None)


def _candidates(signature: Signature) -> list[str]:
    """Axes that stand first wherever they stand, and in all outputs."""
    tensors = (*signature.inputs, *signature.outputs)
    bounds = {axis for tensor in signature.inputs for axis in tensor.bound_axes}
    return [
        axis
        for axis in signature.axes
        if axis not in bounds
        and all(axis not in tensor.shape[1:] for tensor in tensors)
        and all(tensor.shape[:1] == (axis,) for tensor in signature.outputs)
        and any(tensor.shape[:1] == (axis,) for tensor in signature.inputs)
    ]


def _shown(op: Op, axis: str) -> bool:
    return all(_same(op, axis, lead) for lead in _TRIED)


def _same(op: Op, axis: str, lead: tuple[int, ...]) -> bool:
    import torch

    workload = op.workloads["ci"][0]
    dims = {**workload.dims, axis: math.prod(lead)}
    scalars = op.signature.scalar_values(workload.scalars)
    generator = torch.Generator().manual_seed(0)
    flat = [_drawn(tensor, dims, generator) for tensor in op.signature.inputs]
    deep = [
        one.reshape((*lead, *one.shape[1:])) if tensor.shape[0] == axis else one
        for tensor, one in zip(op.signature.inputs, flat, strict=True)
    ]
    expected = _tuple(op.reference(*flat, **scalars))
    try:
        got = _tuple(op.reference(*deep, **scalars))
    except (RuntimeError, IndexError, ValueError):
        return False
    return all(
        one.shape == (*lead, *other.shape[1:])
        and torch.allclose(one, other.reshape(one.shape), rtol=1e-4, atol=1e-5)
        for one, other in zip(got, expected, strict=True)
    )


def _drawn(tensor: TensorSpec, dims: Mapping[str, int], generator: torch.Generator) -> torch.Tensor:
    import torch

    sizes, kind = tensor.sizes(dims), getattr(torch, tensor.resolve("float32"))
    if kind.is_floating_point:
        return torch.randn(sizes, dtype=kind, generator=generator)
    return torch.randint(*tensor.bounds(dims), sizes, generator=generator).to(kind)


def _tuple(outputs: Any) -> tuple[Any, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)
