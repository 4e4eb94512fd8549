"""Macros of a project's files that write launches or kernels where other files use them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from portkern.cuda_source.functions import KERNEL, Markers
from portkern.cuda_source.launches import has_launch
from portkern.cuda_source.lexer import Kind, Macro
from portkern.cuda_source.source_map import SourceMap
from portkern.cuda_source.syntax import parse

#: A file without any of these has no such macro.
_SIGNS = ("<<", "Launch", KERNEL)


def shared_macros(texts: Iterable[str]) -> Mapping[str, Macro]:
    """Macros that write something which files share, by name, with the macros that these use and
    those that use them. One that two files define differently is not among them: which is meant is
    not known."""
    known: dict[str, Macro] = {}
    unclear: set[str] = set()
    sources = [SourceMap(text) for text in texts if "define" in text]
    if not any(sign in source.code.source for source in sources for sign in _SIGNS):
        return {}
    for source in sources:
        for name, macro in source.macros.items():
            words = [token.text for token in macro.body]
            other = known.setdefault(name, macro)
            if not source.is_once(name) or words != [token.text for token in other.body]:
                unclear.add(name)
    clear = {name: macro for name, macro in known.items() if name not in unclear}
    return {name: clear[name] for name in _around(clear)}


def shared_markers(texts: Iterable[str]) -> Markers:
    """The macros that stand for ``__global__`` and the like."""
    return {
        name: marks
        for text in texts
        if KERNEL in text and "define" in text
        for name, marks in parse(text).markers.items()
        if KERNEL in marks
    }


def _around(macros: Mapping[str, Macro]) -> set[str]:
    """The names of macros that launch or define kernels, with users and used."""
    words = {
        name: {token.text for token in macro.body if token.kind is Kind.NAME} & macros.keys()
        for name, macro in macros.items()
    }
    reached = {name for name, macro in macros.items() if has_launch(macro) or _defines(macro)}
    while more := {name for name, used in words.items() if used & reached} - reached:
        reached |= more
    while more := {used for name in reached for used in words[name]} - reached:
        reached |= more
    return reached


def _defines(macro: Macro) -> bool:
    texts = {token.text for token in macro.body}
    return KERNEL in texts and "{" in texts
