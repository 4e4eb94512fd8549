"""Memory of a GPU that the evaluator owns and a worker maps; without a GPU, what is said then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from portkern import ops
from portkern.evaluator import inputs
from portkern.evaluator.interleaved_timing import InterleavedTiming
from portkern.evaluator.statistics import TimingPlan
from portkern.evaluator.telemetry import Watch
from portkern.evaluator.timed_buffers import RoundMemory
from portkern.evaluator.timed_draws import TimedDraws, TimedInputs
from portkern.sandbox.device_memory import LINE, DeviceMemory, DeviceMemoryError
from portkern.sandbox.message import Failed
from portkern.sandbox.session import Answered, Session
from portkern.spec import target as targets
from portkern.spec.op import Workload
from portkern.worker import protocol

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
    race = InterleavedTiming(
        RELU,
        WORK,
        "float32",
        [(inputs.BASE, inputs.draw(RELU, WORK, "float32", inputs.BASE))],
        TimingPlan(rounds=1),
        30.0,
        {},
        {},
        Watch(targets.load("h200")),
        placed=frozenset({"eager"}),
        device="cuda:0",
    )
    with Session((), {}) as session:
        assert not race._shares("eager", session)
    assert race.unplaced == ("this GPU's memory cannot be shared: there is no driver of NVIDIA's")


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
    place = protocol.Place(made.inputs, made.outputs, 8, WORK.dims, {})
    assert isinstance(worker.ask(place, timeout_s=60), Answered)
    assert isinstance(worker.ask(protocol.Time(), timeout_s=60), Answered)
    made.glance()
    assert not made.changed()
    for call in (0, 7):
        [given] = draws.of_call(now, call)
        assert torch.equal(made._memory.look(made.inputs[0].row(call + 1)), given)
    made._memory.look(made.outputs[0].row(3)).zero_()
    assert made.changed()
    made.close()
    assert isinstance(worker.ask(protocol.Forget(), timeout_s=60), Answered)
