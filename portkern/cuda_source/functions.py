"""Definitions of device functions, as they stand before preprocessing: the words that mark them
lead to the head, the parameters and the body."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from portkern.cuda_source.lexer import Kind
from portkern.cuda_source.source_map import Parameter, SourceMap

KERNEL, DEVICE = "__global__", "__device__"
#: Macros that stand for marks, and the marks that each has.
Markers = Mapping[str, frozenset[str]]
_MARKS = frozenset([KERNEL, DEVICE, "__host__"])
_INLINE = frozenset(["__forceinline__", "__noinline__", "inline"])
#: Parentheses after these hold no parameters of a function.
_ATTRIBUTES = frozenset(
    "__launch_bounds__ __attribute__ __align__ alignas __declspec noexcept requires decltype "
    "__cluster_dims__ __block_size__ __maxnreg__ amdgpu_waves_per_eu explicit typeof "
    "__typeof__ throw".split()
)
#: Directives that may stand within a declaration's head.
_WITHIN_HEAD = frozenset(
    ["if", "ifdef", "ifndef", "else", "elif", "elifdef", "elifndef", "endif", "pragma"]
)


@dataclass(frozen=True)
class Function:
    """A definition by its tokens: from ``head``, with its template, to the '}' at ``end``.

    ``mark`` is the word that shows it, ``name`` '' for a lambda, ``in_macro`` whether it stands in
    the body of a ``#define``, so that its name may be a parameter of the macro.
    """

    name: str
    marks: frozenset[str]
    head: int
    mark: int
    name_at: int
    opening: int  # the parentheses of its parameters
    closing: int
    body: int
    end: int
    in_macro: bool

    @property
    def kernel(self) -> bool:
        return KERNEL in self.marks


def device_functions(source: SourceMap, markers: Markers) -> Iterator[Function]:
    """Kernels and device functions in the order of their marks; none that ``#if 0`` takes out, and
    none twice. A declaration is not a definition."""
    last = -1
    for i, token in enumerate(source.code.tokens):
        if i <= last or token.kind is not Kind.NAME:
            continue
        is_mark = token.text in (KERNEL, DEVICE)
        if not is_mark and (token.text not in markers or source.code.directive(i)):
            continue
        function = None if source.is_dead(i) else _definition(source, i, markers)
        if function is not None:
            last = function.body
            yield function


def parameters(source: SourceMap, function: Function) -> tuple[Parameter, ...]:
    return source.parameters(function.opening + 1, function.closing)


def template(source: SourceMap, function: Function) -> tuple[Parameter, ...]:
    """The parameters of the function's template; of nested templates, of the innermost."""
    code, text = source.code, source.code.text
    found: tuple[Parameter, ...] = ()
    i = function.head
    while i < function.name_at:
        if text[i] == "template" and text[i + 1] == "<":
            close = code.close_angle(i + 1, function.name_at)
            found = source.parameters(i + 2, close) if close > 0 else ()
            i = max(i, close)
        i += 1
    return found


def bounds(source: SourceMap, function: Function) -> tuple[str, ...]:
    """The arguments of ``__launch_bounds__``."""
    code, text = source.code, source.code.text
    for i in range(function.head, function.body):
        if text[i] == "__launch_bounds__" and text[i + 1] == "(" and code.partner[i + 1] > 0:
            return source.pieces(i + 2, code.partner[i + 1])
    return ()


def _definition(source: SourceMap, at: int, markers: Markers) -> Function | None:
    """The one that the mark at ``at`` belongs to; None for a declaration or a variable."""
    code, text = source.code, source.code.text
    directive = code.directive(at)
    last = directive.end if directive else len(text)
    after = at + 1
    if text[at] in markers and text[after] == "(" and code.partner[after] > 0:
        after = code.partner[after] + 1  # the macro's arguments
    place = _parameters(source, after, last)
    if place is None:
        return None
    opening, closing, body = place
    name_at, name = _name(source, at, opening)
    if name_at < 0 or (not name and text[at] != DEVICE):
        return None
    head = _head(source, at)
    marks = {word for word in text[head:body] if word in _MARKS}
    marks.update(*(markers[word] for word in text[head:body] if word in markers))
    end = code.partner[body] if code.partner[body] > 0 else last - 1
    return Function(
        name,
        frozenset(marks),
        head,
        at,
        name_at,
        opening,
        closing,
        body,
        end,
        directive is not None,
    )


