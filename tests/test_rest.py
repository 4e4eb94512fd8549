"""Code that works while nothing is asked of it is seen, on a busy machine too; sleeping code is not
taken for it."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from portkern.evaluator import busy_threads, processor_time, standstill

#: A warning of JAX, where another test has loaded it: what is forked here becomes another program
#: at once.
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


@pytest.mark.parametrize("code", [SPIN, IN_A_THREAD, IN_A_CHILD], ids=["main", "thread", "child"])
def test_what_is_stopped_stands_still_until_it_goes_on(code: str, start: Start) -> None:
    pid = start(code)
    assert standstill.stop(pid)
    before = processor_time.ran_s(pid)
    time.sleep(0.1)
    assert processor_time.ran_s(pid) == before
    standstill.go_on(pid)
    assert busy_threads.processes_at_work({pid}) == {pid}


def test_who_has_ended_stands_still() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert standstill.stop(ended.pid)
    standstill.go_on(ended.pid)


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


@pytest.mark.parametrize(("ran_s", "told"), [(0.0, []), (1e3, [7])], ids=["rests", "works"])
def test_who_works_while_the_baseline_is_timed_is_told(
    ran_s: float, told: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However soon it rests when it is looked for."""
    so_far = itertools.count(0.0, ran_s)
    monkeypatch.setattr(processor_time, "ran_s", lambda pid: next(so_far))
    at_rest = busy_threads.AtRest({7: os.getpid()})
    for _ in range(4):
        with at_rest.watched(True):
            pass
    assert at_rest.disturbing() == told


def test_a_pool_that_falls_asleep_late_once_disturbs_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    so_far = itertools.chain([0.0, 1e3], itertools.repeat(1e3))
    monkeypatch.setattr(processor_time, "ran_s", lambda pid: next(so_far))
    at_rest = busy_threads.AtRest({7: os.getpid()})
    for begun in (True, True, False, True):
        with at_rest.watched(begun):
            pass
    assert at_rest.disturbing() == []


def test_nobody_disturbs_a_baseline_that_was_not_timed() -> None:
    assert busy_threads.AtRest({7: os.getpid()}).disturbing() == []
