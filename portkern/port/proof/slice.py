"""Files cut down to some of their kernels and what these use, line for line.

A kernel that a compiler rejects, or host code whose headers are absent, says nothing of the other
kernels of its file: without them it is built. What is cut too much is a compiler's error, never
another result.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from portkern.cuda_source.lexer import IFS, Kind
from portkern.cuda_source.source_map import SourceMap
from portkern.port.proof.texts import SourceTexts
from portkern.spec.safe_name import real_path

#: Folders above a source's own whose headers it may include by ``../``.
_ABOVE = 3
_VISIBLE = re.compile(r"[^\r\n]")
_CLASSES = frozenset(["struct", "class", "union"])
#: Attributes of classes, in parentheses as functions have their parameters.
_ATTRIBUTES = frozenset(["__align__", "alignas", "__attribute__"])
_DEVICE = frozenset(["__device__", "__global__", "__constant__", "struct", "class", "using"])
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">].*$', re.MULTILINE)


@dataclass(frozen=True)
class Definition:
    """A function or a class of a file's own level; ``names`` are those that it mentions."""

    name: str
    begin: int
    end: int
    line: int
    last_line: int
    names: frozenset[str]


@dataclass(frozen=True)
class Declaration:
    """A statement that is not a function's body. ``declares`` are the functions that it may
    declare, or instantiate; ``is_host``: it makes functions of the host, by a macro;
    ``is_prototype``: it ends as one."""

    begin: int
    end: int
    declares: frozenset[str]
    names: frozenset[str]
    is_host: bool = False
    line: int = 0
    last_line: int = 0
    is_prototype: bool = False


