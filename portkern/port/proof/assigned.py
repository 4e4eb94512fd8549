"""The values that host code gives the members of a struct, in all variables of its classes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

from portkern.cuda_source.comments import without_comments
from portkern.cuda_source.source_map import Parameter
from portkern.port.proof import width
from portkern.port.proof.element import element_of, plain_type
from portkern.port.proof.outcome import Refused

#: Planes are of images.
_OF_WIDTH = re.compile(r"warp|(?<!p)lane|wave", re.IGNORECASE)
#: ``p.n = 3;``, ``(*p).n = 3;``, ``p[i].n[2] = 3;``
_ASSIGNED = re.compile(
    r"(\b\w++|[)\]])\s*+(?:\.|->)\s*+(\w++(?:\[\d++\])?+)\s*+=(?!=)([^;{}=]{1,200}+);"
)
_TEMPLATE = r"(?:\s*+<[^;{}()]{0,200}>)?+"
#: Behind a type's name what gives a variable, or a value without a name, its members.
_INITIALISED = (
    r"[)>]?\s*+(?:[*&]*+\w++\s*+,\s*+){0,20}+(?:\w++\s*+)?+(?:\[[^\]]{0,40}\]\s*+)?+([({=])"
)
#: Behind a type's name variables, of which the first may be a parameter.
_DECLARED = r"((?:[\s*&]++|const\b)++\w++(?:\s*+,[\s*&]*+\w++(?=\s*+[,;=]))*+)"
#: A class's definition up to its body's brace, with or without bases.
_DEFINES = re.compile(r"\b(?:struct|class)\s+\w+(?:\s+final)?(?:\s*:[\w\s,:<>]*)?\s*\{$")
#: The most characters of one initialiser and of a class's body, and how many initialisers are read.
_MOST_TEXT, _MOST_BODY, _MOST_INITIALISERS = 1000, 20_000, 4000


def of_width(
    parameter: Parameter,
    own: Sequence[Parameter],
    known: Mapping[str, str],
    classes: Collection[str],
    text: str,
) -> Refused | None:
    """The reason why whole numbers among a parameter's members cannot be made up: on a machine of
    another width the port's host code may store others there. ``classes`` are names."""
    text = _code(text)
    asked, why = width.is_asked(text), "may depend on the width of warps, which host code asks for"
    numbers = [member for member in own if _is_number(member, known)]
    for member in numbers:
        words = [_last(member), *(value for _, value in _assignments(text).get(_last(member), ()))]
        if asked or _OF_WIDTH.search(" ".join(words)):
            return Refused(f"'{member.name}' {why}")
    if numbers and _initialises_from_width(text, tuple(sorted(classes))):
        return Refused(f"'{parameter.name}' {why}")
    return None


def set_to(member: Parameter, classes: Collection[str], text: str) -> str:
    """The one expression that host code sets a member of a variable of these classes to, as
    ``p.n = x.size(0);``; '' where there is none, or there are several."""
    text, path = _code(text), member.name.split(".")
    variables = {*_variables(text, tuple(sorted(classes))), *path[1:-1]}
    given = _assignments(text).get(path[-1], ())
    found = {value for variable, value in given if variable in variables}
    return found.pop() if len(found) == 1 else ""


def _is_number(member: Parameter, known: Mapping[str, str]) -> bool:
    element = None if "*" in member.type else element_of(plain_type(member.type), known)
    return element is not None and not element[0].is_float


def _last(member: Parameter) -> str:
    return member.name.rpartition(".")[2]


@lru_cache(maxsize=16)
def _code(text: str) -> str:
    return without_comments(text)


@lru_cache(maxsize=16)
def _assignments(text: str) -> Mapping[str, Sequence[tuple[str, str]]]:
    """The variables and values of assignments to members, by the members' names."""
    found: dict[str, dict[tuple[str, str], None]] = {}
    for match in _ASSIGNED.finditer(text):
        found.setdefault(match[2], {})[match[1], " ".join(match[3].split())] = None
    return {name: tuple(values) for name, values in found.items()}


@lru_cache(maxsize=64)
def _variables(text: str, classes: tuple[str, ...]) -> frozenset[str]:
    """The variables that the text declares of the classes, or without saying of which."""
    types = "|".join(map(re.escape, ["auto", *classes]))
    found = re.finditer(rf"\b(?:{types})\b{_TEMPLATE}{_DECLARED}", text)
    return frozenset(word for match in found for word in re.findall(r"\w+", match[1]))


@lru_cache(maxsize=64)
def _initialises_from_width(text: str, classes: tuple[str, ...]) -> bool:
    """Whether what initialises a value of the classes has to do with warps, or is too long."""
    types = "|".join(map(re.escape, classes))
    found = re.finditer(rf"\b(?:{types})\b{_TEMPLATE}\s*+{_INITIALISED}", text)
    for number, match in enumerate(found):
        defines = _DEFINES.search(text[max(match.start() - _MOST_TEXT, 0) : match.end()])
        most = _MOST_BODY if defines else _MOST_TEXT
        given = body = _closed(text[match.start(1) : match.end() + most])
        if defines:  # of a class's body, what it gives its members
            given = " ".join(re.findall(r"=[^;]*;|\{[^{}]*\}|\([^()]*\)", body[1:]))
        if number == _MOST_INITIALISERS or len(body) > most or _OF_WIDTH.search(given):
            return True
    return False


def _closed(text: str) -> str:
    """The text up to what closes the bracket that it begins with; with ``=`` up to the
    semicolon."""
    depth = 0
    for at, character in enumerate(text):
        depth += (character in "({[") - (character in ")}]")
        if depth < 0 or (character in ")};" and not depth):
            return text[:at]
    return text
