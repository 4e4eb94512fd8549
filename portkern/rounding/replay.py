"""One run of a reference at float64 in which each operation of the framework is followed by as much
noise as rounding at float32 could cause there, whatever the order of its additions.

What a float32 kernel errs by where the framework has one operation, others compute by parts
(softmax, norms, losses): those are replaced by their decompositions. Operations that are neither
exact nor pointwise, and for which no rule of :mod:`sum_errors` holds, get the noise of a mean
square and are named in :attr:`Trace.unruled`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch  # noqa: TID253 - imported where a budget is derived, by derived_budget alone
from torch import Tensor  # noqa: TID253
from torch._decomp import decomposition_table  # noqa: TID253
from torch._ops import OpOverload  # noqa: TID253
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: TID253
from torch.utils._pytree import tree_leaves, tree_map  # noqa: TID253

from portkern.rounding.sum_errors import SUM_ERRORS, UNIT, Dims, begun, dims_of, terms_of

aten = torch.ops.aten
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd

#: Roundoffs after an operation that all devices round correctly, and after another: two units in
#: the last place, as CUDA's division and exponential have.
CORRECT, OTHER = 1.0, 4.0
#: Inputs may be off by so many of their own: what a stable algorithm of another shape does.
INPUT = 4.0
CORRECTLY_ROUNDED = frozenset(("add", "sub", "mul", "rsub", "square"))
#: What selects, compares, moves or counts.
EXACT = frozenset(
    """
    squeeze unsqueeze transpose swapaxes swapdims as_strided neg abs relu clamp clamp_min
    clamp_max hardtanh maximum minimum fmax fmin sign where amax amin max min aminmax argmax
    argmin topk sort msort kthvalue median nanmedian mode cummax cummin gather copy index
    index_select take cat stack constant_pad_nd flip roll fill scatter index_fill index_copy
    masked_fill masked_scatter masked_select nonzero unique_dim max_pool2d_with_indices
    max_pool3d_with_indices adaptive_max_pool2d adaptive_max_pool3d max_unpool2d max_unpool3d
    reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d
    replication_pad3d pixel_shuffle pixel_unshuffle channel_shuffle im2col upsample_nearest1d
    upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d
    _upsample_nearest_exact3d floor ceil round trunc zeros_like ones_like full_like empty_like
    rand_like randn_like tril triu embedding repeat repeat_interleave _to_copy clone lift_fresh
    lift_fresh_copy zero new_zeros new_ones new_full new_empty new_empty_strided
    nll_loss_forward slice_scatter select_scatter diagonal_scatter as_strided_scatter all any
    detach expand_copy view_copy diag_embed frexp nan_to_num isnan isinf isfinite
    _local_scalar_dense equal resolve_conj resolve_neg convert_element_type broadcast_in_dim
    device_put threshold bucketize searchsorted copysign split_with_sizes split_with_sizes_copy
    split_copy unbind_copy _reshape_copy unfold_copy _unsafe_view _unsafe_index
    """.split()
)
#: What makes whole numbers of others.
ROUNDING = frozenset("floor ceil round trunc".split())
#: What picks some of its elements by their order.
SELECTING = frozenset("topk sort argsort kthvalue median argmax argmin".split())
#: Products whose sums may begin with what is added to them.
_PRODUCTS = frozenset(("mm", "bmm", "convolution"))
#: Pointwise operations that others compute by parts, whose errors may cancel.
_COMPOSED = frozenset(("mse_loss", "huber_loss", "smooth_l1_loss", "addcmul", "addcdiv", "lerp"))
#: The framework's wide stand-in for its float32.
_WIDENED = {torch.float32: torch.float64, torch.complex64: torch.complex128}
#: Its length is a prime, so that noise does not repeat from row to row.
_POOL = 1048573
#: Elements that get their noise at once: of a size that stays in a processor's cache.
_AT_ONCE = 1 << 17
#: Elements by which a block is judged to have some that float32 holds, after noise a rare thing.
_GLANCE = 64
#: The most errors of sums that are kept from the first run; of later ones only the root mean
#: square.
SIZES_KEPT = 1 << 25
#: Sums that are looked at for equal ones, and the share of those from which noise is equal too.
LOOKED_AT, EQUAL_SHARE = 1 << 14, 1 / 64
#: The part of a value by which noise moves it less far than another choice before it does.
_NEAR = 2.0**-12
#: Bits of a float64 that tell sizes apart, less those that it has beyond float32's.
_BEYOND_FLOAT32 = 28


@dataclass
class Noise:
    """Uniform on (-1, 1), read from a pool from a random place on: drawing anew takes longer than
    most operations. The same on every device."""

    seed: int
    _random: random.Random = field(init=False)
    _pools: dict[torch.device, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        generator = torch.Generator().manual_seed(self.seed)
        drawn = torch.rand(_POOL, dtype=torch.float64, generator=generator)
        self._pools[torch.device("cpu")] = drawn * 2 - 1

    def relative(self, out: Tensor, unit: float, *, rounded: bool = False) -> Tensor:
        """``out`` times 1 + ``unit`` times noise, of each element's own and as much that all
        share: a function may err to one side. Infinities stay; so does, of what is correctly
        ``rounded``, what float32 holds: the next integer, or a sum of few bits."""
        shared = torch.tensor(
            1 + unit * self._random.uniform(-1, 1), dtype=torch.float64, device=out.device
        )
        for part, noise in self._parts(out):
            factor = torch.add(shared, noise, alpha=unit)
            if rounded and bool(_is_held(part.reshape(-1)[:_GLANCE]).any()):
                factor.masked_fill_(_is_held(part), 1.0)
            part.mul_(factor)
        return out

    def absolute(self, out: Tensor, size: Tensor, unit: float) -> Tensor:
        """``out`` plus noise of up to ``size`` times ``unit``."""
        wide = size.expand(out.shape) if size.ndim else size
        if not (wide.is_contiguous() and out.is_contiguous()) or not size.ndim:
            for part, noise in self._parts(out):
                part.add_(noise * (wide if not size.ndim else wide.reshape(part.shape)), alpha=unit)
            return out
        flat = wide.view(-1)
        start = 0
        for part, noise in self._parts(out):
            part.add_(noise * flat[start : start + part.numel()].view(part.shape), alpha=unit)
            start += part.numel()
        return out

    def of_equals(self, out: Tensor, size: Tensor, unit: float) -> Tensor:
        """Errors as :meth:`absolute` makes them, which are the same where ``size`` is the same:
        sums of the same terms in the same order err by the same, which a mean over them does not
        reduce."""
        keys = _keys(size).add_(self._random.randrange(_POOL)).remainder_(_POOL)
        return out.add_(self._pool(out.device)[keys] * size, alpha=unit)

    def _pool(self, device: torch.device) -> Tensor:
        pool = self._pools.get(device)
        if pool is None:
            pool = self._pools[device] = self._pools[torch.device("cpu")].to(device)
        return pool

    def _parts(self, out: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        pool = self._pool(out.device)
        if not out.is_contiguous():  # a flat view is not to be had
            n, start = out.numel(), self._random.randrange(_POOL)
            long = pool if start + n <= _POOL else pool.repeat((start + n) // _POOL + 1)
            yield out, long[start : start + n].view(out.shape)
            return
        flat = out.view(-1)
        for begin in range(0, out.numel(), _AT_ONCE):
            part = flat[begin : begin + _AT_ONCE]
            start = self._random.randrange(_POOL - len(part))
            yield part, pool[start : start + len(part)]


@dataclass
class Decided:
    """Values that were rounded to ``whole`` numbers, and which of them are ``exact``, as a half is
    that comes of whole numbers and powers of two: no order of operations rounds these otherwise."""

    values: Tensor
    whole: Tensor
    exact: Tensor | None = None

    def settled(self, values: Tensor, edge: float) -> bool:
        """Whether noise moves a value off an ``edge`` between whole numbers, where kernels choose
        either; finds what it leaves."""
        same = values == self.values
        self.exact = same if self.exact is None else self.exact & same
        before, after = (one - one.floor() == edge for one in (self.values, values))
        return bool((before & ~after).any())

    def restored(self, out: Tensor, values: Tensor) -> Tensor:
        """The whole numbers of a replay, which of exact values are those of the first run, unless
        what was rounded before made others of them."""
        if self.exact is None:
            return out
        near = (values - self.values).abs() <= _NEAR * (1 + self.values.abs())
        return torch.where(self.exact & near, self.whole, out)


@dataclass
class ReplayTrace:
    """A run of the reference without noise: how large the errors of its sums may be, in the
    order in which they are made, and how many elements its operations made. ``selects``: it takes
    the first few of what it orders, where equal values may be taken in any order, or rounds halves
    that are not exact, either way. ``roundings``: what was rounded, in order."""

    sizes: list[Tensor] = field(default_factory=list)
    equals: list[bool] = field(default_factory=list)
    kept: int = 0
    work: int = 0
    unruled: dict[str, None] = field(default_factory=dict)
    selects: bool = False
    roundings: list[Decided | None] = field(default_factory=list)

    def add(self, size: Tensor) -> None:
        self.kept += size.numel()
        self.equals.append(_has_equals(size))
        self.sizes.append(size if self.kept <= SIZES_KEPT else size.square().mean().sqrt())

    def at(self, place: int, shape: torch.Size) -> Tensor | None:
        """The size of a value at a place; None where this run is not like the first, as the
        reference looks at values."""
        if place >= len(self.sizes):
            return None
        size = self.sizes[place]
        return size if size.ndim == 0 or size.shape == shape else None


class ReferenceReplay(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A run of the reference; without ``noise`` the first, which fills ``trace``. The noise is
    ``strength`` times what one rounding may cost. ``settling``: a run that finds which values are
    exact where they are rounded; quotients by powers of two have no noise in it."""

    def __init__(
        self,
        trace: ReplayTrace,
        noise: Noise | None = None,
        strength: float = 1.0,
        *,
        settling: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.trace, self.noise, self.unit = trace, noise, UNIT * strength
        self.settling = settling
        self._place = self._rounded = 0
        self._product: tuple[Tensor, int] | None = None  # the last, and its sums' terms

    def near(self, inputs: Iterable[Tensor]) -> list[Tensor]:
        """Copies of the inputs, off by as much as a stable algorithm may be."""
        copies = [one.clone() for one in inputs]
        return [self._relative(copy, INPUT) if _is_float(copy) else copy for copy in copies]

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        name = base_name(func)
        mutates = func._schema.is_mutable
        if not mutates and not func.is_view:
            args, kwargs = _widen(args), _widen(kwargs)
        self.trace.selects |= name in SELECTING
        if _is_exact(func, name, args, kwargs):
            out = func(*args, **kwargs)
            if mutates or func.is_view:
                return out
            edge = 0.5 if name == "round" else 0.0
            wide = _widen(out)
            return self._decided(wide, args[0], edge) if _rounds(name, args, out) else wide
        parts = _parts_of(func, name)
        if parts is not None:
            with self:
                made = parts(*args, **{k: v for k, v in kwargs.items() if k != "out"})
                return _stored(made, func, args, kwargs)
        return self._disturbed(func, name, args, kwargs)

    def _disturbed(
        self, func: OpOverload, name: str, args: tuple[Any, ...], kwargs: Mapping[str, object]
    ) -> Any:
        rule = SUM_ERRORS.get(name) if func.namespace in ("aten", "prims") else None
        in_place = func.overloadpacket.__name__.endswith("_")
        before = args[0].clone() if rule is not None and in_place else args[0] if args else None
        out = func(*args, **kwargs)
        if self.noise is None:
            self.trace.work += sum(t.numel() for t in tree_leaves(out) if isinstance(t, Tensor))
        if rule is not None:
            first = out[0] if isinstance(out, tuple) else out
            given = {key: value for key, value in kwargs.items() if key != "out"}
            self._absolute(first, lambda: rule(func, first, before, *args[1:], **given))
            if name in _PRODUCTS:
                self._product = first, terms_of(func, *args)
        elif is_pointwise(func):
            roundoffs = CORRECT if name in CORRECTLY_ROUNDED else OTHER
            exact = _is_exact_quotient(out, args) if self.settling and name == "div" else None
            before_noise = out.clone() if exact is not None else out
            for one in filter(_is_float, tree_leaves(out)):
                self._relative(one, roundoffs, rounded=name in CORRECTLY_ROUNDED)
            if exact is not None:
                out.copy_(torch.where(exact, before_noise, out))
            if name == "add":
                self._begun(out, args)
        else:
            self.trace.unruled[str(func)] = None
            most = max(x.numel() for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor))
            for one in filter(_is_float, tree_leaves(out)):
                self._absolute(one, partial(_mean_square, one, most))
        return out

    def _decided(self, out: Tensor, values: Tensor, edge: float) -> Tensor:
        """The whole numbers of ``values``, noted in the first run and restored in others."""
        place, self._rounded = self._rounded, self._rounded + 1
        trace = self.trace
        if self.noise is None:
            trace.kept += 2 * out.numel()
            held = trace.kept <= SIZES_KEPT
            trace.roundings.append(Decided(values.clone(), out.clone()) if held else None)
            return out
        known = trace.roundings[place] if place < len(trace.roundings) else None
        if known is None or known.whole.shape != out.shape:
            return out
        if self.settling:
            trace.selects |= known.settled(values, edge)
        return known.restored(out, values)

    def _begun(self, out: Tensor, added: tuple[Any, ...]) -> None:
        """Counts what is added to a product as a term that its sums may have begun with."""
        if self._product is None or not _is_float(out):
            return
        product, n = self._product
        for one, other in (added[:2], added[1::-1]):
            if _is_float(one) and isinstance(other, Tensor) and _is_view_of_all(one, product):
                # The product itself may be what an addition in place has written to.
                self._absolute(out, partial(begun, out.detach() - other, other, n))
                self._product = None
                return

    def _absolute(self, out: Tensor, find: Callable[[], Tensor]) -> None:
        place, self._place = self._place, self._place + 1
        if self.noise is None:
            self.trace.add(find().double().nan_to_num_(0.0, 0.0, 0.0))
            return
        size = self.trace.at(place, out.shape)
        size = find().double().nan_to_num_(0.0, 0.0, 0.0) if size is None else size
        if out.is_complex():
            out, size = torch.view_as_real(out), size.unsqueeze(-1) if size.ndim else size
        if place < len(self.trace.equals) and self.trace.equals[place]:
            self.noise.of_equals(out, size, self.unit)
        else:
            self.noise.absolute(out, size, self.unit)

    def _relative(self, out: Tensor, roundoffs: float, *, rounded: bool = False) -> Tensor:
        if self.noise is not None:
            real = torch.view_as_real(out) if out.is_complex() else out
            self.noise.relative(real, self.unit * roundoffs, rounded=rounded)
        return out


