"""The Linux calls that Python's library lacks. Each raises OSError, with the call's name."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
from collections.abc import Iterable
from pathlib import Path

NEWNS, NEWCGROUP, NEWUTS = 0x00020000, 0x02000000, 0x04000000
PARENT = 0x00008000  # CLONE_PARENT: the new process is a child of the caller's parent
NEWIPC, NEWUSER, NEWPID, NEWNET = 0x08000000, 0x10000000, 0x20000000, 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP = 1, 4, 38, 24
PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, SECCOMP_MODE_FILTER = 22, 36, 2

#: Since Linux 5.12 and 5.13; the same number on every architecture.
_MOUNT_SETATTR, _LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 442, 444, 445, 446
_CLONE = {"x86_64": 56, "aarch64": 220}
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CAPSET = {"x86_64": 126, "aarch64": 91}
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID = 1, 2

_libc = ctypes.CDLL(None, use_errno=True)
_python = ctypes.PyDLL(None, use_errno=True)  # calls of it keep the interpreter's lock


def _checked(name: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def _syscall(name: str, number: int, *arguments: object) -> int:
    return _checked(name, _libc.syscall(ctypes.c_long(number), *arguments))


def unshare(flags: int) -> None:
    _checked("unshare", _libc.unshare(flags))


def fork_into(flags: int) -> int:
    """Forks as os.fork() does, with the child the first process in new namespaces."""
    number, zero = ctypes.c_long(_CLONE[platform.machine()]), ctypes.c_ulong(0)
    ctypes.pythonapi.PyOS_BeforeFork()
    process = _python.syscall(
        number, ctypes.c_ulong(flags | signal.SIGCHLD), zero, zero, zero, zero
    )
    if process == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    return _checked("clone", process)


def mount(source: str, target: Path, kind: str, flags: int = 0, data: str = "") -> None:
    result = _libc.mount(
        source.encode(), str(target).encode(), kind.encode(), ctypes.c_ulong(flags), data.encode()
    )
    _checked(f"mount {target}", result)


def bind(source: Path, target: Path, *, writable: bool = False) -> None:
    """``source`` with all that is mounted below it, at ``target``."""
    mount(str(source), target, "", MS_BIND | MS_REC)
    if not writable:
        read_only(target)


def read_only(target: Path, *, below: bool = True) -> None:
    """The mount at ``target``, and all mounts below it."""
    attributes = (ctypes.c_uint64 * 4)(_MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID, 0, 0, 0)
    flags = _AT_RECURSIVE if below else 0
    _syscall(
        f"mount_setattr {target}",
        _MOUNT_SETATTR,
        _AT_FDCWD,
        str(target).encode(),
        flags,
        ctypes.byref(attributes),
        ctypes.sizeof(attributes),
    )


def unmount(target: Path) -> None:
    _checked(f"umount {target}", _libc.umount2(str(target).encode(), MNT_DETACH))


def pivot_root(new: Path, old: Path) -> None:
    number = _PIVOT_ROOT[platform.machine()]
    _syscall("pivot_root", number, str(new).encode(), str(old).encode())


def prctl(option: int, *arguments: object) -> None:
    _checked(f"prctl {option}", _libc.prctl(option, *arguments))


def die_with_parent(number: int) -> None:
    prctl(PR_SET_PDEATHSIG, number)


def no_new_privileges() -> None:
    zero = ctypes.c_ulong(0)
    prctl(PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), zero, zero, zero)


def adopt_orphans() -> None:
    """Processes whose parents end become this one's children instead of init's."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def set_dumpable(dumpable: bool) -> None:
    """Whether others of the same user may look into this process: its memory, its handles."""
    prctl(PR_SET_DUMPABLE, int(dumpable))


def drop_bounding_set() -> None:
    """Empties the bounding set, so that no exec brings a capability back."""
    for capability in range(64):
        if _libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability)) != 0:
            break  # the kernel's last, or one may not: then there are none to drop


def drop_capabilities() -> None:
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    none = (ctypes.c_uint32 * 6)()
    number = _CAPSET[platform.machine()]
    _syscall("capset", number, ctypes.byref(header), ctypes.byref(none))


# ---- Landlock: what the running thread and its children may open

_READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read_file, read_dir
_FILE = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15  # what a rule for one file may hold
#: Rights by the version of the interface that introduced the last of them.
_KNOWN = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def landlock_version() -> int:
    """0 where the kernel has no Landlock."""
    try:
        return _syscall("landlock", _LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)
    except OSError:
        return 0


def landlock(reads: Iterable[Path], writes: Iterable[Path]) -> None:
    """Deny all files but these, and TCP where the kernel can. Needs no_new_privileges()."""
    version = landlock_version()
    handled = _KNOWN[max(v for v in _KNOWN if v <= version)]
    # TCP since version 4; abstract sockets and signals to processes outside since version 6.
    attributes = (ctypes.c_uint64 * 3)(handled, 3, 3)
    size = ctypes.c_size_t(24 if version >= 6 else 16 if version >= 4 else 8)
    rules = _syscall("landlock", _LANDLOCK_CREATE, ctypes.byref(attributes), size, 0)
    allowed = [(path, _READ) for path in reads] + [(path, handled) for path in writes]
    for path, rights in allowed:
        try:
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        rights &= handled if path.is_dir() else handled & _FILE
        rule = _PathBeneath(rights, handle)
        _syscall("landlock", _LANDLOCK_ADD, rules, 1, ctypes.byref(rule), 0)
        os.close(handle)
    _syscall("landlock", _LANDLOCK_RESTRICT, rules, 0)
    os.close(rules)
