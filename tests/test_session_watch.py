"""A session of tests fails when anything that its tests start writes where tests may not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import write_watch
from tests.session_watch import WATCHED
from tests.test_strangers_files import put


def session(tmp_path: Path, commands: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """A session in a home of its own, whose tests pass: each runs a command of the shell."""
    home = tmp_path / "home"
    put(home / ".bashrc", "alias ls=ls\n")
    put(home / ".cache" / "there", "x\n")
    tests = "".join(
        f"def test_{name}():\n    assert os.system({command!r}) == 0\n\n"
        for name, command in commands.items()
    )
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:xdist"]
    path = put(tmp_path / "test_inner.py", f"import os\n\n{tests}")
    return subprocess.run(
        [*argv, "-p", "no:cacheprovider", "-c", "/dev/null", str(path)],
        env={**os.environ, "HOME": str(home), WATCHED: "another home"},
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )


def is_told(tmp_path: Path) -> bool:
    """Whether the system says here who writes."""
    try:
        return write_watch.Marks().names_processes
    except OSError:
        return False


def test_what_is_run_later_by_itself_is_seen_whoever_changes_it(tmp_path: Path) -> None:
    writes = "echo 'sh /tmp/x' >> ~/.bashrc; mkdir -p ~/.ssh; ln -s /tmp/x ~/.ssh/authorized_keys"
    ended = session(tmp_path, {"it": writes})
    assert "1 passed" in ended.stdout and ended.returncode == 1, ended
    home = tmp_path / "home"
    assert f"{home}/.bashrc" in ended.stderr and f"{home}/.ssh/authorized_keys" in ended.stderr


def test_a_write_of_what_a_test_starts_fails_the_session_and_names_the_test(
    tmp_path: Path,
) -> None:
    if not is_told(tmp_path):
        pytest.skip("who writes is told to root alone")
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


def test_caches_and_temporary_folders_may_be_written_to(tmp_path: Path) -> None:
    may = "echo x > ~/.cache/there && mkdir -p ~/.cache/new/folder && mktemp -d"
    ended = session(tmp_path, {"it": may})
    assert ended.returncode == 0, ended


def test_a_process_that_the_session_did_not_start_is_let_be(tmp_path: Path) -> None:
    """The session is the child; whoever writes beside it started before it."""
    if not is_told(tmp_path):
        pytest.skip("who writes is told to root alone")
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
