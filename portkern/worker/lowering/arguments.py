"""One operation of a graph with its arguments: values, numbers and lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sympy
import torch  # noqa: TID253 - imported where a graph is written, in a worker

from portkern.worker.lowering import operations as ops
from portkern.worker.lowering.body import Kind, LoweredValue, scalar
from portkern.worker.lowering.operations import Unwritable, kind_of
from portkern.worker.lowering.readings import Reading

if TYPE_CHECKING:
    from portkern.worker.lowering.graph import Graph

#: Parameters that are written as expressions where they are none of a number; the others choose
#: what is written.
_WRITTEN = frozenset(
    """
    self other x a exponent alpha min max min_val max_val value fill_value s start end index
    size shape sizes repeats split_size split_sizes length N C HxW group groups normalized_shape pad
    kernel_size stride padding dilation output_padding divisor_override eps storage_offset
    """.split()
)


class LoweredArguments:
    """The arguments of a node; ``op_`` methods of derived classes say what its operation
    computes."""

    def __init__(self, graph: Graph, reading: Reading, name: str) -> None:
        self.graph, self.node, self.name, self.lengths = graph, reading.node, name, graph.lengths
        schema = reading.node.target._schema  # type: ignore[union-attr]
        self.arguments: dict[str, Any] = {}
        for n, parameter in enumerate(schema.arguments):
            if n < len(reading.args):
                given = reading.args[n]
            else:
                default = parameter.default_value if parameter.has_default_value() else None
                given = reading.kwargs.get(parameter.name, default)
            if _varies(given) and parameter.name not in _WRITTEN:
                raise Unwritable(f"{reading.node.target} with another {parameter.name} by size")
            self.arguments[parameter.name] = given
        self.example = reading.example

    @property
    def shape(self) -> tuple[sympy.Expr, ...]:
        shape: tuple[sympy.Expr, ...] = self.example.shape
        return shape

    @property
    def kind(self) -> Kind:
        return kind_of(self.example.dtype)

    def of(self, argument: object) -> Any:
        """A tensor's value, or the number, length or list that it is."""
        if isinstance(argument, torch.fx.Node):
            return self.graph.values[argument]
        if isinstance(argument, list | tuple):
            return [self.of(one) for one in argument]
        return argument

    def get(self, name: str) -> Any:
        return self.of(self.arguments[name])

    def size(self, value: Any) -> sympy.Expr:
        return value if isinstance(value, sympy.Expr) else sympy.Integer(int(value))

    def texts(self, values: object, count: int) -> list[str]:
        """The texts in C of an option that may stand for all axes."""
        given = values if isinstance(values, list | tuple) else [values]
        texts = [self.lengths.text(self.size(value)) for value in given]
        return texts * count if len(texts) == 1 else texts

    def number(self, value: Any, kind: Kind) -> str:
        """The text in C of a number that may follow from lengths."""
        if not isinstance(value, sympy.Expr):
            return scalar(value, kind)
        write = self.lengths.text if kind == "int64_t" else self.lengths.number
        return f"({kind}){write(value)}"

    def operand(self, value: object, kind: Kind) -> LoweredValue:
        """A number is one element of everything."""
        if isinstance(value, LoweredValue):
            return value
        return LoweredValue((), kind, lambda body, index: self.number(value, kind))

    def _made(self, name: str, first: LoweredValue, second: LoweredValue) -> LoweredValue:
        """An elementwise value, as long as the first, or as the second where that has more axes."""
        made = ops.elementwise(name, [first, second], first.shape, first.kind)
        assert made is not None
        return made


def _varies(given: object) -> bool:
    several = given if isinstance(given, list | tuple) else [given]
    return any(isinstance(one, sympy.Basic) and one.free_symbols for one in several)