class SliceFile:
    """The definitions and declarations of a file at its own level and in its namespaces."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._map = SourceMap(text)
        self.macros = {
            macro.name: frozenset(t.text for t in macro.body if t.kind is Kind.NAME)
            for macro in self._map.macros.values()
        }
        items = list(self._items())
        self.definitions = [item for item in items if isinstance(item, Definition)]
        self.declarations = [item for item in items if isinstance(item, Declaration)]

    def _items(self) -> Iterator[Definition | Declaration]:
        code, start, i = self._map.code, 0, 0
        while i < len(code.text) - 1:
            text, close = code.text[i], code.partner[i]
            directive = code.directive(i)
            if directive is not None:
                start = directive.end if start == i else start
                i = directive.end
                continue
            if start == i and self._is_macro_call(i):
                i = code.partner[i + 1]
                yield self._call(start, i)
                start = i + 1
            elif text == "{" and self._is_namespace(start, i):
                start = i + 1
            elif text == "{" and close > i and (found := self._defined(start, i, close)):
                name, i = found
                if self._is_whole(start, i):
                    yield self._definition(name, start, i)
                start = i + 1
            elif text in "{([" and close > i:
                i = close
            elif text in (";", "}"):
                if text == ";" and self._is_whole(start, i):
                    yield self._declaration(start, i)
                start = i + 1
            i += 1

    def _is_macro_call(self, i: int) -> bool:
        code = self._map.code
        is_call = code.text[i] in self._map.macros and code.text[i + 1] == "("
        return is_call and code.partner[i + 1] > 0 and code.text[code.partner[i + 1] + 1] != "{"

    def _call(self, first: int, last: int) -> Declaration:
        """A macro that defines host code may name any kernel, pasted together: it has to go. One
        that defines device code stays, with what it names."""
        code = self._map.code
        body = self.macros[code.text[first]]
        begin, end = code.tokens[first].begin, code.tokens[last].end
        is_host = _DEVICE.isdisjoint(body)
        lines = code.tokens[first].line, code.last_line(last)
        return Declaration(begin, end, frozenset(), self._names(first, last), is_host, *lines)

    def _is_namespace(self, start: int, brace: int) -> bool:
        words = self._map.code.text[start:brace]
        return "namespace" in words or ("extern" in words and len(words) == 2)

    def _defined(self, start: int, brace: int, close: int) -> tuple[str, int] | None:
        """The function or the class whose body the braces hold, and where its text ends."""
        code = self._map.code
        words = code.outside_directives(start, brace)
        name = self._map.function_before(brace)
        if name and name not in _ATTRIBUTES and "typedef" not in words:
            return name, close + (code.text[close + 1] == ";")
        if _CLASSES.isdisjoint(words):
            return None
        end = next((i for i in range(close, len(code.text)) if code.text[i] == ";"), close)
        if "typedef" in words:
            return code.text[end - 1], end
        return self._class_name(start, brace), end

    def _class_name(self, start: int, brace: int) -> str:
        """The last word before the body, the bases or the template's arguments."""
        code, name = self._map.code, ""
        if code.text[start : start + 2] == ["template", "<"]:
            start = max(code.close_angle(start + 1, brace), start)
        for i in range(start, brace):
            if code.text[i] in _CLASSES:
                name = ""
            elif code.text[i] == ":" or (name and code.text[i] in ("<", "final")):
                break
            elif code.tokens[i].kind is Kind.NAME:
                name = code.text[i]
        return name

    def _is_whole(self, first: int, last: int) -> bool:
        """Whether no condition of the preprocessor begins in it and ends elsewhere."""
        depth, code = 0, self._map.code
        for d in code.directives if code.has_directive(first, last + 1) else ():
            if first <= d.begin <= last:
                depth += (d.name in IFS) - (d.name == "endif")
                if depth < 0 or (not depth and d.name in ("else", "elif")):
                    return False
        return depth == 0

    def _definition(self, name: str, first: int, last: int) -> Definition:
        tokens = self._map.code.tokens
        return Definition(
            name,
            tokens[first].begin,
            tokens[last].end,
            tokens[first].line,
            self._map.code.last_line(last),
            self._names(first, last),
        )

    def _declaration(self, first: int, last: int) -> Declaration:
        code = self._map.code
        declares = frozenset(
            code.text[i]
            for i in range(first, last)
            if code.tokens[i].kind is Kind.NAME and code.text[i + 1] in ("(", "<")
        )
        if self._is_assigned(first, last) or code.text[first] == "typedef":
            declares = frozenset()  # it uses what it names: ``typedef Vec<float> vec;``
        names = self._names(first, last) - declares
        begin, end = code.tokens[first].begin, code.tokens[last].end
        is_prototype = bool(declares) and code.text[last - 1] == ")"
        return Declaration(begin, end, declares, names, is_prototype=is_prototype)

    def _is_assigned(self, first: int, last: int) -> bool:
        """Whether it has a value: parameters may have theirs."""
        code, i = self._map.code, first
        while i < last:
            if code.text[i] == "=":
                return True
            i = code.partner[i] if code.text[i] == "(" and code.partner[i] > i else i + 1
        return False

    def _names(self, first: int, last: int) -> frozenset[str]:
        tokens = self._map.code.tokens[first : last + 1]
        return frozenset(token.text for token in tokens if token.kind is Kind.NAME)


def root_of(texts: SourceTexts) -> Path:
    """The folder that has the file and the headers that lie around it."""
    home = real_path(texts.source.path.parent)
    around = [home, *home.parents[:_ABOVE]][-1]
    paths = (real_path(file.path).parent for file in texts.files)
    return Path(os.path.commonpath([home, *(p for p in paths if p.is_relative_to(around))]))


def written(texts: SourceTexts, slices: Sequence[str], folder: Path) -> Path:
    """The file's own slice, with those of the headers that lie around it: ``folder`` becomes
    :func:`root_of` the texts."""
    root = root_of(texts)
    for file, text in zip(texts.files, slices, strict=True):
        path = real_path(file.path)
        if path.is_relative_to(root):
            copy = folder / path.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text, encoding="utf-8")
    home = real_path(texts.source.path.parent)
    return folder / home.relative_to(root) / texts.source.path.name


