"""Forks workers from a process that has imported the slow modules once. Run with ``-m``.

It answers one request at a time on a SOCK_SEQPACKET socket (file descriptor ``argv[1]``) and
ends when that socket closes. It never opens a device: CUDA contexts do not survive a fork.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import resource
import signal
import socket
import sys
import warnings
from pathlib import Path

from portkern import worker

PR_SET_PDEATHSIG = 1
MESSAGE_BYTES = 1 << 16


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    for module in sys.argv[2:]:
        importlib.import_module(module)
    # Python 3.12 warns about forking beside the threads that torch starts; the child only execs
    # code that those threads hold no lock of.
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork.*")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the judge decides who ends on Ctrl-C
    while True:
        message, handles, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 1)
        if not message:
            return
        request = json.loads(message)
        if "spawn" in request:
            reply = {"pid": _spawn(request["spawn"], handles[0], control)}
        else:
            _, status = os.waitpid(request["wait"], 0)
            reply = {"status": os.waitstatus_to_exitcode(status)}
        control.send(json.dumps(reply).encode())


def _spawn(request: dict[str, object], handle: int, control: socket.socket) -> int:
    pid = os.fork()
    if pid:
        os.close(handle)
        return pid
    control.close()
    _confine(Path(str(request["scratch"])))
    environment = request["environment"]
    assert isinstance(environment, dict)
    os.environ.update(environment)
    code = 1
    try:
        worker.serve(socket.socket(fileno=handle))
        code = 0
    finally:
        os._exit(code)


def _confine(scratch: Path) -> None:
    """A process group of its own that dies with the server, and nowhere to write but scratch."""
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(scratch)
    os.environ["HOME"] = os.environ["TMPDIR"] = str(scratch)
    log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, standard in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, standard)


if __name__ == "__main__":
    main()
