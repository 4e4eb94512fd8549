"""Macros that paste a name of CUDA's together: their uses are expanded, for no name that the
translation knows stands in their bodies."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from portkern.cuda_source.expansion import NoExpansion, expanded, use_at
from portkern.cuda_source.lexer import Kind, Macro, SourceCode
from portkern.cuda_source.source_map import SourceMap
from portkern.port.translate.draft import DraftChange

_WHY = "the macro pastes a name of CUDA's together; its use is expanded to be translated"


def pasting(text: str) -> tuple[Macro, ...]:
    """The macros of a header that paste, and those that use them."""
    if "##" not in text:
        return ()
    source = SourceMap(text)
    names = _pasting(source)
    return tuple(macro for name, macro in source.macros.items() if name in names)


def expand_pasted(
    text: str, of_headers: tuple[Macro, ...], is_cuda: Callable[[str], bool]
) -> tuple[str, list[DraftChange]]:
    """The text with these uses expanded, and what was changed. Those in other macros' bodies stay,
    for it is where the outer macro is used that the name is known."""
    if not of_headers and "##" not in text:
        return text, []
    source = SourceMap(text)
    outside = {macro.name: macro for macro in of_headers}
    names = _pasting(source) | outside.keys()

    def lookup(name: str) -> Macro | None:
        return (source.macros.get(name) or outside.get(name)) if name in names else None

    bodies = [macro.body for macro in map(lookup, names) if macro is not None]
    written = {token.text for body in bodies for token in body}
    code, parts, changes, done = source.code, list[str](), list[DraftChange](), 0
    for first, last in _uses(source, lookup):
        try:
            made = expanded(code, first, last, lookup, again=True)
        except NoExpansion:
            continue
        named = {token.text for token in SourceCode(made).tokens if token.kind is Kind.NAME}
        new = named - written - {*code.text[first:last]}
        if not any(map(is_cuda, new)):
            continue
        begin, stop = code.tokens[first].begin, code.tokens[last - 1].end
        parts += [text[done:begin], made, "\n" * text.count("\n", begin, stop)]
        done = stop
        line = code.tokens[first].line
        changes.append(DraftChange(line, code.flat(first, last), made, _WHY))
    return "".join([*parts, text[done:]]), changes


def _pasting(source: SourceMap) -> set[str]:
    """The macros that are defined once and paste, and those that use them."""
    once = [macro for macro in source.macros.values() if source.is_once(macro.name)]
    names = {macro.name for macro in once if any(t.text == "##" for t in macro.body)}
    while more := {
        macro.name
        for macro in once
        if macro.name not in names and any(token.text in names for token in macro.body)
    }:
        names |= more
    return names


def _uses(source: SourceMap, lookup: Callable[[str], Macro | None]) -> Iterator[tuple[int, int]]:
    code, i = source.code, 0
    while i < len(code.tokens) - 1:
        macro = lookup(code.text[i]) if code.directive(i) is None else None
        end = use_at(code, i, macro) if macro is not None else None
        if end is not None:
            yield i, end
        i = end or i + 1
