"""Which stages share a loop: those that read of each other what the same row has written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sympy

from portkern.worker.lowering.body import Body, Index, free
from portkern.worker.lowering.stages import Loops, LoopStage


@dataclass
class Group:
    """Stages whose first ``rows`` axes are the same. A row of it needs nothing of another row."""

    stages: list[LoopStage]
    rows: int

    @property
    def outer(self) -> tuple[sympy.Expr, ...]:
        return self.stages[0].shape[: self.rows]

    @property
    def is_product(self) -> bool:
        return self.stages[0].product is not None

    @property
    def whole(self) -> bool:
        """Whether each row is an element."""
        return all(len(stage.shape) == self.rows for stage in self.stages)


def alone(loops: Loops) -> list[Group]:
    """The stages as groups, each by itself."""
    return [Group([stage], _own_rows(stage)) for stage in loops.stages]


def fused(loops: Loops, taken: frozenset[str]) -> list[Group]:
    """The stages in as few groups as rows allow; products keep what is done to their elements."""
    groups: list[Group] = []
    for stage in loops.stages:
        if groups and (rows := _joined(groups[-1], stage, taken)):
            groups[-1].stages.append(stage)
            groups[-1].rows = rows
        else:
            groups.append(Group([stage], len(stage.shape)))
    for group in groups:
        if len(group.stages) == 1:
            group.rows = _own_rows(group.stages[0])
    return groups


def private(groups: Sequence[Group], loops: Loops, taken: frozenset[str]) -> dict[str, int]:
    """The number of axes that tell rows apart, for each buffer that no other group reads."""
    readers = {id(group): _read_by(group, taken) for group in groups}
    names = {buffer.name for buffer in loops.buffers}
    own = {}
    for group in groups:
        elsewhere = set().union(*(read for key, read in readers.items() if key != id(group)))
        for stage in group.stages:
            if stage.buffer in names and stage.buffer not in elsewhere:
                own[stage.buffer] = group.rows
    return own


def counters(stage: LoopStage, taken: frozenset[str]) -> Index:
    """Names that its axes are gone over with; axes of one element need none."""
    return tuple(
        "0" if length == 1 else free(f"i{n}", taken) for n, length in enumerate(stage.shape)
    )


def _own_rows(stage: LoopStage) -> int:
    return len(stage.shape) - (1 if stage.fold and stage.fold.across and stage.shape else 0)


def reads(stage: LoopStage, taken: frozenset[str]) -> list[tuple[str, Index]]:
    body = Body(taken)
    stage.write(body, counters(stage, taken))
    return body.reads


def _read_by(group: Group, taken: frozenset[str]) -> set[str]:
    return {name for stage in group.stages for name, _ in reads(stage, taken)}


def _joined(group: Group, stage: LoopStage, taken: frozenset[str]) -> int:
    """How many axes tell rows apart where the stage joins the group; 0 where it cannot."""
    if any(one.fold and one.fold.across for one in (*group.stages, stage)):
        return 0  # their rows are not neighbours in memory
    first = group.stages[0].shape
    rows = 0
    while rows < min(group.rows, len(stage.shape)) and first[rows] == stage.shape[rows]:
        rows += 1
    index = counters(stage, taken)
    written = {one.buffer for one in group.stages}
    for name, read in reads(stage, taken):
        if name in written:
            same = 0
            while same < min(rows, len(read)) and read[same] == index[same]:
                same += 1
            rows = same
    if stage.product is not None or (group.is_product and rows < len(first)):
        return 0
    if group.is_product and (stage.fold or len(stage.shape) > rows):
        return 0
    return rows if any(length != 1 for length in first[:rows]) else 0
