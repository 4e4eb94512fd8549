"""The computations of a graph's operations, element by element."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import sympy
import torch  # noqa: TID253 - imported where a graph is written, in a worker

from portkern.worker.lowering import pointwise
from portkern.worker.lowering.body import (
    KINDS,
    Body,
    Fold,
    Index,
    Kind,
    LoweredValue,
    Product,
    cast,
    scalar,
)
from portkern.worker.lowering.lengths import Lengths

#: Lengths of the axes.
Shape = Sequence[sympy.Expr]
#: What an operation beyond the four of arithmetic costs, as many of those.
DEAR = 8
_CHEAP = frozenset(
    "add sub mul neg abs relu eq ne lt le gt ge maximum minimum logical_and logical_or".split()
)


class Unwritable(Exception):
    """There is no plain form of what a graph does."""


def kind_of(dtype: torch.dtype) -> Kind:
    if dtype == torch.bool:
        return "bool"
    if not dtype.is_floating_point:
        if dtype.is_complex:
            raise Unwritable(f"elements of {dtype}")
        return "int64_t"
    return "double" if dtype == torch.float64 else "float"


def widest(kinds: Sequence[Kind]) -> Kind:
    return max(kinds, key=KINDS.index)


def broadcast(value: LoweredValue, shape: Sequence[sympy.Expr]) -> LoweredValue:
    """The value broadcast as ``expand`` does it: axes of one element are repeated."""
    given = value.shape
    ahead = len(shape) - len(given)
    repeated = [g == 1 and w != 1 for g, w in zip(given, shape[ahead:], strict=True)]
    if not ahead and not any(repeated):
        return value

    def load(body: Body, index: Index) -> str:
        inner = zip(index[ahead:], repeated, strict=True)
        return value.at(body, tuple("0" if again else counter for counter, again in inner))

    return LoweredValue(tuple(shape), value.kind, load, value.cost)


def constant(number: float | bool, kind: Kind) -> LoweredValue:
    return LoweredValue((), kind, lambda body, index: scalar(number, kind))


def elementwise(
    name: str, operands: Sequence[LoweredValue], shape: Shape, kind: Kind
) -> LoweredValue | None:
    """The value of an elementwise operation; None where the name is not that of one."""
    within: Kind = kind
    if name in pointwise.COMPARING:
        within = widest([operand.kind for operand in operands])
    if name.startswith("logical_"):
        within = "bool"
    if pointwise.written(name, ["a"] * len(operands), within) is None:
        return None
    spread = [broadcast(operand.cast(within), shape) for operand in operands]
    cost = sum(operand.cost for operand in spread) + (1 if name in _CHEAP else DEAR)

    def load(body: Body, index: Index) -> str:
        given = [operand.at(body, index) for operand in spread]
        text = pointwise.written(name, given, within)
        assert text is not None
        made: Kind = "bool" if name in pointwise.COMPARING else within
        return cast(f"({text})", made, kind) if made != kind else text

    return LoweredValue(tuple(shape), kind, load, cost)


def where(
    condition: LoweredValue, yes: LoweredValue, no: LoweredValue, shape: Shape, kind: Kind
) -> LoweredValue:
    parts = [broadcast(condition.cast("bool"), shape)]
    parts += [broadcast(side.cast(kind), shape) for side in (yes, no)]

    def load(body: Body, index: Index) -> str:
        chosen, left, right = (part.at(body, index) for part in parts)
        return f"{chosen} ? {left} : {right}"

    return LoweredValue(tuple(shape), kind, load, sum(part.cost for part in parts) + 1)


# ---- views


def permuted(value: LoweredValue, order: Sequence[int]) -> LoweredValue:
    places = [d % len(value.shape) for d in order]

    def load(body: Body, index: Index) -> str:
        inner = [""] * len(places)
        for counter, place in zip(index, places, strict=True):
            inner[place] = counter
        return value.at(body, tuple(inner))

    return LoweredValue(tuple(value.shape[p] for p in places), value.kind, load, value.cost)


def moved(
    value: LoweredValue, shape: Shape, places: Callable[[Body, Index], Index], cost: int = 0
) -> LoweredValue:
    """The element at an index is another's place."""
    return LoweredValue(
        tuple(shape),
        value.kind,
        lambda body, index: value.at(body, places(body, index)),
        value.cost + cost,
    )


def along(dim: int, index: Index, counter: str) -> Index:
    return (*index[:dim], counter, *index[dim + 1 :])


