"""Inputs that lie where a graph decides by value: on both sides of the numbers that it clamps at or
compares with, such as the floor of a divisor, and on the halves between what it rounds to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch  # noqa: TID253 - imported where a file is traced, in a worker

from portkern.worker.tracing.counting import Node, operation

#: What is another function on each side of a number.
_DECIDES = frozenset(
    """
    clamp clamp_min clamp_max hardtanh threshold hardshrink softshrink gt ge lt le huber_loss
    smooth_l1_loss
    """.split()
)
_ROUNDS = frozenset("round floor ceil trunc fix".split())
_CONVERTS = frozenset("to _to_copy type_as".split())
#: What gives a scale its largest quotient, as 127 of int8.
_SCALES = frozenset("div mul true_divide".split())
#: Numbers beyond these stand for nothing and for infinity.
_LEAST, _LARGEST = 1e-30, 1e4
#: Numbers that are closer than by this factor are tried together.
_APART = 4.0
#: The most numbers that are tried: more would make a check take long.
_MOST = 3
#: The largest quotient where the graph names none: of int8.
_QUOTIENT = 127


def of(graph: torch.fx.Graph, inputs: Mapping[str, str], floats: Sequence[str]) -> list[str]:
    """Adversaries of these ``floats`` by what the graph does with them; ``inputs``: names of the
    operator's inputs by their nodes'."""
    found: dict[float, list[str]] = {}
    quotients: dict[tuple[str, ...], int] = {}
    floating = {key: name for key, name in inputs.items() if name in floats}
    above: dict[Node, _Above] = {}
    for node in graph.nodes:
        over = _Above.of(node, [above[one] for one in node.all_input_nodes], floating)
        above[node] = over.with_scale(node)
        if not over.inputs or node.op != "call_function":
            continue
        decides, rounds = operation(node) in _DECIDES, _rounds(node)
        if not (decides or rounds) or not _is_of_floats(node):
            continue
        names = [name for key, name in floating.items() if key in over.inputs]
        if rounds:
            quotients.setdefault(tuple(names), over.quotient or _QUOTIENT)
        for number in _numbers(node) if decides else ():
            near = any(1 / _APART < number / other < _APART for other in found)
            if _LEAST <= number <= _LARGEST and not near:
                found[number] = names
    rounding = [f"halves({', '.join(names)}, {most})" for names, most in quotients.items()]
    around = [f"around({', '.join(names)}, {number:g})" for number, names in found.items()]
    return [*around[:_MOST], *rounding[:1]]


def _is_of_floats(node: Node) -> bool:
    value = node.args[0].meta.get("val") if node.args and isinstance(node.args[0], Node) else None
    return isinstance(value, torch.Tensor) and value.is_floating_point()


@dataclass(frozen=True)
class _Above:
    """Sources of a node: inputs by their nodes' names, and the whole number by which the
    nearest scale is made, 0 for none."""

    inputs: frozenset[str] = frozenset()
    quotient: int = 0

    @classmethod
    def of(cls, node: Node, sources: Sequence[_Above], floating: Mapping[str, str]) -> _Above:
        inputs = frozenset((node.name,)) if node.name in floating else frozenset[str]()
        for one in sources:  # a set that holds all the others is shared, not copied
            inputs = inputs if one.inputs <= inputs else one.inputs | inputs
        return cls(inputs, next((one.quotient for one in sources[::-1] if one.quotient), 0))

    def with_scale(self, node: Node) -> _Above:
        """The same, seen from the nodes that use this one."""
        given = _numbers(node) if operation(node) in _SCALES else []
        whole = (int(n) for n in given if n == int(n) and 2 < n < 1 << 16)
        return replace(self, quotient=next(whole, self.quotient))


def _rounds(node: Node) -> bool:
    """Whether it makes whole numbers of others."""
    made = node.meta.get("val")
    if operation(node) in _ROUNDS:
        return True
    if operation(node) not in _CONVERTS or not isinstance(made, torch.Tensor):
        return False
    return not made.is_floating_point() and made.dtype != torch.bool


def _numbers(node: Node) -> list[float]:
    """The sizes of the numbers that an operation is given."""
    given = [*node.args[1:], *node.kwargs.values()]
    numbers = [one for one in given if isinstance(one, int | float) and not isinstance(one, bool)]
    return [abs(float(one)) for one in numbers if 0 < abs(one) < math.inf]
