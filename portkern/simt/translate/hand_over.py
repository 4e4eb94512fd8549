"""Kernels whose compiled code is executed: their first statement hands the launch over."""

from __future__ import annotations

from collections.abc import Iterator

from portkern.cuda_source.lexer import OPEN, Kind, SourceCode
from portkern.simt.translate.edit import SourceDraft
from portkern.simt.translate.survey import NO_PARAMETERS

#: A type may consist of one of these and a name, which is then not the parameter's.
_QUALIFIERS = frozenset(["const", "volatile", "struct", "class", "enum", "typename", "register"])
_TYPES = frozenset(
    "void bool char short int long float double signed unsigned auto wchar_t char16_t char32_t"
    " __restrict__ __restrict const volatile".split()
)


def hand_over(draft: SourceDraft, i: int) -> None:
    """Put the statement into the definition of the kernel that the mark at ``i`` belongs to. One
    whose parameters are not understood is left alone, which its launch will say."""
    code, last = draft.code, draft.places[i].last
    opening = _parameters(code, i + 1, last)
    closing = code.partner[opening] if opening else -1
    if closing < 0 or code.text[closing + 1] != "{" or code.has_directive(opening, closing):
        return
    arguments: list[str] = []
    if code.text[opening + 1 : closing] != ["void"]:
        for number, (first, end) in enumerate(_cut(code, opening + 1, closing)):
            name = _name(draft, first, end, f"simt_p{number}")
            if not name:
                return
            arguments.append(name)
    body, call = closing + 1, f"::simt::as_object({', '.join(arguments)})"
    draft.insert_after(body, f" if ({call}) return;")
    end = code.partner[body]
    if end > body + 1 and draft.places[i].macro is None:
        draft.replace(body + 1, end, "")  # nobody runs it, nor needs a model of what is in it


def _parameters(code: SourceCode, i: int, last: int) -> int:
    """The place where the list of parameters opens; 0 where none does."""
    while i < last and code.text[i] not in ("{", ";", "}"):
        if code.text[i] == "(":
            if code.text[i - 1] not in NO_PARAMETERS:
                return i
            i = code.partner[i]
            if i < 0:
                return 0
        i += 1
    return 0


def _cut(code: SourceCode, first: int, last: int) -> Iterator[tuple[int, int]]:
    """The parameters in the range: a comma in the arguments of a type ends none."""
    begin = i = first
    while i < last:
        text = code.text[i]
        if text in OPEN and code.partner[i] > 0:
            i = code.partner[i]
        elif text == "<":
            i = max(i, code.close_angle(i, last))
        elif text == "=" and i + 1 < last:  # a value, up to its end
            i = code.split(i + 1, last)[0][1] - 1
        elif text == ",":
            yield begin, i
            begin = i + 1
        i += 1
    if first < last:
        yield begin, last


def _name(draft: SourceDraft, first: int, end: int, unnamed: str) -> str:
    """The parameter as an argument: its name, which it gets where it has none."""
    code = draft.code
    while "=" in code.text[first:end]:
        end = first + code.text[first:end].index("=")
    while end - first > 1 and code.text[end - 1] == "]":
        end = code.partner[end - 1]
    if end <= first or code.text[end - 1] == ")":  # a pointer to a function
        return ""
    text, token = code.text[first:end], code.tokens[end - 1]
    before = [word for word in text[:-1] if word not in _QUALIFIERS]
    named = token.kind is Kind.NAME and token.text not in _TYPES and before and before[-1] != "::"
    if not named:
        draft.insert_after(end - 1, f" {unnamed}")
    name = token.text if named else unnamed
    return f"{name}..." if "..." in text else name
