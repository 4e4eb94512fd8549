"""Comments of C and its relatives, found in one pass over a text, however many are opened in it."""

from __future__ import annotations

import re
from collections.abc import Callable

#: Comments, with texts or characters that look like one, and numbers, whose marks begin no
#: character; ``end`` is there where a comment of several lines has one.
_PIECE = re.compile(
    r"//[^\n]*+|/\*(?:.*?(?P<end>\*/)|.*+)|(?<!\w)\.?\d(?:[\w.]|'\w)*+"
    r"|(?<!\w)(?:u8|[uUL])?R\"(?P<mark>[^()\\\s\"]{0,16})\((?:.*?\)(?P=mark)\"|.*+)"
    r"|\"(?:[^\"\\\n]|\\.)*+\"?|'(?:[^'\\\n]|\\.)*+'?",
    re.DOTALL,
)


def without_comments(text: str, instead: str | Callable[[str], str] = " ") -> str:
    """The text with ``instead``, or what it makes of the comment, in the place of each. One that
    does not end stays, as what follows it may be code to somebody."""

    def piece(match: re.Match[str]) -> str:
        if match[0][0] != "/" or _is_unended(match):
            return match[0]
        return instead if isinstance(instead, str) else instead(match[0])

    return _PIECE.sub(piece, text)


def unended(text: str) -> int:
    """The place where a comment begins that does not end; -1 where none does."""
    if text.find("/*", max(text.rfind("*/") - 1, 0)) < 0:
        return -1
    return next((match.start() for match in _PIECE.finditer(text) if _is_unended(match)), -1)


def _is_unended(match: re.Match[str]) -> bool:
    return match[0].startswith("/*") and match["end"] is None
