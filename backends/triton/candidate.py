"""Imports a candidate that is a Python module, and says what is wrong with it."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from portkern.backend import Build
from portkern.errors import BuildError

_FRAMES = 12


def import_entry(path: Path, entry: str) -> Callable[..., Any]:
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
    lines = str(error).strip().splitlines() or [""]
    cause = error.__cause__
    # Triton's CompilationError quotes the kernel and says what is wrong last, or in its cause.
    summary = str(cause).strip().splitlines()[0] if cause and str(cause) else lines[-1]
    name = f"{request.candidate.op}.py"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).name == name]
    places = [f"{name}:{f.lineno} in {f.name}: {f.line}" for f in frames[-_FRAMES:]]
    words = traceback.format_exception_only(error)
    if cause is not None:
        words += traceback.format_exception_only(cause)
    return BuildError(
        f"{request.candidate.entry} does not compile for {request.target.name}: "
        f"{type(error).__name__}: {summary}",
        log="\n".join([*places, "".join(words).strip()]),
    )
