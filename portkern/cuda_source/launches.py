"""Kernel launches of a source, as text: ``<<<…>>>``, HIP's macro, the runtime's functions, with the
macros put in that write launches or parts of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from portkern.cuda_source.expansion import NoExpansion, expanded, use_at
from portkern.cuda_source.launch_syntax import (
    LaunchSyntax,
    Range,
    brackets,
    chevrons,
    is_unfinished,
    kernel_begin,
    opens,
    pasted,
)
from portkern.cuda_source.lexer import OPEN, Kind, Macro, SourceCode
from portkern.cuda_source.source_map import SourceMap

#: Functions of CUDA's runtime and of HIP's: where each has kernel, grid, block, shared memory,
#: stream; the arguments' array.
_RUNTIME = {
    f"{vendor}Launch{kind}Kernel{suffix}": (0, 1, 2, 4, 5, 3)
    for vendor in ("cuda", "hip")
    for kind in ("", "Cooperative")
    for suffix in ("", "_ptsz", "_spt")
}
_GGL = frozenset(["hipLaunchKernelGGL", "hipLaunchKernelGGLInternal"])
_EXTENDED = frozenset(
    ["cudaLaunchKernelEx", "cudaLaunchKernelExC", "hipLaunchKernelEx", "hipLaunchKernelExC"]
)
#: The fields of a configuration, in the order of its initializer.
_FIELDS = ("gridDim", "blockDim", "dynamicSmemBytes", "stream")
#: What names a launch in a macro's body.
_NAMES = _RUNTIME.keys() | _GGL | _EXTENDED
#: What stands around a kernel and changes nothing of it; casts, with their types, besides.
_SAME = frozenset(["HIP_KERNEL_NAME"])


@dataclass(frozen=True)
class LaunchText:
    """``kernel`` is the name alone, without namespaces; parts that are not written are ''.

    ``function`` is where it stands, at the offset ``at``. A launch in a macro's body has the
    macro's name as ``function`` and ``macro``; a use of the macro is a launch too, its parts put
    in, with the function that uses it. ``by`` is the runtime's function that launches.
    """

    kernel: str
    template_arguments: tuple[str, ...]
    grid: str
    block: str
    shared: str
    stream: str
    arguments: tuple[str, ...]
    line: int
    function: str
    macro: str = ""
    at: int = field(default=-1, compare=False)
    by: str = field(default="", compare=False)


def launches(source: SourceMap) -> tuple[LaunchText, ...]:
    """All launches in a source, in the order of their lines."""
    both = [*_direct(source), *_uses(source)]
    return tuple(sorted(both, key=lambda launch: launch.line))


def lines(source: SourceMap) -> frozenset[int]:
    """The lines on which launches begin, whether or not they can be read, and macros are used that
    write them."""
    code, words = source.code, _writers(source) | _NAMES
    return frozenset(
        token.line
        for i, token in enumerate(code.tokens)
        if (token.text in words or opens(code, i)) and code.directive(i) is None
    )


def _direct(source: SourceMap) -> Iterator[LaunchText]:
    """The launches that are written out."""
    text = source.code.text
    for i, token in enumerate(source.code.tokens):
        launch = None
        if token.text in ("<<<", "<<", "<") and opens(source.code, i):
            launch = _chevrons(source, i)
        elif token.kind is Kind.NAME and text[i + 1 : i + 2] == ["("]:
            launch = _call(source, i)
        if launch is not None and not source.is_dead(i):
            function = source.function(i)
            macro = function if source.code.directive(i) is not None else ""
            for kernel, template in _meant(source, i, launch):
                yield replace(
                    launch,
                    kernel=kernel,
                    template_arguments=template,
                    line=token.line,
                    function=function,
                    macro=macro,
                    at=token.begin,
                )


def _meant(source: SourceMap, at: int, launch: LaunchText) -> Iterable[tuple[str, tuple[str, ...]]]:
    """The kernel, or those that a variable of the function may point to, which is launched."""
    code, (first, _) = source.code, source.body(at)
    found: dict[tuple[str, tuple[str, ...]], None] = {}
    for i in range(first, at) if first and not launch.template_arguments else ():
        if code.text[i] == launch.kernel and code.text[i - 1] not in (".", "->", "::"):
            for begin, end in _values(code, i, at):
                pointed = _kernel(source, begin, end)
                if pointed is not None and pointed[0] != launch.kernel:
                    found[pointed] = None
    return found or [(launch.kernel, launch.template_arguments)]


def _values(code: SourceCode, i: int, last: int) -> Iterator[Range]:
    """The values that the variable at token ``i`` is given there: both of a choice, each of an
    array."""
    text, at = code.text, i + 1
    if text[i - 1] == "*" and text[at] == ")" and text[at + 1] == "(":  # void (*f)(int) = …
        at = code.partner[at + 1] + 1
    while text[at] == "[" and code.partner[at] > at:
        at = code.partner[at] + 1
    begin = at + (text[at] == "=")
    if text[begin] == "{" and code.partner[begin] > begin:
        yield from code.split(begin + 1, code.partner[begin])
    elif text[at] == "=":
        end = begin
        while end < last and text[end] not in (";", ","):
            end = max(end, code.partner[end] if text[end] in OPEN else end) + 1
            if text[end - 1] == "<" and (close := code.close_angle(end - 1, last)) > 0:
                end = close + 1
        marks = [j for j in range(begin, end) if text[j] in ("?", ":")]
        bounds = [begin - 1, *marks, end]
        choices = [(a + 1, b) for a, b in pairwise(bounds)]
        yield from (choices[1:] if marks else choices)


def _uses(source: SourceMap) -> Iterator[LaunchText]:
    """Uses of macros that write launches: what the launches are with their arguments."""
    code, writers = source.code, _writers(source)
    i = 0
    while writers and i < len(code.tokens):
        token = code.tokens[i]
        used = source.macro_at(token.text, i) if token.text in writers else None
        end = use_at(code, i, used) if used is not None and not source.is_dead(i) else None
        if used is None or end is None or code.directive(i) is not None:
            i += 1
            continue
        while code.text[end] == "(" and code.partner[end] > 0 and used.name in writers:
            end = code.partner[end] + 1  # ON(kernel, n)(arguments)
        for launch in _written(source, i, end, writers):
            function = source.function(i)
            yield replace(
                launch, line=token.line, function=function, macro=used.name, at=token.begin
            )
        i = end


def _written(
    source: SourceMap, first: int, last: int, writers: frozenset[str]
) -> Iterator[LaunchText]:
    def lookup(name: str) -> Macro | None:
        return source.macro_at(name, first) if name in writers else None

    try:
        text = expanded(source.code, first, last, lookup)
    except NoExpansion:
        return
    yield from _direct(SourceMap(text, within=(source, first)))


def _writers(source: SourceMap) -> frozenset[str]:
    """The macros whose body launches, or has a part of a launch, and those that use them."""
    users: dict[str, set[str]] = {}
    fresh: list[str] = []
    for macro in source.all_macros:
        if has_launch(macro):
            fresh.append(macro.name)
        for word in {token.text for token in macro.body if token.kind is Kind.NAME}:
            users.setdefault(word, set()).add(macro.name)
    reached = set(fresh)
    while fresh:
        more = users.get(fresh.pop(), set()) - reached
        reached |= more
        fresh += more
    return frozenset(reached)


def has_launch(macro: Macro) -> bool:
    """Whether the macro's body launches, or has a part of a launch."""
    texts = [token.text for token in macro.body]
    return not _NAMES.isdisjoint(texts) or "<<<" in "".join(texts) or is_unfinished(macro)


