"""Other ways than the framework's to compute an operator: its reference, with other arithmetic
inside.

Sums, products, convolutions and scans are taken over by loops of float32 additions in a stated
order, everything else stays the framework's own at float32. The same loops in lower precision, on
rounded factors or without their last term are what a dishonest kernel does.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode

LANES = 32
BLOCK = 48


@dataclass(frozen=True)
class Arithmetic:
    """``order`` of additions: serial, lanes (32 partial sums and a tree) or blocks (of 48 terms,
    last first). ``kept`` rounds every partial sum, ``factors`` the factors of products; ``tail``:
    whether the last term is added."""

    order: str = "serial"
    kept: Callable[[Tensor], Tensor] | None = None
    factors: Callable[[Tensor], Tensor] | None = None
    tail: bool = True

    def total(self, terms: Tensor) -> Tensor:
        """The sum over the last axis."""
        n = terms.shape[-1]
        terms = terms if self.tail or n < 2 else terms[..., :-1]
        if self.order == "lanes":
            return self._tree(self._chain(_padded(terms, LANES), -2))
        if self.order == "blocks":
            parts = _padded(terms.flip(-1), BLOCK)
            return self._chain(self._chain(parts, -1), -1)
        return self._chain(terms, -1)

    def _chain(self, terms: Tensor, axis: int) -> Tensor:
        total = torch.zeros_like(terms.select(axis, 0)) if terms.shape[axis] else terms.sum(axis)
        for part in terms.unbind(axis):
            total = total + part
            total = total if self.kept is None else self.kept(total)
        return total

    def _tree(self, lanes: Tensor) -> Tensor:
        while lanes.shape[-1] > 1:
            half = lanes.shape[-1] // 2
            lanes = lanes[..., :half] + lanes[..., half:]
        return lanes[..., 0]

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """The product of matrices, one rank after the other."""
        if self.factors is not None:
            a, b = self.factors(a), self.factors(b)
        n = a.shape[-1] if self.tail or a.shape[-1] < 2 else a.shape[-1] - 1
        step = {"serial": 1, "lanes": LANES, "blocks": BLOCK}[self.order]
        starts = range(0, n, step)
        total = torch.zeros(*a.shape[:-1], b.shape[-1])
        for k in starts if self.order == "serial" else reversed(starts):
            end = min(k + step, n)
            total = total + a[..., k:end] @ b[..., k:end, :]
            total = total if self.kept is None else self.kept(total)
        return total

    def convolution(self, x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
        stride, padding, dilation, transposed, out_padding, groups = rest
        if self.factors is not None:
            x, weight = self.factors(x), self.factors(weight)
        if transposed:
            x, weight, padding = _spread(x, weight, stride, padding, dilation, out_padding, groups)
            stride = [1] * len(stride)
        pads = [p for size in reversed(padding) for p in (size, size)]
        x = torch.nn.functional.pad(x, pads)
        parts = [
            self._convolved(xs, ws, stride, dilation)
            for xs, ws in zip(x.chunk(groups, 1), weight.chunk(groups, 0), strict=True)
        ]
        out = torch.cat(parts, 1)
        return out if bias is None else out + bias.reshape(-1, *[1] * len(stride))

    def _convolved(
        self, x: Tensor, weight: Tensor, stride: Sequence[int], dilation: Sequence[int]
    ) -> Tensor:
        kernel, spatial = weight.shape[2:], x.shape[2:]
        sizes = [
            (s - d * (k - 1) - 1) // step + 1
            for s, k, step, d in zip(spatial, kernel, stride, dilation, strict=True)
        ]
        total = torch.zeros(x.shape[0], weight.shape[0], *sizes)
        places = list(itertools.product(range(weight.shape[1]), *map(range, kernel)))
        places = places if self.tail else places[:-1]
        for c, *place in places if self.order == "serial" else reversed(places):
            cut: list[Any] = [
                slice(p * d, p * d + (size - 1) * step + 1, step)
                for p, d, size, step in zip(place, dilation, sizes, stride, strict=True)
            ]
            at: Any = (slice(None), c, *place)
            factor = weight[at].reshape(1, -1, *[1] * len(sizes))
            total = total + factor * x[:, c : c + 1][(..., *cut)]
            total = total if self.kept is None else self.kept(total)
        return total

    def scan(self, x: Tensor, dim: int, step: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        parts = list(x.unbind(dim))
        for k in range(1, len(parts)):
            parts[k] = step(parts[k - 1], parts[k])
            parts[k] = parts[k] if self.kept is None else self.kept(parts[k])
        return torch.stack(parts, dim) if parts else x


class Kernel(TorchDispatchMode):
    """Runs a reference with this arithmetic; ``sums`` counts what it took over, ``products`` those
    among them that multiply."""

    def __init__(self, arithmetic: Arithmetic) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.arithmetic, self.sums, self.products = arithmetic, 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        own = _OWN.get(name)
        if own is not None:
            self.sums += 1
            self.products += name in _PRODUCTS
            return own(self.arithmetic, *args, **kwargs)
        parts = _PARTS.get(name) or (decomposition_table.get(func) if name in _SPLIT else None)
        if parts is not None:
            with self:
                return parts(*args, **kwargs)
        return func(*args, **kwargs)


def _padded(terms: Tensor, multiple: int) -> Tensor:
    """The terms in groups of so many, the last of which is filled with zeros."""
    padded = torch.nn.functional.pad(terms, (0, -terms.shape[-1] % multiple))
    return torch.unflatten(padded, -1, (-1, multiple))


def _spread(
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    out_padding: Sequence[int],
    groups: int,
) -> tuple[Tensor, Tensor, list[int]]:
    """A transposed convolution as one of an input with zeros between its elements."""
    sizes = [
        (s - 1) * step + 1 + o for s, step, o in zip(x.shape[2:], stride, out_padding, strict=True)
    ]
    wide = torch.zeros(*x.shape[:2], *sizes)
    places: list[Any] = [slice(0, None, step) for step in stride]
    corner: list[Any] = [slice(0, s) for s in x.shape[2:]]
    wide[(..., *places)][(..., *corner)] = x
    axes = list(range(2, weight.ndim))
    flipped = torch.unflatten(weight.flip(axes), 0, (groups, -1)).transpose(1, 2).flatten(0, 1)
    around = [d * (k - 1) - p for d, k, p in zip(dilation, weight.shape[2:], padding, strict=True)]
    return wide, flipped, around


def _sum(a: Arithmetic, x: Tensor, dim: Any = None, keepdim: bool = False, **_: Any) -> Tensor:
    if not x.is_floating_point():
        return x.sum() if dim is None else x.sum(dim, keepdim)
    given = [dim] if isinstance(dim, int) else (dim or range(x.ndim))
    dims = sorted(d % x.ndim for d in given) if x.ndim else []
    if not dims:
        return x.clone()
    rows = x.movedim(dims, list(range(-len(dims), 0))).flatten(-len(dims))
    total = a.total(rows)
    for d in dims if keepdim else ():
        total = total.unsqueeze(d)
    return total


def _mean(a: Arithmetic, x: Tensor, dim: Any = None, keepdim: bool = False, **_: Any) -> Tensor:
    total = _sum(a, x, dim, keepdim)
    return total / (x.numel() / max(total.numel(), 1))


def _variance(
    x: Tensor, dim: Any = None, correction: Any = None, keepdim: bool = False, **given: Any
) -> Tensor:
    correction = given.get("unbiased", correction)
    mean = x.mean(dim, keepdim=True)
    total = ((x - mean) * (x - mean)).sum(dim, keepdim=keepdim)
    count = x.numel() / max(total.numel(), 1) - (1 if correction is None else correction)
    return total / count


def _norm(x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, **_: Any) -> Tensor:
    if math.isinf(ord) or ord == 0:
        largest: Tensor = torch.linalg.vector_norm(x, ord, dim, keepdim)
        return largest
    powers = x * x if ord == 2 else x.abs().pow(ord)
    total: Tensor = powers.sum(dim, keepdim)
    return total.pow(1 / ord)


_OWN: dict[str, Callable[..., Tensor]] = {
    "sum": _sum,
    "mean": _mean,
    "mm": lambda a, x, y: a.product(x, y),
    "bmm": lambda a, x, y: a.product(x, y),
    "mv": lambda a, x, y: a.product(x, y.unsqueeze(-1)).squeeze(-1),
    "dot": lambda a, x, y: a.total(x * y if a.factors is None else a.factors(x) * a.factors(y)),
    "addmm": lambda a, c, x, y, beta=1, alpha=1: c * beta + a.product(x, y) * alpha,
    "baddbmm": lambda a, c, x, y, beta=1, alpha=1: c * beta + a.product(x, y) * alpha,
    "convolution": lambda a, *args: a.convolution(*args),
    "cumsum": lambda a, x, dim, **_: a.scan(x, dim, torch.add),
    "cumprod": lambda a, x, dim, **_: a.scan(x, dim, torch.mul),
}
_PRODUCTS = frozenset(("mm", "bmm", "mv", "dot", "addmm", "baddbmm", "convolution"))
_PARTS: dict[str, Callable[..., Any]] = {
    "var": _variance,
    "var_mean": lambda x, dim=None, correction=None, keepdim=False, **given: (
        _variance(x, dim, correction, keepdim, **given),
        x.mean(dim, keepdim=keepdim),
    ),
    "std": lambda *args, **kwargs: _variance(*args, **kwargs).sqrt(),
    "linalg_vector_norm": _norm,
}
#: Which operations of the framework are taken apart, by its own decompositions.
_SPLIT = frozenset(
    """
    _softmax _log_softmax logsumexp native_layer_norm native_group_norm native_batch_norm
    _native_batch_norm_legit _native_batch_norm_legit_no_training mse_loss huber_loss smooth_l1_loss
    binary_cross_entropy binary_cross_entropy_with_logits soft_margin_loss _fused_rms_norm
    multi_margin_loss dist nansum norm
    """.split()
)


def tf32(x: Tensor) -> Tensor:
    """Rounded to 10 bits of mantissa."""
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def half(x: Tensor) -> Tensor:
    return x.half().float()


HONEST = {name: Arithmetic(name) for name in ("serial", "lanes", "blocks")}
DISHONEST = {
    "fp16 accumulator": Arithmetic(kept=half),
    "TF32 factors": Arithmetic("lanes", factors=tf32),
    "last term dropped": Arithmetic("lanes", tail=False),
}
