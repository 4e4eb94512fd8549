"""The parts of portkern that a kernel written in Python may import: the functions that a backend
shares."""

from __future__ import annotations

import ast
from functools import lru_cache
from importlib import import_module
from pathlib import Path

#: ``backends/<name>/include``: where a backend has them.
FOLDER = "include"
#: The backend, by language, whose functions its kernels may import.
BACKEND = {"numba": "cpu", "opencl": "opencl", "pallas-tpu": "tpu"}


@lru_cache
def functions(language: str) -> frozenset[str]:
    """Their dotted names. Only what a module defines itself: through what it imports, a kernel
    would reach numpy or Numba under a name that no rule knows."""
    if (backend := BACKEND.get(language)) is None:
        return frozenset()
    home = import_module("portkern.backends")
    return frozenset(
        f"{home.__name__}.{backend}.{FOLDER}.{path.stem}.{node.name}"
        for folder in home.__path__
        for path in Path(folder).glob(f"{backend}/{FOLDER}/*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    )
