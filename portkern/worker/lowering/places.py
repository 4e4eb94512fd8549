"""Operations that say where an element comes from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sympy

from portkern.worker.lowering import operations as ops
from portkern.worker.lowering.arguments import LoweredArguments
from portkern.worker.lowering.body import Body, Index, LoweredValue


class Places(LoweredArguments):
    """Views, and reads by index."""

    def op_view(self) -> LoweredValue:
        return self.lengths.reshaped(self.get("self"), self.shape)

    op__unsafe_view = op_reshape = op_squeeze = op_unsqueeze = op_view_copy = op_view

    def op_expand(self) -> LoweredValue:
        return ops.broadcast(self.get("self"), self.shape)

    def op_broadcast_in_dim(self) -> LoweredValue:
        value, dims = self.get("a"), self.arguments["broadcast_dimensions"]

        def places(body: Body, index: Index) -> Index:
            return tuple(
                "0" if length == 1 else index[dim]
                for dim, length in zip(dims, value.shape, strict=True)
            )

        return ops.moved(value, self.shape, places)

    def op_permute(self) -> LoweredValue:
        return ops.permuted(self.get("self"), self.arguments["dims"])

    def op_transpose(self) -> LoweredValue:
        value = self.get("self")
        order = list(range(len(value.shape)))
        a, b = self.arguments["dim0"], self.arguments["dim1"]
        order[a], order[b] = order[b], order[a]
        return ops.permuted(value, order)

    def op_t(self) -> LoweredValue:
        value = self.get("self")
        return ops.permuted(value, list(reversed(range(len(value.shape)))))

    def op_select(self) -> LoweredValue:
        value, dim = self.get("self"), self.arguments["dim"]
        dim %= len(value.shape)
        text = self._from_start(self.size(self.get("index")), value.shape[dim])
        return ops.moved(value, self.shape, lambda body, i: (*i[:dim], text, *i[dim:]))

    def op_slice(self) -> LoweredValue:
        value: LoweredValue = self.get("self")
        dim = self.arguments["dim"] % len(value.shape)
        by = int(self.arguments["step"])
        start = self._from_start(self.size(self.get("start") or 0), value.shape[dim])
        if start == "0" and by == 1 and value.shape == self.shape:
            return value
        return ops.moved(
            value,
            self.shape,
            lambda body, i: ops.along(dim, i, body.let("int64_t", f"{i[dim]} * {by} + {start}")),
        )

    def _from_start(self, at: sympy.Expr, length: sympy.Expr) -> str:
        """A place that Python counts from the end where it is negative."""
        if at.is_nonnegative:
            return self.lengths.text(at)
        back = self.lengths.text(at + length)
        if at.is_negative:
            return back
        ahead = self.lengths.text(at)
        return f"({ahead} < 0 ? {back} : {ahead})"

    def op_split_with_sizes(self) -> list[LoweredValue]:
        return self._split([self.size(size) for size in self.get("split_sizes")])

    def op_split(self) -> list[LoweredValue]:
        dim = self.arguments["dim"]
        return self._split([part.shape[dim] for part in self.example])

    op_chunk = op_unsafe_split = op_split

    def _split(self, sizes: Sequence[sympy.Expr]) -> list[LoweredValue]:
        value = self.get("self")
        dim = self.arguments["dim"] % len(value.shape)
        parts, start = [], sympy.Integer(0)
        for size in sizes:
            text = self.lengths.text(start)
            shape = (*value.shape[:dim], size, *value.shape[dim + 1 :])
            parts.append(ops.moved(value, shape, _shifted(dim, text)))
            start = start + size
        return parts

    def op_unbind(self) -> list[LoweredValue]:
        value = self.get("self")
        dim = self.arguments["dim"] % len(value.shape)
        shape = (*value.shape[:dim], *value.shape[dim + 1 :])
        return [
            ops.moved(value, shape, lambda body, i, n=n: (*i[:dim], str(n), *i[dim:]))  # type: ignore[misc]
            for n in range(len(self.example))
        ]

    def op_cat(self) -> LoweredValue:
        values = [value for value in self.get("tensors") if value.shape != (0,)]
        dim = self.arguments["dim"] % len(self.shape)
        return ops.joined(values, dim, self.shape, self.lengths, self.kind)

    def op_stack(self) -> LoweredValue:
        dim = self.arguments["dim"] % len(self.shape)
        one = sympy.Integer(1)
        values = [
            self.lengths.reshaped(value, (*value.shape[:dim], one, *value.shape[dim:]))
            for value in self.get("tensors")
        ]
        return ops.joined(values, dim, self.shape, self.lengths, self.kind)

    def op_flip(self) -> LoweredValue:
        value = self.get("self")
        dims = [dim % len(value.shape) for dim in self.arguments["dims"]]

        def places(body: Body, index: Index) -> Index:
            return tuple(
                body.let("int64_t", f"{self.lengths.text(value.shape[n])} - 1 - {counter}")
                if n in dims
                else counter
                for n, counter in enumerate(index)
            )

        return ops.moved(value, self.shape, places)

    def op_repeat(self) -> LoweredValue:
        value = self.get("self")
        ahead = len(self.shape) - len(value.shape)

        def places(body: Body, index: Index) -> Index:
            return tuple(
                "0" if length == 1 else body.let("int64_t", f"{i} % {self.lengths.text(length)}")
                for i, length in zip(index[ahead:], value.shape, strict=True)
            )

        return ops.moved(value, self.shape, places)

    def op_constant_pad_nd(self) -> LoweredValue:
        value = self.get("self")
        pads = ops.pairs(self.get("pad"))
        steps = [
            (len(value.shape) - 1 - n, self.lengths.text(self.size(before)))
            for n, (before, after) in enumerate(pads)
            if not (before == 0 and after == 0)
        ]
        fill = self.number(self.arguments["value"] or 0, self.kind)
        return ops.within(value, self.shape, steps, self.lengths, fill)

    def op_as_strided(self) -> LoweredValue | None:
        """A tensor that lies as it is asked for, or row by row."""
        value, source = self.get("self"), self.node.args[0].meta["val"]  # type: ignore[union-attr]
        size, stride = ([self.size(one) for one in self.arguments[n]] for n in ("size", "stride"))
        lies = [self.lengths.of(one) for one in source.stride()]
        beside = zip(size, stride, lies, strict=False)
        offset, begins = self.arguments["storage_offset"], source.storage_offset()
        same = offset is None or self.size(offset) == self.lengths.of(begins)
        if same and tuple(size) == value.shape and all(n == 1 or a == b for n, a, b in beside):
            return value  # type: ignore[no-any-return]
        if not source.is_contiguous() or begins != 0:
            return None
        start = self.lengths.text(self.size(offset or 0))
        steps = [self.lengths.text(one) for one in stride]

        def places(body: Body, index: Index) -> Index:
            along = [f"{i} * {step}" for i, step in zip(index, steps, strict=True)]
            place = body.let("int64_t", " + ".join([start, *along]))
            return self.lengths.split(body, place, value.shape)

        return ops.moved(value, size, places)

    def op_copy(self) -> LoweredValue:
        """The values that a tensor is written over with."""
        return ops.broadcast(self.get("src"), self.shape).cast(self.kind)

    def op_diagonal(self) -> LoweredValue | None:
        value = self.get("self")
        if self.arguments["offset"] != 0 or len(value.shape) != 2:
            return None
        return ops.moved(value, self.shape, lambda body, i: (i[0], i[0]))

    def op_index_select(self) -> LoweredValue:
        value, index = self.get("self"), self.get("index")
        dim = self.arguments["dim"] % len(value.shape)
        return ops.moved(
            value, self.shape, lambda body, i: ops.along(dim, i, index.at(body, (i[dim],))), 1
        )

    def op_gather(self) -> LoweredValue:
        value, index = self.get("self"), self.get("index")
        dim = self.arguments["dim"] % max(len(value.shape), 1)
        return ops.moved(value, self.shape, lambda body, i: ops.along(dim, i, index.at(body, i)), 1)

    def op_embedding(self) -> LoweredValue:
        table, index = self.get("weight"), self.get("indices")
        return ops.moved(table, self.shape, lambda body, i: (index.at(body, i[:-1]), i[-1]), 1)

    def op_index(self) -> LoweredValue | None:
        """Places from tensors that broadcast together, beside each other."""
        value = self.get("self")
        given = self.get("indices")
        given = [*given, *[None] * (len(value.shape) - len(given))]
        used = [n for n, index in enumerate(given) if index is not None]
        if used != list(range(used[0], used[-1] + 1)) or any(given[n].kind == "bool" for n in used):
            return None
        width = max(len(given[n].shape) for n in used)
        first = used[0]
        shape = self.shape[first : first + width]
        spread = {n: ops.broadcast(given[n], shape) for n in used}

        def places(body: Body, index: Index) -> Index:
            at = index[first : first + width]
            inner = [*index[:first]]
            for n in used:
                place = spread[n].at(body, at)
                length = self.lengths.text(value.shape[n])
                inner.append(body.let("int64_t", f"{place} < 0 ? {place} + {length} : {place}"))
            return (*inner, *index[first + width :])

        return ops.moved(value, self.shape, places, 1)

    op__unsafe_index = op_index


def _shifted(dim: int, text: str) -> Callable[[Body, Index], Index]:
    def places(body: Body, index: Index) -> Index:
        if text == "0":
            return index
        return ops.along(dim, index, body.let("int64_t", f"{index[dim]} + {text}"))

    return places