def _chevrons(source: SourceMap, i: int) -> LaunchText | None:
    code = source.code
    directive = code.directive(i)
    last = directive.end if directive else len(code.text) - 1
    whole = chevrons(code, i, last)
    found = whole if isinstance(whole, LaunchSyntax) else _without_arguments(code, i, last)
    kernel = _kernel(source, *found.kernel) if found else None
    if found is None or kernel is None:
        return None
    grid, block, shared, stream = (*source.expanded_pieces(*found.shape), "", "", "", "")[:4]
    arguments = source.expanded_pieces(*found.arguments)
    return LaunchText(*kernel, grid, block, shared, stream, arguments, 0, "")


def _without_arguments(code: SourceCode, i: int, last: int) -> LaunchSyntax | None:
    """A launch in a macro whose use brings the arguments."""
    first = kernel_begin(code, i, code.earliest(i))
    around = brackets(code, i, last)
    if first is None or around is None or code.directive(i) is None:
        return None
    (_, begin), (close, end) = around
    return LaunchSyntax(first, (first, i), (begin, close), (close, close), end)


def _kernel(source: SourceMap, first: int, last: int) -> tuple[str, tuple[str, ...]] | None:
    """Name and template arguments of the expression that ends before token ``last``."""
    code, text, end = source.code, source.code.text, last - 1
    if end < first:
        return None
    names_macro = any(source.macro_at(text[i], i) for i in range(first, last))
    if names_macro and code.directive(first) is None:
        inner = source.expanded(first, last)
        if inner is not None and inner.code.text != [*text[first:last], ""]:
            return _kernel(inner, 0, len(inner.code.text) - 1)
    if text[end] == ")":
        opening = code.partner[end]
        if opening < first:
            return None
        is_call = opening > first and code.tokens[opening - 1].kind is Kind.NAME
        if is_call and text[opening - 1] not in _SAME:
            return code.flat(opening - 1, end + 1), ()  # NAME(x), as its definition is called
        return _kernel(source, opening + 1, end)
    template: tuple[str, ...] = ()
    if text[end] == ">":
        angle = code.open_angle(end, first)
        if angle <= first:
            return None
        template = source.pieces(angle + 1, end)
        end = angle - 1
    if text[end] == "]" and code.partner[end] > first:  # kernels[i]<<<…>>>
        end = code.partner[end] - 1
    if code.tokens[end].kind is not Kind.NAME:
        return None
    return "".join(text[pasted(code, end, first) : end + 1]), template


