"""How large the error of a sum may be that is added in float32 in some order: one rule for each
operation of the framework that adds.

A chain of additions errs by the sum of its partial sums, each times an independent roundoff
(Higham, Accuracy and Stability of Numerical Algorithms, 4.2), so by ``sqrt(n)`` of the largest. The
largest partial sum is the natural order's; in another order, unless it is made to be bad, it is
about the 2-norm of the terms. Terms that are equal are rounded alike, so that their errors add up:
``n`` terms of ``d`` equally frequent values err by ``n / sqrt(d)``. So are different ones that are
off the grid of the partial sums by the same, as squares of few-bit numbers about their mean.

All sizes are float64 tensors of the output's shape and device, in units of float32's roundoff.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch  # noqa: TID253 - imported where a budget is derived, by derived_budget alone
from torch import Tensor  # noqa: TID253
from torch._ops import OpOverload  # noqa: TID253

UNIT = 2.0**-24
#: The multiple of the largest partial sum and of the terms' 2-norm, per roundoff.
CHAIN = 0.5
#: The multiple of the root of the number of terms, by how many grid steps they are off together by
#: chance: two standard deviations of that many uniform on (-1/2, 1/2).
CHANCE = 2 / math.sqrt(12)
#: Binades, from that of the largest partial sum down, whose grids terms are rounded to.
BINADES = 2
#: Terms of a row that are looked at for equal ones; fewer where there are many rows.
SAMPLE, FEWEST_SAMPLED, SAMPLED_AT_ONCE = 1024, 256, 1 << 18
#: Parts of a product after which partial sums are looked at.
PARTS = 8
#: Pooling windows are small, and their terms come in any order.
LEAST_WINDOW = 9
#: Elements of rows that are worked on at once.
AT_ONCE = 1 << 21

#: Dimensions as the framework takes them: several, one, or all.
Dims: TypeAlias = Sequence[int] | int | None
#: Takes the operation, its output, and its arguments.
SumError = Callable[..., Tensor]


def chain(n: Tensor | float, different: Tensor | float, largest: Tensor, norm: Tensor) -> Tensor:
    values = torch.as_tensor(different, dtype=torch.float64, device=largest.device)
    return (largest + norm) * (CHAIN * n / values.sqrt())


def different(rows: Tensor, grid: Tensor) -> Tensor:
    """How many values the terms of each row have, as far as ``grid`` tells them apart, each counted
    by how often it is there: as many as equally frequent ones that meet as often, which is what
    pairs of a sample say. Zeros add no error."""
    n, count = rows.shape[-1], max(rows.numel() // max(rows.shape[-1], 1), 1)
    size = min(SAMPLE, max(SAMPLED_AT_ONCE // count, FEWEST_SAMPLED))
    sample = (rows[..., :: max(n // size, 1)] / grid).nan_to_num(0.0, 0.0, 0.0).round_()
    sample = sample.sort(dim=-1).values
    m = sample.shape[-1]
    place = torch.arange(m, dtype=torch.float64, device=rows.device)
    first = torch.ones_like(sample, dtype=torch.bool)
    first[..., 1:] = sample.diff(dim=-1) != 0
    begun = torch.where(first, place, 0.0).cummax(-1).values
    pairs = torch.where(sample != 0, place - begun, 0.0).sum(-1)
    return (m * (m - 1) / (2 * pairs)).nan_to_num_(n).clamp_(1, max(n, 1))


def dims_of(x: Tensor, dim: Dims) -> list[int]:
    given = [dim] if isinstance(dim, int) else (dim or range(x.ndim))
    return [d % x.ndim for d in given] if x.ndim else []


def of_sum(
    func: OpOverload,
    out: Tensor,
    x: Tensor,
    dim: Dims = None,
    *_: object,
    **__: object,
) -> Tensor:
    """The error of sum, mean and nansum."""
    dims = dims_of(x, dim)
    n = math.prod(x.shape[d] for d in dims)
    if n < 2 or not out.numel():
        return torch.zeros(out.shape, dtype=torch.float64, device=out.device)
    rows = x.detach().movedim(dims, list(range(-len(dims), 0))).reshape(-1, n)
    size = torch.cat([_of_rows(part.nan_to_num(0.0, 0.0, 0.0)) for part in _parts(rows)])
    size = size / n if func.overloadpacket is torch.ops.aten.mean else size
    return size.reshape(out.shape)


def _of_rows(rows: Tensor) -> Tensor:
    n = rows.shape[-1]
    largest = rows.cumsum(-1).abs_().amax(-1, keepdim=True)
    values = different(rows, 2 * UNIT * largest)
    norm = torch.linalg.vector_norm(rows, dim=-1)
    return chain(n, values, largest.squeeze(-1), norm) + _to_one_side(rows, largest)


def _to_one_side(rows: Tensor, largest: Tensor) -> Tensor:
    """The common loss of a sum's terms, beyond chance, when they are rounded to the partial
    sums' grid: terms below half a step of it are lost, others may all be off to the same side."""
    chance = CHANCE * math.sqrt(rows.shape[-1])
    binade = torch.exp2(largest.log2().floor_()).clamp_(min=torch.finfo(torch.float64).tiny)
    most = torch.zeros_like(largest)
    for lower in range(BINADES):
        step = binade * (2.0 * UNIT / 2**lower)
        steps = rows / step
        off = steps.sub_(steps.round()).sum(-1, keepdim=True).abs_()
        torch.maximum(most, (off - chance) * step, out=most)
    return most.squeeze(-1) / UNIT


