"""Include folders, definitions and programs of a ``CMakeLists.txt``, read and never run.

Commands are taken whatever ``if()`` they stand in; what only a run could know is left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from portkern.port.build_variables import expanded

_TOKEN = re.compile(
    r"""
      \#\[(?P<mark>=*)\[ .*? \](?P=mark)\]         # a comment in brackets
    | \# [^\n]*
    | \[(?P<level>=*)\[ (?P<bracket> .*?) \](?P=level)\]
    | " (?P<quoted> (?: [^"\\] | \\. )* ) "
    | (?P<paren> [()] )
    | (?P<bare> (?: [^\s()\#"\\] | \\. )+ )
    """,
    re.VERBOSE | re.DOTALL,
)
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_INCLUDES = frozenset(["include_directories", "target_include_directories"])
_DEFINES = frozenset(["add_definitions", "add_compile_definitions", "target_compile_definitions"])
_OPTIONS = frozenset(["add_compile_options", "target_compile_options"])
_PROGRAMS = frozenset(["add_executable", "cuda_add_executable"])
_LIBRARIES = frozenset(
    "add_library cuda_add_library pybind11_add_module python_add_library".split()
)
_KEYWORDS = frozenset(["PUBLIC", "PRIVATE", "INTERFACE", "SYSTEM", "BEFORE", "AFTER"])
_BUILD_INTERFACE = re.compile(r"^\$<BUILD_INTERFACE:(.*)>$")


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of a file: each one's name in small letters, and its arguments without quotation
    marks."""
    name, arguments, depth = "", list[str](), 0
    for match in _TOKEN.finditer(text):
        paren = match["paren"]
        if paren == "(":
            depth += 1
        elif paren == ")":
            depth = max(depth - 1, 0)
            if depth == 0 and name:
                yield name.lower(), arguments
                name, arguments = "", []
        else:
            part = match["bare"] or match["quoted"] or match["bracket"]
            if part is None:
                continue
            if depth:
                arguments.append(part)
            else:
                name = part


def settings(
    text: str, folder: Path, root: Path, *, of_targets: bool = True
) -> tuple[list[Path], list[str]]:
    """Include folders and definitions (``NAME`` or ``NAME=VALUE``), of targets or not."""
    include: list[Path] = []
    defines: list[str] = []
    for name, arguments in _expanded_commands(text, folder, root):
        if name.startswith("target_") and not of_targets:
            continue
        listed = arguments[1:] if name.startswith("target_") else arguments
        if name in _INCLUDES:
            include += [folder / path for path in map(_path, listed) if path]
        elif name in _DEFINES | _OPTIONS:
            defines += list(_defined(listed, bare=name not in _OPTIONS and "add_d" not in name))
    return include, defines


def of_subfolder(text: str, folder: Path, root: Path, below: Path) -> tuple[list[Path], list[str]]:
    """Include folders and definitions that a folder below has from here, by ``add_subdirectory``:
    those of folders and not of targets."""
    given = [*_expanded_commands(text, folder, root)]
    added = (folder / arguments[0] for name, arguments in given if name == "add_subdirectory")
    if not any(below.is_relative_to(os.path.normpath(path)) for path in added):
        return [], []
    return settings(text, folder, root, of_targets=False)


def programs(text: str, folder: Path, root: Path) -> list[tuple[Path, ...]]:
    """The sources of each executable that has two or more, which are there."""
    return _listed(text, folder, root, _PROGRAMS, _LIBRARIES)


def libraries(text: str, folder: Path, root: Path) -> list[tuple[Path, ...]]:
    """The same of libraries."""
    return _listed(text, folder, root, _LIBRARIES, _PROGRAMS)


def _listed(
    text: str, folder: Path, root: Path, wanted: frozenset[str], others: frozenset[str]
) -> list[tuple[Path, ...]]:
    sources: dict[str, list[Path]] = {}
    left = set[str]()
    for name, arguments in _expanded_commands(text, folder, root):
        if name in others:
            left.add(arguments[0])
        elif name in wanted | {"target_sources"}:
            paths = [Path(os.path.normpath(folder / text)) for text in arguments[1:]]
            sources.setdefault(arguments[0], []).extend(p for p in paths if p.is_file())
    own = (paths for target, paths in sources.items() if target not in left)
    listed = (tuple(dict.fromkeys(paths)) for paths in own)
    return [paths for paths in listed if len(paths) > 1]


def _expanded_commands(text: str, folder: Path, root: Path) -> Iterator[tuple[str, list[str]]]:
    """The commands with the values that ``set`` before them gave their variables."""
    variables = {
        "CMAKE_CURRENT_SOURCE_DIR": str(folder),
        "CMAKE_CURRENT_LIST_DIR": str(folder),
        "CMAKE_SOURCE_DIR": str(root),
        "PROJECT_SOURCE_DIR": str(folder),
    }
    for name, given in commands(text):
        texts = [expanded(text, _VARIABLE, variables) for text in given]
        arguments = [part for text in texts for part in text.split(";") if part]
        if name == "set" and len(arguments) > 1:
            variables[arguments[0]] = ";".join(arguments[1:])
        elif arguments:
            yield name, arguments


def _path(text: str) -> str:
    """The folder that a word names; '' where it is not one that is known here."""
    match = _BUILD_INTERFACE.match(text)
    text = match[1] if match else text
    return "" if text in _KEYWORDS or "$" in text else text


def _defined(listed: list[str], *, bare: bool) -> Iterator[str]:
    for text in listed:
        if "$" in text or text in _KEYWORDS:
            continue
        if text.startswith(("-D", "/D")) and len(text) > 2:
            yield text[2:]
        elif bare and re.match(r"[A-Za-z_]", text):
            yield text
