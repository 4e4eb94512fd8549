"""Loops as kernels over blocks of elements, in Python: rows that lanes share, tiles of products,
and a lane for each element of the rest."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from portkern.spec.op import CELL, Signature
from portkern.worker.lowering import row_folds, schedule
from portkern.worker.lowering.body import Body, Index, Kind, free
from portkern.worker.lowering.lanes import LoweredLanes, Spread, Term
from portkern.worker.lowering.lengths import Lengths
from portkern.worker.lowering.operations import Unwritable
from portkern.worker.lowering.schedule import Group
from portkern.worker.lowering.stages import Loops, LoopStage, StageBuffer

_NAME = re.compile(r"[A-Za-z_]\w*")
#: Names of the modules that kernels import, and of what their programs are.
RESERVED = frozenset(
    "torch triton tl jax jnp pl plt partial BLOCK ROWS TILE BLOCK_M BLOCK_N BLOCK_K zero row col "
    "live tile depth step total left right highest interpret state block rows_".split()
)
#: The sides of a product: an operand's tile has a shape, the axis beside the depth with its block,
#: and how both lie.
_SIDES = {
    "left": ("(BLOCK_M, BLOCK_K)", "row", "BLOCK_M", "[:, None]", "[None, :]"),
    "right": ("(BLOCK_K, BLOCK_N)", "col", "BLOCK_N", "[None, :]", "[:, None]"),
}
#: What elements of a tensor are computed as, by its dtype.
_COMPUTED: Mapping[str, Kind] = {"bool": "bool", "float64": "double"}


@dataclass(frozen=True)
class BlockKernel:
    """A function of the tensors and numbers that are ``given``, which writes those that are
    ``written``. ``blocks``: of which of its constants a program is so large, and the length on the
    host that programs of it go over."""

    name: str
    lines: Sequence[str]
    given: Sequence[str]
    written: Sequence[str]
    how: str
    counts: Mapping[str, str]
    called: frozenset[str]


class BlockKernels(ABC):
    """``axis_spread``: how far an axis is known in a kernel. Kernels of rows and of elements are
    told their ``total``."""

    def __init__(self, loops: Loops, lengths: Lengths, signature: Signature) -> None:
        self.loops, self.lengths, self.signature = loops, lengths, signature
        tensors = (*signature.inputs, *signature.outputs)
        self.numbers = [*signature.axes, *(scalar.name for scalar in signature.scalars)]
        self.taken = frozenset({*self.numbers, *(tensor.name for tensor in tensors)})
        for name in sorted(self.taken & RESERVED):
            raise Unwritable(f"a tensor or axis called {name}, which kernels call something else")
        self.pointers = {tensor.name: _computed(tensor.dtype) for tensor in tensors}
        self.pointers |= {buffer.name: buffer.kind for buffer in loops.buffers}
        self.pointers |= {name: kind for name, (kind, _) in loops.constants.items()}

    @abstractmethod
    def lanes(self, registers: Mapping[str, Kind]) -> LoweredLanes: ...

    @abstractmethod
    def prologue(self, lanes: LoweredLanes, how: str) -> None:
        """Says zero, live and what lanes go over."""

    def kernels(self) -> list[BlockKernel]:
        groups = [part for one in schedule.fused(self.loops, self.taken) for part in _parts(one)]
        if not self.has_barriers:
            own = schedule.private(groups, self.loops, self.taken)
            groups = [
                part
                for one in groups
                for part in (_alone(one) if self._is_read_across(one, own) else [one])
            ]
        own = schedule.private(groups, self.loops, self.taken)
        kernels = []
        for number, group in enumerate(groups):
            registers = self._registers(group, own)
            self.loops.own = {name: own[name] for name in registers}
            kernels.append(self._kernel(free(f"_group{number}", self.taken), group, registers))
        self.loops.own = {}
        self.scratch = [b for b in self.loops.buffers if any(b.name in k.given for k in kernels)]
        return kernels

    scratch: Sequence[StageBuffer] = ()
    #: Whether lanes of a program can read what others of it have stored.
    has_barriers: bool
    #: The module of functions on blocks, and a program's number.
    arrays: str
    program: str

    def _is_read_across(self, group: Group, own: Mapping[str, int]) -> bool:
        written = {stage.buffer for stage in group.stages} - {*self._registers(group, own)}
        return any(
            name in written
            for stage in group.stages
            for name, _ in schedule.reads(stage, self.taken)
        )

    def _registers(self, group: Group, own: Mapping[str, int]) -> dict[str, Kind]:
        """Private buffers of one element in each row."""
        names = {stage.buffer for stage in group.stages}
        return {
            buffer.name: buffer.kind
            for buffer in self.loops.buffers
            if buffer.name in names & own.keys()
            and len(group.stages) > 1
            and all(length == 1 for length in buffer.shape[group.rows :])
        }

    def _kernel(self, name: str, group: Group, registers: Mapping[str, Kind]) -> BlockKernel:
        lanes = self.lanes(registers)
        for axis in self.signature.axes:
            lanes.names[axis] = Term(axis, "int64_t", self.axis_spread)
        for scalar in self.signature.scalars:
            kind: Kind = "float" if scalar.dtype == "float32" else "int64_t"
            lanes.names[scalar.name] = Term(scalar.name, kind, self.axis_spread)
        for constant in ("BLOCK", "ROWS", "TILE"):
            lanes.names[constant] = Term(constant, "int64_t", "number")
        if _is_tiled(group):
            how, counts = "tiles", self._tiles(lanes, group)
        elif _has_rows(group):
            how, counts = "rows", self._rows(lanes, group)
        else:
            how, counts = "flat", self._flat(lanes, group)
        used = set(_NAME.findall("\n".join([*lanes.lines, *counts.values()])))
        given = [one for one in (*self.pointers, *self.numbers) if one in used - registers.keys()]
        written = [s.buffer for s in group.stages if s.buffer not in registers]
        host = {key: self.on_host(text) for key, text in counts.items()}
        return BlockKernel(name, lanes.lines, given, written, how, host, frozenset(lanes.called))

    axis_spread: Spread

    def on_host(self, text: str) -> str:
        """The text on the host of an expression in C."""
        names = {name: Term(name, "int64_t", "number") for name in self.numbers}
        lanes = self.lanes({})
        lanes.names |= names
        return lanes.number(text).text

    # ---- a lane for an element

    def _flat(self, lanes: LoweredLanes, group: Group) -> dict[str, str]:
        shape = group.stages[0].shape
        total = self.lengths.count(shape)
        lanes.names["row"] = Term("row", "int64_t")
        self.prologue(lanes, "flat")
        body = Body(self.taken | RESERVED)
        index = self.lengths.split(body, "row", shape)
        for stage in group.stages:
            stage.write(body, index)
        read = {name for name, _ in body.reads}
        lanes.read_again = frozenset(s.buffer for s in group.stages if s.buffer in read)
        lanes.write(body.lines)
        return {"total": total}

    # ---- lanes that share a row

    def _rows(self, lanes: LoweredLanes, group: Group) -> dict[str, str]:
        total = self.lengths.count(group.outer)
        lanes.names |= {name: Term(name, "int64_t") for name in ("row", "col")}
        self.prologue(lanes, "rows")
        body = Body(self.taken | RESERVED)
        index = self.lengths.split(body, "row", group.outer)
        lanes.write(body.lines)
        stored: set[str] = set()
        longest = "1"
        for stage in group.stages:
            body = Body(self.taken | RESERVED, after=body.named)
            length = self._row(body, stage, index)
            longest = length if longest == "1" else longest
            if any(name in stored for name, _ in body.reads):
                self.barrier(lanes)
            lanes.write(body.lines)
            if stage.buffer not in lanes.registers:
                stored.add(stage.buffer)
        return {"total": total, "longest": longest}

    @abstractmethod
    def barrier(self, lanes: LoweredLanes) -> None:
        """Writes a barrier before lanes read what others have stored, where the language has
        one."""

    def _row(self, body: Body, stage: LoopStage, outer: Index) -> str:
        """A stage's part in a row; the length that lanes go over."""
        inner = stage.shape[len(outer) :]
        if stage.fold is None or not row_folds.joins(stage.fold):
            count = self.lengths.count(inner)
            if stage.buffer in self.loops.own:  # other lanes of the row read it
                stage.write(body, (*outer, *("0" for _ in inner)))
                return count
            for place in _chunks(body, count, self.taken):
                stage.write(body, (*outer, *self.lengths.split(body, place, inner)))
            return count
        count = self.lengths.count(stage.fold.lengths)
        with body.loop(self.lengths.count(inner)) as each:
            index = (*outer, *self.lengths.split(body, each, inner))
            self._fold(body, stage, index, count)
        return count

    def _fold(self, body: Body, stage: LoopStage, index: Index, count: str) -> None:
        fold = stage.fold
        assert fold and stage.store
        names = [body.name("a") for _ in fold.state]
        for name, (kind, begin) in zip(names, fold.state, strict=True):
            body.say(f"{kind} {name} = {begin};")
        for place in _chunks(body, count, self.taken):
            fold.take(body, index, self.lengths.split(body, place, fold.lengths), names)
        row_folds.join(body, fold, names)
        result = fold.result(names)
        if stage.buffer in self.loops.own:
            stage.store(body, index, result)
            return
        with body.block("if (col == 0)"):
            stage.store(body, index, result)

    # ---- tiles

    def _tiles(self, lanes: LoweredLanes, group: Group) -> dict[str, str]:
        first, *others = group.stages
        assert first.product and first.store
        a, b = first.product.a, first.product.b
        *batch, m, n = first.shape
        counts = {
            "m": self.lengths.text(m),
            "n": self.lengths.text(n),
            "k": self.lengths.text(a.shape[-1]),
            "batches": self.lengths.count(batch),
        }
        lanes.names["tile"] = Term("tile", "int64_t", "scalar")
        lengths = {key: lanes.number(counts[key]).text for key in "mnk"}
        self._tile_begin(lanes, lengths)
        outer = Body(self.taken | RESERVED)
        index = self.lengths.split(outer, "tile", batch)
        lanes.write(outer.lines)
        with lanes.loop("step", self.steps(lengths["k"]), ["total"]):
            after = outer.named
            for side, value, axes in (
                ("left", a, ("row", "depth")),
                ("right", b, ("depth", "col")),
            ):
                self._side_begin(lanes, side, lengths)
                lanes.names |= {axis: Term(axis, "int64_t") for axis in axes}
                body = Body(self.taken | RESERVED, after=after)
                element = value.cast("float").at(body, (*index, *axes))
                lanes.write(body.lines)
                self._side_end(lanes, side, lanes.number(element))
                after = body.named
            self.multiply(lanes)
        self._tile_end(lanes, lengths)
        lanes.names |= {axis: Term(axis, "int64_t") for axis in ("row", "col")}
        lanes.names["total"] = Term("total", "float")
        body = Body(self.taken | RESERVED, after=after)
        place = (*index, "row", "col")
        first.store(body, place, f"({first.fold.state and a.kind})total")  # type: ignore[union-attr]
        for stage in others:
            stage.write(body, place)
        lanes.write(body.lines)
        return counts

    def _tile_begin(self, lanes: LoweredLanes, lengths: Mapping[str, str]) -> None:
        lanes.say(f"tiles_n = {self.tiles(lengths['n'], 'BLOCK_N')}")
        lanes.say(f"tiles_m = {self.tiles(lengths['m'], 'BLOCK_M')}")
        lanes.say(f"tile = {self.program}")
        lanes.say("col0 = tile % tiles_n * BLOCK_N")
        lanes.say("row0 = tile // tiles_n % tiles_m * BLOCK_M")
        lanes.say("tile = tile // (tiles_n * tiles_m)")
        lanes.say(f"total = {self.arrays}.zeros((BLOCK_M, BLOCK_N), {self.arrays}.float32)")

    def _side_begin(self, lanes: LoweredLanes, side: str, lengths: Mapping[str, str]) -> None:
        shape, axis, block, along, depth = _SIDES[side]
        lanes.shape, lanes.zero, lanes.mask = shape, f"zero_{side}", f"live_{side}"
        lanes.say(f"zero_{side} = {self.zeros(shape)}")
        lanes.say(f"{axis} = {axis}0 + {self.span(block)}{along} + zero_{side}")
        lanes.say(f"depth = step * BLOCK_K + {self.span('BLOCK_K')}{depth} + zero_{side}")
        length = lengths["m" if axis == "row" else "n"]
        lanes.say(f"live_{side} = ({axis} < {length}) & (depth < {lengths['k']})")

    def _side_end(self, lanes: LoweredLanes, side: str, element: Term) -> None:
        lanes.say(f"{side} = {self.arrays}.where(live_{side}, {lanes.full(element)}, 0.0)")

    def _tile_end(self, lanes: LoweredLanes, lengths: Mapping[str, str]) -> None:
        lanes.shape, lanes.zero, lanes.mask = "(BLOCK_M, BLOCK_N)", "zero", "live"
        lanes.say(f"zero = {self.zeros(lanes.shape)}")
        lanes.say(f"row = row0 + {self.span('BLOCK_M')}[:, None] + zero")
        lanes.say(f"col = col0 + {self.span('BLOCK_N')}[None, :] + zero")
        lanes.say(f"live = (row < {lengths['m']}) & (col < {lengths['n']})")

    @abstractmethod
    def zeros(self, shape: str) -> str:
        """A block of integers."""

    @abstractmethod
    def span(self, length: str) -> str:
        """The integers below a constant."""

    @abstractmethod
    def tiles(self, length: str, block: str) -> str:
        """How many blocks a length has; at least 1 where kernels run for an empty one too."""

    @abstractmethod
    def steps(self, depth: str) -> str: ...
    @abstractmethod
    def multiply(self, lanes: LoweredLanes) -> None: ...


