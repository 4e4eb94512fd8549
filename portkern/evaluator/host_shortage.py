"""Whether the machine, rather than a kernel, was short of processes or memory.

What a worker says of it only leads to another try, alone; that the machine is at fault is for the
evaluator to see.
"""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from portkern.sandbox.jail import control_groups

#: How the system, OpenMP, Python, C++ and compilers' drivers say that there is nothing left.
_SAID = re.compile(
    "Resource temporarily unavailable|Cannot allocate memory|Thread creation failed"
    "|can't start new thread|std::bad_alloc|std::system_error|BlockingIOError|MemoryError"
    r"|Cannot start |cannot fork|vfork|posix_spawn|EAGAIN|ENOMEM|out of memory",
    re.IGNORECASE,
)
#: The share of its memory below which a machine is short of it.
LEAST = 0.02


def is_said(text: str) -> bool:
    """Whether a failure's text speaks of a shortage."""
    return bool(_SAID.search(text))


def seen() -> str:
    """The shortage that the machine is in now; '' when a process can be started and memory is
    left."""
    memory = psutil.virtual_memory()
    if memory.available < LEAST * memory.total:
        return f"the machine has {memory.available >> 20} MiB of memory left"
    for used, most, what in _tasks():
        if used > (1 - LEAST) * most:
            return f"the machine runs {used} of at most {most} {what}"
    try:
        subprocess.run([sys.executable, "-S", "-c", ""], check=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as error:
        return f"the machine starts no process: {error}"
    return ""


def _tasks() -> list[tuple[int, int, str]]:
    """Counts of tasks, each with its limit and its name: of the whole system, and of the control
    groups that this runs in."""
    counted = []
    with suppress(OSError, ValueError, IndexError):
        now = int(Path("/proc/loadavg").read_text().split()[3].split("/")[1])
        most = int(Path("/proc/sys/kernel/threads-max").read_text())
        counted.append((now, most, "threads"))
    for now, most in control_groups.tasks_counted():
        counted.append((now, most, "tasks of a control group"))
    return counted
