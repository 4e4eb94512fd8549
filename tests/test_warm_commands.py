"""A check that runs in a fork of the server's warm process is the one that would have run here."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath

import psutil
import pytest

from portkern.cli import main, streams, warm, warm_process
from portkern.execution.installation import Portkern
from portkern.sandbox.jail import control_groups
from portkern.serve import address, signature
from portkern.serve.address import ServerAddress
from portkern.spec import target
from tests.test_serve import RELU, wait_for

KEY = signature.new_key()
#: How a client ends that nobody took a command of.
REFUSED = 77
CLIENT = f"""
import sys
from portkern.cli import streams, warm
streams.prepare()
code = warm.code_of(sys.argv[1:])
sys.exit({REFUSED} if code is None else code)
"""
SLOW = RELU.replace("    for", "    for (volatile long i = 0; i >= 0; i = (i + 1) & 7) {}\n    for")
#: The number from linux/prctl.h.
NO_NEW_PRIVILEGES = 38


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """The folder and the warm process of a server that evaluates nothing."""
    with pytest.MonkeyPatch.context() as patch:
        cache = tmp_path_factory.mktemp("cache")
        patch.setenv("PORTKERN_CACHE_DIR", str(cache))
        with beside() as number:
            yield cache, number


@pytest.fixture
def process(begun: tuple[Path, int], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("PORTKERN_CACHE_DIR", str(begun[0]))
    return begun[1]


@contextmanager
def beside() -> Iterator[int]:
    ServerAddress(
        host="127.0.0.1", port=1, key=KEY, pid=1, run="r", portkern=str(Portkern.here())
    ).write()
    with warm_process.beside(KEY) as number:
        wait_for((address.file().parent / warm.SOCKET).exists)
        yield number


def asked(
    folder: Path, *words: str, before: Callable[[], object] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", CLIENT, *words]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, preexec_fn=before
    )


@pytest.mark.parametrize(
    "words",
    ["missing.cpp op=relu", "relu.cpp op=rleu", "relu.cpp op=relu wrklds=ci", "relu.cpp"],
)
def test_it_says_what_a_process_of_its_own_says(words: str, process: int, tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "relu.cpp").write_text(RELU)
    alone = [sys.executable, "-m", "portkern.cli", "check", *words.split(), "serve=never"]
    own = subprocess.run(alone, cwd=folder, capture_output=True, text=True, check=False)
    said = asked(folder, "check", *words.split())
    assert (said.returncode, said.stdout, said.stderr) == (own.returncode, own.stdout, own.stderr)
    assert own.returncode == 2


@pytest.mark.full
def test_it_has_the_clients_folder_environment_and_mask(
    process: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "relu.cpp").write_text(RELU)
    monkeypatch.setenv("WHERE", "in-here")
    words = ("relu.cpp", "op=relu", "target=x86_64", "timed=false", "reports=${oc.env:WHERE}")
    said = asked(tmp_path, "check", *words, before=lambda: os.umask(0o002))
    assert said.returncode == 0, said.stderr
    assert "passed" in said.stdout
    [record] = tmp_path.glob("in-here/check/records.jsonl")
    assert record.stat().st_mode & 0o777 == 0o664


@pytest.mark.parametrize(
    "before",
    [
        lambda: ctypes.CDLL(None).prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0),
        lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200)),
        lambda: os.nice(1),
    ],
    ids=["privileges", "limits", "nice"],
)
def test_who_is_confined_otherwise_is_refused(
    before: Callable[[], object], process: int, tmp_path: Path
) -> None:
    assert asked(tmp_path, "check", "x.cpp", before=before).returncode == REFUSED


@contextmanager
def small_group() -> Iterator[Path]:
    """A control group with a quarter of a processor."""
    top, files = control_groups.MOUNTED, {"cpu.max": "25000 100000"}
    if not (top / "cgroup.controllers").exists():
        top, files = top / "cpu", {"cpu.cfs_quota_us": "25000"}
    group = top / f"portkern-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        for name, value in files.items():
            if not (group / name).exists():
                pytest.skip(f"control groups have no {name} here")
            (group / name).write_text(value)
        yield group
    finally:
        group.rmdir()


def test_a_client_in_a_smaller_control_group_is_refused(process: int, tmp_path: Path) -> None:
    with small_group() as group:
        join = group / "cgroup.procs"
        small = asked(tmp_path, "check", "x.cpp", before=lambda: join.write_text(str(os.getpid())))
    assert small.returncode == REFUSED
    assert asked(tmp_path, "check", "x.cpp").returncode == 2


@pytest.mark.parametrize(
    ("mine", "its", "alike"),
    [
        ("/user/a", "/user/a", True),
        ("/user/a", "/user/b", True),
        ("/user/a", "/user/small", False),
        ("/user/small", "/user/small", True),
        ("/user/small/c", "/user/small/d", True),
        ("/user/a", "/user/few", False),
        ("/user/few", "/user/other", True),
        ("/user/a", "/user/light", False),
        ("/user/a", "/user/gone", False),
    ],
)
def test_groups_are_alike_where_neither_withholds_what_the_other_gives(
    mine: str, its: str, alike: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = {"cpu.max": "max 100000", "memory.max": "max", "pids.max": "max", "cpu.weight": "100"}
    special = {
        "small": {"memory.max": "1073741824"},
        "few": {"pids.max": "10"},
        "other": {"pids.max": "10"},
        "light": {"cpu.weight": "10"},
    }
    for name in ("", "a", "b", "small", "small/c", "small/d", "few", "other", "light"):
        folder = tmp_path / "user" / name
        folder.mkdir(parents=True)
        for file, value in {**usual, **special.get(name, {})}.items():
            (folder / file).write_text(value)
    groups = {1: {"": PurePosixPath(mine)}, 2: {"": PurePosixPath(its)}}
    monkeypatch.setattr(control_groups, "MOUNTED", tmp_path)
    monkeypatch.setattr(control_groups, "groups_of", groups.__getitem__)
    assert control_groups.may_as_much(1, 2) is alike
    assert control_groups.may_as_much(2, 1) is alike


def test_groups_that_cannot_be_understood_count_no_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = {"pids": PurePosixPath("not/from/the/top")}
    monkeypatch.setattr(control_groups, "groups_of", lambda process: groups)
    assert not [*control_groups.tasks_counted()]


@pytest.mark.parametrize("name", [target.SITE, "PYTHONPATH", "LD_LIBRARY_PATH"])
def test_who_begins_otherwise_is_refused(
    name: str, process: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A site's targets, and modules and libraries of other folders."""
    monkeypatch.setenv(name, str(tmp_path))
    assert asked(tmp_path, "check", "x.cpp").returncode == REFUSED


