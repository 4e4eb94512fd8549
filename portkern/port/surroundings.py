"""The context that the other files of a library give each of its files: whose headers they are,
what these define, and whether the library is HIP already."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path, PurePosixPath

from portkern.cuda_source.lexer import SourceCode
from portkern.cuda_source.names import DeclaredNames, declared_names, together
from portkern.port import source_text
from portkern.port.library import Library, SourceFile
from portkern.port.source_text import INCLUDE, UnreadableSource
from portkern.port.translate import Context, Language, defined_values, language
from portkern.port.translate.pasted import pasting
from portkern.toolchain.source_view import SourceView

_SAYS_HIP = re.compile(r"\bhip[A-Z/]|__HIP|USE_ROCM")
#: The edges from each file to others.
_Edges = Mapping[PurePosixPath, Sequence[PurePosixPath]]
#: The most headers of folders elsewhere that are read, and the most bytes of each.
_MOST_OUTSIDE, _MOST_BYTES = 64, 1 << 18


class Surroundings:
    """``include`` are folders that the user names."""

    def __init__(self, read: Library, include: Sequence[Path] = ()) -> None:
        self._read, self._include = read, include
        self._view = SourceView.of([], [read.root, *include], read.include)
        self._files = {file.path: file for file in (*read.sources, *read.headers)}
        self._texts: dict[Path, str | None] = {}
        self._values: dict[PurePosixPath, frozenset[str]] = {}
        self._declared: dict[PurePosixPath, DeclaredNames] = {}
        self._known: dict[PurePosixPath, Context] = {}

    def context(self, file: SourceFile) -> Context:
        return replace(self._own(file), hip=self._among_hip(file))

    def _own(self, file: SourceFile) -> Context:
        """The context of a file without whether HIP is around it, which is found by this of all
        files."""
        if file.path not in self._known:
            self._known[file.path] = self._asked_alone(file)
        return self._known[file.path]

    def _asked_alone(self, file: SourceFile) -> Context:
        names = set(INCLUDE.findall(file.text))
        folders = self._folders(file)
        there = frozenset(name for name in names if self._found(name, file, folders) is not None)
        beside = {os.path.normpath(file.path.parent / name): name for name in names}
        own = frozenset(beside[str(path)] for path in file.includes if str(path) in beside)
        included = self._included(file)
        macros = frozenset[str]().union(*map(self._defined, included))
        pasted = [macro for path in included for macro in pasting(self._files[path].text)]
        declared = together([self._names(path) for path in included])
        return Context(False, there, own, macros, tuple(pasted), declared)

    def _names(self, path: PurePosixPath) -> DeclaredNames:
        if path not in self._declared:
            self._declared[path] = declared_names(SourceCode(self._files[path].text))
        return self._declared[path]

    def headers(self, file: SourceFile, texts: Mapping[PurePosixPath, str]) -> tuple[str, ...]:
        """The texts of all headers that the file includes, at any depth: the library's own as
        ``texts`` has them, and others as they are."""
        own = [texts[path] for path in self._included(file) if path in texts]
        return (*own, *self._outside(file))

    def _defined(self, path: PurePosixPath) -> frozenset[str]:
        if path not in self._values:
            self._values[path] = defined_values(self._files[path].text)
        return self._values[path]

    def _included(self, file: SourceFile) -> list[PurePosixPath]:
        """The library's own that the file includes, at any depth."""
        return _reached(file.path, self._includes)

    def _outside(self, file: SourceFile) -> list[str]:
        """Headers of folders elsewhere that build files or the user name."""
        asking = [file, *(self._files[path] for path in self._included(file))]
        folders = (*self._folders(file), *self._include)
        queue = [
            self._found(name, one, folders) for one in asking for name in INCLUDE.findall(one.text)
        ]
        seen: dict[Path, str] = {}
        while queue and len(seen) < _MOST_OUTSIDE:
            path = queue.pop()
            if path is None or path in seen or path.is_relative_to(self._read.root):
                continue
            text = self._text(path)
            if text is None:
                continue
            seen[path] = text
            queue += [
                self._at(folder / name)
                for name in INCLUDE.findall(text)
                for folder in (path.parent, *folders)
            ]
        return list(seen.values())

    def _found(self, name: str, file: SourceFile, folders: Sequence[Path]) -> Path | None:
        here = (self._read.root / file.path).parent
        places = (self._at(folder / name) for folder in (here, *folders))
        return next((place for place in places if place is not None), None)

    def _folders(self, file: SourceFile) -> tuple[Path, ...]:
        return self._read.settings(file.path)[0]

    def _at(self, path: Path) -> Path | None:
        plain = Path(os.path.normpath(path))
        return plain if self._text(plain) is not None else None

    def _text(self, path: Path) -> str | None:
        if path not in self._texts:
            self._texts[path] = _text(path) if self._view.sees(path) else None
        return self._texts[path]

    def _among_hip(self, file: SourceFile) -> bool:
        if not self._languages:
            return False
        around = {
            self._languages[path]
            for edges in (self._includers, self._includes)
            for path in _reached(file.path, edges)
        }
        return "hip" in around and "cuda" not in around

    @cached_property
    def _includes(self) -> _Edges:
        return {
            path: [other for other in file.includes if other in self._files]
            for path, file in self._files.items()
        }

    @cached_property
    def _includers(self) -> _Edges:
        includers: dict[PurePosixPath, list[PurePosixPath]] = {}
        for path, included in self._includes.items():
            for other in included:
                includers.setdefault(other, []).append(path)
        return includers

    @cached_property
    def _languages(self) -> dict[PurePosixPath, Language]:
        """The language of every file; empty where none can be HIP."""
        if not any(_SAYS_HIP.search(file.text) for file in self._files.values()):
            return {}
        return {path: language(file.text, self._own(file)) for path, file in self._files.items()}


def _reached(start: PurePosixPath, edges: _Edges) -> list[PurePosixPath]:
    """The files that ``start`` leads to at any depth, without itself."""
    seen: dict[PurePosixPath, None] = {}
    queue = list(edges.get(start, ()))
    while queue:
        path = queue.pop()
        if path not in seen and path != start:
            seen[path] = None
            queue += edges.get(path, ())
    return list(seen)


def _text(path: Path) -> str | None:
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return None
    except OSError:
        return None
    source = source_text.read(path)
    return None if isinstance(source, UnreadableSource) else source.text
