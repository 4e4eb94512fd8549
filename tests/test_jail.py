"""The limits of code in a worker, with every layer and where there are no namespaces."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from portkern.errors import ConfigError
from portkern.sandbox import jail
from portkern.sandbox import session as sandbox
from portkern.sandbox.jail import Layers
from portkern.sandbox.jail.users import NOBODY
from portkern.sandbox.message import Failed
from portkern.sandbox.session import Answered, Outcome, Session
from portkern.worker import protocol

ROOT = Path(__file__).resolve().parents[1]
LIBC = ctypes.CDLL(None, use_errno=True)
#: Enters the jail that argv describes, then runs the code; its `found` comes back as JSON.
INSIDE = """
import json, os, signal, sys
from dataclasses import replace
from pathlib import Path
from portkern.sandbox import jail
request = json.loads(sys.argv[1])
policy = jail.JailPolicy(Path(request["scratch"]))
policy = replace(policy, **request["policy"], limits=replace(policy.limits, **request["limits"]))
layers = jail.probe() if request["layers"] == "all" else jail.probe().only(request["layers"])
jail.confine(policy, layers)
names = {}
exec(request["code"], names)
print(json.dumps(names["found"]))
"""
HELPERS = """
import os, socket
def attempt(action):
    try:
        action()
        return "done"
    except Exception as error:
        return type(error).__name__
"""
Inside = Callable[..., Any]


@pytest.fixture(params=["all", "seccomp,landlock"])
def inside(request: pytest.FixtureRequest, tmp_path: Path) -> Inside:
    """Runs code in a jail and returns its ``found``, or the process if it ended without."""
    if request.param != "all" and "landlock" not in sandbox.layers().active:
        pytest.skip(sandbox.layers().missing["landlock"])

    def run(code: str, *, limits: dict[str, int] | None = None, **policy: int) -> Any:
        scratch = tmp_path / "scratch"
        scratch.mkdir(exist_ok=True)
        asked = {
            "scratch": str(scratch),
            "layers": request.param,
            "code": HELPERS + code,
            "policy": policy,
            "limits": limits or {},
        }
        ended = subprocess.run(
            [sys.executable, "-c", INSIDE, json.dumps(asked)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return json.loads(ended.stdout) if ended.returncode == 0 else ended

    return run


@pytest.mark.parametrize(
    "action",
    [
        "socket.socket(socket.AF_INET, socket.SOCK_STREAM)",
        "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)",
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
        "socket.create_connection(('127.0.0.1', 22), timeout=2)",
        "open(os.path.expanduser('~/.profile'))",
        f"open({str(ROOT / 'README.md')!r})",
        f"open({str(Path(__file__).resolve())!r})",
        "open('/etc/shadow')",
        "open('/etc/ssh/sshd_config')",
        "open('/usr/portkern-was-here', 'w')",
        "open(os.__file__, 'a')",
        "os.unshare(os.CLONE_NEWUSER) if hasattr(os, 'unshare') else open('/none')",
        "os.setuid(0) if os.getuid() else open('/none')",
        "os.mknod('/tmp/disk', 0o60600, os.makedev(8, 0))",
    ],
)
def test_a_worker_cannot(inside: Inside, action: str) -> None:
    assert inside(f"found = attempt(lambda: {action})") not in ("done", None)


#: Another process of the user's, without capabilities: who has none can do nothing to who has some.
BYSTANDER = """
import sys
from portkern.sandbox.jail import system
system.drop_capabilities()
print(flush=True)
sys.stdin.read()
"""


def test_a_worker_reaches_nothing_that_others_share_by_name_or_number(
    inside: Inside, tmp_path: Path
) -> None:
    """Landlock looks at none of this; each is open to everybody here, and to the worker's user."""
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    door, file = tmp_path / "door", tmp_path / "file"
    file.write_text("")
    file.chmod(0o640)
    memory = LIBC.shmget(0, 4096, 0o1666)
    command = [sys.executable, "-c", BYSTANDER]
    pipe = subprocess.PIPE
    try:
        with (
            socket.socket(socket.AF_UNIX) as path,
            socket.socket(socket.AF_UNIX) as named,
            subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=ROOT) as other,
        ):
            assert other.stdout is not None
            other.stdout.readline()
            before = _standing(other.pid)
            path.bind(str(door))
            door.chmod(0o777)
            named.bind(f"\0{tmp_path.name}-{os.getpid()}")
            path.listen()
            named.listen()
            found = inside(f"""
import ctypes, resource
libc = ctypes.CDLL(None, use_errno=True)
def connect(address):
    socket.socket(socket.AF_UNIX).connect(address)
def attach():
    if libc.shmat({memory}, None, 0o10000) == -1:
        raise OSError
found = [attempt(action) for action in (
    lambda: connect({str(door)!r}), lambda: connect("\\0{tmp_path.name}-{os.getpid()}"), attach,
    lambda: resource.prlimit({other.pid}, resource.RLIMIT_NOFILE, (64, 64)),
    lambda: os.setpriority(os.PRIO_PROCESS, {other.pid}, 19),
    lambda: os.setpriority(os.PRIO_USER, 0, 19),
    lambda: os.sched_setscheduler({other.pid}, os.SCHED_IDLE, os.sched_param(0)),
)]
attempt(lambda: os.sched_setaffinity({other.pid}, {{min(os.sched_getaffinity(0))}}))
os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
attempt(lambda: os.chmod({str(file)!r}, 0o666))
attempt(lambda: os.utime({str(file)!r}, (1, 1)))
""")
            assert "done" not in found, found
            assert _standing(other.pid) == before
    finally:
        LIBC.shmctl(memory, 0, None)
    assert file.stat().st_mode & 0o777 == 0o640
    assert file.stat().st_mtime > 1


