"""Contains a worker on plain Linux, as root or as an ordinary user, without a container runtime.

The layers are tried once on each machine; what works is used, what does not is named with its
reason. ``confine`` is called in a process that has just been forked and has one thread; when it
returns, the caller is the worker, inside.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from portkern.errors import no_such
from portkern.sandbox.jail import control_groups, limits, programs, root, seccomp, system
from portkern.sandbox.jail.limits import ProcessLimits
from portkern.sandbox.jail.programs import Launcher, ProgramPlace
from portkern.sandbox.jail.restrictions import Restrictions, become
from portkern.sandbox.jail.users import Users

#: An environment variable: the layers to use, with commas; ``all`` unless given.
SWITCH = "PORTKERN_CONTAINMENT"
#: The layers by name, and what each keeps out.
LAYERS = {
    "namespaces": "files outside the worker's own tree, the network, other processes",
    "user": "the evaluator's uid",
    "seccomp": "sockets, tracing of processes, rarely used interfaces of the kernel",
    "landlock": "files outside the worker's own (where there are no namespaces)",
    "cgroup": "more memory and tasks than granted",
}
#: Said of a machine where no layer counts a worker's tasks apart.
SHARED_TASKS = "tasks counted with the user's others"
_SEPARATE = system.NEWNS | system.NEWIPC | system.NEWUTS | system.NEWNET | system.NEWPID


@dataclass(frozen=True)
class Layers:
    """Which layers this machine has; of the others, why not."""

    active: frozenset[str]
    missing: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        used = self.active - ({"landlock"} if "namespaces" in self.active else set())
        named = "+".join(name for name in LAYERS if name in used) or "none"
        return named if self.counts_alone else f"{named}, {SHARED_TASKS}"

    @property
    def counts_alone(self) -> bool:
        """Whether a worker's tasks are counted apart from those that its user has beside. If not,
        each of these that ends while it runs is one more that it may have."""
        return "cgroup" in self.active or self.has_own_count

    @property
    def has_own_count(self) -> bool:
        """The same without a cgroup, which cannot always be made."""
        if "user" in self.active:
            return Users.of(os.getpid()).alone
        return "namespaces" in self.active and limits.counts_by_namespace()

    def only(self, names: str) -> Layers:
        """The layers that ``names`` allows: a list with commas, ``all`` or ``none``.

        Raises ConfigError for a layer that does not exist.
        """
        if names == "all":
            return self
        chosen = {name for name in names.split(",") if name not in ("", "none")}
        for name in sorted(chosen - set(LAYERS)):
            raise no_such("containment layer", name, LAYERS)
        left = dict.fromkeys(self.active - chosen, f"turned off by {SWITCH}={names}")
        return Layers(self.active & chosen, self.missing | left)

    def check(self) -> None:
        """Raises OSError where files are not kept from the worker and nobody has said yes to it."""
        if self.active & {"namespaces", "landlock"} or os.environ.get(SWITCH) == "none":
            return
        reasons = "; ".join(f"{name}: {self.missing[name]}" for name in ("namespaces", "landlock"))
        raise OSError(f"{reasons}. {SWITCH}=none runs kernels without, if you trust them")

    def to_json(self) -> dict[str, object]:
        return {"active": sorted(self.active), "missing": self.missing}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Layers:
        return cls(frozenset(data["active"]), dict(data["missing"]))


@dataclass(frozen=True)
class JailPolicy:
    """The rights of one worker. ``reads`` and ``writes`` are files and folders beside the
    system's and Python's; ``copies`` are shown in the place of what they were copied from, which
    they are listed by. ``scratch`` is its working folder, empty and gone with it; ``device``
    shows it the GPUs. ``programs``: it runs programs of others, and no code of theirs itself.
    ``tenant``: it becomes a program of others that needs the network, such as a coding agent; it
    sees no folder of Python's or portkern's, and may use what the kernel has."""

    scratch: Path
    reads: tuple[Path, ...] = ()
    writes: tuple[Path, ...] = ()
    device: bool = False
    programs: bool = False
    tenant: bool = False
    scratch_bytes: int = 1 << 30
    limits: ProcessLimits = field(default_factory=ProcessLimits.of_this_machine)
    copies: Mapping[Path, Path] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        return {
            "scratch": str(self.scratch),
            "reads": list(map(str, self.reads)),
            "writes": list(map(str, self.writes)),
            "device": self.device,
            "programs": self.programs,
            "tenant": self.tenant,
            "scratch_bytes": self.scratch_bytes,
            "limits": asdict(self.limits),
            "copies": {str(place): str(copy) for place, copy in self.copies.items()},
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> JailPolicy:
        return cls(
            Path(data["scratch"]),
            tuple(map(Path, data["reads"])),
            tuple(map(Path, data["writes"])),
            data["device"],
            data["programs"],
            data["tenant"],
            data["scratch_bytes"],
            ProcessLimits(**data["limits"]),
            {Path(place): Path(copy) for place, copy in data["copies"].items()},
        )


def confine(policy: JailPolicy, layers: Layers, *, grouped: bool = False) -> Launcher | None:
    """Returns in a new process that is the worker. The caller's own waits for it and ends as it
    ended. ``grouped``: it is in a cgroup that counts its tasks. What is returned starts programs,
    where the policy has any. Raises OSError when a layer that worked before does not."""
    layers.check()
    if "cgroup" in layers.active and not grouped and not layers.has_own_count:
        raise OSError("no cgroup can be made any more, and nothing else counts its tasks apart")
    users = Users.of(os.getpid()) if "user" in layers.active else None
    others = _tasks_beside(layers, users, grouped=grouped)
    if "namespaces" in layers.active:
        _separate(policy, users)
    elif users is not None:
        os.chown(policy.scratch, users.worker, users.worker)
        policy.scratch.chmod(0o711)
    os.chdir(policy.scratch)
    limits.apply(policy.limits, device=policy.device, others=others)
    system.drop_bounding_set()
    reads = (*policy.reads, *policy.copies)
    used = layers.active - {"seccomp"} if policy.tenant else layers.active
    restrictions = Restrictions(used, reads, policy.device, users is not None and users.alone)
    launcher = None
    if policy.programs:
        user, folder = users.program if users else None, policy.scratch / "program"
        launcher = programs.started(ProgramPlace(folder, user, restrictions, policy.scratch_bytes))
    user = users.worker if users else None
    restrictions.apply(user, [policy.scratch, *policy.writes], groups=True)
    return launcher


def _tasks_beside(layers: Layers, users: Users | None, *, grouped: bool) -> int | None:
    """The tasks of others that count against the worker's limit: none, where it has a user of
    its own, or a user namespace of a kernel that counts by these; else those of its user, in
    other runs too. None where only a cgroup tells them apart."""
    if layers.has_own_count:
        return 0
    if grouped:
        return None
    if users is not None:
        return limits.tasks_of(users.worker)
    return limits.tasks_of(os.getuid()) - 1  # this process is the worker's


def _separate(policy: JailPolicy, users: Users | None) -> None:
    """Three processes: the caller's, which the evaluator knows; the first of the new namespace,
    which ignores the signals that others die of; and the worker, in which this returns."""
    report, reply = os.pipe()
    uid, gid = os.getuid(), os.getgid()
    apart = _SEPARATE & ~system.NEWNET if policy.tenant else _SEPARATE
    system.unshare(apart | (0 if users else system.NEWUSER))
    if users is None:
        system.set_dumpable(True)  # else these files are root's
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
        system.set_dumpable(False)
    first = os.fork()
    if first:
        _keep_only(report)
        os.waitpid(first, 0)
        status = os.read(_KEPT, 16)
        _end_as(int(status) if status else signal.SIGKILL)
    system.die_with_parent(signal.SIGKILL)
    shown = [] if policy.tenant else [*root.python_paths(), *root.tool_paths()]
    root.enter(
        [*shown, *policy.reads],
        policy.writes,
        copies=policy.copies,
        scratch=policy.scratch,
        scratch_bytes=policy.scratch_bytes,
        accelerators=policy.device,
        users=users,
        hidden=root.own_folders() if policy.tenant else root.hidden_folders(),
    )
    worker = os.fork()
    if worker:
        _keep_only(reply)
        os.write(_KEPT, str(_reap_until(worker)).encode())
        os._exit(0)
    os.close(report)
    os.close(reply)
    system.die_with_parent(signal.SIGKILL)


_KEPT = 3


def _keep_only(handle: int) -> None:
    """Close what is the worker's: the evaluator sees that it is gone when its connection closes."""
    os.dup2(handle, _KEPT)
    os.closerange(_KEPT + 1, os.sysconf("SC_OPEN_MAX"))