class Stored(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A run in which what each of the framework's own operations stores is off by the roundoff of
    the dtype it has in the cell. Without ``noise`` a run in that dtype, which notes them."""

    def __init__(self, dtypes: list[tuple[str, torch.dtype]], noise: Noise | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.dtypes, self.noise, self._place = dtypes, noise, 0

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        name = base_name(func)
        floating = [one for one in tree_leaves(out) if _is_float(one)]
        if not floating or _is_exact(func, name, args, kwargs):
            return out
        if self.noise is None:
            self.dtypes.append((name, floating[0].dtype))
            return out
        place, self._place = self._place, self._place + 1
        if place >= len(self.dtypes) or self.dtypes[place][0] != name:
            raise Unlike(f"{func} at another place than in the cell's dtype")
        if self.dtypes[place][1] in (torch.float16, torch.bfloat16):
            self.noise.relative(floating[0], torch.finfo(self.dtypes[place][1]).eps / 2)
        return out


class Unlike(RuntimeError):
    """A reference does other operations in the cell's dtype than in float64."""


def base_name(func: OpOverload) -> str:
    """The operation's name, the same in place or not."""
    return str(func.overloadpacket.__name__).rstrip("_")


@cache
def is_pointwise(func: OpOverload) -> bool:
    """Whether a function is pointwise, in place or not; only the latter may be tagged."""
    if torch.Tag.pointwise in func.tags:
        return True
    packet = getattr(getattr(torch.ops, func.namespace), base_name(func), None)
    twin = getattr(packet, func._overloadname, None) if packet is not None else None
    return twin is not None and torch.Tag.pointwise in twin.tags


def _is_exact(
    func: OpOverload, name: str, args: tuple[Any, ...], kwargs: Mapping[str, object]
) -> bool:
    if func.is_view or func.namespace not in ("aten", "prims"):
        return bool(func.is_view)
    if name in ("scatter_reduce", "index_reduce"):
        return (args[4] if len(args) > 4 else kwargs.get("reduce")) in ("amax", "amin")
    if name in ("index_put", "_unsafe_index_put", "put"):
        return not (args[3] if len(args) > 3 else kwargs.get("accumulate", False))
    return name in EXACT or not any(map(_is_float, tree_leaves((args, kwargs))))


@cache
def _parts_of(func: OpOverload, name: str) -> Callable[..., object] | None:
    """The same operation made of simpler ones, where others compute it by parts."""
    if func.namespace not in ("aten", "prims"):
        return None
    if name in _REWRITTEN:
        return _REWRITTEN[name]
    if func.has_kernel_for_dispatch_key(_COMPOSITE):  # reached from within a decomposition only
        composite: Callable[..., object] = func.decompose
        return composite
    if name in SUM_ERRORS or (is_pointwise(func) and name not in _COMPOSED):
        return None
    return decomposition_table.get(func)


def _stored(
    made: object, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, object]
) -> Any:
    """Puts what was made where the operation was to write; what else it changes, its parts do."""
    out: Any = kwargs.get("out")
    if out is not None:
        return out.copy_(made)
    return args[0].copy_(made) if func.overloadpacket.__name__.endswith("_") else made