def within(
    value: LoweredValue, shape: Shape, steps: Sequence[tuple[int, str]], lengths: Lengths, fill: str
) -> LoweredValue:
    """``fill`` where ``index`` less ``offset`` is outside of ``value``; ``steps`` are axes and
    their offsets."""

    def load(body: Body, index: Index) -> str:
        inner, inside = list(index), []
        for dim, offset in steps:
            inner[dim] = body.let("int64_t", f"{index[dim]} - {offset}")
            length = lengths.text(value.shape[dim])
            inside.append(f"{inner[dim]} >= 0 && {inner[dim]} < {length}")
        return guarded(body, " && ".join(inside), value, tuple(inner), fill)

    return LoweredValue(tuple(shape), value.kind, load, value.cost + 2)


def guarded(body: Body, condition: str, value: LoweredValue, index: Index, otherwise: str) -> str:
    """The element where it is one; nothing is read where it is none."""
    name = body.name("g")
    body.say(f"{value.kind} {name} = {otherwise};")
    with body.block(f"if ({condition})"):
        body.say(f"{name} = {value.at(body, index)};")
    return name


def joined(
    values: Sequence[LoweredValue], dim: int, shape: Shape, lengths: Lengths, kind: Kind
) -> LoweredValue:
    parts = [value.cast(kind) for value in values]

    def load(body: Body, index: Index) -> str:
        name = body.name("g")
        body.say(f"{kind} {name} = 0;")
        before: sympy.Expr = sympy.Integer(0)
        for part in parts:
            after = before + part.shape[dim]
            begin, end = lengths.text(before), lengths.text(after)
            with body.block(f"if ({index[dim]} >= {begin} && {index[dim]} < {end})"):
                place = body.let("int64_t", f"{index[dim]} - {begin}")
                body.say(f"{name} = {part.at(body, along(dim, index, place))};")
            before = after
        return name

    return LoweredValue(tuple(shape), kind, load, sum(part.cost for part in parts) + len(parts))


# ---- what goes over many elements


def reduced(
    name: str, value: LoweredValue, dims: Sequence[int], keep: bool, kind: Kind, lengths: Lengths
) -> LoweredValue:
    begin, step = pointwise.STEPS[name]
    held: Kind = kind
    if name in ("sum", "mean", "prod") and kind == "float":
        held = "double"  # plain and exact: a kernel's own business is to do it faster
    if kind == "int64_t" and "INFINITY" in begin:
        begin = "INT64_MIN" if begin.startswith("-") else "INT64_MAX"
    source = value.cast("bool" if name in ("any", "all") else kind)
    kept = [n for n in range(len(value.shape)) if n not in dims]
    shape = [
        sympy.Integer(1) if n in dims else value.shape[n]
        for n in range(len(value.shape))
        if keep or n not in dims
    ]

    count = lengths.count([value.shape[d] for d in dims])

    def take(body: Body, index: Index, counters: Index, names: Sequence[str]) -> None:
        outer = dict(zip(kept, [index[n] for n in kept] if keep else index, strict=True))
        inner = outer | dict(zip(dims, counters, strict=True))
        element = source.at(body, tuple(inner[n] for n in range(len(value.shape))))
        body.say(f"{names[0]} = {stepped(names[0], element)};")

    def stepped(total: str, element: str) -> str:
        said = {"a": total, "v": element}
        return " ".join(said.get(word, word) for word in step.split())

    fold = Fold(
        tuple(value.shape[d] for d in dims),
        ((held, begin),),
        take,
        lambda ours, theirs: [f"{ours[0]} = {stepped(ours[0], theirs[0])};"],
        lambda names: f"({kind})({names[0]}{f' / {count}' if name == 'mean' else ''})",
        wide=held != kind,
        across=len(value.shape) - 1 not in dims,
        how=name,
    )
    simd = "#pragma omp simd reduction(+ : {0})" if name in ("sum", "mean") else ""
    return LoweredValue(tuple(shape), kind, folded(fold, lengths, simd), fold=fold)


def folded(fold: Fold, lengths: Lengths, simd: str = "") -> Callable[[Body, Index], str]:
    """One element after the other; ``simd`` is said of the innermost loop."""

    def load(body: Body, index: Index) -> str:
        names = [body.name("a") for _ in fold.state]
        for name, (held, begin) in zip(names, fold.state, strict=True):
            body.say(f"{held} {name} = {begin};")
        texts = list(map(lengths.text, fold.lengths))
        with nested(body, texts, simd.format(*names)) as counters:
            fold.take(body, index, tuple(counters), names)
        return fold.result(names)

    return load