def _reap_until(worker: int) -> int:
    while True:
        pid, status = os.wait()
        if pid == worker:
            return status


def _end_as(status: int) -> None:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


# ---- what works here


def probe() -> Layers:
    """Try each layer in a process of its own."""
    active: set[str] = set()
    missing: dict[str, str] = {}

    def attempt(name: str, action: Callable[[], object], needs: str) -> bool:
        reason = _try(action)
        if reason:
            missing[name] = f"{reason}; {needs}"
        else:
            active.add(name)
        return not reason

    if os.getuid() == 0:
        attempt("user", _become_another, "needs CAP_SETUID")
    else:
        missing["user"] = "only root can give a worker another uid"
    attempt("seccomp", _filter, "needs Linux on x86-64 or aarch64, with CONFIG_SECCOMP_FILTER")
    attempt("landlock", _landlock, "needs Linux 5.13 with Landlock enabled")
    attempt("cgroup", _group, "needs root, or a delegated cgroup")
    tree = Path("/tmp/portkern-probe")
    attempt(
        "namespaces",
        lambda: confine(JailPolicy(tree), Layers(frozenset({"namespaces"} | active - {"cgroup"}))),
        "needs root, or unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, "
        "kernel.apparmor_restrict_unprivileged_userns=0), and Linux 5.12",
    )
    if "user" in active and "namespaces" not in active:
        active.remove("user")  # unless nobody can read what Python needs, where it lies
        attempt("user", _nobody_reads, "needs Python and portkern where every user can read them")
    return Layers(frozenset(active), missing).only(os.environ.get(SWITCH, "all"))


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise OSError(reason)


def _become_another() -> None:
    become(Users.of(os.getpid()).worker, groups=True)


def _nobody_reads() -> None:
    paths = root.python_paths()
    _become_another()
    for path in paths:
        path.stat()


def _landlock() -> None:
    _require(system.landlock_version() > 0, "not in this kernel")


def _filter() -> None:
    _require(seccomp.supported(), "no numbers of system calls for this processor")
    system.no_new_privileges()
    seccomp.install()


def _group() -> None:
    group = control_groups.ControlGroup.create(ProcessLimits.of_this_machine())
    _require(group is not None, "this user may not make one")
    assert group is not None
    group.remove()


def _try(action: Callable[[], object]) -> str:
    """Empty when ``action`` succeeds in a child; else what it raised."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            action()
            os.close(writing)
            os._exit(0)
        except BaseException as error:  # noqa: BLE001 - the child must not go on as its parent
            os.write(writing, str(error).encode()[:500] or b"failed")
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as said:
        reason = said.read().decode()
    _, status = os.waitpid(child, 0)
    return reason or ("" if status == 0 else f"ended with status {status}")
