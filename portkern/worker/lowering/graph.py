"""Turns the nodes of an exported graph into loops: which values are stored, and what computes
each."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch  # noqa: TID253 - imported where a graph is written, in a worker
from torch.utils._pytree import tree_leaves  # noqa: TID253

from portkern.worker.lowering.body import Body, Index, Kind, LoweredValue, free, scalar
from portkern.worker.lowering.elements import Elements
from portkern.worker.lowering.lengths import Lengths
from portkern.worker.lowering.operations import Unwritable, kind_of
from portkern.worker.lowering.places import Places
from portkern.worker.lowering.readings import Example, Reading
from portkern.worker.lowering.recurrences import Recurrences
from portkern.worker.lowering.stages import Loops, LoopStage, StageBuffer
from portkern.worker.lowering.sums import Sums

#: Elements of a constant tensor that a source spells out.
MOST_CONSTANT = 4096
#: A value that several read is stored from this cost on.
STORED_FROM = 4


@dataclass(frozen=True)
class Given:
    """A graph with what is known of it: the ``inputs`` that placeholders stand for, the tensors
    that others stand for, and the ``outputs`` in order, each with the C type that it is stored as.
    ``taken``: names that the kernel is called with. ``cells``: tensors that LOAD and STORE read and
    write, where C knows no such elements."""

    readings: Sequence[Reading]
    constants: Mapping[str, torch.Tensor]
    lengths: Lengths
    inputs: Mapping[str, str]
    outputs: Sequence[tuple[str, str]]
    taken: frozenset[str]
    cells: frozenset[str] = frozenset()


class Graph:
    def __init__(self, given: Given) -> None:
        self.given, self.lengths = given, given.lengths
        self.loops = Loops()
        self.values: dict[torch.fx.Node, Any] = {}

    def written(self) -> Loops:
        """Raises Unwritable, which names the operation."""
        for reading in self.given.readings:
            node = reading.node
            if node.op == "placeholder":
                self.values[node] = self._placeholder(node.name, reading.example)
            elif node.op == "call_function":
                self.values[node] = self._called(reading)
            elif node.op == "output":
                self._outputs(reading)
            else:
                raise Unwritable(f"a graph with {node.op}")
        return self.loops

    # ---- beginnings and ends

    def _placeholder(self, name: str, example: Example) -> LoweredValue:
        kind = kind_of(example.dtype)
        if name in self.given.inputs:
            return self._stored(self.given.inputs[name], example.shape, kind)
        if name in self.given.constants:
            return self._constant(self.given.constants[name], name)
        return LoweredValue(example.shape, kind, _missing(name))

    def _constant(self, tensor: torch.Tensor, name: str) -> LoweredValue:
        if tensor.numel() > MOST_CONSTANT:
            raise Unwritable(f"a constant of {tensor.numel()} elements ({name})")
        kind = kind_of(tensor.dtype)
        values = [scalar(value, kind) for value in tensor.detach().reshape(-1).tolist()]
        shape = tuple(sympy.Integer(length) for length in tensor.shape)
        if not shape:
            return LoweredValue((), kind, lambda body, index: values[0])
        known = free(f"c{len(self.loops.constants)}", self.given.taken)
        self.loops.constants[known] = (kind, values)
        return self._stored(known, shape, kind)

    def _stored(self, name: str, shape: tuple[sympy.Expr, ...], kind: Kind) -> LoweredValue:
        """Read from memory, where it is contiguous."""
        cells = self.given.cells

        def load(body: Body, index: Index) -> str:
            body.reads.append((name, index))
            place = self._place(body, name, index, shape)
            return f"LOAD({name}, {place})" if name in cells else f"({kind}){name}[{place}]"

        return LoweredValue(shape, kind, load)

    def _place(self, body: Body, name: str, index: Index, shape: tuple[sympy.Expr, ...]) -> str:
        rows = self.loops.own.get(name, 0)
        return self.lengths.flat(body, index[rows:], shape[rows:])

    def _outputs(self, reading: Reading) -> None:
        returned = [one for one in tree_leaves(reading.args) if isinstance(one, torch.fx.Node)]
        returned = returned[-len(self.given.outputs) :]
        for (name, stored), last in zip(self.given.outputs, returned, strict=True):
            value = self.values[last]
            self.loops.stages.append(
                LoopStage(name, value.shape, self._storing(name, value, stored))
            )

    def _storing(
        self, name: str, value: LoweredValue, stored: str
    ) -> Callable[[Body, Index], None]:
        store = self._store(name, value, stored)
        return lambda body, index: store(body, index, value.at(body, index))

    def _store(
        self, name: str, value: LoweredValue, stored: str
    ) -> Callable[[Body, Index, str], None]:
        def store(body: Body, index: Index, element: str) -> None:
            place = self._place(body, name, index, value.shape)
            held = f"{stored}({element})"
            cell = name in self.given.cells
            body.say(f"STORE({name}, {place}, {held});" if cell else f"{name}[{place}] = {held};")

        return store

    def kept(self, value: LoweredValue) -> LoweredValue:
        """The value stored in a buffer of its own."""
        name = self._buffer(value.kind, value.shape)
        stored = f"({value.kind})"
        write, store = self._storing(name, value, stored), self._store(name, value, stored)
        stage = LoopStage(name, value.shape, write, value.fold, value.product, store)
        self.loops.stages.append(stage)
        return self._stored(name, value.shape, value.kind)

    def _buffer(self, kind: Kind, shape: tuple[sympy.Expr, ...]) -> str:
        name = free(f"t{len(self.loops.buffers)}", self.given.taken)
        self.loops.buffers.append(StageBuffer(name, kind, shape))
        return name

    def loaded(self, value: LoweredValue) -> LoweredValue:
        """The value as one that is read many times: stored where it would be computed again."""
        return self.kept(value) if value.cost else value

    # ---- operations

    def _called(self, reading: Reading) -> object:
        target = reading.node.target
        if target is operator.getitem:
            return self.values[reading.args[0]][reading.args[1]]
        packet = getattr(target, "overloadpacket", None)
        if packet is None:
            raise Unwritable(f"{target}")
        made = GraphCall(self, reading, packet.__name__).value()
        if isinstance(made, LoweredValue) and self._is_shared(reading.node, made):
            return self.kept(made)
        return made

    def _is_shared(self, node: torch.fx.Node, value: LoweredValue) -> bool:
        users = [user for user in node.users if user.op != "output"]
        shared = len(users) > 1 or len(node.users) > len(users) > 0
        least = 1 if any(map(_is_extreme, users)) else STORED_FROM
        return shared and value.cost >= least


#: What keeps elements as they are.
_VIEWS = frozenset("view reshape expand permute transpose unsqueeze squeeze clone".split())
_EXTREMES = frozenset("amax amin max min".split())


def _is_extreme(user: torch.fx.Node) -> bool:
    """Whether a largest element is taken from it. What is compared with that has to be the same
    number to the last bit: where a compiler fuses the difference of a product and the largest of
    them, exp overflows in a softmax of large values."""
    name = getattr(getattr(user.target, "overloadpacket", None), "__name__", "")
    return name in _EXTREMES or (name in _VIEWS and any(map(_is_extreme, user.users)))


def _missing(name: str) -> Callable[[Body, Index], str]:
    def load(body: Body, index: Index) -> str:
        raise Unwritable(f"the values of {name}, which is not an input")

    return load


class GraphCall(Elements, Places, Sums, Recurrences):
    """One operation, by its name."""

    def value(self) -> object:
        method = getattr(self, f"op_{self.name}", None)
        made = method() if method is not None else self._elementwise()
        if made is None:
            raise Unwritable(f"{self.node.target}{_line(self.node)}")
        return made


def _line(node: torch.fx.Node) -> str:
    """The line of the file that the node comes from, where it has one."""
    frames = [one for one in (node.meta.get("stack_trace") or "").splitlines() if "File" in one]
    return f" ({frames[-1].strip()})" if frames else ""