class Slices:
    """Cuts the files of one program down to some kernels; they are read as one."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._files = [SliceFile(text) for text in texts]

    def of(
        self, kernels: Collection[str], without: Collection[str] = (), instead: str = ""
    ) -> list[str]:
        """The slices: each file with only what these kernels use; ``without`` are headers to leave
        out, and ``instead`` is what is included in their place."""
        needed = self._needed(kernels)
        gone = {d.name for f in self._files for d in f.definitions if d.name not in needed}
        for file in self._files:
            for d in file.declarations:
                if d.is_prototype and d.declares.isdisjoint(needed):
                    gone |= d.declares
        line = f'#include "{instead}"' if instead else ""
        return [_without(self._cut(file, gone), without, line) for file in self._files]

    def without(self, places: Collection[tuple[int, int]]) -> tuple[list[str], frozenset[str]]:
        """The files without what is defined at the places, files by number and lines, and what uses
        that; and the names that are gone."""
        gone = {
            d.name
            for file, line in places
            for d in self._files[file].definitions
            if d.line <= line <= d.last_line
        }
        while more := {
            d.name
            for f in self._files
            for d in f.definitions
            if d.name not in gone and not gone.isdisjoint(self._through_macros(d.names))
        }:
            gone |= more
        cut = [
            self._cut(f, gone, [at for n, at in places if n == number])
            for number, f in enumerate(self._files)
        ]
        return cut, frozenset(gone)

    def _through_macros(self, names: Collection[str]) -> set[str]:
        used = set(names)
        for file in self._files:
            used.update(*(body for name, body in file.macros.items() if name in names))
        return used

    def users(self, file: int, line: int, kernels: Collection[str]) -> frozenset[str]:
        """The kernels, of those given, that use what is defined at the line."""
        at = {d.name for d in self._files[file].definitions if d.line <= line <= d.last_line}
        return frozenset(name for name in kernels if at & self.reached([name]))

    def _needed(self, kernels: Collection[str]) -> frozenset[str]:
        """Names that the kernels, or declarations of the files' own level, lead to."""
        level = {
            name
            for f in self._files
            for d in f.declarations
            if not d.is_host and not d.is_prototype
            for name in d.names
        }
        return self.reached([*kernels, *level])

    def reached(self, names: Collection[str]) -> frozenset[str]:
        """The names, and those that what they name leads to."""
        reached, queue = set(names), list(names)
        while queue:
            name = queue.pop()
            for mentioned in self._mentioned.get(name, ()):
                if mentioned not in reached:
                    reached.add(mentioned)
                    queue.append(mentioned)
        return frozenset(reached)

    @cached_property
    def _mentioned(self) -> Mapping[str, set[str]]:
        """The names that each macro, function or class mentions, by its name."""
        mentioned: dict[str, set[str]] = {}
        for file in self._files:
            for definition in file.definitions:
                mentioned.setdefault(definition.name, set()).update(definition.names)
            for declaration in file.declarations:
                if declaration.is_prototype:
                    for name in declaration.declares:
                        mentioned.setdefault(name, set()).update(declaration.names)
            for name, names in file.macros.items():
                mentioned.setdefault(name, set()).update(names)
        return mentioned

    def _cut(
        self, file: SliceFile, gone: Collection[str], lines: Collection[int] | None = None
    ) -> str:
        """The file without the definitions of these names, what declares them, and what macros
        define of the host's: everywhere, or at these lines."""
        cut = [(d.begin, d.end) for d in file.definitions if d.name in gone]
        for d in file.declarations:
            names = self._through_macros(d.names) if d.is_host else d.declares
            here = lines is None or any(d.line <= line <= d.last_line for line in lines)
            if not names.isdisjoint(gone) or (d.is_host and here):
                cut.append((d.begin, d.end))
        text, parts, at = file.text, list[str](), 0
        for begin, end in sorted(cut):
            parts += [text[at:begin], _VISIBLE.sub(" ", text[begin:end])]
            at = end
        return "".join([*parts, text[at:]])


def _without(text: str, headers: Collection[str], instead: str) -> str:
    return _INCLUDE.sub(lambda m: instead if m[1] in headers else m[0], text)
