"""Launches that a formatter has broken, ``k << <g, b >> >(x)``, written as clang takes them."""

from __future__ import annotations

from portkern.cuda_source.launch_syntax import brackets
from portkern.cuda_source.lexer import SourceCode
from portkern.port.translate.draft import DraftChange

_WHY = "clang takes a launch's chevrons without spaces alone"


def closed_up(text: str) -> tuple[str, list[DraftChange]]:
    """The text with every ``<<<`` and ``>>>`` in one piece, on its line, and what was changed."""
    if "<<" not in text and "< <" not in text:
        return text, []
    code, parts, changes, done = SourceCode(text), list[str](), list[DraftChange](), 0
    ends = len(code.tokens) - 1
    found = (brackets(code, i, _last(code, i, ends)) for i in range(ends))
    for first, last in sorted(range_ for pair in found if pair for range_ in pair):
        begin, end = code.tokens[first].begin, code.tokens[last - 1].end
        if end - begin > 3:
            whole = "<<<" if code.text[first].startswith("<") else ">>>"
            line_break = "\n" if code.directive(first) is None else " \\\n"
            parts += [text[done:begin], whole, line_break * text.count("\n", begin, end)]
            done = end
            line = code.tokens[first].line
            changes.append(DraftChange(line, code.flat(first, last), whole, _WHY))
    return "".join([*parts, text[done:]]), changes


def _last(code: SourceCode, i: int, end: int) -> int:
    directive = code.directive(i)
    return directive.end if directive is not None else end
