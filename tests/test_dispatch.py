"""Which slice goes to which node when nodes end, join, lag, or are none of ours."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portkern.cells.selection import RunStage, SelectedCell, Selection, host_targets
from portkern.cells.to_record import unroutable
from portkern.evaluator.trial import TrialOptions
from portkern.execution.dispatch import MOST_TRIES, Dispatch, ExecutionNode, Lost
from portkern.execution.slices import Slice, slices
from portkern.records.record import Verdict

HOST = host_targets()[0]
OTHER = "gfx942"


def cells(
    *ops: str, targets: Sequence[str] = (HOST,), stage: RunStage | None = None
) -> list[SelectedCell]:
    asked = Selection(ops or ["relu"], targets, ["cpu", "hip"], ["ci"], ["float32"])
    found = Selection(**{**vars(asked), "stage": stage or RunStage(), "elsewhere": True}).cells()
    return [cell for cell in found if cell.backend.supports(cell.target)]


def parts(count: int, device: str = HOST) -> list[Slice]:
    (cell, *_) = cells()
    return [Slice(f"run{number}", (cell,), TrialOptions(), device) for number in range(count)]


def node(name: str, *targets: str) -> ExecutionNode:
    return ExecutionNode(name, name, frozenset(targets or (HOST,)))


@dataclass(eq=False)
class Task:
    """A task whose node has an answer at ``until``; ``lost`` is why it has none."""

    node: ExecutionNode
    document: str
    until: float
    lost: str = ""
    begins: float = 0.0


@dataclass
class Fake:
    """Nodes that take ``seconds`` for a slice, by their names, in a time of their own. ``losses``:
    the first tasks of a node that are lost."""

    fleet: list[ExecutionNode]
    seconds: Mapping[str, float] = field(default_factory=dict)
    losses: dict[str, int] = field(default_factory=dict)
    joins: dict[float, ExecutionNode] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    now: float = 0.0
    tasks: list[Task] = field(default_factory=list)
    cancelled: list[Task] = field(default_factory=list)
    settled: bool = True
    queued_s: Mapping[str, float] = field(default_factory=dict)

    def nodes(self) -> Sequence[ExecutionNode]:
        return [*self.fleet, *(new for at, new in self.joins.items() if at <= self.now)]

    def submit(self, node: ExecutionNode, document: str) -> object:
        busy = [t for t in self.tasks if t.node == node and t.until > self.now]
        assert not set(busy) - set(self.cancelled), "a node has one owner"
        lost = "it was shot" if self.losses.get(node.name, 0) > 0 else ""
        self.losses[node.name] = self.losses.get(node.name, 0) - 1
        begins = self.now + self.queued_s.get(node.name, 0.0)
        task = Task(node, document, begins + self.seconds.get(node.name, 1.0), lost, begins)
        self.tasks.append(task)
        return task

    def begun(self, handle: object) -> bool:
        assert isinstance(handle, Task)
        return handle.begins <= self.now

    def wait(self, handles: Sequence[object], timeout_s: float) -> Collection[object]:
        tasks = [handle for handle in handles if isinstance(handle, Task)]
        self.now = min(self.now + timeout_s, max(self.now, min(t.until for t in tasks)))
        return [task for task in tasks if task.until <= self.now]

    def result(self, handle: object) -> list[str] | Lost:
        assert isinstance(handle, Task)
        return Lost(handle.lost) if handle.lost else [handle.node.name]

    def cancel(self, handle: object) -> None:
        assert isinstance(handle, Task)
        self.cancelled.append(handle)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Outcome:
    fake: Fake
    answers: list[tuple[str, str]] = field(default_factory=list)  # run, node
    given_up: list[tuple[str, str]] = field(default_factory=list)  # run, why
    notes: list[str] = field(default_factory=list)
    wrong: Mapping[str, str] = field(default_factory=dict)  # by node

    def answered(self, part: Slice, node: ExecutionNode, lines: object) -> str:
        assert lines == [node.name]
        if node.name not in self.wrong:
            self.answers.append((part.run, node.name))
        return self.wrong.get(node.name, "")

    def run(self, asked: Sequence[Slice], *, straggler_s: float = 10.0) -> Outcome:
        dispatch = Dispatch(
            self.fake,
            self.answered,
            lambda part, why: self.given_up.append((part.run, why)),
            self.notes.append,
            node_wait_s=5.0,
            straggler_s=straggler_s,
            clock=lambda: self.fake.now,
            sleep=self.fake.sleep,
        )
        dispatch.run(asked)
        return self


def test_a_lost_slice_goes_to_another_node() -> None:
    said = Outcome(Fake([node("a"), node("b")], losses={"a": 1})).run(parts(4))
    assert sorted(run for run, _ in said.answers) == ["run0", "run1", "run2", "run3"]
    assert not said.given_up
    assert "it was shot" in said.notes[0]


def test_a_slice_that_ends_every_node_is_given_up_with_the_reason() -> None:
    said = Outcome(Fake([node("a")], losses={"a": 100})).run(parts(1))
    assert len(said.fake.tasks) == MOST_TRIES
    assert said.given_up == [("run0", f"{MOST_TRIES} nodes gave no answer; the last: it was shot")]


def test_an_answer_that_is_none_counts_as_lost() -> None:
    said = Outcome(Fake([node("a"), node("b")]), wrong={"a": "got records of 0 cells"}).run(
        parts(3)
    )
    assert {where for _, where in said.answers} == {"b"}
    assert len(said.answers) == 3


def test_a_slow_slice_is_sent_to_an_idle_node_and_the_first_answer_wins() -> None:
    fake = Fake([node("slow"), node("fast")], seconds={"slow": 1000.0})
    said = Outcome(fake).run(parts(3))
    assert len(said.answers) == 3
    assert {where for _, where in said.answers} == {"fast"}
    assert fake.now < 20
    assert [task.node.name for task in fake.cancelled] == ["slow"]
    assert "takes long; it is sent to fast as well" in said.notes[0]


def test_a_slice_is_slow_only_beside_what_others_take() -> None:
    """No slice is sent twice where all take as long."""
    fake = Fake([node("a"), node("b")], seconds={"a": 30.0, "b": 30.0})
    said = Outcome(fake).run(parts(5))
    assert len(fake.tasks) == len(said.answers) == 5


def test_a_slice_that_is_queued_is_not_slow() -> None:
    fake = Fake([node("a"), node("b")], queued_s={"a": 500.0})
    said = Outcome(fake).run(parts(3))
    assert len(fake.tasks) == len(said.answers) == 3
    assert not said.notes


def test_a_slice_waits_for_a_node_that_joins_later() -> None:
    fake = Fake([node("a")], joins={3.0: node("late", OTHER)})
    said = Outcome(fake).run(parts(1, OTHER))
    assert said.answers == [("run0", "late")]


def test_a_slice_that_no_node_may_run_is_given_up_with_what_there_is() -> None:
    fake = Fake([node("a")], refused={"old (1234)": "it has portkern 0.1.0"})
    said = Outcome(fake).run([*parts(1), *parts(1, OTHER)])
    assert said.answers == [("run0", "a")]
    assert said.given_up == [
        (
            "run0",
            f"no node of the cluster is a {OTHER}; nodes: a ({HOST}); "
            "old (1234) is refused: it has portkern 0.1.0",
        )
    ]


def test_of_two_copies_that_end_together_one_is_taken() -> None:
    fake = Fake([node("a"), node("b")], seconds={"a": 1.1, "b": 0.1})
    said = Outcome(fake).run(parts(1), straggler_s=0.0)
    assert len(said.answers) == 1 and not said.given_up


def test_without_a_node_all_is_given_up() -> None:
    said = Outcome(Fake([])).run(parts(2, ""))
    assert [why for _, why in said.given_up] == ["no node; nodes: none"] * 2


def test_what_runs_is_ended_when_the_driver_cannot_keep_an_answer() -> None:
    fake = Fake([node("a"), node("b")], seconds={"b": 50.0})
    dispatch = Dispatch(fake, lambda *_: 1 / 0, lambda *_: None, clock=lambda: fake.now)  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        dispatch.run(parts(2))
    assert [task.node.name for task in fake.cancelled] == ["b"]


@given(
    count=st.integers(1, 8),
    losses=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    seconds=st.lists(st.floats(0.1, 60), min_size=4, max_size=4),
    straggler_s=st.floats(0, 30),
)
def test_each_slice_ends_once_whatever_nodes_do(
    count: int, losses: list[int], seconds: list[float], straggler_s: float
) -> None:
    names = [f"n{number}" for number in range(len(losses))]
    fake = Fake(
        [node(name) for name in names],
        dict(zip(names, seconds, strict=False)),
        dict(zip(names, losses, strict=True)),
    )
    said = Outcome(fake).run(parts(count), straggler_s=straggler_s)
    ended = [run for run, _ in said.answers] + [run for run, _ in said.given_up]
    assert sorted(ended) == sorted(f"run{number}" for number in range(count))
    if sum(losses) < MOST_TRIES:
        assert not said.given_up


# ---- what travels together


def test_kernels_of_one_op_race_where_their_device_is_and_the_rest_is_emulated_anywhere() -> None:
    asked = cells("relu", "softmax", targets=[HOST, OTHER, "gfx1100"])
    made = slices(asked, TrialOptions(), "night", {HOST})
    assert [(part.cells[0].op.name, part.device) for part in made] == [
        ("relu", HOST),
        ("softmax", HOST),
        ("relu", ""),
        ("softmax", ""),
    ]
    assert {cell.target.name for cell in made[2].cells} == {OTHER, "gfx1100"}
    assert sorted(map(id, asked)) == sorted(id(cell) for part in made for cell in part.cells)


def test_only_what_is_asked_for_decides_where_cells_may_go() -> None:
    hardware = slices(
        cells(targets=[OTHER], stage=RunStage("hardware")), TrialOptions(), "night", {HOST}
    )
    emulator = slices(
        cells(targets=[HOST], stage=RunStage("emulator")), TrialOptions(), "night", {HOST}
    )
    assert [part.device for part in hardware] == [OTHER]
    assert [part.device for part in emulator] == [""]


def test_an_answer_has_one_record_of_each_cell() -> None:
    asked = cells("relu", targets=[OTHER])
    (part,) = slices(asked, TrialOptions(), "night", {HOST})
    lines = [unroutable("night", cell, "no reason").to_json() for cell in part.cells]
    assert [record.key for record in part.records(lines[::-1])] == [cell.key for cell in part.cells]
    (other, *_) = cells("softmax", targets=[OTHER])
    for bad in (lines[1:], [*lines, lines[0]], [*lines[1:], lines[1]], []):
        with pytest.raises(ValueError, match="expected 2"):
            part.records(bad)
    with pytest.raises(ValueError, match="expected 2"):
        part.records([*lines[1:], unroutable("night", other, "no reason").to_json()])


def test_a_cell_without_a_node_is_unavailable_with_the_reason() -> None:
    (cell, *_) = cells(targets=[OTHER])
    record = unroutable("night", cell, "no node of the cluster is a gfx942; nodes: none")
    assert record.verdict is Verdict.UNAVAILABLE
    assert record.detail == record.missing == "no node of the cluster is a gfx942; nodes: none"