@contextmanager
def nested(body: Body, lengths: Sequence[str], innermost: str = "") -> Iterator[list[str]]:
    """Loops in each other, and what stands before the innermost."""
    last = max((n for n, length in enumerate(lengths) if length != "1"), default=-1)
    with ExitStack() as stack:
        yield [
            stack.enter_context(body.loop(length, innermost if n == last else ""))
            for n, length in enumerate(lengths)
        ]


def extreme(
    value: LoweredValue, dim: int | None, keep: bool, sign: str, lengths: Lengths, where_: bool
) -> LoweredValue:
    """The largest or smallest along an axis, or where the first of it is; over all without."""
    if dim is None:
        flat = lengths.reshaped(value, (sympy.Mul(*value.shape),))
        found = extreme(flat, 0, False, sign, lengths, where_)
        return lengths.reshaped(found, [sympy.Integer(1)] * len(value.shape)) if keep else found
    dim %= max(len(value.shape), 1)
    shape = [
        sympy.Integer(1) if n == dim else length
        for n, length in enumerate(value.shape)
        if keep or n != dim
    ]

    def take(body: Body, index: Index, counters: Index, names: Sequence[str]) -> None:
        (best, place), [counter] = names, counters
        outer = index if keep else (*index[:dim], "0", *index[dim:])
        v = value.at(body, along(dim, outer, counter))
        better = f"{place} < 0 || {v} {sign} {best} || ({v} != {v} && {best} == {best})"
        with body.block(f"if ({better})"):
            body.say(f"{best} = {v};")
            body.say(f"{place} = {counter};")

    def join(ours: Sequence[str], theirs: Sequence[str]) -> Sequence[str]:
        """Joins two partial results; of equal values, and of two NaN, the first is kept."""
        (best, place), (other, at) = ours, theirs
        nans = f"{other} != {other} && {best} != {best}"
        better = f"{other} {sign} {best} || ({other} != {other} && {best} == {best})"
        first = f"({other} == {best} || ({nans})) && {at} < {place}"
        condition = f"{at} >= 0 && ({place} < 0 || {better} || ({first}))"
        return [f"if ({condition}) {{ {best} = {other}; {place} = {at}; }}"]

    fold = Fold(
        (value.shape[dim],),
        ((value.kind, "0"), ("int64_t", "-1")),
        take,
        join,
        lambda names: names[1] if where_ else names[0],
        across=dim != len(value.shape) - 1,
        how=sign,
    )
    made: Kind = "int64_t" if where_ else value.kind
    return LoweredValue(tuple(shape), made, folded(fold, lengths), fold=fold)


def product(
    a: LoweredValue, b: LoweredValue, shape: Shape, kind: Kind, lengths: Lengths
) -> LoweredValue:
    """A product of matrices, over the last axis of ``a`` and the last but one of ``b``;
    ``shape`` may have batches, which both have."""

    held: Kind = "double" if kind in ("float", "double") else "int64_t"

    def take(body: Body, index: Index, counters: Index, names: Sequence[str]) -> None:
        [k], [total] = counters, names
        left = a.at(body, (*index[:-1], k))
        right = b.at(body, (*index[:-2], k, index[-1]))
        body.say(f"{total} += ({held}){left} * {right};")

    fold = Fold(
        (a.shape[-1],),
        ((held, "0"),),
        take,
        lambda ours, theirs: [f"{ours[0]} += {theirs[0]};"],
        lambda names: f"({kind}){names[0]}",
        wide=kind == "float",
    )
    simd = "#pragma omp simd reduction(+ : {0})"
    return LoweredValue(
        tuple(shape), kind, folded(fold, lengths, simd), fold=fold, product=Product(a, b)
    )