def _widen(values: object) -> Any:
    """float32 inside a reference stands for precision enough; here that is float64."""

    def wide(value: object) -> object:
        if isinstance(value, torch.dtype):
            return _WIDENED.get(value, value)
        if isinstance(value, Tensor) and value.dtype in _WIDENED:
            return value.to(_WIDENED[value.dtype])
        return value

    return tree_map(wide, values)


def _mean_square(out: Tensor, most: int) -> Tensor:
    share = math.sqrt(max(most // max(out.numel(), 1), 1))
    size = out.detach().abs()
    return (size + size.square().mean().sqrt()) * share


def _keys(size: Tensor) -> Tensor:
    """Integers, the same where the sizes are as float32, spread over the pool."""
    bits = size.contiguous().view(torch.int64) >> _BEYOND_FLOAT32
    return (bits * 0x9E3779B1).remainder_(_POOL)


def _has_equals(size: Tensor) -> bool:
    """Whether many sums err by as much as another, as those of equal rows do."""
    flat = size.detach().reshape(-1)
    keys = _keys(flat[:: max(flat.numel() // LOOKED_AT, 1)].clone())
    keys = keys[keys != 0].sort().values
    return bool((keys.diff() == 0).sum() > len(keys) * EQUAL_SHARE)


def _is_held(x: Tensor) -> Tensor:
    """Whether float32 holds each value exactly."""
    return x == x.float()


def _is_exact_quotient(out: Any, args: tuple[Any, ...]) -> Tensor | None:
    """Whether a power of two divides what float32 holds: no kernel's division errs there. Another
    divisor, as 127 of a scale, is exact in some kernels only: a GPU may err by two units."""
    if len(args) != 2 or not _is_float(out) or out.is_complex():
        return None
    a, b = (torch.as_tensor(one, dtype=torch.float64, device=out.device) for one in args)
    is_power = torch.frexp(b).mantissa.abs() == 0.5
    return is_power & _is_held(a) & _is_held(1.0 / b) & _is_held(out)


def _rounds(name: str, args: tuple[Any, ...], out: Any) -> bool:
    """Whether floats become whole numbers."""
    if not args or not isinstance(out, Tensor) or not _is_float(args[0]) or args[0].is_complex():
        return False
    return name in ROUNDING or (
        name == "_to_copy" and not _is_float(out) and out.dtype != torch.bool
    )


def _is_view_of_all(one: Tensor, whole: Tensor) -> bool:
    """Or the same tensor."""
    same = one.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
    return same and one.numel() == whole.numel()


def _is_float(value: object) -> bool:
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


# ---- what the framework has one operation for and others compute by parts


def _var_mean(x: Tensor, *args: Any, **given: Any) -> tuple[Tensor, Tensor]:
    if args and isinstance(args[0], bool):
        args = (None, *args)
    given |= zip(("dim", "unbiased", "keepdim"), args, strict=False)
    dims, keepdim = dims_of(x, given.get("dim")), given.get("keepdim", False)
    correction = given.get("correction", given.get("unbiased"))
    correction = 1 if correction is None else int(correction)
    mean = x.mean(dims, keepdim=True)
    count = math.prod(x.shape[d] for d in dims) - correction
    variance = (x - mean).square().sum(dims, keepdim=keepdim) / max(count, 0)
    return variance, mean if keepdim else mean.reshape(variance.shape)


def _std_mean(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    variance, mean = _var_mean(*args, **kwargs)
    return variance.sqrt(), mean


def _vector_norm(
    x: Tensor, ord: float = 2, dim: Dims = None, keepdim: bool = False, **_: object
) -> Tensor:
    dims = dims_of(x, dim)
    if math.isinf(ord):
        return (x.abs().amax if ord > 0 else x.abs().amin)(dims, keepdim)
    if ord == 0:
        return (x != 0).double().sum(dims, keepdim)
    powers = x * x if ord == 2 else x.abs().pow(ord)
    total = powers.sum(dims, keepdim)
    return total if ord == 1 else total.pow(1 / ord)


def _addmm(c: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    product = a @ b
    out: Tensor = (c if beta == 1 else c * beta) + (product if alpha == 1 else product * alpha)
    return out


def _addbmm(c: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    out: Tensor = c * beta + (a @ b).sum(0) * alpha
    return out


def _logcumsumexp(x: Tensor, dim: int) -> Tensor:
    most = x.amax(dim, keepdim=True)
    most = torch.where(most.isfinite(), most, torch.zeros_like(most))
    return (x - most).exp().cumsum(dim).log() + most


def _trilinear(a: Tensor, b: Tensor, c: Tensor, *dims: list[int], unroll_dim: int = 1) -> Tensor:
    """``dims``: at which places each of the three gets an axis of one, and which are summed."""
    *expanded, over = dims
    for which, places in enumerate(expanded):
        for place in places:
            a, b, c = (t.unsqueeze(place) if i == which else t for i, t in enumerate((a, b, c)))
    return (a * b * c).sum(over)


_REWRITTEN: Mapping[str, Callable[..., object]] = {
    "var_mean": _var_mean,
    "var": lambda *args, **kwargs: _var_mean(*args, **kwargs)[0],
    "std_mean": _std_mean,
    "std": lambda *args, **kwargs: _std_mean(*args, **kwargs)[0],
    "linalg_vector_norm": _vector_norm,
    "norm": lambda x, p=2, dim=None, keepdim=False, **_: _vector_norm(
        x, 2 if p is None else p, dim, keepdim
    ),
    "addmm": _addmm,
    "baddbmm": _addmm,
    "addmv": lambda c, a, b, **kwargs: _addmm(c, a, b, **kwargs),
    "addbmm": _addbmm,
    "mv": lambda a, b: (a @ b.unsqueeze(-1)).squeeze(-1),
    "dot": lambda a, b: (a.unsqueeze(0) @ b.unsqueeze(-1)).reshape(()),
    "trace": lambda x: x.diagonal().sum(),
    "logcumsumexp": _logcumsumexp,
    "_trilinear": _trilinear,
}
