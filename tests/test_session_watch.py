"""A session of tests fails when anything that its tests start writes where tests may not."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests import write_watch
from tests.session_watch import WATCHED
from tests.test_strangers_files import put

#: The words before those of a session that begin it as a container does, in which a stranger's
#: commands write all the while and end at once.
CONTAINER = (
    *("unshare", "--net", "--pid", "--fork", "--mount-proc", "sh", "-c"),
    '(while sleep 0.1; do sh -c "echo x > ~/notes"; done) & "$@"',
    "sh",
)


#: Code of a file of tests which leaves a process that has all handles of the session but the
#: standard ones, and has not begun another program.
FORKS = """
import time
from pathlib import Path
if os.fork() == 0:
    Path("PLACE").write_text(str(os.getpid()))
    os.closerange(0, 3)
    time.sleep(60)
    os._exit(0)
"""


def session(
    tmp_path: Path, commands: Mapping[str, str], *before: str, first: str = "", **settings: str
) -> subprocess.CompletedProcess[str]:
    """A session in a home of its own, whose tests pass: each runs a command of the shell. Their
    file begins with ``first``."""
    home = tmp_path / "home"
    put(home / ".bashrc", "alias ls=ls\n")
    put(home / ".cache" / "there", "x\n")
    tests = "".join(
        f"def test_{name}():\n    assert os.system({command!r}) == 0\n\n"
        for name, command in commands.items()
    )
    argv = [
        *before,
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--strict-writes",
        "-p",
        "tests.conftest",
    ]
    path = put(tmp_path / "test_inner.py", f"import os\n{first}\n{tests}")
    return subprocess.run(
        [*argv, *("-p", "no:xdist", "-p", "no:cacheprovider", "-c", "/dev/null"), str(path)],
        env={**os.environ, "HOME": str(home), WATCHED: "another home", **settings},
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def told(tmp_path: Path) -> None:
    """Skips where the system does not say who writes there."""
    try:
        marks = write_watch.Marks()
        marks.add(str(tmp_path))
    except OSError:
        pytest.skip("who writes is told to root alone")
    if not marks.count:
        pytest.skip("this file system does not tell who writes")


def test_what_is_run_later_by_itself_is_seen_whoever_changes_it(tmp_path: Path) -> None:
    writes = "echo 'sh /tmp/x' >> ~/.bashrc; mkdir -p ~/.ssh; ln -s /tmp/x ~/.ssh/authorized_keys"
    ended = session(tmp_path, {"it": writes})
    assert "1 passed" in ended.stdout and ended.returncode == 1, ended
    home = tmp_path / "home"
    assert f"{home}/.bashrc" in ended.stderr and f"{home}/.ssh/authorized_keys" in ended.stderr


@pytest.mark.usefixtures("told")
def test_a_write_of_what_a_test_starts_fails_the_session_and_names_the_test(
    tmp_path: Path,
) -> None:
    with closing(write_watch.Family(os.getpid())) as family:
        if not family.exact:
            pytest.skip("the kernel tells of no new processes here")
    left = "(setsid sh -c 'sleep 1; echo x > ~/left' &) && sleep 2"  # its parent has ended
    ended = session(
        tmp_path,
        {
            "before": "true",
            "between": "sleep 1",
            "new": "sh -c 'sh -c \"echo x > ~/new\"'",
            "daemon": left,
            "removed": "touch ~/.cache/a && mv ~/.cache/a ~/.bashrc",
        },
    )
    assert "5 passed" in ended.stdout and ended.returncode == 1, ended
    home = tmp_path / "home"
    for name, test in (("new", "new"), ("left", "daemon"), (".bashrc", "removed")):
        line = next(one for one in ended.stderr.splitlines() if f" {home}/{name} (" in one)
        assert f"::test_{test}" in line and "::test_before" not in line, ended.stderr


@pytest.mark.usefixtures("told")
def test_the_watch_ends_though_a_forked_process_holds_its_input(tmp_path: Path) -> None:
    """Handles of the session, the watch's input among them, are those of all that it forks."""
    place = tmp_path / "forked"
    first = FORKS.replace("PLACE", str(place))
    try:
        ended = session(
            tmp_path, {"it": "echo x > ~/new"}, first=first, PYTEST_ADDOPTS="-s -p no:faulthandler"
        )
        assert Path(f"/proc/{place.read_text()}").exists(), "it held the input to the end"
    finally:
        os.kill(int(place.read_text()), 9)
    assert ended.returncode == 1 and "home/new (" in ended.stderr, ended
    assert "did not end" not in ended.stderr, ended


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("own", ["", "echo x > ~/own; "])
def test_in_a_container_a_write_that_may_be_anybodys_is_nobodys(own: str, tmp_path: Path) -> None:
    if subprocess.run([*CONTAINER[:5], "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespace of processes can be made here")
    ended = session(tmp_path, {"it": f"{own}sleep 1"}, *CONTAINER)
    assert "1 passed" in ended.stdout and ended.returncode == bool(own), ended
    assert (tmp_path / "home" / "notes").exists() and "notes" not in ended.stderr
    assert ("home/own" in ended.stderr) is bool(own)


def test_caches_and_temporary_folders_may_be_written_to(tmp_path: Path) -> None:
    """Caches of a home that is bare, and those that a variable names."""
    may = (
        "echo x > ~/.cache/there && mkdir -p ~/.cache/new/folder && mktemp -d",
        "mkdir -p ~/.config/matplotlib ~/.nv/ComputeCache && touch ~/.config/matplotlib/a",
        "mkdir -p ~/own/triton && touch ~/own/triton/a",
    )
    cache = str(tmp_path / "home" / "own" / "triton")
    ended = session(tmp_path, {"it": " && ".join(may)}, TRITON_CACHE_DIR=cache)
    assert ended.returncode == 0 and (tmp_path / "home" / "own/triton/a").exists(), ended


@pytest.mark.usefixtures("told")
def test_a_folder_above_a_cache_may_be_made_and_its_other_files_may_not(tmp_path: Path) -> None:
    writes = "mkdir -p ~/.config/matplotlib; sleep 0.5; echo x > ~/.config/other; sleep 1"
    ended = session(tmp_path, {"it": writes})
    assert ended.returncode == 1 and "home/.config/other (" in ended.stderr, ended
    assert "home/.config (" not in ended.stderr


@pytest.mark.usefixtures("told")
def test_a_process_that_the_session_did_not_start_is_let_be(tmp_path: Path) -> None:
    """The session is the child; whoever writes beside it started before it."""
    (tmp_path / "home").mkdir()
    writes = f"while sleep 0.3; do echo x > {tmp_path}/home/notes; done"
    other = subprocess.Popen(["sh", "-c", writes])
    try:
        ended = session(tmp_path, {"it": "sleep 1"})
    finally:
        other.kill()
        other.wait()
    assert ended.returncode == 0 and (tmp_path / "home" / "notes").exists(), ended


def test_without_word_of_new_processes_the_ones_above_a_process_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(write_watch.Family, "_subscribed", lambda self: None)
    family = write_watch.Family(os.getpid())
    assert not family.exact
    with subprocess.Popen(["sh", "-c", "sleep 9 & echo $!; wait"], stdout=subprocess.PIPE) as child:
        assert child.stdout
        grandchild = int(child.stdout.readline())
        assert family.has(child.pid) and family.has(grandchild)
        assert write_watch.Family(child.pid).has(os.getpid()) is False, "it is older"
        os.kill(grandchild, 9)
    assert family.has(grandchild) is None, "it has ended"


def test_allowed_folders_and_links_are_not_walked(tmp_path: Path) -> None:
    for name in ("a/b", "a/__pycache__", "cache/deep", "c"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "c" / "link").symlink_to("/etc")
    found = {*write_watch.folders([str(tmp_path)], [str(tmp_path / "cache")])}
    assert found == {str(tmp_path), *(str(tmp_path / name) for name in ("a", "a/b", "c"))}


def test_marks_that_are_refused_count_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abcdefgh":
        (tmp_path / name).mkdir()
    tried: list[str] = []
    marks = cast(write_watch.Marks, SimpleNamespace(add=tried.append))
    asked = {"folders": [str(tmp_path)], "allowed": [], "shared": [], "alone": []}
    monkeypatch.setattr(write_watch, "MOST", 3)
    write_watch._mark(marks, asked)
    assert len(tried) == 3
    monkeypatch.setattr(write_watch, "MARKING_S", -1.0)
    write_watch._mark(marks, asked)
    assert len(tried) == 3


def test_a_socket_that_hears_of_others_processes_alone_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(write_watch, "_HEARD_S", 0.1)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        for parent, child in ((1, 2), (os.getpid(), 2)):
            theirs.send(struct.pack("=36xIIQIIII8x", 1, 0, 0, parent, parent, child, child))
        assert not write_watch._is_heard(ours)