def convolution(
    x: LoweredValue,
    weight: LoweredValue,
    bias: LoweredValue | None,
    shape: Shape,
    lengths: Lengths,
    *,
    stride: Sequence[str],
    padding: Sequence[str],
    dilation: Sequence[str],
    transposed: bool,
    groups: str,
) -> LoweredValue:
    axes = range(len(shape) - 2)
    kind = x.kind
    held = "double" if kind == "float" else kind
    inputs, outputs = x.shape[1], shape[1]
    per_group, outputs_per_group = (
        lengths.text(channels) if groups == "1" else f"({lengths.text(channels)} / {groups})"
        for channels in (inputs, outputs)
    )

    def place(body: Body, out: str, tap: str, n: int) -> tuple[str, str]:
        """The place where the input is read, and the condition on which it is."""
        length = lengths.text(x.shape[n + 2])
        if not transposed:
            at = body.let("int64_t", f"{out} * {stride[n]} - {padding[n]} + {tap} * {dilation[n]}")
            return at, f"{at} >= 0 && {at} < {length}"
        ahead = body.let("int64_t", f"{out} + {padding[n]} - {tap} * {dilation[n]}")
        at = body.let("int64_t", f"{ahead} / {stride[n]}")
        return at, f"{ahead} >= 0 && {ahead} % {stride[n]} == 0 && {at} < {length}"

    def load(body: Body, index: Index) -> str:
        total = body.name("a")
        channel = index[1]
        start = bias.at(body, (channel,)) if bias is not None else "0"
        body.say(f"{held} {total} = {start};")
        group = "0"
        if groups != "1":
            group = body.let("int64_t", f"{channel} / {outputs_per_group}")
        taps = [lengths.text(weight.shape[n + 2]) for n in axes]
        with nested(body, [per_group, *taps]) as (c, *at):
            read = [place(body, index[n + 2], at[n], n) for n in axes]
            with body.block(f"if ({' && '.join(condition for _, condition in read)})"):
                source = c if groups == "1" else body.let("int64_t", f"{group} * {per_group} + {c}")
                element = x.at(body, (index[0], source, *(where_ for where_, _ in read)))
                if transposed:
                    out = channel
                    if groups != "1":
                        out = body.let("int64_t", f"{channel} % {outputs_per_group}")
                    factor = weight.at(body, (source, out, *at))
                else:
                    factor = weight.at(body, (channel, c, *at))
                body.say(f"{total} += ({held}){element} * {factor};")
        return f"({kind}){total}"

    return LoweredValue(tuple(shape), kind, load)


def _taps(
    body: Body, start: Sequence[str], window: Sequence[str], ends: Sequence[str], *, padded: bool
) -> str:
    """The number of places of a window that count: those within the padded image or the image."""
    sides = []
    for begin, size, high in zip(start, window, ends, strict=True):
        end = body.let("int64_t", f"{begin} + {size} < {high} ? {begin} + {size} : {high}")
        low = begin if padded else body.let("int64_t", f"{begin} > 0 ? {begin} : 0")
        sides.append(f"({end} - {low})")
    return f"({' * '.join(sides)})"


def pooled(
    x: LoweredValue,
    shape: Shape,
    lengths: Lengths,
    *,
    window: Sequence[str],
    stride: Sequence[str],
    padding: Sequence[str],
    dilation: Sequence[str],
    which: str,
    divisor: str | None = None,
    padded: bool = True,
) -> LoweredValue:
    """``which``: max, place (of the largest, in the flattened image) or mean."""
    n_axes = len(window)
    lead = len(shape) - n_axes
    extents = [lengths.text(length) for length in x.shape[lead:]]

    def starts(body: Body, index: Index) -> list[str]:
        return [
            body.let("int64_t", f"{index[lead + n]} * {stride[n]} - {padding[n]}")
            for n in range(n_axes)
        ]

    def load(body: Body, index: Index) -> str:
        start = starts(body, index)
        total, place = body.name("a"), body.name("p")
        held = "double" if which == "mean" and x.kind == "float" else x.kind
        body.say(f"{held} {total} = 0;")
        if which != "mean":
            body.say(f"int64_t {place} = -1;")
        with nested(body, window) as taps:
            at = [
                body.let("int64_t", f"{start[n]} + {tap} * {dilation[n]}")
                for n, tap in enumerate(taps)
            ]
            inside = " && ".join(f"{a} >= 0 && {a} < {e}" for a, e in zip(at, extents, strict=True))
            with body.block(f"if ({inside})"):
                v = x.at(body, (*index[:lead], *at))
                if which == "mean":
                    body.say(f"{total} += {v};")
                else:
                    flat = at[0]
                    for a, extent in zip(at[1:], extents[1:], strict=True):
                        flat = f"({flat} * {extent} + {a})"
                    better = f"{place} < 0 || {v} > {total} || {v} != {v}"
                    with body.block(f"if ({better})"):
                        body.say(f"{total} = {v};")
                        body.say(f"{place} = {flat};")
        if which != "mean":
            return place if which == "place" else total
        ends = [f"({extent} + {pad})" for extent, pad in zip(extents, padding, strict=True)]
        count = divisor or _taps(body, start, window, ends if padded else extents, padded=padded)
        return f"({x.kind})({total} / {count})"

    kind: Kind = "int64_t" if which == "place" else x.kind
    return LoweredValue(tuple(shape), kind, load)


def pairs(values: Sequence[object]) -> list[tuple[object, object]]:
    return list(zip(values[::2], values[1::2], strict=True))
