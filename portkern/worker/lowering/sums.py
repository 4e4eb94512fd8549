"""Operations over many elements."""

from __future__ import annotations

from typing import Any

import sympy

from portkern.worker.lowering import operations as ops
from portkern.worker.lowering.arguments import LoweredArguments
from portkern.worker.lowering.body import Body, Index, LoweredValue
from portkern.worker.lowering.stages import LoopStage


class Sums(LoweredArguments):
    """Reductions, scans, norms, products and windows: what they make is stored."""

    def _dims(self, value: LoweredValue) -> list[int]:
        return self._dims_of(value, self.arguments.get("dim", self.arguments.get("dims")))

    def _dims_of(self, value: LoweredValue, given: Any) -> list[int]:
        if given in (None, [], ()):
            return list(range(len(value.shape)))
        several = given if isinstance(given, list | tuple) else [given]
        return sorted(dim % max(len(value.shape), 1) for dim in several) if value.shape else []

    def _reduced(self) -> LoweredValue:
        value = self.of(next(iter(self.arguments.values())))
        keep = bool(self.arguments.get("keepdim", False))
        made = ops.reduced(self.name, value, self._dims(value), keep, self.kind, self.lengths)
        return self.graph.kept(made)

    op_sum = op_mean = op_prod = op_amax = op_amin = op_any = op_all = _reduced

    def op_var(self) -> LoweredValue:
        """The variance in two passes, as in one pass what it asks for would cancel."""
        value = self.of(next(iter(self.arguments.values()))).cast(self.kind)
        given = self.arguments.get("dim", self.arguments.get("dims"))
        dims = self._dims_of(value, given)
        mean = self.graph.kept(ops.reduced("mean", value, dims, True, self.kind, self.lengths))
        apart = self._made("sub", value, mean)
        squares = self._made("mul", apart, apart)
        keep = bool(self.arguments.get("keepdim", False))
        total = ops.reduced("sum", squares, dims, keep, self.kind, self.lengths)
        correction = self.arguments.get("correction")
        correction = 1 if correction is None else int(correction)
        count = self.lengths.count([value.shape[d] for d in dims])
        left = LoweredValue(
            (),
            self.kind,
            lambda body, index: (
                f"({self.kind})({count} > {correction} ? {count} - {correction} : 0)"
            ),
        )
        return self._made("div", self.graph.kept(total), left)

    def op_native_group_norm(self) -> list[LoweredValue]:
        """Rows of a group, then scale and shift by channel."""
        value, groups = self.get("input"), self.size(self.get("group"))
        shape = value.shape
        per_group = sympy.Mul(*shape[1:]) / groups
        rows = self.lengths.reshaped(value, (shape[0], groups, per_group))
        normal = self.lengths.reshaped(self._standardised(rows), shape)
        spread = [sympy.Integer(1)] * (len(shape) - 2)

        def by_channel(name: str) -> LoweredValue | None:
            given = self.get(name)
            return given and self.lengths.reshaped(given, (shape[1], *spread))

        return self._scaled(normal, by_channel("weight"), by_channel("bias"))

    def op_native_layer_norm(self) -> list[LoweredValue]:
        value, axes = self.get("input"), len(self.arguments["normalized_shape"])
        shape = value.shape
        outer = shape[: len(shape) - axes]
        rows = self.lengths.reshaped(value, (*outer, sympy.Mul(*shape[len(outer) :])))
        normal = self.lengths.reshaped(self._standardised(rows), shape)
        return self._scaled(normal, self.get("weight"), self.get("bias"))

    def _standardised(self, rows: LoweredValue) -> LoweredValue:
        """Less their mean, over their deviation, along the last axis."""
        last, kind = [len(rows.shape) - 1], rows.kind
        mean = self.graph.kept(ops.reduced("mean", rows, last, True, kind, self.lengths))
        apart = self._made("sub", rows, mean)
        squares = self._made("mul", apart, apart)
        variance = ops.reduced("mean", squares, last, True, kind, self.lengths)
        variance = self.graph.kept(variance)
        shifted = self._made("add", variance, self.operand(self.get("eps"), kind))
        inverse = ops.elementwise("rsqrt", [shifted], shifted.shape, kind)
        assert inverse is not None
        return self._made("mul", apart, self.graph.kept(inverse))

    def _scaled(
        self, normal: LoweredValue, weight: LoweredValue | None, bias: LoweredValue | None
    ) -> list[LoweredValue]:
        made = normal if weight is None else self._made("mul", normal, weight)
        return [made if bias is None else self._made("add", made, bias)]

    def _extreme(self, sign: str) -> object:
        value = self.graph.loaded(self.get("self"))
        dim, keep = self.arguments.get("dim"), bool(self.arguments.get("keepdim", False))
        if isinstance(self.example, tuple | list):
            return [
                self.graph.kept(ops.extreme(value, dim, keep, sign, self.lengths, place))
                for place in (False, True)
            ]
        which = self.name.startswith("arg")
        return self.graph.kept(ops.extreme(value, dim, keep, sign, self.lengths, which))

    def op_max(self) -> object:
        return self._extreme(">")

    def op_min(self) -> object:
        return self._extreme("<")

    op_argmax, op_argmin = op_max, op_min

    def _scanned(self, begin: str, sign: str) -> LoweredValue:
        """A row at a time, in order."""
        value = self.get("self")
        if not value.shape:
            return value.cast(self.kind)  # type: ignore[no-any-return]
        dim = self.arguments["dim"] % len(value.shape)
        kind, shape = self.kind, self.shape
        held = "double" if kind == "float" else kind
        name = self.graph._buffer(kind, shape)

        def write(body: Body, index: Index) -> None:
            total = body.name("a")
            body.say(f"{held} {total} = {begin};")
            with body.loop(self.lengths.text(shape[dim])) as counter:
                place = ops.along(dim, index, counter)
                body.say(f"{total} {sign}= {value.cast(kind).at(body, place)};")
                body.say(f"{name}[{self.lengths.flat(body, place, shape)}] = ({kind}){total};")

        rows = tuple(sympy.Integer(1) if n == dim else one for n, one in enumerate(shape))
        self.graph.loops.stages.append(LoopStage(name, rows, write, work=(shape[dim],)))
        return self.graph._stored(name, shape, kind)

    def op_cumsum(self) -> LoweredValue:
        return self._scanned("0", "+")

    def op_cumprod(self) -> LoweredValue:
        return self._scanned("1", "*")

    def op_mm(self) -> LoweredValue:
        a, b = (self.graph.loaded(self.get(name)) for name in ("self", "mat2"))
        made = ops.product(a, b, self.shape, self.kind, self.lengths)
        return self.graph.kept(made)

    op_bmm = op_mm

    def op_convolution(self) -> LoweredValue:
        x, weight = (self.graph.loaded(self.get(name)) for name in ("input", "weight"))
        n = len(self.shape) - 2
        made = ops.convolution(
            x,
            weight,
            self.get("bias"),
            self.shape,
            self.lengths,
            stride=self.texts(self.arguments["stride"], n),
            padding=self.texts(self.arguments["padding"], n),
            dilation=self.texts(self.arguments["dilation"], n),
            transposed=bool(self.arguments["transposed"]),
            groups=self.lengths.text(self.size(self.arguments["groups"])),
        )
        return self.graph.kept(made)

    def _pooled(self, axes: int, which: str, example: Any) -> LoweredValue:
        window = self.arguments["kernel_size"]
        divisor = self.arguments.get("divisor_override")
        made = ops.pooled(
            self.graph.loaded(self.get("self")),
            example.shape,
            self.lengths,
            window=self.texts(window, axes),
            stride=self.texts(self.arguments["stride"] or window, axes),
            padding=self.texts(self.arguments["padding"], axes),
            dilation=self.texts(self.arguments.get("dilation", 1), axes),
            which=which,
            divisor=None if divisor is None else self.lengths.text(self.size(divisor)),
            padded=bool(self.arguments.get("count_include_pad", True)),
        )
        return self.graph.kept(made)

    def op_max_pool2d_with_indices(self) -> list[LoweredValue]:
        axes = int(self.name[8])
        parts = zip(("max", "place"), self.example, strict=True)
        used = {user.args[1] for user in self.node.users}
        return [
            self._pooled(axes, which, example) if n in used else None  # type: ignore[misc]
            for n, (which, example) in enumerate(parts)
        ]

    op_max_pool3d_with_indices = op_max_pool2d_with_indices

    def op_avg_pool1d(self) -> LoweredValue:
        return self._pooled(int(self.name[8]), "mean", self.example)

    op_avg_pool2d = op_avg_pool3d = op_avg_pool1d
