"""What a kernel is called with while it is evaluated: fresh values from a secret seed, drawn from
distributions that each break another kind of shortcut.

All tensors are contiguous, row-major: native kernels receive raw pointers and no strides, and the
others are held to the same.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from portkern.spec.op import Op, TensorSpec, Workload

if TYPE_CHECKING:
    import torch

#: Makes a float32 tensor of this shape for a cell of this torch dtype, with this generator.
Draw = Callable[[tuple[int, ...], "torch.dtype", "torch.Generator"], "torch.Tensor"]
#: Workloads whose largest tensor is no larger see all distributions …
FEW_ELEMENTS = 1 << 13
#: … and above this, where float64 references take seconds, no more than three.
MANY_ELEMENTS = 1 << 22
BASE = "normal"


def _normal(shape: tuple[int, ...], kind: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    import torch

    return torch.randn(shape, generator=generator)


def _uniform(shape: tuple[int, ...], kind: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    import torch

    return torch.rand(shape, generator=generator)


def _heavy(shape: tuple[int, ...], kind: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    return _normal(shape, kind, generator) * _normal(shape, kind, generator).exp()


def _ties(shape: tuple[int, ...], kind: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    return (_uniform(shape, kind, generator) * 8 - 4).round() * 0.5


def _zeros(shape: tuple[int, ...], kind: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    import torch

    values = _normal(shape, kind, generator)
    return torch.where(_seldom(shape, generator), values.sign() * 0.0, values)


def _subnormal(
    shape: tuple[int, ...], kind: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    """Among normal ones, of which the first is one: they may be flushed to zero, as some hardware
    does, not divided by."""
    import torch

    values = _normal(shape, kind, generator)
    least = torch.finfo(kind if kind.is_floating_point else torch.float32).smallest_normal
    small = (values * 0.25).clamp(-1, 1) * least
    chosen = _seldom(shape, generator)
    chosen.view(-1)[:1] = False
    return torch.where(chosen, small, values)


def _one_hot(shape: tuple[int, ...], kind: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """One element of each row, at a random place; parameters, which have no rows, are normal."""
    import torch

    if len(shape) < 2:
        return _normal(shape, kind, generator)
    place = torch.randint(0, shape[-1], (*shape[:-1], 1), generator=generator)
    value = _normal(tuple(place.shape), kind, generator)
    return torch.zeros(shape).scatter_(-1, place, value + value.sign())


def _constant(
    shape: tuple[int, ...], kind: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    """Of five bits, so that sums and products of it are exact in float32."""
    import torch

    value = int(torch.randint(1, 32, (), generator=generator)) * 0.125
    sign = int(torch.randint(0, 2, (), generator=generator)) * 2 - 1
    return torch.full(shape, sign * value)


def _seldom(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    import torch

    return torch.rand(shape, generator=generator) < 0.0625


#: A mean far from 0 breaks one-pass variances and the guess that a mean is 0, a tiny scale breaks
#: absolute tolerances, ties and signed zeros break comparisons; a heavy tail and single elements
#: are missed by those who read a part; a constant row has no variance to divide by.
DISTRIBUTIONS: Mapping[str, Draw] = {
    BASE: _normal,
    "uniform": _uniform,
    "offset": lambda shape, kind, g: _normal(shape, kind, g) * 0.25 + 2.0,
    "tiny": lambda shape, kind, g: _normal(shape, kind, g) * 1e-3,
    "heavy": _heavy,
    "ties": _ties,
    "zeros": _zeros,
    "subnormal": _subnormal,
    "one-hot": _one_hot,
    "constant": _constant,
}


def _integers(
    spec: TensorSpec, dims: Mapping[str, int], distribution: str, generator: torch.Generator
) -> torch.Tensor:
    """Within the spec's bounds: one value everywhere, a few or the largest ones where the
    distribution has such, else all alike."""
    import torch

    low, high = spec.bounds(dims)
    shape, span = spec.sizes(dims), max(high - low, 1)

    def upto(most: int, *size: int) -> torch.Tensor:
        return torch.randint(0, most, size or shape, generator=generator)

    if distribution == "constant":
        offset = upto(span, 1).expand(shape)
    elif distribution == "ties":
        offset = upto(span, 4)[upto(4)]
    elif distribution == "offset":
        offset = span - 1 - upto(min(span, 2))
    else:
        offset = upto(span)
    return offset + low


def draw(op: Op, workload: Workload, dtype: str, distribution: str) -> tuple[torch.Tensor, ...]:
    """Host tensors for one call. ``distribution`` is one of the above or of the op's own
    adversaries, which are made of normal values."""
    import torch

    generator = torch.Generator().manual_seed(secrets.randbits(62))
    adversary = op.adversaries.get(distribution)
    values = DISTRIBUTIONS[BASE if adversary else distribution]
    kinds = [getattr(torch, spec.resolve(dtype)) for spec in op.signature.inputs]
    drawn = [
        values(spec.sizes(workload.dims), kind, generator)
        if kind.is_floating_point
        else _integers(spec, workload.dims, distribution, generator)
        for spec, kind in zip(op.signature.inputs, kinds, strict=True)
    ]
    if adversary:
        drawn = list(adversary(getattr(torch, dtype), generator, *drawn))
    return tuple(tensor.to(kind) for tensor, kind in zip(drawn, kinds, strict=True))


def choose(op: Op, workload: Workload, among: Sequence[str]) -> tuple[str, ...]:
    """Which distributions this workload is evaluated on, the base first.

    Small ones see all of ``among`` and all of the op's adversaries. Larger ones see the
    adversaries and one of the others, very large ones one of each; nobody knows which.
    """
    sizes = [math.prod(t.sizes(workload.dims)) for t in op.signature.inputs]
    others = [name for name in among if name != BASE]
    own = list(op.adversaries)
    if 0 in sizes:
        return (BASE,)  # there is nothing to draw
    if max(sizes, default=0) > FEW_ELEMENTS:
        others = _one_of(others)
    if max(sizes, default=0) > MANY_ELEMENTS:
        own = _one_of(own)
    return (BASE, *own, *others)


def _one_of(names: Sequence[str]) -> list[str]:
    return [secrets.choice(names)] if names else []
