"""A filter of system calls: no sockets but local ones, no namespaces, no children in the name of
the parent, nothing that is done to other processes. Where the user's are in sight, nor is there
what Landlock does not look at: local sockets by their names, System V's memory, modes and times of
files.

A classic BPF program, see the kernel's Documentation/userspace-api/seccomp_filter.rst. A refused
call fails with EPERM, so that libraries that only try it go on. A program whose runs are a proof
has no use for a look into others: such a call ends it.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct

from portkern.sandbox.jail import system

_LD, _JEQ, _JSET, _JGE, _RET = 0x20, 0x15, 0x45, 0x35, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000  # the last ends the whole process
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data, little-endian
_X32 = 0x40000000
_AF_UNIX = 1
_NAMESPACES = (
    system.NEWNS | system.NEWCGROUP | system.NEWUTS | system.NEWIPC | system.NEWUSER
    | system.NEWPID | system.NEWNET
)  # fmt: skip
_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

#: Numbers on (x86-64, aarch64); None where the architecture has no such call.
_DENIED: dict[str, tuple[int, int | None]] = {
    # looking into other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "kcmp": (312, 272),
    "perf_event_open": (298, 241), "move_pages": (279, 239), "migrate_pages": (256, 238),
    # namespaces, mounts, other roots
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsmount": (432, 432), "fspick": (433, 433), "open_tree": (428, 428),
    "mount_setattr": (442, 442), "open_tree_attr": (467, 467), "open_by_handle_at": (304, 265),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "fanotify_init": (300, 262),
    # wide interfaces of the kernel that no kernel of ours needs
    "bpf": (321, 280), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "add_key": (248, 217),
    "request_key": (249, 218), "keyctl": (250, 219), "syslog": (103, 116),
    # the machine
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "acct": (163, 89),
    "iopl": (172, None), "ioperm": (173, None), "vhangup": (153, 58),
}  # fmt: skip
#: What is tried by nobody who only computes: not by libraries either, as `kcmp` is.
_DEADLY = ("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "process_madvise")
#: What has an effect on another process where the argument of this number is not 0: limits and the
#: scheduler's classes, by which a baseline would be slow.
_OF_OTHERS: dict[str, tuple[int, int, int]] = {
    "prlimit64": (302, 261, 0), "setpriority": (141, 140, 1), "ioprio_set": (251, 30, 1),
    "sched_setscheduler": (144, 119, 0), "sched_setparam": (142, 118, 0),
    "sched_setattr": (314, 274, 0),
}  # fmt: skip
#: The calls by which others are kept to processors, where a worker has no user of its own. OpenMP's
#: runtimes end where it is refused for their own threads, whose numbers no filter can know: it is
#: said to be done.
_PLACE = (203, 122)
#: What has an effect on all of a user's processes where the first argument is this, whatever the
#: second is.
_OF_USER: dict[str, tuple[int, int, int]] = {
    "setpriority": (141, 140, 2), "ioprio_set": (251, 30, 3),
}  # fmt: skip
#: The calls that share something with the user's other processes by name or number, where there are
#: no namespaces.
_SHARED: dict[str, tuple[int, int | None]] = {
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "msgget": (68, 186),
    "msgctl": (71, 187), "msgrcv": (70, 188), "msgsnd": (69, 189), "semget": (64, 190),
    "semctl": (66, 191), "semop": (65, 193), "semtimedop": (220, 192), "mq_open": (240, 180),
    "mq_unlink": (241, 181), "inotify_init": (253, None), "inotify_init1": (294, 26),
}  # fmt: skip
#: The calls that change a file without opening it, which Landlock lets happen anywhere, where there
#: are no namespaces. They are said to be done: a program that copies or links a file sets its mode
#: and goes by that.
_ATTRIBUTES: dict[str, tuple[int, int | None]] = {
    "chmod": (90, None), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None),
    "lchown": (94, None), "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None),
    "futimesat": (261, None), "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "setxattrat": (463, 463), "removexattr": (197, 14), "lremovexattr": (198, 15),
    "removexattrat": (466, 466), "file_setattr": (469, 469),
}  # fmt: skip
_SOCKET, _CLONE, _CLONE3 = (41, 198), (56, 220), (435, 435)


def supported() -> bool:
    return platform.machine() in _AUDIT


def install(*, deadly: bool = False, apart: bool = True, alone: bool = True) -> None:
    """Installs the filter for this process and all that come from it. Needs no_new_privileges().
    ``deadly``: a process that tries to look into another one is killed by SIGSYS. ``apart``:
    namespaces keep the user's processes and files out of sight. ``alone``: no process in sight has
    its user, other than its own."""
    program = _program(deadly, apart, alone)
    lines = ctypes.create_string_buffer(b"".join(program))

    class Filter(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("lines", ctypes.c_void_p)]

    described = Filter(len(program), ctypes.cast(lines, ctypes.c_void_p))
    system.prctl(
        system.PR_SET_SECCOMP, ctypes.c_ulong(system.SECCOMP_MODE_FILTER), ctypes.byref(described)
    )


def _line(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)


def _program(deadly: bool, apart: bool, alone: bool) -> list[bytes]:
    machine = platform.machine()
    which = list(_AUDIT).index(machine)
    refuse = _line(_RET, _ERRNO | errno.EPERM)
    program = [
        _line(_LD, _ARCH),
        _line(_JEQ, _AUDIT[machine], yes=1),
        _line(_RET, _KILL),
        _line(_LD, _NUMBER),
    ]
    if machine == "x86_64":  # the x32 interface has numbers of its own
        program += [_line(_JGE, _X32, no=1), refuse]
    for name, numbers in (_DENIED if apart else _DENIED | _SHARED).items():
        end = deadly and name in _DEADLY
        program += _answered(numbers[which], _line(_RET, _KILL) if end else refuse)
    for numbers in () if apart else _ATTRIBUTES.values():
        program += _answered(numbers[which], _line(_RET, _ERRNO))
    for *of_machines, user in _OF_USER.values():
        program += [
            _line(_JEQ, of_machines[which], no=4),
            _line(_LD, _ARGUMENTS),
            _line(_JEQ, user, no=1),
            refuse,
            _line(_LD, _NUMBER),
        ]
    for *of_machines, argument in _OF_OTHERS.values():
        program += _unless_zero(of_machines[which], argument, refuse)
    program += [] if alone else _unless_zero(_PLACE[which], 0, _line(_RET, _ERRNO))
    # clone3's flags lie in memory, out of a filter's sight: glibc falls back to clone.
    program += [_line(_JEQ, _CLONE3[which], no=1), _line(_RET, _ERRNO | errno.ENOSYS)]
    program += [
        _line(_JEQ, _SOCKET[which], no=4),
        _line(_LD, _ARGUMENTS),
        _line(_JEQ, _AF_UNIX, no=1),
        _line(_RET, _ALLOW) if apart else refuse,
        refuse,
        _line(_JEQ, _CLONE[which], no=3),
        _line(_LD, _ARGUMENTS),
        _line(_JSET, _NAMESPACES | system.PARENT, no=1),
        refuse,
        _line(_RET, _ALLOW),
    ]
    return program


def _answered(number: int | None, answer: bytes) -> list[bytes]:
    """The lines that answer a call; none for None, a call that the architecture lacks."""
    return [] if number is None else [_line(_JEQ, number, no=1), answer]


def _unless_zero(number: int, argument: int, answer: bytes) -> list[bytes]:
    """The lines that answer a call whose argument of this number is not 0, and let the other."""
    return [
        _line(_JEQ, number, no=4),
        _line(_LD, _ARGUMENTS + 8 * argument),
        _line(_JEQ, 0, no=1),
        _line(_RET, _ALLOW),
        answer,
    ]
