"""What works while nothing is asked of it is seen, on a busy machine too; what sleeps is not taken
for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from portkern.evaluator import busy_threads

#: Of JAX, where another test has loaded it: what is forked here becomes another program at once.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
Start = Callable[..., int]
SPIN = "while 1: pass"
SLEEP = "import time; time.sleep(99)"
IN_A_THREAD = f"import threading; threading.Thread(target=exec, args=({SPIN!r},)).start(); {SLEEP}"
IN_A_CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SPIN!r}])"


@pytest.fixture
def start() -> Iterator[Start]:
    """The number of a process that begins to run some code; ``starved`` ones have little of the
    one processor that all of them share."""
    started: list[subprocess.Popen[str]] = []

    def one(code: str, *, starved: bool = False) -> int:
        def place() -> None:
            os.setsid()  # its children end with it
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
            os.nice(19 if starved else 0)

        process = subprocess.Popen(
            [sys.executable, "-c", f"print('here', flush=True)\n{code}"],
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=place,
        )
        started.append(process)
        assert process.stdout is not None and process.stdout.readline()
        return process.pid

    yield one
    for process in started:
        os.killpg(process.pid, 9)
        process.communicate()


@pytest.mark.parametrize("code", [SPIN, IN_A_THREAD, IN_A_CHILD], ids=["main", "thread", "child"])
def test_a_process_that_spins_is_restless(code: str, start: Start) -> None:
    pid = start(code)
    assert busy_threads.processes_at_work({pid}) == {pid}


@pytest.mark.full
def test_a_process_that_spins_is_restless_where_it_hardly_ever_runs(start: Start) -> None:
    start(SPIN)
    start(SPIN)
    pid = start(SPIN, starved=True)
    assert busy_threads.processes_at_work({pid}) == {pid}


def test_a_process_that_sleeps_rests_on_a_busy_processor_too(start: Start) -> None:
    busy = start(SPIN)
    asleep = start(SLEEP)
    assert busy_threads.processes_at_work({busy, asleep}) == {busy}


def test_what_has_ended_rests_and_work_is_done_meanwhile_once_whoever_is_watched() -> None:
    done: list[int] = []
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert busy_threads.processes_at_work({ended.pid}, lambda: done.append(1)) == set()
    assert busy_threads.processes_at_work([], lambda: done.append(1)) == set()
    assert done == [1, 1]
