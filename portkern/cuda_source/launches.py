"""Kernel launches of a source: ``<<<…>>>``, HIP's macro, the runtime's functions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from portkern.cuda_source.lexer import Kind, Token, join
from portkern.cuda_source.source_map import SourceMap

#: Where each function has kernel, grid, block, shared memory, stream; the arguments' array.
_RUNTIME = {
    "LaunchKernel": (0, 1, 2, 4, 5, 3),
    "LaunchCooperativeKernel": (0, 1, 2, 4, 5, 3),
}
_PREFIXES = ("cuda", "hip")
_GGL = frozenset(["hipLaunchKernelGGL", "hipLaunchKernelGGLInternal"])
_EXTENDED = frozenset(
    ["cudaLaunchKernelEx", "cudaLaunchKernelExC", "hipLaunchKernelEx", "hipLaunchKernelExC"]
)


@dataclass(frozen=True)
class Launch:
    """``kernel`` is the name alone, without namespaces; parts that are not written are ''.

    ``function`` is where it stands. A launch in a macro's body has the macro's name as
    ``function`` and ``macro``; a use of the macro is a launch too, its parts put in, with the
    function that uses it.
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


def launches(source: SourceMap) -> tuple[Launch, ...]:
    """In the order of their lines."""
    direct = list(_direct(source))
    in_macros = {launch.macro: (launch, at) for launch, at in direct if launch.macro}
    uses = _uses(source, in_macros) if in_macros else ()
    both = [launch for launch, _ in direct] + list(uses)
    return tuple(sorted(both, key=lambda launch: launch.line))


def _direct(source: SourceMap) -> Iterator[tuple[Launch, int]]:
    """As written, with the token where each stands."""
    text = source.code.text
    for i, token in enumerate(source.code.tokens):
        launch = None
        if token.text in ("<<<", "<<", "<") and _opens(source, i):
            launch = _chevrons(source, i)
        elif token.kind is Kind.NAME and text[i + 1 : i + 2] == ["("]:
            launch = _call(source, i)
        if launch is not None and not source.is_dead(i):
            yield launch, i


def _opens(source: SourceMap, i: int) -> bool:
    """``<<<``, or what a formatter of C++ makes of it."""
    text = source.code.text
    if text[i] == "<<<":
        return True
    if text[i - 1] in ("operator", "<", "<<"):
        return False
    return "".join(text[i : i + 3])[:3] == "<<<" and text[i + 1] in ("<", "<<")


def _chevrons(source: SourceMap, i: int) -> Launch | None:
    code, text = source.code, source.code.text
    kernel = _kernel(source, code.earliest(i), i)
    directive = code.directive(i)
    last = directive.end if directive else len(text)
    first = i + 1
    while text[first] in ("<", "<<") and text[i] != "<<<":
        first += 1
    close = _close(source, first, last)
    if kernel is None or close is None:
        return None
    after = close + 3
    called = after < last and text[after] == "(" and after < code.partner[after] < last
    arguments = source.pieces(after + 1, code.partner[after]) if called else ()
    grid, block, shared, stream = (*source.pieces(first, close), "", "", "", "")[:4]
    function = source.function(i)
    return Launch(
        *kernel,
        grid,
        block,
        shared,
        stream,
        arguments,
        code.tokens[i].line,
        function,
        function if directive else "",
    )


def _close(source: SourceMap, first: int, last: int) -> int | None:
    """The first '>' of the ``>>>`` that ends a launch's shape."""
    code, i = source.code, first
    while i + 2 < last:
        text = code.text[i]
        if text in ("(", "[", "{"):
            if code.partner[i] < 0:
                return None
            i = code.partner[i]
        elif text in (";", "}"):
            return None
        elif code.text[i : i + 3] == [">", ">", ">"] and code.text[i + 3 : i + 4] != [">"]:
            return i
        i += 1
    return None