@pytest.mark.parametrize("key", ["", signature.new_key()], ids=["unsigned", "another key"])
def test_what_the_servers_key_did_not_sign_is_closed_without_an_answer(
    key: str, process: int
) -> None:
    assert answer_to(*command(key)) == b""


@pytest.mark.parametrize("line", [b'{"bytes": Infinity, "signed": ""}', b"[]", b"{}", b"\xff"])
def test_a_line_that_is_not_a_command_ends_nothing(line: bytes, process: int) -> None:
    with suppress(OSError):  # it is closed before all was read
        assert answer_to(line + b"\n", b"") == b""
    assert json.loads(answer_to(*command(KEY)))["process"]


def test_a_command_is_taken_once(process: int) -> None:
    said = command(KEY)
    assert json.loads(answer_to(*said))["process"]
    assert answer_to(*said) == b""


def command(key: str) -> tuple[bytes, bytes]:
    body = json.dumps({"words": ["check", "x.cpp"], **warm.surroundings()}).encode()
    head = {"bytes": len(body), "signed": signature.sign(key, *warm.ASKED, body) if key else ""}
    return json.dumps(head).encode() + b"\n", body


def answer_to(head: bytes, body: bytes) -> bytes:
    with answered(head, body) as said:
        return said


@contextmanager
def answered(head: bytes, body: bytes) -> Iterator[bytes]:
    """The first line; whoever is taken is not told to begin, and waits for it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door, Path(os.devnull).open() as null:
        with warm.address() as path:
            door.connect(path)
        folder = os.open(".", os.O_RDONLY)
        socket.send_fds(door, [head], [null.fileno()] * 3 + [folder])
        os.close(folder)
        door.sendall(body)
        yield warm._line(door)


def heard(process: int) -> dict[str, set[int]]:
    """The signals that a process ignores, and those that it has blocked.

    Without those that the C library keeps to itself (32, 33): nobody else can set them, and some
    machines start every process with one of them ignored.
    """
    known = signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}
    status = Path(f"/proc/{process}/status").read_text()
    lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    masks = {name: int(lines[name], 16) for name in ("SigIgn", "SigBlk")}
    return {
        name: {n + 1 for n in range(64) if mask >> n & 1} & known for name, mask in masks.items()
    }


@contextmanager
def ignoring(*numbers: int) -> Iterator[None]:
    before = {one: signal.signal(one, signal.SIG_IGN) for one in numbers}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@pytest.fixture
def plain_signals() -> Iterator[None]:
    """Signals of a terminal as a terminal's processes have them: a shell starts what it runs in the
    background with two of them ignored."""
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGQUIT)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    yield
    for one, handler in before.items():
        signal.signal(one, handler)


def test_signals_do_to_a_command_what_they_do_to_its_client(
    plain_signals: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORTKERN_CACHE_DIR", str(tmp_path / "cache"))
    started = ExitStack()
    with ignoring(signal.SIGINT, signal.SIGQUIT):  # as 'portkern serve &' in a script
        warm_process = started.enter_context(beside())
    with started:
        assert signal.SIGINT in heard(warm_process)["SigIgn"]
        with answered(*command(KEY)) as said:
            assert heard(json.loads(said)["process"]) == {"SigIgn": set(), "SigBlk": set()}
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        with ignoring(signal.SIGHUP):
            asks = command(KEY)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        with answered(*asks) as said:
            expected = {"SigIgn": {signal.SIGHUP}, "SigBlk": {signal.SIGUSR1}}
            assert heard(json.loads(said)["process"]) == expected


def test_a_signal_that_the_client_ignores_is_not_forwarded(plain_signals: None) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        with ignoring(signal.SIGHUP), warm._forwarded(process.pid):
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGINT)
        assert process.wait(10) == -signal.SIGINT


STOPPED = """
import subprocess, sys
from portkern.cli import main, streams, warm
with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
    with warm._forwarded(process.pid):
        print(process.pid, flush=True)
        process.wait()