def _parts(rows: Tensor) -> Iterator[Tensor]:
    step = max(AT_ONCE // rows.shape[-1], 1)
    for start in range(0, len(rows), step):
        yield rows[start : start + step]


def of_scan(func: OpOverload, out: Tensor, x: Tensor, dim: int, *_: object, **__: object) -> Tensor:
    """The error of cumsum: that of the sum of each prefix."""
    x = x.detach()
    if not x.ndim or not x.numel():
        return torch.zeros_like(out, dtype=torch.float64)
    largest = out.abs().cummax(dim).values
    rows, most = x.movedim(dim, -1), largest.amax(dim).unsqueeze(-1)
    values = different(rows, 2 * UNIT * most).unsqueeze(dim)
    count = torch.ones_like(x).cumsum(dim)
    norm = x.square().cumsum(dim).sqrt_()
    return chain(1.0, values / (count * x.shape[dim]), largest, norm)


def of_running_product(
    func: OpOverload, out: Tensor, x: Tensor, dim: Any = None, *_: object, **__: object
) -> Tensor:
    """The error of cumprod and prod: the relative errors of the factors walk at random."""
    if func.overloadpacket is torch.ops.aten.cumprod:
        return out.abs() * torch.ones_like(out).cumsum(dim).sqrt() if out.ndim else out.abs()
    n = math.prod(x.shape[d] for d in dims_of(x, dim))
    return out.abs() * math.sqrt(max(n, 1))


def of_product(
    func: OpOverload, out: Tensor, a: Tensor, b: Tensor, *_: object, **__: object
) -> Tensor:
    """The error of a matrix product, over the last axis of ``a`` and the last but one of ``b``."""
    (a, scale_a), (b, scale_b) = _normalised(a), _normalised(b)
    n = a.shape[-1]
    step = max(-(-n // PARTS), 1)
    running = torch.zeros(out.shape, dtype=torch.float32, device=out.device)
    largest = torch.zeros_like(running)
    for k in range(0, n, step):
        running += a[..., k : k + step] @ b[..., k : k + step, :]
        torch.maximum(largest, running.abs(), out=largest)
    norm = (a.square() @ b.square()).sqrt_()
    if not n:
        return norm.double()
    values = [different(t, 2 * UNIT * t.abs().sum(-1, keepdim=True)) for t in (a, b.mT)]
    both = (values[0].unsqueeze(-1) * values[1].unsqueeze(-2)).clamp_(max=n)
    return chain(n, both, largest.double(), norm.double()) * (scale_a * scale_b)


def of_convolution(
    func: OpOverload, out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any
) -> Tensor:
    """Parts are channels; those of groups and of transposed convolutions come as one. Sums may
    begin with the bias."""
    (x, scale_x), (w, scale_w) = _normalised(x), _normalised(weight)
    n = terms_of(func, x, w, bias, *rest)
    transposed, groups, channels = rest[3], rest[-1], w.shape[1]
    norm = func(x.square(), w.square(), None, *rest).clamp_(min=0).sqrt_()
    scale = scale_x * scale_w
    largest = out.detach().abs().double() / (scale or 1.0)
    if groups == 1 and not transposed:
        running = torch.zeros_like(norm)
        step = max(-(-channels // PARTS), 1)
        for c in range(0, channels, step):
            running += func(x[:, c : c + step], w[:, c : c + step], None, *rest)
            torch.maximum(largest, running.abs().double(), out=largest)
    size = chain(n, float(n), largest, norm.double()) * scale
    if bias is None:
        return size
    start = bias.detach().reshape(-1, *(1,) * (w.ndim - 2))
    return size + begun(out.detach() - start, start, n)


def terms_of(func: OpOverload, a: Tensor, b: Tensor, *rest: Any) -> int:
    """How many products an element of a matrix product or of a convolution is the sum of."""
    if func.overloadpacket is not torch.ops.aten.convolution:
        return a.shape[-1]
    transposed, groups = rest[4], rest[-1]
    channels = b.shape[0] // groups if transposed else b.shape[1]
    return max(math.prod(b.shape[2:]) * channels, 1)


def begun(product: Tensor, start: Tensor, n: int) -> Tensor:
    """How much more a sum of ``n`` terms errs that begins with ``start``, as accumulators are often
    set to a bias: its partial sums are larger by as much, from the first to the last."""
    more = (product + start).abs().maximum(start.abs()) - product.abs()
    return more.double().clamp_(min=0) * math.sqrt(n)


def _normalised(x: Tensor) -> tuple[Tensor, float]:
    """The values at float32 and their scale; squares of values leave the range of float32 unless
    they are near 1."""
    x = x.detach().nan_to_num(0.0, 0.0, 0.0)
    largest = float(x.abs().max()) if x.numel() else 1.0
    scale = largest or 1.0
    return (x.double() / scale).float(), scale


def of_pool(func: OpOverload, out: Tensor, x: Tensor, *rest: object, **kwargs: object) -> Tensor:
    window = max(x.numel() // max(out.numel(), 1), LEAST_WINDOW)
    size: Tensor = func(x.detach().abs(), *rest, **kwargs).double()
    return size * (2 * CHAIN * math.sqrt(window))


def of_index_add(
    func: OpOverload,
    out: Tensor,
    x: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor | float,
    *_: object,
    alpha: float = 1,
    **given: object,
) -> Tensor:
    """The error of index_add, scatter_add and scatter_reduce."""
    reduce = given.get("reduce", _[0] if _ else "sum")
    name = func.overloadpacket.__name__.rstrip("_")
    add = getattr(torch.ops.aten, "scatter_add" if name == "scatter_reduce" else name)
    source = source if isinstance(source, Tensor) else torch.full_like(out, source)[index]
    terms = source.detach().double() * alpha
    size, count = _of_added(out, terms, lambda zeros, t: add(zeros, dim, index, t))
    if reduce == "prod":
        return out.detach().abs() * count.sqrt()
    return size / count if reduce == "mean" else size


def of_index_put(
    func: OpOverload,
    out: Tensor,
    x: Tensor,
    indices: object,
    values: Tensor,
    *_: object,
    **__: object,
) -> Tensor:
    """The error of what index_put accumulates."""
    put, terms = torch.ops.aten.index_put, values.detach().double()
    return _of_added(out, terms, lambda zeros, t: put(zeros, indices, t, True))[0]


def _of_added(
    out: Tensor, terms: Tensor, add: Callable[[Tensor, Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """The error and the number of terms, which come in any order; what they are added to is one."""
    zeros = torch.zeros(out.shape, dtype=torch.float64, device=out.device)
    if not terms.numel():
        return zeros, zeros + 1
    before = out.detach().double() - add(zeros, terms)
    count = add(zeros, torch.ones_like(terms)) + 1
    norm = (add(zeros, terms.square()) + before.square()).sqrt_()
    values = different(terms.reshape(1, -1), 2 * UNIT * terms.abs().max().clamp(min=1e-300))
    largest = torch.maximum(out.detach().abs().double(), before.abs())
    return chain(count, torch.minimum(count, values), largest, norm), count


def of_distances(func: OpOverload, out: Tensor, a: Tensor, *_: object, **__: object) -> Tensor:
    """The error of the p-norms of differences: half the relative error of a sum without a sign."""
    return out.detach().abs() * (math.sqrt(max(a.shape[-1], 1)) + 2)


def of_embedding_bag(
    func: OpOverload, out: Tensor, weight: Tensor, indices: Tensor, *rest: Any, **kwargs: object
) -> Tensor:
    """The error of the bags' sums or means; of a maximum, 0."""
    given = dict(zip(("offsets", "scale", "mode", "sparse", "weights"), rest, strict=False))
    mode = given.get("mode", kwargs.get("mode", 0))
    if mode == 2:
        return torch.zeros_like(out, dtype=torch.float64)
    weights = given.get("weights")
    head = [rest[0], False, 0, False]

    def summed(rows: Tensor, each: Tensor | None) -> Tensor:
        total: Tensor = func(rows, indices, *head, each, *rest[5:], **kwargs)[0]
        return total.double()

    weight = weight.detach()
    squared = None if weights is None else weights.square()
    count = summed(torch.ones_like(weight), None).clamp_(min=1)
    norm = summed(weight.square(), squared).sqrt_()
    largest = summed(weight, weights).abs_()
    size = chain(count, count, largest, norm)
    return size / count if mode == 1 else size


SUM_ERRORS: Mapping[str, SumError] = {
    "sum": of_sum,
    "mean": of_sum,
    "nansum": of_sum,
    "cumsum": of_scan,
    "cumprod": of_running_product,
    "prod": of_running_product,
    "mm": of_product,
    "bmm": of_product,
    "convolution": of_convolution,
    "avg_pool1d": of_pool,
    "avg_pool2d": of_pool,
    "avg_pool3d": of_pool,
    "_adaptive_avg_pool2d": of_pool,
    "_adaptive_avg_pool3d": of_pool,
    "index_add": of_index_add,
    "scatter_add": of_index_add,
    "scatter_reduce": of_index_add,
    "index_put": of_index_put,
    "_unsafe_index_put": of_index_put,
    "_cdist_forward": of_distances,
    "_embedding_bag": of_embedding_bag,
    "_embedding_bag_forward_only": of_embedding_bag,
}
