"""The text of a source and of what it includes of its own project."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from portkern.cuda_source.functions import Markers
from portkern.cuda_source.lexer import Macro
from portkern.cuda_source.shared_macros import shared_macros, shared_markers
from portkern.cuda_source.syntax import LaunchText, SourceKernel, Syntax, parse
from portkern.port.proof.element import aliases, element_of
from portkern.port.proof.findings import Text
from portkern.port.proof.instances import Instances
from portkern.port.proof.outcome import ProofSource
from portkern.port.proof.records import StructClass, records, rows
from portkern.spec.safe_name import real_path

#: Headers are read until there are so many characters: a project's own are not more.
_MOST_TEXT = 4_000_000
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
_TYPE = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([\w:]+[ \t]*<[\w \t:,<>*]+>)[ \t]*$", re.MULTILINE
)
#: The first argument of an explicit specialisation.
_SPECIAL = re.compile(r"template\s*<\s*>[^;{}()]*<\s*([A-Za-z_][\w:]*)")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]', re.MULTILINE)


class SourceTexts:
    """``own`` is the file itself, ``files`` it, the project's headers that it includes, and the
    files that it is linked with, with theirs, in the order in which they are asked for a kernel;
    ``whole`` has the headers first and the file itself last."""

    def __init__(self, source: ProofSource) -> None:
        self.source, self._view = source, source.view
        others: dict[Path, str] = {}
        text = read(source.path)
        self._collect(text, source.path.parent, others)
        for path in source.further:
            linked = read(path)
            self._collect(linked, path.parent, others)
            others[path] = linked
        self._texts = {source.path: text, **others}
        self.whole = "\n".join([*others.values(), text])

    @cached_property
    def files(self) -> tuple[Text, ...]:
        markers = shared_markers(self._texts.values())
        macros = shared_macros(self._texts.values())
        types = _types(self._texts.values())
        return tuple(_parsed(*file, markers, macros, types) for file in self._texts.items())

    @property
    def own(self) -> Text:
        return self.files[0]

    @cached_property
    def aliases(self) -> dict[str, str]:
        """The types that names of types stand for; macros that the source has before its headers
        count as defined."""
        before_headers = _DEFINE.findall(self.own.text)
        return aliases(self.whole, [*self.source.defines, *before_headers])

    @cached_property
    def specialised(self) -> tuple[str, ...]:
        """The elements' types that functions are specialised for."""
        found = dict.fromkeys(_SPECIAL.findall(self.whole))
        return tuple(name for name in found if element_of(name, self.aliases) is not None)

    @cached_property
    def records(self) -> Mapping[str, StructClass]:
        """The classes that it defines, by their names."""
        return records(self._texts.values())

    @cached_property
    def rows(self) -> Mapping[str, str]:
        """The elements of buffers of structs, by the names of the structs."""
        return rows(self.records, self.aliases)

    @cached_property
    def instances(self) -> Instances:
        return Instances(self.whole, self.aliases, self.records)

    @cached_property
    def kernels(self) -> tuple[SourceKernel, ...]:
        return tuple(kernel for file in self.files for kernel in file.kernels)

    def file_of(self, name: str) -> Text | None:
        """The file in which the kernel of that name is defined."""
        return next((f for f in self.files if any(k.name == name for k in f.kernels)), None)

    def paired(self, ported: SourceTexts) -> tuple[tuple[Text, Text], ...]:
        """The pairs of its files and those of its port, by their names."""
        ours = {file.path.name: file for file in self.files}
        return tuple((ours[f.path.name], f) for f in ported.files if f.path.name in ours)

    def launches(self, name: str) -> list[tuple[LaunchText, int]]:
        """The launches of the kernel with that name, each with its offset in ``whole``: behind the
        ``<<<``, or the name of what launches."""
        of = [(file, [one for one in file.launches if one.kernel == name]) for file in self.files]
        begins = [(self.whole.index(file.text), found) for file, found in of if found]
        return [(launch, begin + launch.at + 1) for begin, found in begins for launch in found]

    def _collect(self, text: str, beside: Path, headers: dict[Path, str]) -> None:
        for name in _INCLUDE.findall(text):
            if sum(map(len, headers.values())) > _MOST_TEXT:
                return
            for folder in (beside, *self.source.include):
                path = real_path(folder / name)
                if path in headers or not path.is_file() or not self._view.sees(path):
                    continue
                inner = read(path)
                headers[path] = ""
                self._collect(inner, path.parent, headers)
                headers[path] = inner
                break


def _parsed(
    path: Path,
    text: str,
    markers: Markers,
    macros: Mapping[str, Macro],
    types: Mapping[str, str],
) -> Text:
    syntax = parse(text, markers=markers, macros=macros)
    kernels = tuple(_spelled_out(kernel, types) for kernel in syntax.kernels)
    return Text(path, text, kernels, syntax.launches, _namespaces(syntax))


def _types(texts: Iterable[str]) -> Mapping[str, str]:
    """Macros that stand for an instance of a template; one that is defined in two ways is none."""
    found: dict[str, set[str]] = {}
    for text in texts:
        for name, type_ in _TYPE.findall(text):
            found.setdefault(name, set()).add(type_)
    return {name: min(types) for name, types in found.items() if len(types) == 1}


def _spelled_out(kernel: SourceKernel, types: Mapping[str, str]) -> SourceKernel:
    """The kernel with the types of its parameters in place of macros."""
    if not types:
        return kernel
    own = tuple(
        replace(p, type=re.sub(r"\w+", lambda word: types.get(word[0], word[0]), p.type))
        for p in kernel.parameters
    )
    return replace(kernel, parameters=own)


def _namespaces(syntax: Syntax) -> tuple[tuple[int, int, str], ...]:
    nodes = syntax.nodes("namespace_definition") if "namespace" in syntax.text else ()
    return tuple(
        (*syntax.span(node), syntax.text_of(node.child_by_field_name("name"))) for node in nodes
    )


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
