"""Statements of assembler in C++ that has been preprocessed, however its text spelled them."""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(
    r"(?:u8|[uUL])?R\"(?P<mark>[^()\\\s\"]{0,16})\((?P<raw>.*?)\)(?P=mark)\""
    r"|(?:u8|[uUL])?\"(?P<plain>(?:[^\"\\\n]|\\.)*+)\""
    r"|\.?\d(?:[\w.]|'\w)*+|'(?:[^'\\\n]|\\.)*+'?|(?P<word>[^\W\d][\w$]*+)|(?P<sign>\S)",
    re.DOTALL,
)
_ASSEMBLES = frozenset(["asm", "__asm", "__asm__"])
_ESCAPED = re.compile(r"\\(?:x([0-9a-fA-F]+)|([0-7]{1,3})|(.))", re.DOTALL)
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "v": "\v", "f": "\f", "a": "\a", "b": "\b"}


def statements(text: str) -> Iterator[str]:
    """The template of each, with names that a declaration gives to the linker; '?' for one that is
    not a text."""
    template: list[str] | None = None
    awaited = False  # the parenthesis
    for token in _TOKEN.finditer(text):
        word, sign = token["word"], token["sign"]
        content = token["raw"] if token["raw"] is not None else token["plain"]
        if template is not None:
            if content is not None:
                template.append(content if token["raw"] is not None else unescaped(content))
                continue
            yield "".join(template) if template else "?"
            template = None
        if awaited and sign == "(":
            template, awaited = [], False
        elif word is None:
            awaited = False
        else:  # words between are how, such as volatile
            awaited = awaited or word in _ASSEMBLES
    if template is not None:
        yield "".join(template) or "?"


def unescaped(literal: str) -> str:
    """Returns the characters that a text of C++ stands for."""

    def character(match: re.Match[str]) -> str:
        digits, octal, letter = match.groups()
        if letter is not None:
            return _CONTROLS.get(letter, letter)
        return chr(int(digits[-8:], 16) & 255 if digits else int(octal, 8))

    return _ESCAPED.sub(character, literal)
