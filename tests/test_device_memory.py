"""Memory of a GPU that the evaluator owns and a worker maps; without a GPU, what is said then."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from portkern import ops
from portkern.evaluator import inputs
from portkern.evaluator.interleaved_timing import InterleavedTiming
from portkern.evaluator.placed_call import PlacedCall
from portkern.evaluator.statistics import TimingPlan
from portkern.evaluator.telemetry import Watch
from portkern.evaluator.timed_buffers import RoundMemory
from portkern.evaluator.timed_draws import TimedDraws, TimedInputs
from portkern.sandbox import device_memory
from portkern.sandbox.device_memory import LINE, DeviceMemory, DeviceMemoryError
from portkern.sandbox.message import Failed
from portkern.sandbox.session import Answered, Session
from portkern.spec import target as targets
from portkern.spec.op import Workload
from portkern.worker import output_guards, protocol

RELU, WORK = ops.load("relu"), Workload("one", {"n": 1000})
DOUBLED = "def run(x):\n    return (x + x,)\n"


@pytest.fixture
def gpu() -> str:
    if not torch.cuda.is_available() or torch.version.cuda is None:
        pytest.skip("no GPU of NVIDIA's")
    return "cuda:0"


@pytest.fixture
def worker(gpu: str) -> Iterator[Session]:
    with Session(("torch",), {}, device=True) as session:
        loaded = session.ask(protocol.Reference(DOUBLED, gpu, compiled=False), timeout_s=120)
        assert isinstance(loaded, Answered), loaded
        yield session


def test_rows_lie_apart_and_begin_where_tensors_do() -> None:
    memory = DeviceMemory("cuda:0")
    one, two = memory.rows((3, 5), "bfloat16", 4), memory.rows((7,), "float32", 2)
    for rows in (one, two):
        assert rows.offset % LINE == rows.stride % LINE == 0
        assert rows.stride >= rows.row(0).nbytes + LINE
    assert two.offset >= one.offset + 4 * one.stride
    assert memory.nbytes == two.offset + 2 * two.stride


def test_a_machine_without_such_memory_says_so_and_times_as_before() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(DeviceMemoryError, match="no driver"):
        DeviceMemory("cuda:0").make(lambda handle: None)
    race = of_relu()
    with Session((), {}) as session:
        assert not race._shares("eager", session)
    assert race.unplaced == ("this GPU's memory cannot be shared: there is no driver of NVIDIA's")


def of_relu() -> InterleavedTiming:
    return InterleavedTiming(
        RELU,
        WORK,
        "float32",
        [(inputs.BASE, inputs.draw(RELU, WORK, "float32", inputs.BASE))],
        TimingPlan(rounds=1),
        30.0,
        {},
        {},
        Watch(targets.load("h200")),
        placed=frozenset({"eager", 0}),
        device="cuda:0",
    )


def test_a_kernel_is_not_at_fault_for_memory_that_the_evaluator_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object) -> None:
        raise DeviceMemoryError("cuMemCreate answered 2")

    race = of_relu()
    race._memory["eager"] = RoundMemory(RELU, WORK, "float32", DeviceMemory("cuda:0"), 1)
    race.rounds[0] = [None]  # type: ignore[list-item]
    monkeypatch.setattr(DeviceMemory, "make", full)
    with Session((), {}) as session:
        assert not race._shares(0, session)
    assert not race.lost and not race.unplaced
    assert race.asked(0) == ("no more of this GPU's memory can be shared: cuMemCreate answered 2")


@pytest.mark.parametrize(
    ("fails", "undone"),
    [
        ("cuMemAddressReserve", ["cuMemRelease"]),
        ("cuMemMap", ["cuMemAddressFree", "cuMemRelease"]),
        ("cuMemSetAccess", ["cuMemUnmap", "cuMemAddressFree", "cuMemRelease"]),
        ("cuMemExportToShareableHandle", ["cuMemUnmap", "cuMemAddressFree", "cuMemRelease"]),
        ("", ["cuMemUnmap", "cuMemAddressFree", "cuMemRelease"]),
    ],
)
def test_memory_that_cannot_be_handed_over_is_given_back(
    fails: str, undone: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []

    class Driver:
        def __getattr__(self, name: str) -> Callable[..., int]:
            def answer(*given: Any) -> int:
                called.append(name)
                if name == "cuMemGetAllocationGranularity":
                    given[0]._obj.value = 1 << 21
                if name == "cuMemExportToShareableHandle":
                    given[0]._obj.value = os.open(os.devnull, os.O_RDONLY)
                return 2 * (name == fails)

            return answer

    def lost(handle: int) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(device_memory, "_driver", Driver)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    memory = DeviceMemory("cuda:0")
    memory.rows((3, 5), "float32", 4)
    with pytest.raises(OSError):
        memory.make(lost)
    assert called[-len(undone) :] == undone
    assert called.count("cuMemRelease") == 1
    memory.close()
    assert called.count("cuMemRelease") == 1


def test_a_worker_on_a_host_maps_no_memory_of_a_gpu() -> None:
    with Session(("torch",), {}) as session, Path("/dev/null").open() as file:
        loaded = session.ask(protocol.Reference(DOUBLED, "cpu", compiled=False), timeout_s=60)
        assert isinstance(loaded, Answered), loaded
        session.give(file.fileno())
        refused = session.ask(protocol.Open(4096), timeout_s=30)
        assert isinstance(refused, Failed), refused
        assert session.alive


def test_the_evaluator_sees_what_a_worker_reads_and_writes(gpu: str, worker: Session) -> None:
    made = RoundMemory.on_device(RELU, WORK, "float32", worker, 8, device=gpu, limit_s=60.0)
    assert isinstance(made, RoundMemory)
    draws = TimedDraws(RELU, WORK, "float32", [(inputs.BASE, (torch.zeros(1000, device=gpu),))])
    now = TimedInputs((7,), fresh=True)
    made.fill(draws.of_round(now, 8), 8)
    [hidden] = [made._memory.look(made.inputs[0].row(1)).clone()]
    place = protocol.Place(made.inputs, made.outputs, 8, WORK.dims, {}, made.masks)
    assert isinstance(worker.ask(place, timeout_s=60), Answered)
    assert isinstance(worker.ask(protocol.Time(), timeout_s=60), Answered)
    made.glance()
    assert not made.changed()
    for call in (0, 7):
        [given] = draws.of_call(now, call)
        assert torch.equal(made._memory.look(made.inputs[0].row(call + 1)), given)
        assert call or int((hidden == given).sum()) < 10, "inputs lay open before their call"
    made._memory.look(made.outputs[0].row(3)).zero_()
    assert made.changed()
    made.close()
    assert isinstance(worker.ask(protocol.Forget(), timeout_s=60), Answered)


def asked(placed: PlacedCall, given: torch.Tensor) -> protocol.Run:
    slots = placed.fill((given,))
    return protocol.Run(
        slots.inputs, (), slots.results, (), (), WORK.dims, {}, traced=False, placed=True
    )


def test_results_of_a_checked_call_lie_within_margins_of_their_own() -> None:
    placed = PlacedCall(RELU, WORK, "float32", "cuda:0")
    [given], [block], [result] = placed._inputs, placed._blocks, placed._results
    assert given.offset + given.nbytes <= block.offset
    assert result.offset - block.offset == output_guards.MARGIN
    assert block.offset + block.nbytes - result.offset - result.nbytes == output_guards.MARGIN
    assert block.offset + block.nbytes <= placed.memory.nbytes


def test_a_worker_without_such_memory_makes_no_call_there() -> None:
    slot = PlacedCall(RELU, WORK, "float32", "cuda:0")._inputs[0]
    run = protocol.Run((slot,), (), (slot,), (), (), WORK.dims, {}, traced=False, placed=True)
    with Session(("torch",), {}) as session:
        loaded = session.ask(protocol.Reference(DOUBLED, "cpu", compiled=False), timeout_s=60)
        assert isinstance(loaded, Answered), loaded
        refused = session.ask(run, timeout_s=30)
        assert isinstance(refused, Failed) and "no memory of a GPU" in refused.message
        assert session.alive


def test_a_checked_call_leaves_its_results_where_the_evaluator_looks(
    gpu: str, worker: Session
) -> None:
    placed = PlacedCall(RELU, WORK, "float32", gpu)
    assert placed.open(worker, limit_s=60.0)
    given = torch.randn(1000, device=gpu)
    slots = placed.fill((given,))
    ran = worker.ask(asked(placed, given), timeout_s=60)
    assert isinstance(ran, Answered), ran
    assert torch.equal(placed.memory.look(slots.results[0]), given + given)
    assert torch.equal(placed.memory.look(slots.after[0]), given)
    placed.close()
