"""Statements of assembler in C++ that has been preprocessed, and texts that the compiler writes
into its assembly as they are, however they are spelled."""

from __future__ import annotations

import re
from collections.abc import Iterator

#: Any character beyond ASCII may be a letter to the compiler. A number goes on behind the
#: sign of its exponent.
_TOKEN = re.compile(
    r"(?:u8|[uUL])?R\"(?P<mark>[^()\\\s]{0,16})\((?P<raw>.*?)\)(?P=mark)\""
    r"|(?:u8|[uUL])?\"(?P<plain>(?:[^\"\\\n]|\\.)*+)\""
    r"|\.?[0-9](?:[eEpP][+-]|[\w$.]|[^\x00-\x7f]|'\w)*+|'(?:[^'\\\n]|\\.)*+'?"
    r"|(?P<word>(?:[A-Za-z_$]|[^\x00-\x7f])(?:[\w$]|[^\x00-\x7f]|\\N\{[^{}\n]*\})*+)|(?P<sign>\S)",
    re.DOTALL,
)
_ASSEMBLES = frozenset(["asm", "__asm", "__asm__"])
#: Attributes of declarations whose texts are written into the assembly, and texts that are harmless
#: there; what stands before the name of an attribute.
_NAMING = re.compile(
    r"_*(section|symver|alias|ifunc|weakref|code_seg|patchable_function_entry"
    r"|target(?:_clones|_version)?)_*"
)
_NAMES = re.compile(rf"\b{_NAMING.pattern}\s*\(")
_PLAIN = re.compile(r"[\w.$]*", re.ASCII)
_OF_TARGET = re.compile(r"[\w.$=,+\- ]*", re.ASCII)
_BEFORE = frozenset("(,:[")
#: Directives that the preprocessor leaves, and those that bring a text or name a section.
_DIRECTIVE = re.compile(r"^[ \t]*(?:#|%:)[ \t]*((?:ident|sccs|pragma)\b.*)", re.MULTILINE)
_BRINGS = re.compile(r"(ident|sccs)\b|pragma\b.*(section|_seg\b|\bident\b|\bcomment\b)")
_ONLY = re.compile(r'[\w\s.$:()=",/+@~-]*', re.ASCII)
_ESCAPED = re.compile(r"\\(?:x([0-9a-fA-F]+)|([0-7]{1,3})|(.))", re.DOTALL)
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "v": "\v", "f": "\f", "a": "\a", "b": "\b"}


def statements(text: str) -> Iterator[str]:
    """The template of each, with names that a declaration gives to the linker; '?' for one that is
    not a text. Attributes and directives whose texts may be more than a name are among them, as
    directives of the assembler."""
    yield from _templates(text)
    if _NAMES.search(text):
        yield from _named(text)
    for found in _DIRECTIVE.finditer(text):
        said = re.sub(r'"(?:[^"\\]|\\.)*"', '""', found[1])
        if _BRINGS.match(found[1]) and not _ONLY.fullmatch(found[1]):
            yield f".{found[1]}"
        elif "'" in said or 'R"' in said:  # what is a text there is not certain
            yield "?"


def _templates(text: str) -> Iterator[str]:
    template: list[str] | None = None
    awaited = False  # the parenthesis
    for token in _TOKEN.finditer(text):
        word, sign, content = token["word"], token["sign"], _content(token)
        if template is not None:
            if content is not None:
                template.append(content)
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


def _named(text: str) -> Iterator[str]:
    """The texts in parentheses of the attributes that are more than names."""
    attribute, before, depth = "", "", 0
    for token in _TOKEN.finditer(text):
        sign = token["sign"] or ""
        if depth:
            depth += (sign == "(") - (sign == ")")
            content = _content(token)
            plain = _OF_TARGET if attribute.startswith("target") else _PLAIN
            if content is not None and not plain.fullmatch(content):
                yield f".{attribute} {content}"
        elif attribute and sign == "(":
            depth = 1
            continue
        if not depth:
            known = _NAMING.fullmatch(token["word"] or "") if before in _BEFORE else None
            attribute = known[1] if known else ""
        before = sign


def _content(token: re.Match[str]) -> str | None:
    if token["raw"] is not None:
        return token["raw"]
    return unescaped(token["plain"]) if token["plain"] is not None else None


def unescaped(literal: str) -> str:
    """Returns the characters that a text of C++ stands for."""

    def character(match: re.Match[str]) -> str:
        digits, octal, letter = match.groups()
        if letter is not None:
            return _CONTROLS.get(letter, letter)
        return chr(int(digits[-8:], 16) & 255 if digits else int(octal, 8))

    return _ESCAPED.sub(character, literal)
