"""Programs of others, the worker that starts them, and what comes back: each way from one to the
other was tried, and is shown to be open where what closes it is turned off."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from portkern.errors import WorkerError
from portkern.evaluator.jailed_process import JailedOutcome, JailedProcesses
from portkern.port import triton_answers, triton_recorded, triton_worker
from portkern.port.proof import meddling, recording
from portkern.sandbox import jail
from portkern.sandbox import session as sandbox
from portkern.sandbox.jail import programs
from portkern.sandbox.jail.users import Users
from portkern.sandbox.message import FormError
from portkern.sandbox.session import Answered, Session
from portkern.simt.execute import source_lines
from portkern.worker import execution, protocol
from portkern.worker.protocol import RECORD, Execute

#: What an attacker of any kind may use; ``tell`` is its only word.
HELPERS = """
import ctypes, glob, os, signal, sys, time
libc = ctypes.CDLL(None, use_errno=True)
results = os.environ["PORTKERN_SIMT"].partition("findings=")[2].partition("/findings")[0]
def others():
    return [p for p in glob.glob("/proc/[0-9]*") if p != f"/proc/{os.getpid()}"]
def first(action):
    for other in others():
        try:
            if got := action(other):
                return got
        except OSError:
            pass
    return None
def tell(text):
    print("told:", text, flush=True)
"""
NEEDS_NAMESPACES = pytest.mark.skipif(
    "namespaces" not in sandbox.layers().active, reason="no namespaces here"
)
NEEDS_ROOT = pytest.mark.skipif(
    "user" not in sandbox.layers().active, reason="only root can give a program another uid"
)


class Machine:
    """Runs attackers one after the other, for one worker, in a folder with one file."""

    def __init__(self, processes: JailedProcesses, folder: Path) -> None:
        self._processes, self._folder = processes, folder

    def run(self, code: str, *, timeout_s: float = 30.0, **asked: Any) -> JailedOutcome:
        argv = (sys.executable, "-S", "-P", "-c", HELPERS + code)
        request = Execute(argv, str(self._folder), "sm_90", "cuda", (), timeout_s, **asked)
        return self._processes.run(request)

    def told(self, code: str) -> str:
        """The secret that an attacker prints, or how it ended if it prints none."""
        ended = self.run(code).program
        said = [line for line in ended.output.splitlines() if line.startswith("told: ")]
        return said[-1].removeprefix("told: ") if said else f"ended with {ended.status}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path in (tmp_path, *tmp_path.parents):
        if path.name.startswith("pytest-"):
            path.chmod(0o755)  # in the jail, root's programs are another's
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "given.txt").write_text("given")
    return tmp_path / "data"


@pytest.fixture(scope="module", autouse=True)
def _servers() -> Iterator[None]:
    yield
    sandbox.close_servers()


def _machine(folder: Path) -> Iterator[Machine]:
    with JailedProcesses([folder]) as processes:
        yield Machine(processes, folder)


@pytest.fixture
def machine(folder: Path) -> Iterator[Machine]:
    yield from _machine(folder)


@pytest.fixture
def bare(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """The same without containment."""
    sandbox.close_servers()
    monkeypatch.setenv(jail.SWITCH, "none")
    yield from _machine(folder)
    sandbox.close_servers()


#: What an attack tries to get of each other process that it sees.
INTO_OTHERS = {
    "the memory": "lambda p: open(p + '/mem', 'rb+')",
    "the map": "lambda p: open(p + '/maps').read()",
    "the handles": "lambda p: [os.readlink(p + '/fd/' + n) for n in os.listdir(p + '/fd')]",
    "the environment": "lambda p: open(p + '/environ', 'rb').read()",
}
CALLS = {
    "ptrace": "libc.ptrace(16, os.getppid(), 0, 0)",
    "process_vm_readv": "libc.process_vm_readv(os.getppid(), None, 0, None, 0, 0)",
    "process_vm_writev": "libc.process_vm_writev(os.getppid(), None, 0, None, 0, 0)",
    "pidfd_getfd": "libc.syscall(438, libc.syscall(434, os.getppid(), 0), 0, 0)",
    "process_madvise": "libc.syscall(440, 0, None, 0, 4, 0)",
}


@pytest.mark.parametrize("attack", INTO_OTHERS)
def test_a_program_reaches_of_others_neither(attack: str, machine: Machine) -> None:
    assert machine.told(f"tell(first({INTO_OTHERS[attack]}))") == "None"


#: An attack by a name that is made as it runs, which no text of the program has.
INTO_ITSELF = """
name = "/".join(["", "corp"[::-1], "self", "m" + chr(101) + "m"])
try:
    with open(name, "rb+", buffering=0) as memory:
        at = id(tell) // 16 * 16
        memory.seek(at)
        memory.write(memory.read(0))
    tell("through")
