"""The evaluator's memory: whether it holds a workload, as the kernel's killer leaves no reason
behind, and how temporaries of tensors' size are kept for the next."""

from __future__ import annotations

import ctypes
import errno
from contextlib import suppress
from functools import cache

import psutil

from portkern.spec.op import ITEMSIZE, Op, Workload

#: What running out of it raises: torch says RuntimeError, the system OSError.
EXHAUSTED = (MemoryError, RuntimeError, OSError)
#: Tensors of an output's or input's size that are alive at once: in the evaluator those at float64,
#: the answers and their budgets; between it and one worker those of the dtype.
_WIDE, _SHARED = 10, 8
_GIB = 2**30
#: mallopt's names and values, <malloc.h>: what is freed goes back to the system above the first,
#: and what is larger than the second, 32 MiB at most, always. Each thread's heap keeps what it ever
#: held, so there are few, the third.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = (-1, 256 << 20), (-3, 32 << 20)
_M_ARENA_MAX = (-8, 2)


@cache
def keep_freed() -> None:
    """Has glibc keep freed memory. By default it returns memory that is asked for again a moment
    later, and comparing two large tensors takes two to three times as long. Other libraries need
    nothing."""
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for name, value in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX):
            mallopt(name, value)


def lack(op: Op, workload: Workload, dtype: str, *, at_once: int) -> str:
    """Why ``workload`` cannot be evaluated here with so many workers; '' when it can."""
    said = shortage(needed_bytes(op, workload, dtype, at_once=at_once))
    return said and f"{said}; choose a smaller workload or fewer kernels, or a larger machine"


def shortage(needed: int) -> str:
    """Why so many bytes cannot be had here; '' when they can."""
    available = psutil.virtual_memory().available
    if needed <= available:
        return ""
    return (
        f"evaluating it takes about {needed / _GIB:.3g} GiB of memory and {available / _GIB:.3g} "
        "are free"
    )


def needed_bytes(op: Op, workload: Workload, dtype: str, *, at_once: int) -> int:
    """About what the evaluator and so many workers take at most."""
    wide = op.signature.nelements(workload.dims) * _WIDE * ITEMSIZE["float64"]
    return wide + shared_bytes(op, workload, dtype, at_once=at_once)


def shared_bytes(op: Op, workload: Workload, dtype: str, *, at_once: int) -> int:
    """The same where the answers are made and compared on a GPU."""
    return op.signature.nelements(workload.dims) * _SHARED * ITEMSIZE[dtype] * at_once


def exhausted(error: BaseException) -> bool:
    """Whether one of :data:`EXHAUSTED` says so, rather than something else."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or "allocate memory" in str(error)
