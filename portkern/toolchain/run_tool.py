"""Runs a compiler or another tool: argv, a timeout and a log that is kept.

A compiler reads whatever file its source names, and quotes it in a message. So a caller says whose
text a tool is given, and none is given a stranger's in a process that :func:`refuse_foreign` was
called in, as it is for every verb: there :mod:`portkern.evaluator.jailed_compilers` is asked.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO, Literal

from portkern.errors import BuildError, BuildTimeout, ToolError

#: A log longer than this keeps its beginning, where compilers put the first error.
LOG_LIMIT = 20_000
#: So much of a log is read at all.
MOST_LOG = 16 << 20
#: "own": text of portkern's, or none, as when a tool is asked for its version.
Whose = Literal["own", "foreign"]
#: Names of environment variables which no tool needs, and somebody's compiler could print.
CREDENTIAL = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
_refusing = 0


@contextmanager
def refuse_foreign() -> Iterator[None]:
    """A context in which this process starts no tool on a stranger's text."""
    with _counted(1):
        yield


def refuses_foreign() -> bool:
    """Whether this process keeps off a stranger's text, and off what is made of it."""
    return _refusing > 0


@contextmanager
def accept_foreign() -> Iterator[None]:
    """A context in which it does: the user has said that the text is trusted."""
    with _counted(-_refusing):
        yield


@contextmanager
def _counted(more: int) -> Iterator[None]:
    global _refusing
    _refusing += more
    try:
        yield
    finally:
        _refusing -= more


def run_tool(
    argv: Sequence[str | Path],
    *,
    whose: Whose,
    timeout_s: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    error: type[ToolError] = BuildError,
    keeps_warnings: bool = True,
) -> str:
    """Run ``argv`` and return stdout and stderr together; raise ``error`` with them otherwise.

    ``keeps_warnings``: False returns what is on stdout alone, to be parsed.
    ``whose``: of what text it is given, or made from. The tool gets a process group of its own;
    what is left of that is killed when the tool has ended or ``timeout_s`` is over.
    """
    name = Path(argv[0]).name
    if whose == "foreign" and _refusing:
        raise error(f"{name} would read a stranger's text outside of the jail; please report it")
    # Not a pipe: a child that the tool leaves behind would hold it open, and us with it.
    with _log(name) as log, _log(name) as warnings:
        try:
            process = subprocess.Popen(
                [str(a) for a in argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT if keeps_warnings else warnings,
                cwd=cwd,
                env=_environment(env or {}),
                start_new_session=True,
            )
        except OSError as failure:
            raise error(f"Cannot start {name}: {failure.strerror}") from failure
        try:
            ended = _has_ended(process, timeout_s)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            status = process.wait()
        if not ended:
            late = BuildTimeout if error is BuildError else error
            message = f"{name} ran longer than {timeout_s:g} s"
            raise late(message, log=(_text(log) + _text(warnings))[:LOG_LIMIT])
        if status != 0:
            said = _text(log) + _text(warnings)
            failed = f"{name} failed with status {status}"
            raise error(failed, log=said[:LOG_LIMIT], status=status)
        return _text(log)


def _log(name: str) -> BinaryIO:
    """A file without a path."""
    return open(os.memfd_create(name), "w+b")  # noqa: PTH123


def _has_ended(child: subprocess.Popen[bytes], timeout_s: float) -> bool:
    """Whether a child ends in time, which is said at once: Python's own wait with a limit, which is
    left where the system has no such handles or forbids them, looks every 50 ms."""
    try:
        handle = os.pidfd_open(child.pid)
    except OSError:
        try:
            child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True
    try:
        waiting = select.poll()
        waiting.register(handle, select.POLLIN)
        return bool(waiting.poll(1000 * timeout_s))
    finally:
        os.close(handle)


def _text(log: BinaryIO) -> str:
    """The file's text; others wrote it through handles of their own, so reading begins at 0."""
    log.seek(0)
    return log.read(MOST_LOG).decode(errors="replace")


def _environment(added: Mapping[str, str]) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not CREDENTIAL.search(name)}
    return {**own, **added}


def cache_root() -> Path:
    """``$PORTKERN_CACHE_DIR``, else ``portkern`` in the user's cache folder."""
    chosen = os.environ.get("PORTKERN_CACHE_DIR")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "portkern"


@lru_cache
def package_version(distribution: str) -> str | None:
    """The installed version of a PyPI distribution, without importing it; None if absent."""
    from importlib.metadata import PackageNotFoundError, version  # 30 ms

    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def import_root(folder: Path) -> Path:
    """The folder that a module in ``folder`` is imported from: the one above its outermost
    package; a folder may be a package without a file of its own."""
    while folder != folder.parent and any(
        (each / "__init__.py").is_file() for each in (folder, folder.parent)
    ):
        folder = folder.parent
    return folder


@lru_cache
def package_dir(module: str) -> Path | None:
    """The folder of an installed module (or namespace package), without importing it."""
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        return None
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path(spec.origin).parent if spec.origin else None
