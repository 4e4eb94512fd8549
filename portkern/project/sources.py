"""Classification of a source file by its name, place and text: an op, a variant, backends."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath

from portkern.errors import ConfigError
from portkern.spec import registry
from portkern.spec.backend import Backend
from portkern.spec.catalogue import languages_of
from portkern.spec.companions import SUFFIXES
from portkern.spec.foreign_text import content
from portkern.spec.module_form import defines_class

#: Folders in which no kernels are looked for.
NOT_LOOKED_INTO = frozenset(["include", "build", "reports", "__pycache__", "node_modules"])
#: What nobody takes for a kernel, whatever its name begins with.
DATA = frozenset([".json", ".jsonl", ".md", ".npz", ".txt", ".yaml", ".yml"])
#: A folder with more files is not one of kernels.
MOST_FILES = 20_000
#: One source for two languages, as backends share them.
_PORTABLE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<portkern/portable\.h>", re.MULTILINE)
#: What a sheet says of itself, without reading it as YAML.
_SAID = re.compile(r"^(name|file): *(\S+)[ \t]*$", re.MULTILINE)
_EXTENSION = re.compile(r"^[ \t]*(PYBIND11_MODULE|TORCH_LIBRARY\w*)[ \t]*\(", re.MULTILINE)


@dataclass(frozen=True)
class Named:
    """``relu.fast.cu`` is variant ``fast`` of relu."""

    op: str
    variant: str = ""


def named(path: PurePath, known: Sequence[str]) -> Named | None:
    """The op and variant that a file's name says, by the longest op that it begins with; None where
    there is none."""
    stem = path.name.removesuffix(path.suffix)
    for op in sorted(known, key=len, reverse=True):
        if stem == op or stem.startswith(f"{op}."):
            return Named(op, stem[len(op) + 1 :])
    return None


def files_in(folder: Path) -> Iterator[Path]:
    """The files in a folder, in the order of their paths. Raises ConfigError."""
    count = 0
    pending = [folder]
    while pending:
        try:
            entries = sorted(pending.pop(0).iterdir(), key=lambda path: path.name)
        except OSError as error:
            raise ConfigError(f"Cannot read {folder}: {error.strerror}") from error
        hidden = [path for path in entries if path.name.startswith(".")]
        for path in entries:
            if path in hidden or path.name in NOT_LOOKED_INTO:
                continue
            if path.is_dir():
                pending += [] if path.is_symlink() else [path]
            elif path.is_file():
                count += 1
                yield path
        if count > MOST_FILES:
            raise ConfigError(f"{folder} has more than {MOST_FILES} files; name a smaller folder")


@cache
def _backends() -> tuple[Backend, ...]:
    return tuple(map(registry.load, registry.names()))


def suffixes() -> list[str]:
    """The suffixes that some backend reads."""
    return sorted({suffix for backend in _backends() for suffix in backend.languages})


def sheets_in(folder: Path) -> dict[str, str]:
    """The operators that sheets of `portkern op` in this folder describe, and the files that they
    are of."""
    return _sheets(folder, folder.stat().st_mtime_ns)


@cache
def _sheets(folder: Path, changed_ns: int) -> dict[str, str]:
    found = {}
    for sheet in sorted(folder.glob("*.op.yaml")):
        with suppress(OSError):
            said = dict(_SAID.findall(content(sheet).decode(errors="replace")))
            if set(said) == {"name", "file"}:
                found[said["name"]] = said["file"]
    return found


def is_header(path: PurePath) -> bool:
    """Whether nobody expects a kernel in it: it is there to be included."""
    return path.suffix in SUFFIXES - {".c", ".cc", ".cxx", ".cl"} - set(suffixes())


def backends_of(path: PurePath, text: str) -> list[Backend]:
    """``path`` is relative to the folder of kernels: a part of it may name a backend, or what
    several share. Raises ConfigError where that, the suffix and the text do not tell."""
    for part in reversed(path.parent.parts):
        chosen = _by_folder(part)
        if chosen:
            reading = [backend for backend in chosen if reads(backend, path, text)]
            if not reading:
                names = " and ".join(backend.name for backend in chosen)
                raise ConfigError(f"{names} reads no {path.suffix!r} files; expected in {part}/")
            return reading
    possible = possible_backends(path, text)
    if len(possible) == 1 or _PORTABLE.search(text):
        return possible
    among = ", ".join(backend.name for backend in possible)
    raise ConfigError(
        f"it may be for {among}; put it into a folder with the backend's name, or name its backend "
        "in portkern.yaml"
    )


def possible_backends(path: PurePath, text: str) -> list[Backend]:
    """The backends that may be meant by a file: by suffix, and by names in the text that only one
    of them knows. Raises ConfigError where no backend reads such files."""
    reading = [backend for backend in _backends() if path.suffix in backend.languages]
    if not reading:
        raise ConfigError(
            f"no backend reads {path.suffix!r} files; those that end in {', '.join(suffixes())} are"
        )
    if _PORTABLE.search(text):
        return [backend for backend in _backends() if path.suffix in languages_of(backend)]
    return [backend for backend in reading if _names(text) & set(backend.marks)] or reading


def reads(backend: Backend, path: PurePath, text: str) -> bool:
    """Whether the backend takes such a file: by its suffix, or a class ModelNew in it."""
    known = path.suffix in languages_of(backend)
    return bool(backend.modules) if is_module(path, text) else known


def is_module(path: PurePath, text: str) -> bool:
    return path.suffix == ".py" and defines_class(text)


def _by_folder(name: str) -> list[Backend]:
    """``gpu`` is what cuda and hip share."""
    return [
        backend
        for backend in _backends()
        if name == backend.name or name in {home.rpartition(".")[2] for home in backend.shared}
    ]


def _names(text: str) -> set[str]:
    """Modules that a Python source imports, and names that it gives values to."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    used: set[str] = set()
    for node in body:
        if isinstance(node, ast.Import):
            used |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            used.add(node.module.partition(".")[0])
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            used |= {target.id for target in targets if isinstance(target, ast.Name)}
    return used


def extension_line(text: str) -> tuple[int, str] | None:
    """The line in which a source makes an extension of PyTorch, and by which macro."""
    match = _EXTENSION.search(text)
    return (text.count("\n", 0, match.start(1)) + 1, match[1]) if match else None


def closest(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else ""
