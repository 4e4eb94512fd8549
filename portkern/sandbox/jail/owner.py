"""Names of what a process makes outside of its own memory, so that others can tell when it has
ended and nobody is left to clear up."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

_NAME = re.compile(r"portkern-([0-9a-f]+)-(\d+)-(\d+)-[0-9a-f]+")


def name() -> str:
    """A new name that carries this process; what bears it is this process's to remove."""
    pid = os.getpid()
    return f"portkern-{_world()}-{pid}-{_started(pid)}-{secrets.token_hex(4)}"


def gone(called: str) -> bool:
    """Whether the process that made ``called`` has ended. False for names of another form, and
    for those of another machine, boot or container, whose processes cannot be seen from here."""
    match = _NAME.fullmatch(called)
    if match is None or match[1] != _world():
        return False
    return _started(int(match[2])) != match[3]


def _world() -> str:
    """This boot and this namespace of process ids: numbers are taken again, these are not."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    return f"{boot}{Path('/proc/self/ns/pid').stat().st_ino:x}"


def _started(pid: int) -> str:
    """The time when a process began, in clock ticks since boot; '' when it has ended, even if
    nobody waited for it."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    state, *fields = text.rpartition(")")[2].split()
    return "" if state in "ZX" else fields[18]