def _computed(dtype: str) -> Kind:
    if dtype == CELL or dtype.startswith(("float", "bfloat")):
        return _COMPUTED.get(dtype, "float")
    return _COMPUTED.get(dtype, "int64_t")


def _chunks(body: Body, count: str, taken: frozenset[str]) -> Iterator[str]:
    """The places of a row that lanes are at, a block at a time."""
    steps = "1" if count == "1" else f"(({count} + BLOCK - 1) / BLOCK)"
    with body.loop(steps) as step:
        place = "col" if step == "0" else body.let("int64_t", f"{step} * BLOCK + col")
        with body.block(f"if ({place} < {count})"):
            yield place if count != "1" else "0"


def _is_tiled(group: Group) -> bool:
    first = group.stages[0]
    return first.product is not None and first.fold is not None and first.fold.wide


def _has_rows(group: Group) -> bool:
    return any(stage.fold and row_folds.joins(stage.fold) for stage in group.stages) and (
        group.stages[0].product is None
    )


def _parts(group: Group) -> list[Group]:
    """The group as it is where a kernel computes it, else its stages one by one."""
    folds = [stage.fold for stage in group.stages if stage.fold]
    if _is_tiled(group) or (folds and all(map(row_folds.joins, folds)) and _has_rows(group)):
        return [group]
    if group.whole and not _has_rows(group):
        return [group]
    return _alone(group)


def _alone(group: Group) -> list[Group]:
    return [Group([stage], len(stage.shape)) for stage in group.stages]