"""


def test_a_command_is_stopped_with_its_client_and_goes_on_with_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STOPPED], stdout=subprocess.PIPE, text=True, process_group=0
    ) as client:
        assert client.stdout is not None
        both = [psutil.Process(client.pid), psutil.Process(int(client.stdout.readline()))]
        for how, expected in ((signal.SIGTSTP, True), (signal.SIGCONT, False)) * 2:
            client.send_signal(how)
            for one in both:
                wait_for(lambda: (one.status() == psutil.STATUS_STOPPED) == expected)  # noqa: B023
        client.send_signal(signal.SIGTERM)
        assert client.wait(10) == -signal.SIGTERM
    wait_for(lambda: not both[1].is_running())


def test_an_interrupt_while_a_server_is_asked_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupt(words: Sequence[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(warm, "code_of", interrupt)
    monkeypatch.setattr(sys, "argv", ["portkern", "check", "x.cpp"])
    monkeypatch.setattr(streams, "prepare", lambda: None)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 130
    assert capfd.readouterr().err.startswith("portkern: interrupted;")


@pytest.mark.full
@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_client_that_is_interrupted_or_killed_ends_its_command(
    plain_signals: None, how: signal.Signals, code: int, process: int, tmp_path: Path
) -> None:
    (tmp_path / "relu.cpp").write_text(SLOW)
    words = ("check", "relu.cpp", "op=relu", "target=x86_64", "timed=false")
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT, *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as client:
        warm_process = psutil.Process(process)
        wait_for(lambda: running(warm_process))
        [own] = running(warm_process)
        wait_for(lambda: len(own.children(recursive=True)) > 2)  # its worker is at it
        time.sleep(1)
        client.send_signal(how)
        assert client.wait(60) == code, client.stderr and client.stderr.read()
    wait_for(lambda: not own.is_running() or own.status() == psutil.STATUS_ZOMBIE)


def running(process: psutil.Process) -> list[psutil.Process]:
    return [one for one in process.children() if one.status() != psutil.STATUS_ZOMBIE]


def test_nobody_is_asked_where_a_file_of_the_installation_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lib").mkdir()
    monkeypatch.setenv("PORTKERN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    with beside():
        assert asked(tmp_path, "check", "x.cpp").returncode == 2
        (tmp_path / "lib" / "new.py").write_text("")
        assert asked(tmp_path, "check", "x.cpp").returncode == REFUSED
    assert asked(tmp_path, "check", "x.cpp").returncode == REFUSED  # no server is there
    address.file().chmod(0o644)
    assert warm._key() is None