def _call(source: SourceMap, i: int) -> LaunchText | None:
    """A launch by one of the runtime's functions."""
    code, name = source.code, source.code.text[i]
    close = code.partner[i + 1]
    if close < 0 or name not in _NAMES:
        return None
    parts = [p for p in code.split(i + 2, close) if p[0] < p[1]]
    if name in _EXTENDED:
        order: Sequence[int] = (1,)
        shape = _configuration(source, i, parts[0]) if parts else ()
        listed = [source.flat(*p) for p in parts[2:]]
        if name.endswith("C"):
            listed = _pointed(source, i, parts[2]) if len(parts) > 2 else []
    elif name in _GGL:
        order, listed = (0, 1, 2, 3, 4), [source.flat(*p) for p in parts[5:]]
        shape = [source.flat(*parts[n]) if n < len(parts) else "" for n in order[1:]]
    else:
        order = _RUNTIME[name]
        listed = _pointed(source, i, parts[order[5]]) if len(parts) > order[5] else []
        shape = [source.flat(*parts[n]) if n < len(parts) else "" for n in order[1:5]]
    kernel = _kernel(source, *parts[order[0]]) if len(parts) > order[0] else None
    if kernel is None:
        return None
    grid, block, shared, stream = (*shape, "", "", "", "")[:4]
    return LaunchText(*kernel, grid, block, shared, stream, tuple(listed), 0, "", by=name)


def _configuration(source: SourceMap, at: int, given: Range) -> list[str]:
    """The last values that the same function gave the fields of ``cudaLaunchConfig_t``: by its
    initializer, or one by one."""
    code, text = source.code, source.code.text
    names = [i for i in range(*given) if code.tokens[i].kind is Kind.NAME]
    found = [""] * len(_FIELDS)
    if not names:
        return found
    name, (first, _) = text[names[-1]], source.body(at)
    for i in range(first, at):
        if text[i] != name:
            continue
        brace = i + 1 + (text[i + 1] == "=")
        if text[brace] == "{" and code.partner[brace] > 0:
            listed = code.split(brace + 1, code.partner[brace])
            for n, (a, b) in enumerate(listed):
                if text[a] == "." and text[a + 2] == "=" and text[a + 1] in _FIELDS:
                    found[_FIELDS.index(text[a + 1])] = source.flat(a + 3, b)
                elif n < len(_FIELDS):
                    found[n] = source.flat(a, b)
        elif text[i + 1] in (".", "->") and text[i + 2] in _FIELDS and text[i + 3] == "=":
            stop = next((j for j in range(i + 4, at) if text[j] in (";", ",")), at)
            stop = next((j for j in range(i + 4, at) if text[j] == ";"), stop)
            found[_FIELDS.index(text[i + 2])] = source.flat(i + 4, stop)
    return found


def _pointed(source: SourceMap, at: int, array: Range) -> list[str]:
    """The variables that ``void* args[] = {&a, &b}`` of the same function points to."""
    code, text = source.code, source.code.text
    name = text[array[0]] if array[1] - array[0] == 1 else ""
    first, _ = source.body(at)
    for i in range(at, first, -1):
        if name and text[i] == name and text[i + 1] == "[" and code.partner[i + 1] > 0:
            brace = code.partner[i + 1] + 1 + (text[code.partner[i + 1] + 1] == "=")
            if text[brace] == "{" and code.partner[brace] > 0:
                pieces = source.pieces(brace + 1, code.partner[brace])
                return [re.sub(r"^(\([\w\s*]*\)\s*)?&\s*", "", piece) for piece in pieces]
    return []