def _standing(process: int) -> tuple[object, ...]:
    """The limits of a process and its place in the scheduler."""
    return (
        resource.prlimit(process, resource.RLIMIT_NOFILE),
        os.getpriority(os.PRIO_PROCESS, process),
        os.sched_getscheduler(process),
        os.sched_getaffinity(process),
    )


def test_a_worker_can_use_what_kernels_need(inside: Inside) -> None:
    found = inside("""
import ctypes, multiprocessing.shared_memory, subprocess, threading, tempfile
def spawn():
    assert subprocess.run(["sh", "-c", "exit 7"]).returncode == 7
def thread():
    one = threading.Thread(target=lambda: None); one.start(); one.join()
found = [attempt(action) for action in (
    lambda: open("file", "w").write("x"), lambda: tempfile.TemporaryFile().write(b"x"),
    lambda: open("/proc/self/maps").read(), lambda: open("/proc/cpuinfo").read(),
    lambda: ctypes.CDLL("libm.so.6"), lambda: socket.socketpair(), spawn, thread,
    lambda: os.memfd_create("x"), lambda: open("/dev/urandom", "rb").read(4),
)]
""")
    assert found == ["done"] * len(found)


def test_what_python_imports_is_there_by_the_name_that_it_uses(tmp_path: Path) -> None:
    """An environment that is reached through a link."""
    (tmp_path / "venv").symlink_to(sys.prefix)
    code = "import numpy, portkern\nfound = numpy.__file__"
    asked = {
        "scratch": str(tmp_path / "scratch"),
        "layers": "all",
        "code": code,
        "policy": {},
        "limits": {},
    }
    ended = subprocess.run(
        [tmp_path / "venv" / "bin" / Path(sys.executable).name, "-c", INSIDE, json.dumps(asked)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout).startswith(str(tmp_path / "venv"))


def test_neither_the_evaluator_nor_its_environment_can_be_seen(inside: Inside) -> None:
    evaluator = os.getpid()
    found = inside(f"""
found = [attempt(action) for action in (
    lambda: os.kill({evaluator}, 0), lambda: open("/proc/{evaluator}/environ", "rb").read(),
    lambda: open("/proc/{evaluator}/mem", "rb+"),
)]
""")
    assert "done" not in found


def test_a_process_cannot_be_traced(inside: Inside) -> None:
    found = inside("""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
found = [libc.ptrace(16, os.getppid(), 0, 0), ctypes.get_errno()]  # PTRACE_ATTACH
""")
    assert found[0] == -1


def test_a_process_cannot_be_started_in_the_name_of_the_parent(inside: Inside) -> None:
    found = inside("""
import ctypes, platform, signal
libc = ctypes.CDLL(None, use_errno=True)
def clone(flags):
    number = ctypes.c_long({"x86_64": 56, "aarch64": 220}[platform.machine()])
    process = libc.syscall(number, ctypes.c_ulong(flags | signal.SIGCHLD), *[ctypes.c_ulong(0)] * 4)
    if process == 0:
        os._exit(0)
    return [process > 0, ctypes.get_errno() if process < 0 else 0]
found = [clone(0), clone(0x8000)]  # CLONE_PARENT
""")
    assert found == [[True, 0], [False, errno.EPERM]]


def test_no_capability_is_left_and_none_comes_back(inside: Inside) -> None:
    """Neither the worker has one, nor what it starts: a program of root's would get all."""
    own, started = inside("""
import subprocess
found = []
for text in (
    open("/proc/self/status").read(),
    subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True).stdout,
):
    words = [line.split() for line in text.splitlines()]
    found.append({first: rest[0] for first, *rest in words if rest})
""")
    for found in (own, started):
        assert {found[f"Cap{which}:"].strip("0") for which in ("Prm", "Eff", "Bnd", "Amb")} == {""}
        assert found["NoNewPrivs:"] == "1"


def test_a_fork_bomb_ends_at_its_share(inside: Inside, request: pytest.FixtureRequest) -> None:
    if os.getuid() == 0 and request.node.callspec.params["inside"] != "all":
        pytest.skip("the kernel does not count root's processes; a cgroup does")
    found = inside(
        """
import signal, time
children = []
try:
    while len(children) < 500:
        children.append(os.fork())
        if children[-1] == 0:
            time.sleep(30)
            os._exit(0)
except OSError:
    pass
for child in children:
    os.kill(child, signal.SIGKILL)
found = len(children)
""",
        limits={"tasks": 64},
    )
    assert 0 < found < 64


#: A bomb that does as INSIDE, after which others of the worker's user have ended; with a uid of its
#: own or without.
BOMB = """
import json, os, signal, sys, time
from dataclasses import replace
from pathlib import Path
from portkern.sandbox import jail
from portkern.sandbox.jail import users
if sys.argv[2] == "shared":
    users.Users.of = classmethod(lambda cls, process: cls(users.NOBODY, users.NOBODY - 1, False))
layers = jail.Layers(jail.probe().active - {"cgroup"})
policy = jail.JailPolicy(Path(sys.argv[1]))
policy = replace(policy, limits=replace(policy.limits, tasks=64))
jail.confine(policy, layers)
print(layers, flush=True)
sys.stdin.readline()
children = []
try:
    while len(children) < 500:
        children.append(os.fork())
        if children[-1] == 0:
            time.sleep(30)
            os._exit(0)
except OSError:
    pass
for child in children:
    os.kill(child, signal.SIGKILL)
print(len(children))
"""


@pytest.mark.skipif("user" not in sandbox.layers().active, reason="only root has other users")
@pytest.mark.parametrize("counted", ["alone", "shared"])
def test_a_bomb_gets_the_share_of_others_that_have_ended_only_where_that_is_said(
    counted: str, tmp_path: Path
) -> None:
    """The system counts all that a user does: what was added for others that were there at the
    beginning is the bomb's when they end."""
    others = [subprocess.Popen(["sleep", "60"], user=NOBODY, group=NOBODY) for _ in range(8)]
    (tmp_path / "scratch").mkdir()
    inside = subprocess.Popen(
        [sys.executable, "-c", BOMB, str(tmp_path / "scratch"), counted],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert inside.stdout is not None
    said = inside.stdout.readline()
    for other in others:
        other.kill()
        other.wait()
    found = int(inside.communicate("go\n", timeout=60)[0])
    if counted == "alone":
        assert 0 < found < 64
        assert jail.SHARED_TASKS not in said
    else:
        assert found > 64
        assert jail.SHARED_TASKS in said


def test_a_memory_bomb_is_an_error_in_the_worker(inside: Inside) -> None:
    found = inside(
        """
def bomb():
    held = [bytearray(1 << 26) for _ in range(1000)]
found = attempt(bomb)
""",
        limits={"memory_bytes": 1 << 29},
    )
    assert found == "MemoryError"


def test_a_file_grows_to_its_limit_only(inside: Inside) -> None:
    found = inside(
        """
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
def fill():
    with open("file", "wb") as file:
        for _ in range(64):
            file.write(bytes(1 << 20))
found = attempt(fill)
""",
        limits={"file_bytes": 8 << 20},
    )
    assert found == "OSError"


@pytest.mark.skipif("namespaces" not in sandbox.layers().active, reason="no namespaces here")
def test_the_scratch_is_of_limited_size(inside: Inside, request: pytest.FixtureRequest) -> None:
    if request.node.callspec.params["inside"] != "all":
        pytest.skip("a folder on the machine's disk has the disk's size")
    found = inside(
        """
def fill():
    for number in range(64):
        with open(f"file-{number}", "wb") as file:
            file.write(bytes(1 << 20))
found = attempt(fill)
""",
        scratch_bytes=16 << 20,
    )
    assert found == "OSError"


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV, signal.SIGKILL])
def test_the_caller_ends_by_the_signal_that_ended_the_worker(inside: Inside, number: int) -> None:
    ended = inside(f"os.kill(os.getpid(), {int(number)})")
    assert ended.returncode == -number