def _kernel(source: SourceMap, first: int, last: int) -> tuple[str, tuple[str, ...]] | None:
    """Name and template arguments of the expression that ends before token ``last``."""
    code, text, end = source.code, source.code.text, last - 1
    if end < first:
        return None
    if text[end] == ")":
        opening = code.partner[end]
        if opening < first:
            return None
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
    return (text[end], template) if code.tokens[end].kind is Kind.NAME else None


def _call(source: SourceMap, i: int) -> Launch | None:
    """A launch by one of the runtime's functions."""
    code, name = source.code, source.code.text[i]
    close = code.partner[i + 1]
    if close < 0:
        return None
    parts = [p for p in code.split(i + 2, close) if p[0] < p[1]]
    if name in _GGL:
        order, listed = (0, 1, 2, 3, 4), [source.flat(*p) for p in parts[5:]]
    elif name in _EXTENDED:
        order, listed = (1, 99, 99, 99, 99), [source.flat(*p) for p in parts[2:]]
    else:
        places = next((_RUNTIME.get(name.removeprefix(p)) for p in _PREFIXES if p in name), None)
        if places is None or not name.startswith(_PREFIXES):
            return None
        order = places[:5]
        listed = _pointed(source, i, parts[places[5]]) if len(parts) > places[5] else []
    if len(parts) <= order[0]:
        return None
    kernel = _kernel(source, *parts[order[0]])
    if kernel is None:
        return None
    grid, block, shared, stream = (
        source.flat(*parts[n]) if n < len(parts) else "" for n in order[1:]
    )
    function = source.function(i)
    return Launch(
        *kernel,
        grid,
        block,
        shared,
        stream,
        tuple(listed),
        code.tokens[i].line,
        function,
        function if code.directive(i) else "",
    )


def _pointed(source: SourceMap, at: int, array: tuple[int, int]) -> list[str]:
    """What ``void* args[] = {&a, &b}`` of the same function points to."""
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


def _uses(source: SourceMap, defined: dict[str, tuple[Launch, int]]) -> Iterator[Launch]:
    """Calls of macros that launch: what their arguments make of the launch."""
    code = source.code
    for i, token in enumerate(code.tokens):
        if token.text not in defined or source.is_dead(i) or code.directive(i) is not None:
            continue
        launch, at = defined[token.text]
        arguments: tuple[str, ...] = ()
        if code.text[i + 1] == "(" and code.partner[i + 1] > 0:
            arguments = source.pieces(i + 2, code.partner[i + 1])
        given = _given(source.macro_parameters(at), arguments)
        yield replace(_put_in(launch, given), line=token.line, function=source.function(i))


def _given(names: tuple[str, ...], arguments: tuple[str, ...]) -> dict[str, str]:
    """Each of a macro's parameters and what a use has for it."""
    if names[-1:] == ("...",):
        rest = ", ".join(arguments[len(names) - 1 :])
        return dict(zip(names[:-1], arguments, strict=False)) | {"__VA_ARGS__": rest}
    return dict(zip(names, arguments, strict=False))


def _put_in(launch: Launch, given: dict[str, str]) -> Launch:
    def put(text: str) -> str:
        tokens = SourceMap(text).code.tokens
        return join([_replaced(token, given) for token in tokens]).strip()

    kernel = SourceMap(given.get(launch.kernel, launch.kernel))
    named = _kernel(kernel, 0, len(kernel.code.tokens) - 1)
    name, template = named or (launch.kernel, ())
    listed = [p for argument in launch.arguments for p in _split(put(argument))]
    return Launch(
        name,
        template or tuple(put(argument) for argument in launch.template_arguments),
        put(launch.grid),
        put(launch.block),
        put(launch.shared),
        put(launch.stream),
        tuple(listed),
        launch.line,
        launch.function,
        launch.macro,
    )


def _replaced(token: Token, given: dict[str, str]) -> Token:
    return token._replace(text=given.get(token.text, token.text))


def _split(text: str) -> tuple[str, ...]:
    source = SourceMap(text)
    return source.pieces(0, len(source.code.tokens) - 1)
