"""Forks workers from a process that has imported the slow modules once. Run with ``-m``.

It answers one request at a time on a SOCK_SEQPACKET socket (file descriptor ``argv[1]``) and
ends when that socket closes. It never opens a device: CUDA contexts do not survive a fork.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import sys
import tempfile
import time
import warnings
from contextlib import suppress
from pathlib import Path

from portkern.sandbox import jail
from portkern.sandbox.jail import JailPolicy, Layers, limits, root, system
from portkern.sandbox.jail.limits import ControlGroup
from portkern.sandbox.message import Confined, encoded
from portkern.worker import worker

MESSAGE_BYTES = 1 << 16
#: The handles of a worker: its connection, its memory, its log, and where it is given others.
HANDLES = 4
#: A killed process that hangs in a driver is not waited for longer.
ENDING_S = 10.0


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    system.set_dumpable(False)  # nor are the workers: whoever has their user sees nothing of them
    limits.sweep()
    root.python_paths()
    layers = jail.probe()  # while there is one thread
    gc.disable()  # modules are hundreds of thousands of objects, and hardly any is garbage
    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.freeze()  # nor do the workers look at them, and copy the pages that they are in
    gc.enable()
    # Python 3.12 warns about forking beside the threads that torch starts; the child only execs
    # code that those threads hold no lock of.
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork.*")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the evaluator decides who ends on Ctrl-C
    system.adopt_orphans()
    server = Server(control, layers)
    with suppress(ConnectionError):  # the evaluator was killed: so are the workers, when this ends
        control.send(json.dumps({"layers": layers.to_json()}).encode())
        while True:
            message, handles, _, _ = socket.recv_fds(control, MESSAGE_BYTES, HANDLES)
            if not message:
                return
            for handle in handles:  # whatever a worker starts, in whatever way, has none of them
                os.set_inheritable(handle, False)
            request = json.loads(message)
            if "spawn" in request:
                policy = JailPolicy.from_json(request["spawn"]["policy"])
                pid = server.spawn(policy, request["spawn"]["environment"], handles)
                control.send(json.dumps({"pid": pid}).encode())
            else:
                status, exhausted = server.wait(request["wait"])
                control.send(json.dumps({"status": status, "exhausted": exhausted}).encode())


class Server:
    """The workers that were forked and not yet waited for."""

    def __init__(self, control: socket.socket, layers: Layers) -> None:
        self._control, self._layers = control, layers
        self._groups: dict[int, ControlGroup | None] = {}
        self._stuck: set[int] = set()  # killed, and not gone in time

    def spawn(self, policy: JailPolicy, environment: dict[str, str], handles: list[int]) -> int:
        group = ControlGroup.create(policy.limits) if "cgroup" in self._layers.active else None
        pid = os.fork()
        if pid:
            for handle in handles:
                os.close(handle)
            self._groups[pid] = group
            return pid
        try:
            _become_worker(policy, environment, self._layers, group, self._control, handles)
        finally:
            os._exit(1)

    def wait(self, pid: int) -> tuple[int, bool]:
        """How a worker that has ended or was killed ended, and all that it started with it: its
        status, and whether it used more memory than granted."""
        deadline = time.monotonic() + ENDING_S
        status = self._reaped(pid, deadline)
        group = self._groups.pop(pid)
        self._end_orphans(deadline)
        exhausted = group is not None and group.out_of_memory
        if group is not None:
            group.remove()
        return status, exhausted

    def _end_orphans(self, deadline: float) -> None:
        """Ends the processes that a worker leaves behind, which have become ours: the first
        process of its namespace, which ends when all in it have, or those that it started in
        sessions of their own."""
        while True:
            text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
            orphans = {int(pid) for pid in text.split()} - set(self._groups) - self._stuck
            if not orphans:
                return
            for pid in orphans:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                self._reaped(pid, deadline)

    def _reaped(self, pid: int, deadline: float) -> int:
        """The exit status of a process; that of a kill for one that has not ended by the
        deadline."""
        pause_s = 0.0005
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() > deadline:
                self._stuck.add(pid)
                return -signal.SIGKILL
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.02)


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
