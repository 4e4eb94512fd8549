"""The types and constants that host code names where it launches: aliases of its functions, and
constants of classes, as the arguments of templates there make them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from portkern.cuda_source.lexer import CLOSE
from portkern.cuda_source.source_map import Parameter, SourceMap
from portkern.port.proof.commas import of_template
from portkern.port.proof.expression import Names

#: How often an alias may be of another, and a class have another as its base.
_DEPTH = 6
#: The most characters of a type with its aliases spelled out.
_MOST_TYPE = 1000
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
#: ``Traits<64, T>::kThreads``, without the constant.
_CLASS = re.compile(r"(?:typename\s+)?(?:\w*::)*?(\w+)\s*(?:<(.*)>)?", re.DOTALL)
_USING = re.compile(r"\busing\s+(\w+)\s*=\s*([\w:]+)\s*;")
_OF_CLASS = re.compile(r"(?<![\w:])(\w+)\s*::\s*(\w+)\b(?!\s*(?:[<(]|::))")


def spelled_out(source: SourceMap, text: str, at: int) -> str:
    """A type or an argument of a template as it is without the aliases that the function has
    at token ``at``."""
    for _ in range(_DEPTH):
        found = _WORD.sub(lambda word: _alias(source, word[0], at) or word[0], text)
        if found == text or len(found) > _MOST_TYPE:
            break
        text = found
    return text


def _alias(source: SourceMap, name: str, at: int) -> str:
    """The type that ``using name = …;`` or ``typedef … name;`` of the function names; '' where none
    is in force at the place, or the preprocessor decides which is."""
    code, text, groups = source.code, source.code.text, 0
    first, i = source.body(at)[0], at - 1
    if not first or code.directive(at) is not None:
        return ""
    while i > first:
        directive = code.directive(i)
        if directive is not None:
            groups += (directive.name == "endif") - directive.name.startswith("if")
            i = directive.begin - 1
            continue
        if text[i] in CLOSE and 0 <= code.partner[i] < i:
            i = code.partner[i] - 1
            continue
        if text[i] == name and text[i - 1] == "using" and text[i + 1] == "=":
            return "" if groups else _until_semicolon(source, i + 2)
        if text[i] == "typedef":
            whole = _until_semicolon(source, i + 1)
            if whole.rpartition(" ")[2] == name:
                return "" if groups else whole.rpartition(" ")[0]
        i -= 1
    return ""


def _until_semicolon(source: SourceMap, first: int) -> str:
    code, end = source.code, first
    while end < len(code.text) - 1 and code.text[end] != ";":
        end = max(code.partner[end], end) + 1
    return source.flat(first, end).removeprefix("typename ")


@dataclass(frozen=True)
class _Class:
    """Its template's parameters, its bases, and where its body is."""

    template: tuple[str, ...]
    defaults: tuple[str, ...]
    bases: tuple[str, ...]
    body: str


def constants(source: SourceMap, at: int, spelled: Callable[[str], str]) -> Mapping[str, str]:
    """The constants of classes that the function at a token asks for, by their names alone; a
    name that two classes have with two values is none. ``spelled`` says what a class that is
    named there is, all of its template's arguments known."""
    first, last = source.body(at)
    if not first:
        return {}
    found: dict[str, set[str]] = {}
    for match in _OF_CLASS.finditer(source.flat(first, last)):
        value = constant(source, spelled(match[1]), match[2])
        if value is not None:
            found.setdefault(match[2], set()).add(str(value))
    return {name: values.pop() for name, values in found.items() if len(values) == 1}


def _with(text: str, bound: Mapping[str, str]) -> str:
    return _WORD.sub(lambda word: bound.get(word[0], word[0]), text)


def constant(source: SourceMap, of: str, name: str) -> int | None:
    """The value of a class's static constant; ``of`` is the class with its template's arguments,
    all of them spelled out."""
    text, own = _text_of(source, of, _DEPTH)
    if not re.search(rf"\b{re.escape(name)}\s*=", text):
        return None
    return _names(text, own).value(name, len(text))


def member_type(source: SourceMap, of: str, name: str) -> str:
    """The type that a class's ``using name = …;`` names; '' where there is none. ``of`` is as in
    :func:`constant`."""
    text, own = _text_of(source, of, _DEPTH)
    types: dict[str, str] = {**dict(_USING.findall(text)), **own}
    found = types.get(name, "")
    for _ in range(_DEPTH):
        found = types.get(found, found)
    return found


def _names(text: str, own: Mapping[str, str]) -> Names:
    """The names of a class's text, with what its template is given."""
    plain = {"true": "1", "false": "0"}
    given = {name: plain.get(value, value) for name, value in own.items()}
    numbers = {name: int(value) for name, value in given.items() if re.fullmatch(r"-?\d+", value)}
    return Names(text, numbers, {**dict(_USING.findall(text)), **own})


def _text_of(source: SourceMap, of: str, depth: int) -> tuple[str, dict[str, str]]:
    """The bodies of a class's bases and its own, with what their templates are given."""
    match = _CLASS.fullmatch(of.strip())
    known = _classes(source).get(match[1]) if match and depth else None
    if match is None or known is None:
        return "", {}
    listed = of_template(match[2]) if match[2] else []
    listed += known.defaults[len(listed) :]
    own = dict(zip(known.template, listed, strict=False))
    whole, given = "", dict[str, str]()
    for base in known.bases:
        text, of_base = _text_of(source, _with(base, own), depth - 1)
        whole, given = f"{whole} {text}", given | of_base
    names = _names(whole, given)
    values = {name: names.value(text, len(whole)) for name, text in own.items()}
    own |= {name: str(value) for name, value in values.items() if value is not None}
    return f"{whole} {known.body}", given | own


@lru_cache(maxsize=16)
def _classes(source: SourceMap) -> Mapping[str, _Class]:
    """The classes that the text defines, by name; none of those that it defines twice, as where
    one is specialised."""
    code, found = source.code, dict[str, _Class | None]()
    for i, word in enumerate(code.text[:-2]):
        if word not in ("struct", "class") or code.directive(i) is not None or source.is_dead(i):
            continue
        name, at = code.text[i + 1], i + 2
        special = code.text[at] == "<"
        bases: list[str] = []
        if code.text[at] == "final":
            at += 1
        if code.text[at] == ":":
            brace = next((j for j in range(at, len(code.text)) if code.text[j] in "{;"), at)
            bases = [
                re.sub(r"^(?:(?:public|private|protected|virtual)\s+)+", "", part)
                for part in source.pieces(at + 1, brace)
            ]
            at = brace
        if special:
            found[name] = None
        elif code.text[at] == "{" and code.partner[at] > at:
            template = _template_before(source, i)
            own = _Class(
                tuple(p.name for p in template),
                tuple(p.default for p in template),
                tuple(bases),
                source.flat(at + 1, code.partner[at]),
            )
            found[name] = own if name not in found else None
    return {name: one for name, one in found.items() if one is not None}


def _template_before(source: SourceMap, i: int) -> tuple[Parameter, ...]:
    """The parameters of the template that the class at a token is."""
    code = source.code
    angle = code.open_angle(i - 1, 0) if code.text[i - 1] == ">" else -1
    is_template = angle > 0 and code.text[angle - 1] == "template"
    return source.parameters(angle + 1, i - 1) if is_template else ()
