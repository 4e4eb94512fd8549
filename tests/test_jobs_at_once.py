"""Jobs that share a machine wait for nothing of each other's."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from portkern import ops
from portkern.evaluator import imported, reference
from portkern.evaluator.arithmetic import alone
from portkern.evaluator.cached import cached_property
from portkern.evaluator.imported import ReferenceWorker
from portkern.sandbox import threads
from portkern.sandbox.session import Session
from portkern.spec.imported import ImportedReference
from portkern.spec.op import Scalar

#: More than a worker takes to end.
SOON_S = 30.0


@pytest.mark.parametrize("jobs", [1, 3])
def test_arithmetic_is_one_piece_at_a_time_for_each_job(
    jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "_jobs", jobs)
    lock, at_work, most = threading.Lock(), 0, 0

    def work() -> None:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        time.sleep(0.02)
        with lock:
            at_work -= 1

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: alone(work), range(12)))
    assert most == jobs


def imported_relu() -> ImportedReference:
    return ImportedReference("relu", "def run(x):\n    return x.relu()\n", ("x",), ("y",))


def test_nobody_waits_for_an_imported_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def outputs(
        self: ReferenceWorker, inputs: Sequence[torch.Tensor], scalars: Mapping[str, Scalar]
    ) -> tuple[torch.Tensor, ...]:
        asked.set()
        assert go_on.wait(SOON_S)
        return (inputs[0].relu(),)

    monkeypatch.setattr(ReferenceWorker, "outputs", outputs)
    op = replace(ops.load("relu"), reference=imported_relu())
    size = op.workloads["ci"][0]
    with ThreadPoolExecutor(1) as pool:
        case = pool.submit(reference.make_case, op, size, "float32", "normal")
        assert asked.wait(SOON_S)
        assert alone(lambda: "done") == "done"
        go_on.set()
        assert case.result().exact


def test_the_same_reference_of_two_jobs_has_a_worker_for_each() -> None:
    mine, other = imported_relu(), imported_relu()
    assert mine == other
    assert imported.worker_of(mine) is imported.worker_of(mine)
    assert imported.worker_of(mine) is not imported.worker_of(other)


def test_a_reference_that_nobody_has_leaves_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[object] = []
    monkeypatch.setattr(imported.ReferenceWorker, "close", lambda self: ended.append(self))
    reference = imported_relu()
    worker = imported.worker_of(reference)
    assert not ended
    del reference
    assert ended == [worker]


def test_a_budget_that_takes_long_keeps_no_other_case_waiting() -> None:
    class Slow:
        def __init__(self, wait: threading.Event) -> None:
            self._wait = wait

        @cached_property
        def value(self) -> bool:
            return self._wait.wait(SOON_S)

    go_on, at_once = threading.Event(), threading.Event()
    at_once.set()
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(lambda: Slow(go_on).value)
        assert Slow(at_once).value
        assert not slow.done()
        go_on.set()
        assert slow.result()


def test_a_worker_starts_while_the_end_of_another_is_waited_for() -> None:
    with Session((), {}) as first, ThreadPoolExecutor(1) as pool:
        end = pool.submit(first._server.wait, first.pid, server=first._server_pid)
        with Session((), {}) as another:
            assert another.alive
        assert not end.done()
        os.killpg(first.pid, signal.SIGKILL)
        assert end.result(SOON_S).status == -signal.SIGKILL
        first.alive = False  # it was waited for
        first._connection.close()
