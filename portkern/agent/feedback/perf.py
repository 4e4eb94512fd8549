"""Counts events of a CPU kernel with Linux perf, from outside of the jail that the kernel runs in.

perf attaches to a worker like the evaluator's own, with its kernel loaded and its threads made, and
counts only while the worker works through staged calls. So the kernel is confined as ever. What
the worker itself does between calls is counted too: some microseconds each.
"""

from __future__ import annotations

import os
import select
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil

from portkern.agent.feedback.subject import FeedbackSubject
from portkern.agent.feedback.vocabulary import CountedCalls, ProfiledLaunch
from portkern.errors import ToolError
from portkern.evaluator import inputs, statistics
from portkern.evaluator.build import Failure, StageLimits
from portkern.evaluator.timed_outputs import poisons
from portkern.evaluator.workers import Workers
from portkern.sandbox.message import R, Request
from portkern.sandbox.session import Answered, Session
from portkern.toolchain.run_tool import run_tool
from portkern.worker import protocol

#: Rounds that are counted; the staging between them is not.
ROUNDS = 5
#: What perf may take to attach to a process.
ATTACH_S = 20.0
CAPACITY = "portkern:capacity"
_PLAN = statistics.TimingPlan()


def parse(text: str) -> tuple[dict[str, float], dict[str, str]]:
    """Values by event, and of those without one what perf says instead: from ``perf stat -x,``.
    Values are scaled already where events took turns."""
    values: dict[str, float] = {}
    missing: dict[str, str] = {}
    for line in text.splitlines():
        fields = line.split(",")
        if len(fields) < 4 or line.startswith("#"):
            continue
        event = fields[2].partition(":")[0]  # cycles:u, where the kernel's own are not shown
        if fields[0].startswith("<"):
            missing[event] = fields[0].strip("<>")
        else:
            values[event] = float(fields[0])
    return values, missing


def count(
    subject: FeedbackSubject, passes: Sequence[Sequence[str]], *, timeout_s: float
) -> CountedCalls:
    """Raises ToolError when perf or the kernel does not run."""
    events = [event for pass_run in passes for event in pass_run]
    limits = StageLimits(load_s=timeout_s, run_s=timeout_s)
    runners = Workers(subject.op, [subject.contestant], limits)
    try:
        opened = runners.open(0)
        if isinstance(opened, Failure):
            raise ToolError(f"the kernel did not load again: {opened.detail}", log=opened.log)
        rounds = _Rounds(opened.session, subject, timeout_s)
        rounds.run()  # its threads are there when perf looks for them
        return _counted(rounds, events, timeout_s)
    finally:
        runners.close_all()


def _counted(rounds: _Rounds, events: Sequence[str], timeout_s: float) -> CountedCalls:
    with tempfile.TemporaryDirectory(prefix="portkern-perf-") as made:
        folder = Path(made)
        with ThreadPoolExecutor(1) as pool, _Switch(folder) as switch:
            done = pool.submit(_perf, folder, events, rounds.session, timeout_s)
            wall_s, calls = 0.0, 0
            try:
                for _ in range(ROUNDS):
                    took_s, number = rounds.run(
                        lambda: switch.turn("enable", done), lambda: switch.turn("disable", done)
                    )
                    wall_s, calls = wall_s + took_s, calls + number
            finally:
                rounds.session.close()  # perf ends with the process that it watches
            done.result()
        values, missing = parse((folder / "out").read_text(encoding="utf-8"))
    values[CAPACITY] = wall_s * 1e3 * len(os.sched_getaffinity(0))
    return CountedCalls([ProfiledLaunch(rounds.subject.op.name, values)], calls, missing)


def _perf(folder: Path, events: Sequence[str], session: Session, timeout_s: float) -> str:
    argv = [
        "perf",
        "stat",
        "-x",
        ",",
        "-o",
        str(folder / "out"),
        "-D",
        "-1",
        "--control",
        f"fifo:{folder / 'control'},{folder / 'answer'}",
        "-e",
        ",".join(events),
        "-p",
        ",".join(map(str, _processes(session.pid))),
    ]
    return run_tool(
        argv, whose="own", timeout_s=ATTACH_S + timeout_s, env={"LC_ALL": "C"}, error=ToolError
    )


def _processes(pid: int) -> list[int]:
    """A worker in namespaces is the grandchild of the process that the evaluator knows."""
    try:
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.Error:
        return [pid]


class _Switch:
    """Turns a perf on and off that was started with ``--control fifo:control,answer``."""

    def __init__(self, folder: Path) -> None:
        for name in ("control", "answer"):
            os.mkfifo(folder / name)
        # Open for both directions, so that neither side waits for the other to open it.
        self._control = os.open(folder / "control", os.O_RDWR)
        self._answer = os.open(folder / "answer", os.O_RDWR)

    def __enter__(self) -> _Switch:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._control)
        os.close(self._answer)

    def turn(self, word: str, perf: Future[str]) -> None:
        """Returns when perf has done so. Raises ToolError, perf's own if it has one."""
        os.write(self._control, f"{word}\n".encode())
        deadline = time.monotonic() + ATTACH_S
        while not select.select([self._answer], [], [], 0.05)[0]:
            if perf.done():
                perf.result()
                raise ToolError("perf ended before the kernel did")
            if time.monotonic() > deadline:
                raise ToolError(f"perf did not {word} its counters within {ATTACH_S:g} s")
        os.read(self._answer, 64)


@dataclass
class _Rounds:
    """Calls of the loaded kernel, on inputs drawn once and buffers of their own."""

    session: Session
    subject: FeedbackSubject
    timeout_s: float

    def __post_init__(self) -> None:
        op, work, dtype = self.subject.op, self.subject.workload, self.subject.dtype
        memory = self.session.memory
        memory.clear()
        drawn = inputs.draw(op, work, dtype, inputs.BASE)
        given = tuple(map(memory.put, drawn))
        self._ask(protocol.Base((given,), poisons(op, work, dtype, self.session)))
        self._calls = _PLAN.calls(self.subject.median_us, op.tensor_bytes(work.dims, dtype))
        self._number = 0

    def run(
        self, before: Callable[[], None] = lambda: None, after: Callable[[], None] = lambda: None
    ) -> tuple[float, int]:
        """Runs a round: the seconds that it took, and how many calls it had, the one that warms up
        too. ``before`` is called once all is made that the calls need."""
        work = self.subject.workload
        scalars = self.subject.op.signature.scalar_values(work.scalars)
        self._number += 1
        self._ask(protocol.Stage((self._number,), self._calls, work.dims, scalars))
        before()
        start = time.perf_counter()
        self._ask(protocol.Time())
        took_s = time.perf_counter() - start
        after()
        return took_s, self._calls + 1

    def _ask(self, request: Request[R]) -> None:
        outcome = self.session.ask(request, timeout_s=self.timeout_s)
        if not isinstance(outcome, Answered):
            raise ToolError(f"the kernel did not run again: {outcome}")
