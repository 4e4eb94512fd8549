"""Runs a compiler or another tool: argv, a timeout and a log that is kept."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from portkern.errors import BuildError, ToolError

#: A log longer than this keeps its beginning, where compilers put the first error.
LOG_LIMIT = 20_000


def run_tool(
    argv: Sequence[str | Path], *, timeout_s: float, cwd: Path | None = None,
    env: Mapping[str, str] | None = None, error: type[ToolError] = BuildError,
) -> str:  # fmt: skip
    """Run ``argv`` and return stdout and stderr together; raise ``error`` with them otherwise.

    The tool gets a process group of its own, all of which is killed when ``timeout_s`` is over.
    """
    name = Path(argv[0]).name
    try:
        process = subprocess.Popen(
            [str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", cwd=cwd,
            env={**os.environ, **env} if env else None, start_new_session=True,
        )  # fmt: skip
    except OSError as failure:
        raise error(f"Cannot start {name}: {failure.strerror}") from failure
    try:
        log, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        log, _ = process.communicate()
        raise error(f"{name} ran longer than {timeout_s:g} s", log=log[:LOG_LIMIT]) from None
    if process.returncode != 0:
        raise error(f"{name} failed with status {process.returncode}", log=log[:LOG_LIMIT])
    return log


def cache_root() -> Path:
    """``$PORTKERN_CACHE_DIR``, else ``portkern`` in the user's cache folder."""
    chosen = os.environ.get("PORTKERN_CACHE_DIR")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "portkern"


@lru_cache
def package_version(distribution: str) -> str | None:
    """The installed version of a PyPI distribution, without importing it; None if absent."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


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
