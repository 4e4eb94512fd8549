"""A source with what is not code blanked in place: an offset in a view is one in the text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from portkern.cuda_source.lexer import COMMENT, Kind, SourceCode, Token

_VISIBLE = re.compile(r"[^\n]")


def blanked(code: SourceCode, dead: Sequence[tuple[int, int]]) -> tuple[str, str]:
    """Two views, without comments and the tokens of ``dead``: with strings that are empty but for
    their quotes, and with strings as they are."""
    plain: list[str] = []
    quoted: list[str] = []
    at = 0
    for begin, end in [*sorted(dead), (len(code.tokens), len(code.tokens))]:
        if begin < at:
            begin = at
        for token in code.tokens[at:begin]:
            gap = COMMENT.sub(_blank, token.gap) if "/" in token.gap else token.gap
            quoted += [gap, token.text]
            plain += [gap, _without_text(token)]
        at = max(at, end)
        gone = "".join(_VISIBLE.sub(" ", t.gap + t.text) for t in code.tokens[begin:end])
        quoted.append(gone)
        plain.append(gone)
    return "".join(plain), "".join(quoted)


def _blank(match: re.Match[str]) -> str:
    return _VISIBLE.sub(" ", match[0])


def _without_text(token: Token) -> str:
    if token.kind not in (Kind.STRING, Kind.CHAR):
        return token.text
    text = token.text
    begin = min(n for n in (text.find('"'), text.find("'")) if n >= 0) + 1
    return text[:begin] + _VISIBLE.sub(" ", text[begin:-1]) + text[-1:]