def test_a_layer_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match="No containment layer 'seccmp'; did you mean 'seccomp'"):
        sandbox.layers().only("seccmp")


def test_without_containment_no_kernel_runs_unless_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = Layers(frozenset({"seccomp"}), {"namespaces": "not here", "landlock": "nor this"})
    with pytest.raises(OSError, match="PORTKERN_CONTAINMENT=none runs kernels without"):
        bare.check()
    monkeypatch.setenv(jail.SWITCH, "none")
    bare.check()


# ---- whole workers


@pytest.fixture(params=["all", "seccomp,landlock", "none"])
def containment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    sandbox.close_servers()  # the next server starts under the environment below
    monkeypatch.setenv(jail.SWITCH, request.param)
    yield request.param
    sandbox.close_servers()


def test_a_daemon_is_gone_with_its_worker(containment: str) -> None:
    """Two forks and a session of its own: no longer a child of the worker, nor of its group."""
    source = """
import os, subprocess, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execlp("sleep", "portkern-daemon", "3600")
    os._exit(0)
os.wait()
def run(x):
    return x
"""
    with Session((), {}) as session:
        outcome = _load(session, source)
        assert isinstance(outcome, Answered), outcome
        deadline = time.monotonic() + 10
        while not _running("portkern-daemon"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    time.sleep(0.2)
    assert not _running("portkern-daemon"), containment


def _load(session: Session, source: str) -> Outcome[protocol.Loaded]:
    return session.ask(protocol.Reference(source, "cpu", compiled=False), timeout_s=60)


def _running(name: str) -> bool:
    commands = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    return any(name in command for command in commands)


def test_the_answer_to_an_op_is_not_among_the_files(containment: str) -> None:
    if containment != "all":
        pytest.skip("only namespaces hide a folder of a package")
    source = "import portkern.ops.softmax\ndef run(x):\n    return x\n"
    with Session((), {}) as session:
        outcome = _load(session, source)
    assert isinstance(outcome, Failed)
    assert outcome.error == "ModuleNotFoundError"
