"""Forks workers from a process that has imported the slow modules once. Run with ``-m``.

It answers one request at a time on a SOCK_SEQPACKET socket (file descriptor ``argv[1]``) and
ends when that socket closes. It never opens a device: CUDA contexts do not survive a fork.
"""

from __future__ import annotations

import importlib
import json
import os
import secrets
import signal
import socket
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from portkern import jail, worker
from portkern.jail import Layers, Policy, system
from portkern.jail.limits import Group

MESSAGE_BYTES = 1 << 16


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    layers = jail.probe()  # while there is one thread
    for module in sys.argv[2:]:
        importlib.import_module(module)
    # Python 3.12 warns about forking beside the threads that torch starts; the child only execs
    # code that those threads hold no lock of.
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork.*")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the judge decides who ends on Ctrl-C
    system.adopt_orphans()
    server = Server(control, layers)
    control.send(json.dumps({"layers": layers.to_json()}).encode())
    while True:
        message, handles, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 3)
        if not message:
            return
        request = json.loads(message)
        if "spawn" in request:
            reply = {"pid": server.spawn(request["spawn"], handles)}
        else:
            reply = {"status": server.wait(request["wait"])}
        control.send(json.dumps(reply).encode())


class Server:
    """The workers that were forked and not yet waited for."""

    def __init__(self, control: socket.socket, layers: Layers) -> None:
        self._control, self._layers = control, layers
        self._groups: dict[int, Group | None] = {}

    def spawn(self, request: dict[str, Any], handles: list[int]) -> int:
        policy = Policy.from_json(request["policy"])
        name = f"portkern-{os.getpid()}-{secrets.token_hex(4)}"
        group = Group.create(name, policy.limits) if "cgroup" in self._layers.active else None
        pid = os.fork()
        if pid:
            for handle in handles:
                os.close(handle)
            self._groups[pid] = group
            return pid
        try:
            _become_worker(request, policy, self._layers, group, self._control, handles)
        finally:
            os._exit(1)

    def wait(self, pid: int) -> int:
        _, status = os.waitpid(pid, 0)
        group = self._groups.pop(pid)
        if "namespaces" not in self._layers.active:
            self._end_orphans()
        if group is not None:
            group.remove()
        return os.waitstatus_to_exitcode(status)

    def _end_orphans(self) -> None:
        """Processes that a worker left behind in a session of their own have become ours."""
        while True:
            text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
            orphans = {int(pid) for pid in text.split()} - set(self._groups)
            if not orphans:
                return
            for pid in orphans:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _become_worker(
    request: dict[str, Any], policy: Policy, layers: Layers, group: Group | None,
    control: socket.socket, handles: list[int],
) -> None:  # fmt: skip
    connection, arena, log = handles
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
        jail.confine(policy, layers)
    except OSError as error:
        refused = {"ok": False, "error": "JailError", "message": f"No containment: {error}"}
        stream.sendall(json.dumps(refused).encode() + b"\n")
        return
    os.environ.update(request["environment"])
    os.environ["HOME"] = os.environ["TMPDIR"] = str(policy.scratch)
    worker.serve(stream, arena)
    os._exit(0)


if __name__ == "__main__":
    main()
