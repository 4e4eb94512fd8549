"""Imports a candidate that is a Python module, and says what is wrong with it."""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from portkern.errors import BuildError
from portkern.spec.backend import Build

_FRAMES = 12

#: How a CompilationError begins.
_WITHIN = re.compile(r"at (\d+):\d+:")


def import_entry(path: Path, entry: str) -> Callable[..., object]:
    """The candidate's host function. Raises BuildError for a file without it, and whatever the
    file raises."""
    name = f"portkern_candidate_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BuildError(f"Cannot import {path.name}; expected a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and Triton look a function's module up by name
    spec.loader.exec_module(module)
    function = getattr(module, entry, None)
    if not callable(function):
        raise BuildError(f"{path.name} defines no function {entry!r}; expected 'def {entry}(...)'")
    return function  # type: ignore[no-any-return]


def build_error(request: Build, error: Exception) -> BuildError:
    """The error in one line, and the candidate's own lines of the traceback as its log."""
    name = f"{request.candidate.op}.py"
    chain = [error, *([error.__cause__] if error.__cause__ else [])]
    frames = [frame for link in chain for frame in traceback.extract_tb(link.__traceback__)]
    own = [frame for frame in frames if Path(frame.filename).name == name]
    places = [f"{name}:{frame.lineno} in {frame.name}: {frame.line}" for frame in own]
    places += _in_kernel(request.candidate.source, name, chain)
    words = "".join(line for link in chain for line in traceback.format_exception_only(link))
    return BuildError(
        f"{request.candidate.entry} does not compile for {request.target.name}: "
        f"{type(error).__name__}: {_summary(error)}",
        log="\n".join([*places[-_FRAMES:], words.strip()]),
    )


def _in_kernel(source: str, name: str, chain: Sequence[BaseException]) -> list[str]:
    """Where in the file a CompilationError is, which counts from its function's first line."""
    for error in reversed(chain):
        lines = str(error).splitlines()
        within = _WITHIN.match(lines[0]) if len(lines) > 1 else None
        if within:
            head = lines[1].strip()
            starts = [k for k, line in enumerate(source.splitlines()) if line.strip() == head]
            for start in starts:
                at = start + int(within[1])
                function = head.removeprefix("def ").partition("(")[0]
                return [f"{name}:{at} in {function}: {source.splitlines()[at - 1].strip()}"]
    return []


def _summary(error: Exception) -> str:
    """Triton's CompilationError quotes the kernel first and says what is wrong last, or only in
    the exception that caused it."""
    lines = str(error).strip().splitlines() or [""]
    if not lines[0].startswith("at "):
        return lines[0]
    if lines[-1].strip(" ^"):
        return lines[-1]
    return str(error.__cause__).strip().partition("\n")[0]
