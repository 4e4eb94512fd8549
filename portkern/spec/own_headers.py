"""Headers of portkern's own, which kernels may include: ``<portkern/rows.h>`` and others."""

from __future__ import annotations

import importlib.resources
import re
from collections.abc import Callable, Mapping

from portkern.spec import registry
from portkern.spec.candidate import Candidate

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<(portkern/[\w.]+)>", re.MULTILINE)
#: The same for a module of shared functions, in Python.
_IMPORT = re.compile(
    r"^\s*(?:from|import)\s+(portkern\.backends\.\w+\.include[\w.]*)", re.MULTILINE
)
#: What stands before every kernel of a language, by the backend that has it.
HARNESS: Mapping[str, tuple[str, str]] = {"c++": ("cpu", "harness.h")}


def packages(backend: str) -> list[str]:
    """The packages whose headers a kernel of this backend includes, in the order in which they
    are looked through."""
    return [
        f"portkern.backends.{backend}",
        *registry.load(backend).shared,
        "portkern.backends.cuda",
    ]


def text(name: str, backend: str) -> str | None:
    """The header that a kernel of this backend would include; None where there is none."""
    for package in packages(backend):
        include = importlib.resources.files(package) / "include"
        folders = list(include.iterdir()) if include.is_dir() else []  # such as one of Hopper's
        for folder in (include, *folders):
            if (file := folder / name).is_file():
                return file.read_text(encoding="utf-8")
    return None


def harness(language: str) -> str:
    """The text that stands before a kernel of ``language``, which :data:`HARNESS` has."""
    backend, name = HARNESS[language]
    file = importlib.resources.files(f"portkern.backends.{backend}") / name
    return file.read_text(encoding="utf-8")


def taken(source: str) -> list[str]:
    """The headers and modules of portkern that a source names itself, each once."""
    return list(dict.fromkeys([*_INCLUDE.findall(source), *_IMPORT.findall(source)]))


def included(candidate: Candidate, read: Callable[[str, str], str | None] = text) -> dict[str, str]:
    """All that the candidate is built with, directly or not, by name: as when it was evaluated
    where that is known, else as ``read`` has them by name and backend, which is as they are now.
    What stands before every kernel of a language is named by itself."""
    found: dict[str, str] = dict(candidate.headers)
    if candidate.language in HARNESS:
        backend, name = HARNESS[candidate.language]
        before = harness(candidate.language) if read is text else read(name, backend)
        if before is not None:
            found.setdefault(name, before)
    left = [candidate.source, *candidate.companions.texts.values()]
    while left:
        for name in _INCLUDE.findall(left.pop()):
            header = found.get(name) or read(name, candidate.backend)
            if name not in found and header is not None:
                found[name] = header
                left.append(header)
    return found
