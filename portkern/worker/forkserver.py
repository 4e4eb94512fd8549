"""Forks workers from a process that has imported the slow modules once. Run with ``-m``.

It takes one request at a time on a SOCK_SEQPACKET socket (file descriptor ``argv[1]``) and ends
when that socket closes. That a worker has ended it says on a handle which came with the question:
that takes as long as dozens of new workers, which are not to stand behind it. It never opens a
device: CUDA contexts do not survive a fork.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from portkern.sandbox import jail, threads
from portkern.sandbox.jail import JailPolicy, Layers, control_groups, root, system
from portkern.sandbox.jail.control_groups import ControlGroup
from portkern.sandbox.message import Confined, encoded
from portkern.worker import worker

MESSAGE_BYTES = 1 << 16
#: The handles of a worker: its connection, its memory, its log, and where it is given others.
HANDLES = 4
#: A killed process that hangs in a driver is not waited for longer.
ENDING_S = 10.0
#: How often those that end are looked at: at first, and at last.
LOOK_S = 0.0005, 0.02


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    os.umask(0o022)  # folders of a jail are seen by its own users, whoever may see the evaluator's
    system.set_dumpable(False)  # nor are the workers: whoever has their user sees nothing of them
    control_groups.sweep()
    root.python_paths()
    layers = jail.probe()  # while there is one thread
    gc.disable()  # modules are hundreds of thousands of objects, and hardly any is garbage
    for name in sys.argv[2:]:
        # What each worker would do first, and does not have to: it finds it done.
        getattr(importlib.import_module(name), "prepare", lambda: None)()
    gc.freeze()  # nor do the workers look at them, and copy the pages that they are in
    gc.enable()
    # Python 3.12 warns about forking beside the threads that torch starts; the child only execs
    # code that those threads hold no lock of.
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork.*")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the evaluator decides who ends on Ctrl-C
    system.adopt_orphans()
    server = WorkerServer(control, layers)
    ahead: Iterator[None] | None = worker.ahead()
    with suppress(ConnectionError):  # the evaluator was killed: so are the workers, when this ends
        control.send(json.dumps({"layers": layers.to_json()}).encode())
        while True:
            asked = select.select([control], [], [], server.pause_s if ahead is None else 0.0)[0]
            server.look()
            if not asked:
                ahead = _further(ahead)
                continue
            message, handles, _, _ = socket.recv_fds(control, MESSAGE_BYTES, HANDLES)
            if not message:
                server.close()
                return
            for handle in handles:  # whatever a worker starts, in whatever way, has none of them
                os.set_inheritable(handle, False)
            request = json.loads(message)
            if "spawn" in request:
                policy = JailPolicy.from_json(request["spawn"]["policy"])
                pid = server.spawn(policy, request["spawn"]["environment"], handles)
                control.send(json.dumps({"pid": pid}).encode())
            else:
                server.wait(request["wait"], *handles)


def _further(ahead: Iterator[None] | None) -> Iterator[None] | None:
    """Does the next part of what each worker would do first, now that nobody asks for one; what is
    left of it, None where nothing is."""
    if ahead is None:
        return None
    gc.disable()
    left = next(ahead, ahead) is None
    gc.freeze()
    gc.enable()
    return ahead if left else None


@dataclass
class Ending:
    """A worker that has ended or was killed. ``answer`` is the handle of who waits for it, -1 once
    that was told; ``status`` is None until it is known."""

    pid: int
    group: ControlGroup | None
    answer: int
    deadline: float
    status: int | None = None


class WorkerServer:
    """The workers that were forked, and those whose end is waited for. ``pause_s`` until the next
    :meth:`look`; None where nobody waits."""

    def __init__(self, control: socket.socket, layers: Layers) -> None:
        self._control, self._layers = control, layers
        self._groups: dict[int, ControlGroup | None] = {}
        self._endings: list[Ending] = []
        self._stuck: set[int] = set()  # killed, and not gone in time
        self.pause_s: float | None = None

    def spawn(self, policy: JailPolicy, environment: dict[str, str], handles: list[int]) -> int:
        group = ControlGroup.create(policy.limits) if "cgroup" in self._layers.active else None
        pid = os.fork()
        if pid:
            for handle in handles:
                os.close(handle)
            self._groups[pid] = group
            return pid
        try:
            for ending in self._endings:  # what is said there is not the worker's to say
                if ending.answer >= 0:
                    os.close(ending.answer)
            _become_worker(policy, environment, self._layers, group, self._control, handles)
        finally:
            os._exit(1)

    def wait(self, pid: int, answer: int) -> None:
        """Has :meth:`look` say on this handle how a worker ended, when all that it started is gone:
        its status, and whether it used more memory than granted."""
        deadline = time.monotonic() + ENDING_S
        self._endings.append(Ending(pid, self._groups.get(pid), answer, deadline))
        self.pause_s = LOOK_S[0]

    def look(self) -> None:
        """Tells of those that have ended since the last time."""
        self._endings = [ending for ending in self._endings if not self._is_over(ending)]
        longer = min(2 * (self.pause_s or 0.0), LOOK_S[1])
        self.pause_s = longer if self._endings else None

    def close(self) -> None:
        """Removes what those that were told of have left."""
        for ending in self._endings:
            if ending.answer < 0 and ending.group is not None:
                ending.group.remove()

    def _is_over(self, ending: Ending) -> bool:
        late = time.monotonic() > ending.deadline
        if ending.status is None:
            ending.status = self._reaped(ending.pid, late=late)
            if ending.status is None:
                return False
            self._groups.pop(ending.pid, None)
        if ending.answer >= 0:
            if self._has_orphans(late=late):
                return False
            exhausted = ending.group is not None and ending.group.out_of_memory
            with suppress(OSError):  # nobody waits any more
                os.write(
                    ending.answer,
                    json.dumps({"status": ending.status, "exhausted": exhausted}).encode(),
                )
            os.close(ending.answer)
            ending.answer = -1
        return ending.group is None or ending.group.removed() or late

    def _has_orphans(self, *, late: bool) -> bool:
        """Whether there are still processes that a worker left behind, which have become ours: the
        first process of its namespace, which ends when all in it have, or those that it started in
        sessions of their own. They are killed."""
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
        orphans = {int(pid) for pid in text.split()} - set(self._groups) - self._stuck
        for pid in orphans:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return any(self._reaped(pid, late=late) is None for pid in orphans)

    def _reaped(self, pid: int, *, late: bool) -> int | None:
        """The exit status of a process; None where it has not ended, and that of a kill where it
        is too late for that."""
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if late:
            self._stuck.add(pid)
            return -signal.SIGKILL
        return None


def _become_worker(
    policy: JailPolicy,
    environment: dict[str, str],
    layers: Layers,
    group: ControlGroup | None,
    control: socket.socket,
    handles: list[int],
) -> None:
    connection, memory, log, given = handles
    control.close()
    os.setsid()
    system.die_with_parent(signal.SIGKILL)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, standard in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, standard)
    stream = socket.socket(fileno=connection)
    try:
        if group is not None:
            group.add(os.getpid())
        launcher = jail.confine(policy, layers, grouped=group is not None)
    except OSError as error:
        stream.sendall(encoded(Confined(problem=f"No containment: {error}")))
        return
    stream.sendall(encoded(Confined()))
    os.environ.update(environment)
    threads.limit_loaded(environment)
    os.environ["HOME"] = os.environ["TMPDIR"] = str(policy.scratch)
    tempfile.tempdir = (
        None  # where the server's temporary files are is not where the worker may write
    )
    worker.serve(stream, memory, launcher, socket.socket(fileno=given))
    os._exit(0)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # the evaluator waits for this, and torch takes half a second to take itself down