except OSError as error:
    tell("nothing")
"""


def test_a_program_cannot_write_to_itself_by_its_file_in_proc(machine: Machine) -> None:
    """Its code would be others than what was built, and the executor's too."""
    assert machine.told(INTO_ITSELF) == "nothing"


def test_without_containment_it_can(bare: Machine) -> None:
    assert bare.told(INTO_ITSELF) == "through"


#: Runs the attack beside a worker that has only these guards.
GUARDED = """
import json, os, sys
from pathlib import Path
from portkern.sandbox import jail
from portkern.sandbox.jail import system
from portkern.sandbox.jail.programs import Command
asked = json.loads(sys.argv[1])
layers = jail.probe().only(asked["guards"].replace("dumpable", "none"))
if "dumpable" not in asked["guards"]:
    system.set_dumpable = lambda dumpable: None
folder = Path(asked["folder"])
policy = jail.JailPolicy(Path(asked["scratch"]), (folder,), programs=True)
launcher = jail.confine(policy, layers)
environment = {**os.environ, "PORTKERN_SIMT": "findings=/findings"}
argv = (sys.executable, "-S", "-P", "-c", asked["code"])
print(launcher.run(Command(argv, str(folder), environment, 20.0), 1000).output.decode())
"""


def _told_with(guards: str, attack: str, folder: Path) -> str:
    scratch = folder.with_name("scratch")
    scratch.mkdir()
    code = f"{HELPERS}tell('through' if first({INTO_OTHERS[attack]}) else 'nothing')"
    asked = {"guards": guards, "scratch": str(scratch), "folder": str(folder), "code": code}
    ended = subprocess.run(
        [sys.executable, "-c", GUARDED, json.dumps(asked)],
        env={**os.environ, jail.SWITCH: guards.replace("dumpable", "none")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "told: " in ended.stdout, ended
    return ended.stdout.strip().removeprefix("told: ")


@pytest.mark.parametrize("attack", INTO_OTHERS)
@pytest.mark.parametrize("guards", ["dumpable", "namespaces", "landlock"])
def test_each_guard_keeps_a_program_out_by_itself(guards: str, attack: str, folder: Path) -> None:
    if guards in jail.LAYERS and guards not in sandbox.layers().active:
        pytest.skip(sandbox.layers().missing[guards])
    if guards == "dumpable" and os.getuid() != 0:
        pytest.skip("an ordinary user has other processes, which say nothing of it")
    assert _told_with(guards, attack, folder) == "nothing"


@pytest.mark.parametrize("attack", INTO_OTHERS)
def test_without_any_guard_a_program_gets_through(attack: str, folder: Path) -> None:
    assert _told_with("none", attack, folder) == "through"


@pytest.mark.parametrize("call", CALLS)
def test_a_program_dies_of_a_look_into_others(call: str, machine: Machine) -> None:
    told = machine.told(f"{CALLS[call]}\ntell('through')")
    assert told == f"ended with {-signal.SIGSYS}"


@pytest.mark.parametrize("call", CALLS)
def test_without_a_filter_it_does_not(call: str, bare: Machine) -> None:
    assert bare.told(f"{CALLS[call]}\ntell('through')") == "through"


@NEEDS_ROOT
def test_worker_and_program_have_users_of_their_own(machine: Machine) -> None:
    program = int(machine.told("tell(os.getuid())"))
    worker = machine._processes._worker
    assert worker is not None
    users = Users.of(worker.pid)
    assert users.alone
    uids = {_status(path)["Uid"].split()[0] for path in _members(worker.pid)}
    assert program == users.program
    assert {str(users.worker), str(users.program), "0"} == uids  # the last are launcher and first


def _members(pid: int) -> list[Path]:
    """This process and all that come from it, those that wait for a program too."""
    found = [Path(f"/proc/{pid}")]
    for path in found:
        children = (path / "task" / path.name / "children").read_text().split()
        found += [Path("/proc") / child for child in children]
    return found


def _status(path: Path) -> dict[str, str]:
    lines = (path / "status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def test_a_program_has_no_handle_but_the_standard_ones(machine: Machine) -> None:
    told = machine.told("""
handles = {}
for name in os.listdir("/proc/self/fd"):
    try:
        handles[int(name)] = os.readlink("/proc/self/fd/" + name).partition(":")[0]
    except OSError:
        pass
tell(sorted(handles.items()))
""")
    assert told == "[(0, '/dev/null'), (1, 'pipe'), (2, 'pipe')]"


def test_who_kills_all_it_can_reach_ends_itself_alone(machine: Machine) -> None:
    machine.run("os.kill(os.getppid(), signal.SIGKILL)\nos.kill(-1, signal.SIGKILL)")
    assert machine.told("tell('next')") == "next"


@NEEDS_NAMESPACES
@pytest.mark.parametrize(
    ("leave", "find"),
    [
        ("open('/tmp/left', 'w')", "os.path.exists('/tmp/left')"),
        ("os.makedirs('/dev/shm/left/below')", "os.path.exists('/dev/shm/left')"),
        ("open(results + '/left', 'w')", "os.path.exists(results + '/left')"),
        ("open('given.txt', 'w').write('other')", "open('given.txt').read() == 'other'"),
        ("libc.shmget(4242, 4096, 0o1666)", "libc.shmget(4242, 4096, 0o666) >= 0"),
    ],
)
def test_nothing_that_a_program_leaves_is_there_for_the_next(
    leave: str, find: str, machine: Machine
) -> None:
    assert machine.told(f"{leave}\ntell({find})") == "True"
    assert machine.told(f"tell({find})") == "False"


@pytest.mark.parametrize("where", ["machine", "bare"])
def test_what_a_program_started_ends_with_it(where: str, request: pytest.FixtureRequest) -> None:
    """Before what it wrote is taken for whole. Where nothing ended it, it would say so two seconds
    later by the handles of the output and the recording, for which both are waited for, and end."""
    machine: Machine = request.getfixturevalue(where)
    ended = machine.run(
        """
os.write(4, b"before")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(2)
        os.write(1, b"afterwards")
        os.write(4, b"afterwards")
    os._exit(0)
""",
        record_bytes=1000,
        sealed=True,
    )
    assert ended.program.status == 0 and "afterwards" not in ended.program.output
    assert ended.files == {RECORD: b"before"}
    assert machine.run("time.sleep(20)", timeout_s=0.5).program.status is None


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("os.symlink('/etc/passwd', PATH)", None),
        ("os.symlink(results, PATH)", None),
        ("os.mkfifo(PATH)", None),
        ("os.mkdir(PATH)", None),
        ("open(PATH, 'w').write('own')", b"own"),
    ],
)
def test_a_result_is_a_file_and_nothing_else(
    made: str, expected: bytes | None, machine: Machine
) -> None:
    ended = machine.run(made.replace("PATH", f"results + '/{RECORD}'"), record_bytes=1000)
    assert ended.program.status == 0, ended.program.output
    assert ended.files.get(RECORD) == expected


def test_a_result_and_an_output_are_cut_off_at_their_bounds(
    machine: Machine,
) -> None:
    most = execution.MOST_LINES + 1000
    ended = machine.run(
        f"""
file = open(results + "/{RECORD}", "wb"); file.truncate({most} + 4096); file.close()
for _ in range(20):
    sys.stdout.write("x" * (1 << 20))
""",
        record_bytes=1000,
    )
    assert len(ended.program.output) == execution.MOST_OUTPUT
    assert len(ended.files[RECORD]) == most


def test_of_what_a_program_says_the_worker_keeps_no_more_than_the_bound() -> None:
    reading, writing = os.pipe()

    def say() -> None:
        os.write(writing, b"x" * (1 << 18))
        os.close(writing)

    says = threading.Thread(target=say)
    says.start()
    kept = programs._drained(reading, 1000)
    says.join(10)
    os.close(reading)
    assert kept == b"x" * 1000 and not says.is_alive(), "it waits for nobody"


def test_a_program_that_cannot_be_started_is_told_so(folder: Path) -> None:
    with JailedProcesses([folder]) as processes:
        asked = Execute(("/nowhere/program",), str(folder), "sm_90", "cuda", (), 10.0)
        with pytest.raises(WorkerError, match=r"FileNotFoundError.*/nowhere/program"):
            processes.run(asked)


def test_a_worker_with_code_of_others_starts_no_program() -> None:
    with Session((), {}) as session:
        outcome = session.ask(Execute(("true",), "/", "sm_90", "cuda", (), 5.0), timeout_s=30)
    assert not isinstance(outcome, Answered)
    assert "starts no programs" in str(outcome)


def test_a_worker_that_starts_others_cannot_be_looked_into_by_its_user(folder: Path) -> None:
    """A process with the worker's uid finds its files to be root's."""
    with JailedProcesses([folder]) as processes:
        processes.run(Execute(("true",), str(folder), "sm_90", "cuda", (), 5.0))
        worker = processes._worker
        assert worker is not None
        for path in _members(worker.pid):
            assert (path / "mem").stat().st_uid == 0, path


def test_what_a_worker_starts_inherits_none_of_its_handles() -> None:
    """Neither the connection to the evaluator nor the memory that they share."""
    source = """
import os
kept = [n for n in os.listdir("/proc/self/fd") if n not in "012"]
def opened(name):
    try:
        return os.get_inheritable(int(name))
    except OSError:
        return False
raise KeyError([name for name in kept if opened(name)])
"""
    with Session((), {}) as session:
        outcome = session.ask(protocol.Reference(source, "cpu", compiled=False), timeout_s=60)
    assert "KeyError" in str(outcome) and "message='[]'" in str(outcome), outcome


# ---- what is said by those who may lie


def test_files_by_other_names_than_asked_for_are_not_an_answer() -> None:
    asked = Execute(("x",), "/", "sm_90", "cuda", (), 5.0, record_bytes=1, counts=("a.gcda",))
    good = {"status": 0, "output": [], "findings": [], "files": [[RECORD, 3], ["a.gcda", 4]]}
    assert asked.read(good).files == ((RECORD, 3), ("a.gcda", 4))
    for files in (
        [["/tmp/escaped/v.pth", 3]],
        [["../a.gcda", 3]],
        [["b.gcda", 3]],
        [[RECORD, -3]],
        [[RECORD, 3], [RECORD, 3]],
        [["a.gcda\0", 3]],
    ):
        with pytest.raises(FormError):
            asked.read(good | {"files": files})
    bare = Execute(("x",), "/", "sm_90", "cuda", (), 5.0)
    with pytest.raises(FormError):
        bare.read(good | {"files": [[RECORD, 3]]})


LAUNCH = {
    "launch": 0, "kernel": "k", "grid": [1, 1, 1], "block": [1, 1, 1], "shared": 0, "blob": 4,
    "after": [[1, 4, "d", 4, -1]],
}  # fmt: skip


@pytest.mark.parametrize(
    "forged",
    [
        {"blob": -60},  # a reader that steps back reads for ever
        {"blob": True},
        {"grid": [1, 1]},
        {"grid": [1, -1, 1]},
        {"kernel": ["k"]},
        {"after": [[1, 4, ["d"], 4, -1]]},
        {"after": [[1, 1 << 60, "d", 4, -1]]},
        {"after": [[1, 4, "d", 2, -1], [2, 2, "e", 2, -1]]},
        {"before": {"1": 2}},
        {"launch": 1 << 80},
        {"unheard": 1},
    ],
)
def test_a_forged_recording_ends_where_the_forgery_begins(forged: dict[str, object]) -> None:
    good = json.dumps(LAUNCH).encode() + b"\nABCD"
    bad = json.dumps(LAUNCH | forged).encode() + b"\nABCD"
    assert len(recording.read(good + good)) == 2
    assert len(recording.read(good + bad + good)) == 1
    assert recording.read(b"[" * 100_000 + b"\n") == ()


@pytest.mark.parametrize(
    "forged",
    [
        "[]", "7", '"counters"', "[" * 100_000, '{"code": "SX999", "message": "m"}', "{}",
        '{"code": ["SX101"], "message": "m"}', '{"code": "SX101", "message": "m", "count": "x"}',
        '{"code": "SX101", "message": "m", "file": "f", "line": -1, "column": 0}',
        '{"code": "SX101", "message": "m", "file": "f", "line": 1e999, "column": 0}',
        '{"code": "SX101", "message": "m", "block": [1]}', '{"code": "SX101", "message": "m", '
        '"module": "/dev/zero", "pc": 9223372036854775808}',
    ],
)  # fmt: skip
def test_a_forged_finding_ends_the_list_and_nothing_else(forged: str) -> None:
    good = b'{"code": "SX101", "message": "m", "file": "f", "line": 1, "column": 2}\n'
    found, _ = source_lines.parsed(good + forged.encode() + b"\n" + good)
    assert [(finding.code, finding.line) for finding in found] == [("SX101", 1)]


@pytest.mark.parametrize(
    "code",
    [
        "ptrace(PTRACE_ATTACH, pid, 0, 0);",
        "int n = 1'000; ptrace /**/ (PTRACE_ATTACH, pid, 0, 0);",
        'auto a = R"("/*)"; ptrace(PTRACE_ATTACH, pid, 0, 0); auto b = R"(*/")";',
        "syscall(SYS_process_vm_writev, pid, &a, 1, &b, 1, 0);",
        'snprintf(path, 64, "/proc/%d/mem", getppid());',
        'open("/proc/self" "/mem", O_RDWR);',
        'std::ifstream f("/proc/1/maps");',
        'if (getenv("PORTKERN_SIMT")) cheat();',
        'if (getenv("GCOV_PREFIX")) cheat();',
        'setenv("LD_PRELOAD", "./x.so", 1);',
        'extern "C" void __gcov_reset(); __gcov_reset();',
        'dlsym(nullptr, "simt_mark_written");',
        'open("/pro\\x63/self/\\155em", O_RDWR);',
        "simt :: flush_findings();",
        'asm volatile("syscall" :: "a"(1));',
    ],
)
def test_a_text_that_meddles_proves_nothing(code: str) -> None:
    assert "prove nothing" in meddling.meddles(f"int main() {{ {code} }}")


@pytest.mark.parametrize(
    "code",
    [
        'FILE* f = fopen("/proc/meminfo", "r");',
        'readlink("/proc/self/exe", path, 100);',
        "// ptrace would be seen here",
        '/* "/proc/1/mem" */ int ptraced = 0;',
        'puts("see http://host/process"); float simt = 1;',
        'asm("mov.u32 %0, %laneid;" : "=r"(lane)); puts("simt::x");',
    ],
)
def test_an_honest_text_is_none_that_meddles(code: str) -> None:
    assert meddling.meddles(f"int main() {{ {code} }}") == ""


def test_what_a_triton_library_prints_is_not_an_answer() -> None:
    known: dict[int, dict[str, object]] = {}
    said = "\n".join(
        [
            '{"number": 1, "written": {}}',  # a module prints it when it is imported
            'mark{"begins": 7}',
            'mark{"begins": 2}',
            'mark{"number": 9, "error": "of none that was wanted"}',
            'mark{"number": true, "error": "of none"}',
            f"mark{'[' * 100_000}",
            f'mark{{"number": 2, "error": {"[" * 900}{"]" * 900}}}',
        ]
    )
    assert triton_worker._read(said, "mark", frozenset({1, 2}), known) == 2
    assert known == {}
    assert triton_worker._read('mark{"number": 2}', "mark", frozenset({2}), known) is None
    assert known == {2: {"number": 2}}


@pytest.mark.parametrize(
    "forged",
    [
        {}, {"written": []}, {"written": {"x": 3}}, {"written": {"x": {"type": "float32"}}},
        {"type": "float99"}, {"type": "float64"}, {"count": -1}, {"count": 0}, {"count": 1e30},
        {"values": "not base64 !"}, {"values": ""}, {"values": "AAAAAAAA"}, {"places": ["a"]},
        {"lines": [1]}, {"all_lines": 7}, {"read": [3]},
    ],
)  # fmt: skip
def test_a_forged_answer_of_a_triton_library_says_nothing(forged: dict[str, object]) -> None:
    own = {"type": "float32", "count": 1, "places": "d", "values": "AAAAAA=="}
    good: dict[str, object] = {"written": {"x": own}, "read": [], "lines": ["3"], "all_lines": []}
    assert "unknown" not in triton_answers.formed(good, "written")
    if forged.keys() <= own.keys():
        bad = good | {"written": {"x": own | forged}}
    else:
        bad = good | forged
    if not forged:
        bad = {}
    assert "no form that is known" in str(triton_answers.formed(bad, "written")["unknown"])


def test_forged_answers_of_a_triton_library_are_compared_by_their_types() -> None:
    def answer(kind: str, count: int) -> dict[str, object]:
        own = {"type": kind, "count": count, "places": "d", "values": "AACAPwAAgD8="}
        return triton_answers.formed({"whole": {"x": own}}, "whole")

    told, other = ({"written": answer(*one)["whole"]} for one in (("float32", 2), ("int8", 8)))
    assert triton_answers.differs(told, other) == "'x' is written as int8, expected float32"
    assert not triton_answers.differs(told, told)
    assert triton_recorded._by_line(f"a.py:{'9' * 5000}") == ("a.py", 0)
