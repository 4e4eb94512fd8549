"""A plugin of pytest that tells what was written where tests may not.

Files that are run later by themselves are compared before and after: a change fails the session.
Where the system allows it, each write of any descendant is told with the tests that ran then
(``write_watch.py``), which fails the session with ``--strict-writes``."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import pytest

from tests import write_watch
from tests.watch import changes, run_later
from tools.failed import CHANGED

#: Set for all that a session starts, with the home that it watches: one within it watches its own.
WATCHED = "TESTS_WATCH_OF"
#: Whatever is not a user's or a checkout's.
MACHINE = ("/etc", "/usr", "/opt", "/var")
TEMPORARY = ("/tmp", "/var/tmp")
_BEGINS_S = _ENDS_S = 15.0
_TOLD = 9
#: Variables that say where a tool's cache is, as XDG_CACHE_HOME and TRITON_CACHE_DIR do.
_CACHES = re.compile(r".*CACHE(_HOME|_DIR|_PATH|_ROOT|PREFIX)?|MPLCONFIGDIR|TORCH_EXTENSIONS_DIR")


def writable(config: pytest.Config) -> Sequence[Path]:
    """Where tests may write beside temporary folders: caches, and what is not a file of a disk."""
    kept = getattr(config, "cache", None)
    names = (".hypothesis", ".pytest_cache", ".mypy_cache", "build")
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    caches = [Path(value) for name, value in os.environ.items() if _CACHES.fullmatch(name)]
    return [
        *map(Path, ("/dev", "/proc", "/sys/fs/cgroup", "/var/cache", "/tmp/tpu_logs")),
        *(Path.home() / name for name in (".cache", ".triton", ".nv")),
        *(path for path in (settings / "matplotlib", *caches) if path.is_absolute()),
        *(config.rootpath / name for name in names),
        *([Path(kept._cachedir)] if kept is not None else []),
    ]


#: What pytest makes beside its cache and renames.
_RENAMED = "/pytest-cache-files-"


class SessionWatch:
    """Tells what was written in a session where tests may not, which ``--strict-writes`` fails."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._run_later = run_later(Path.home())
        self._ran: list[tuple[str, float, float]] = []
        self._running: dict[str, float] = {}
        self._said: IO[str] | None = None
        self._watch: subprocess.Popen[str] | None = None
        runs = not config.option.help and not config.option.collectonly
        if runs and os.geteuid() == 0 and os.environ.get(WATCHED) != str(Path.home()):
            self._start()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        """Wait until it watches: it began while tests were collected."""
        until = time.monotonic() + _BEGINS_S
        while self._watch and self._said and time.monotonic() < until:
            if self._watch.poll() is not None or os.fstat(self._said.fileno()).st_size:
                return
            time.sleep(0.02)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running[nodeid] = time.time()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._ran.append((nodeid, self._running.pop(nodeid, 0.0), time.time()))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        elsewhere = [one for one in self._writes() if _RENAMED not in one["path"]]
        changed = changes(self._run_later, run_later(Path.home()))
        if not elsewhere and not changed:
            return
        is_strict = self._config.getoption("strict_writes")
        failed = [*changed, *(one["path"] for one in elsewhere if is_strict)]
        if failed:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if failed and (kept := getattr(session.config, "cache", None)) is not None:
            kept.set(CHANGED, failed)
        if changed:
            sys.stderr.write(f"\nchanged by the tests, which may not: {changed[:_TOLD]}\n")
        for one in elsewhere[:_TOLD]:
            by = f"by {one['by'] or 'a process that has ended'} ({one['process']})"
            sys.stderr.write(
                f"\nwritten outside of temporary folders and caches: {one['path']} ({one['what']} "
                f"{by}) while these tests ran: {', '.join(self._during(one['at'])) or 'none'}\n"
            )

    def _start(self) -> None:
        is_inner = WATCHED in os.environ
        os.environ[WATCHED] = str(Path.home())
        temporary = [*dict.fromkeys(map(os.path.realpath, (*TEMPORARY, tempfile.gettempdir())))]
        root = self._config.rootpath.resolve()
        outer = [] if is_inner else [*MACHINE, str(root)]
        asked = {
            "folders": [os.path.realpath(Path.home()), *outer],
            "allowed": [*map(os.path.realpath, writable(self._config)), *_open_files()],
            "shared": [] if is_inner else [one for one in temporary if Path(one).is_dir()],
            "alone": [] if is_inner else [*map(str, root.parents)],
        }
        self._said = tempfile.TemporaryFile("w+", encoding="utf-8")
        self._watch = subprocess.Popen(
            [sys.executable, "-SE", write_watch.__file__, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=self._said,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._watch.stdin
        with suppress(OSError):  # it has ended: nothing is watched
            self._watch.stdin.write(json.dumps(asked) + "\n")
            self._watch.stdin.flush()

    def _writes(self) -> list[dict[str, Any]]:
        """The first write of each path, as the watch told it; waits until that has ended."""
        if self._watch is None or self._said is None:
            return []
        try:  # by a word: a forked process may still hold its input
            self._watch.communicate("end\n", timeout=_ENDS_S)
        except subprocess.TimeoutExpired:
            self._watch.kill()
            sys.stderr.write(f"\nthe watch over writes did not end within {_ENDS_S:g} s\n")
        self._said.seek(0)
        lines = [json.loads(line) for line in self._said if line.endswith("\n")]
        if not lines or not lines[0]["folders"]:
            sys.stderr.write("\nwrites of processes that tests start were not watched here\n")
            return []
        seen = {one["path"]: one for one in reversed(lines[1:])}
        return [*reversed(seen.values())]

    def _during(self, at: float) -> list[str]:
        """Tests that ran when it was told, and those that had just ended."""
        ran = [*self._ran, *((name, began, at) for name, began in self._running.items())]
        since = at - 2 * write_watch.PAUSE_S
        return [name for name, began, ended in ran if began <= at and ended >= since]


def _open_files() -> list[str]:
    """Where this process writes to by its caller's will, as a log of its output."""
    return [os.path.realpath(one) for one in Path("/proc/self/fd").glob("*")]