def _name(source: SourceMap, at: int, opening: int) -> tuple[int, str]:
    """The token of the name before the parameters, and the name: a lambda's is ''; -1: none."""
    code, text = source.code, source.code.text
    i = opening - 1
    if i == at or text[i] in _MARKS or text[i] in _INLINE:
        return opening, ""
    operator = next((j for j in range(i, max(at, i - 4), -1) if text[j] == "operator"), -1)
    if operator > 0:
        return operator, "".join(text[operator:opening])
    if text[i] == ">":  # a specialisation
        i = code.open_angle(i, at) - 1
    elif text[i] == ")":  # KERNEL_NAME(x)(int a)
        i = code.partner[i] - 1
        return (i, code.flat(i, opening)) if i > at and _is_name(source, i) else (-1, "")
    if i <= at or not _is_name(source, i):
        return -1, ""
    first = i
    while first - 2 > at and text[first - 1] == "##":
        first -= 2
    return first, "".join(text[first : i + 1])


def _is_name(source: SourceMap, i: int) -> bool:
    return source.code.tokens[i].kind is Kind.NAME


def _parameters(source: SourceMap, first: int, last: int) -> tuple[int, int, int] | None:
    """The places of a function definition's parentheses (parameters) and brace (body)."""
    code, text = source.code, source.code.text
    groups: list[tuple[int, int]] = []
    i = first
    while i < last:
        directive = code.directive(i)
        if directive is not None and directive.end < last:
            i = directive.end
            continue
        if text[i] == "{":
            chosen = _chosen(source, groups)
            return (*chosen, i) if chosen else None
        if text[i] == ":" and groups:
            chosen, body = _chosen(source, groups), _after_initializers(source, i + 1, last)
            return (*chosen, body) if chosen and body else None
        if text[i] in (";", "}") or (text[i] == "=" and text[i - 1] != "operator"):
            return None
        if text[i] in ("(", "["):
            close = code.partner[i]
            if not i < close < last:
                return None
            if text[i] == "(" and text[i - 1] not in _ATTRIBUTES:
                if text[i - 1] != "operator" or text[close + 1] != "(":  # operator()(…)
                    groups.append((i, close))
            i = close
        i += 1
    return None


def _chosen(source: SourceMap, groups: list[tuple[int, int]]) -> tuple[int, int] | None:
    """The parentheses that hold the parameters: the last, but for macros behind them, such as
    ``void k(int n) BOUNDS(256) {``."""
    names = [source.code.text[opening - 1] for opening, _ in groups]
    last = len(groups) - 1
    while last > 0 and groups[last - 1][1] == groups[last][0] - 2:
        others = names[:last]
        by_macro = names[last] in source.macros and not all(n in source.macros for n in others)
        shouted = names[last].isupper() and not all(map(str.isupper, others))
        if not by_macro and (not shouted or _declares(source, *groups[last])):
            break
        last -= 1
    return groups[last] if groups else None


def _declares(source: SourceMap, opening: int, closing: int) -> bool:
    """Whether a name follows a name in the parentheses, as it does its type."""
    kinds = [source.code.tokens[i].kind for i in range(opening, closing)]
    return (Kind.NAME, Kind.NAME) in pairwise(kinds)


def _after_initializers(source: SourceMap, i: int, last: int) -> int | None:
    """The body of a constructor, whose members are initialised from token ``i`` on."""
    code, text = source.code, source.code.text
    while i < last and text[i] not in (";", "}"):
        if text[i] in ("(", "{") and code.partner[i] > i:
            if text[i] == "{" and text[i - 1] in (")", "}"):
                return i
            i = code.partner[i]
        i += 1
    return None


def _head(source: SourceMap, at: int) -> int:
    """The beginning of the declaration that has its mark at ``at``."""
    code, text = source.code, source.code.text
    inside = code.directive(at)
    first = inside.body if inside else 0
    head = i = at
    while i > first:
        i -= 1
        directive = code.directive(i) if inside is None else None
        if directive is not None:
            if directive.name not in _WITHIN_HEAD:
                break
            i = directive.begin
            continue
        if text[i] in ("{", "}", ";", ":", "\\"):
            break
        if text[i] == ">" and (angle := code.open_angle(i, first)) > 0:
            i = angle
        elif text[i] in (")", "]"):
            i = max(code.partner[i], first)
        head = i
    return head
