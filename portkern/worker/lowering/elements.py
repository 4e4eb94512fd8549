"""Operations on elements."""

from __future__ import annotations

from collections.abc import Sequence

import sympy
import torch  # noqa: TID253 - imported where a graph is written, in a worker

from portkern.worker.lowering import operations as ops
from portkern.worker.lowering.arguments import LoweredArguments
from portkern.worker.lowering.body import Body, Index, Kind, LoweredValue
from portkern.worker.lowering.operations import Unwritable
from portkern.worker.lowering.readings import Example


class Elements(LoweredArguments):
    """The operations that compute each element from those at its place."""

    def _elementwise(self) -> LoweredValue | None:
        if not isinstance(self.example, Example):
            return None
        first = ("self", "input", "x")
        given = list(self.arguments.items())
        tensors = [self.of(value) for name, value in given if name in (*first, "other", "exponent")]
        if not tensors:
            return None
        within = self._within(tensors)
        operands = [self.operand(value, within) for value in tensors]
        alpha = self.arguments.get("alpha", 1)
        if self.name in ("add", "sub") and alpha != 1:
            scaled = ops.elementwise(
                "mul",
                [operands[1], self.operand(self.of(alpha), within)],
                operands[1].shape,
                within,
            )
            assert scaled is not None
            operands[1] = scaled
        return ops.elementwise(self.name, operands, self.shape, self.kind)

    def _within(self, operands: Sequence[object]) -> Kind:
        """The kind that numbers beside tensors are written in."""
        kinds: list[Kind] = [one.kind for one in operands if isinstance(one, LoweredValue)]
        if any(map(_is_fraction, operands)) and "double" not in kinds:
            kinds.append("float")
        return ops.widest([*kinds, "int64_t"] if self.kind != "bool" or not kinds else kinds)

    def op_pow(self) -> LoweredValue | None:
        base, exponent = (self.of(value) for value in list(self.arguments.values())[:2])
        if isinstance(exponent, int | float) and exponent in (1, 2, 3, 4, 0.5, -1, -0.5):
            return self._power(base.cast(self.kind), float(exponent))
        kind = self.kind
        return ops.elementwise(
            "pow", [self.operand(base, kind), self.operand(exponent, kind)], self.shape, kind
        )

    def _power(self, base: LoweredValue, exponent: float) -> LoweredValue | None:
        if exponent in (0.5, -1.0, -0.5):
            name = {0.5: "sqrt", -1.0: "reciprocal", -0.5: "rsqrt"}[exponent]
            return ops.elementwise(name, [base], self.shape, self.kind)
        made: LoweredValue | None = base
        for _ in range(int(exponent) - 1):
            assert made is not None
            made = ops.elementwise("mul", [made, base], self.shape, self.kind)
        return made

    def op_div(self) -> LoweredValue | None:
        made = ops.elementwise(
            "div",
            [self.operand(self.get(name), self.kind) for name in ("self", "other")],
            self.shape,
            self.kind,
        )
        mode = self.arguments.get("rounding_mode")
        if mode is None or made is None:
            return made
        if self.kind == "int64_t":
            raise Unwritable(f"{self.node.target} of integers")
        return ops.elementwise(
            {"floor": "floor", "trunc": "trunc"}[mode], [made], self.shape, self.kind
        )

    def op_where(self) -> LoweredValue:
        condition, yes, no = (self.get(name) for name in ("condition", "self", "other"))
        yes, no = self.operand(yes, self.kind), self.operand(no, self.kind)
        return ops.where(condition, yes, no, self.shape, self.kind)

    def op_clamp(self) -> LoweredValue | None:
        value: LoweredValue | None = self.get("self").cast(self.kind)
        for name, limit in (("maximum", "min"), ("minimum", "max")):
            bound = self.get(limit)
            if bound is not None and value is not None:
                operands = [value, self.operand(bound, self.kind)]
                value = ops.elementwise(name, operands, self.shape, self.kind)
        return value

    def op_clamp_min(self) -> LoweredValue | None:
        self.arguments["max"] = None
        return self.op_clamp()

    def op_clamp_max(self) -> LoweredValue | None:
        self.arguments["min"] = None
        return self.op_clamp()

    def op_hardtanh(self) -> LoweredValue | None:
        self.arguments |= {"min": self.arguments["min_val"], "max": self.arguments["max_val"]}
        return self.op_clamp()

    def op__to_copy(self) -> LoweredValue:
        value: LoweredValue = self.of(next(iter(self.arguments.values()))).cast(self.kind)
        if self.example.dtype in (torch.float16, torch.bfloat16):
            raise Unwritable(f"rounding to {self.example.dtype} within the operator")
        return value

    op_convert_element_type = op__to_copy

    def op_full(self) -> LoweredValue:
        number = self.get("fill_value")
        return ops.broadcast(self.operand(number, self.kind), self.shape)

    op_full_like = op_full

    def op_scalar_tensor(self) -> LoweredValue:
        return self.operand(self.get("s"), self.kind)

    def op_zeros(self) -> LoweredValue:
        return ops.broadcast(ops.constant(0, self.kind), self.shape)

    op_zeros_like = op_empty = op_empty_like = op_new_zeros = op_zeros

    def op_ones(self) -> LoweredValue:
        return ops.broadcast(ops.constant(1, self.kind), self.shape)

    op_ones_like = op_new_ones = op_ones

    def op_arange(self) -> LoweredValue:
        start, step = self.arguments.get("start", 0) or 0, self.arguments.get("step", 1)
        begin, by = self.operand(self.of(start), self.kind), self.operand(self.of(step), self.kind)

        def load(body: Body, index: Index) -> str:
            return f"{begin.at(body, ())} + ({self.kind}){index[0]} * {by.at(body, ())}"

        return LoweredValue(self.shape, self.kind, load, 1)

    op_iota = op_arange


def _is_fraction(value: object) -> bool:
    """Whether it is a number, and none of integers."""
    if isinstance(value, sympy.Expr):
        return not value.is_integer
    return isinstance(value, float)
