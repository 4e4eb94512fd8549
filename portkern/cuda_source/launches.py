"""Kernel launches of a source: ``<<<…>>>``, HIP's macro, the runtime's functions.

:func:`chevrons` and :func:`ggl` say where the parts of one stand, as tokens; :func:`launches` what
they are, as text, with the macros that write launches, or parts of them, put in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from portkern.cuda_source.expansion import NoExpansion, expanded, use_at
from portkern.cuda_source.lexer import CLOSE, OPEN, Kind, Macro, SourceCode, join
from portkern.cuda_source.source_map import SourceMap

Range = tuple[int, int]
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
_KEYWORDS = frozenset(
    "if else while for switch return do case default goto constexpr throw new delete co_return "
    "not and or sizeof".split()
)
_EMPTY: frozenset[str] = frozenset()
#: What stands around a kernel and changes nothing of it; casts, with their types, besides.
_SAME = frozenset(["HIP_KERNEL_NAME"])


@dataclass(frozen=True)
class LaunchSyntax:
    """Ranges of tokens, from ``first`` to before ``last``."""

    first: int
    kernel: Range
    shape: Range  # grid, block, dynamic shared memory, stream
    arguments: Range
    last: int
    bare: bool = False  # ``arguments`` is a macro's parameter that brings its own parentheses


@dataclass(frozen=True)
class Broken:
    reason: str


@dataclass(frozen=True)
class Launch:
    """``kernel`` is the name alone, without namespaces; parts that are not written are ''.

    ``function`` is where it stands, at the offset ``at``. A launch in a macro's body has the
    macro's name as ``function`` and ``macro``; a use of the macro is a launch too, its parts put
    in, with the function that uses it.
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


# ---- where the parts stand ---------------------------------------------------------------------


def opens(code: SourceCode, i: int) -> int:
    """How many tokens from ``i`` on are the ``<<<`` of a launch, 0 for none: more than one where
    somebody's formatter has broken it, for C++ has no such sequence but ``operator<< <T>``."""
    text = code.text
    if text[i] not in ("<<<", "<<", "<") or text[i - 1] in ("operator", "<", "<<"):
        return 0
    for count in (1, 2, 3):
        if "".join(text[i : i + count]) == "<<<":
            return count if code.directive(i) == code.directive(i + count - 1) else 0
    return 0


def brackets(code: SourceCode, i: int, last: int) -> tuple[Range, Range] | None:
    """The tokens of the ``<<<`` that begins at ``i`` and of its ``>>>``, however they are spaced;
    None where no launch's begins there, or where it has no end."""
    begin = i + opens(code, i)
    if begin == i:
        return None
    close = _close(code, begin, last, gaps=False)
    if close is None:
        close = _close(code, begin, last, gaps=True)
    return ((i, begin), (close, close + 3)) if close is not None else None


def chevrons(
    code: SourceCode, i: int, last: int, params: frozenset[str] = _EMPTY
) -> LaunchSyntax | Broken:
    """The launch whose ``<<<`` begins at ``i``; ``params`` are those of the macro that it is in."""
    first = _kernel_begin(code, i, code.earliest(i))
    if first is None:
        return Broken("no kernel before <<<")
    around = brackets(code, i, last)
    if around is None:
        return Broken("no >>> after <<<")
    (_, begin), (close, opening) = around
    if close == begin:
        return Broken("no grid and block between <<< and >>>")
    bare = opening < last and code.text[opening] in params
    if not bare and (opening >= last or code.text[opening] != "(" or code.partner[opening] < 0):
        return Broken("no parenthesised arguments after >>>")
    end = opening + 1 if bare else code.partner[opening] + 1
    return LaunchSyntax(
        first,
        (first, i),
        (begin, close),
        (opening, end) if bare else (opening + 1, end - 1),
        end,
        bare,
    )


def ggl(code: SourceCode, i: int, variadic: frozenset[str]) -> LaunchSyntax | Broken | None:
    """The call of hipLaunchKernelGGL at ``i``; None where it is no call, or where a macro's
    variadic parameter, one of ``variadic``, brings its arguments."""
    if code.text[i + 1] != "(":
        return None
    last = code.partner[i + 1]
    if last < 0:
        return Broken("hipLaunchKernelGGL without its closing parenthesis")
    parts = code.split(i + 2, last)
    if len(parts) < 5:
        if not variadic.isdisjoint(code.text[i + 2 : last]):
            return None
        return Broken("hipLaunchKernelGGL takes a kernel, grid, block, bytes, stream, arguments")
    first, end = parts[0]
    if code.text[first] == "HIP_KERNEL_NAME" and code.partner[first + 1] == end - 1:
        first, end = first + 2, end - 1
    arguments = (parts[5][0], last) if len(parts) > 5 else (last, last)
    return LaunchSyntax(i, (first, end), (parts[1][0], parts[4][1]), arguments, last + 1)


def has_launch(macro: Macro) -> bool:
    """Whether the macro's body launches, or has a part of a launch."""
    texts = [token.text for token in macro.body]
    return not _NAMES.isdisjoint(texts) or "<<<" in "".join(texts) or is_unfinished(macro)


def is_unfinished(macro: Macro) -> bool:
    """Whether the macro's body has a part of a launch and not all of it."""
    texts = [token.text for token in macro.body]
    if not {"<<<", ">"} & set(texts) or not ("<<<" in texts or ">>>" in "".join(texts)):
        return False
    code = SourceCode(join(macro.body))
    begins = [i for i in range(len(code.text) - 1) if opens(code, i)]
    params = macro.params or _EMPTY
    last = len(code.tokens) - 1
    whole = [isinstance(chevrons(code, i, last, params), LaunchSyntax) for i in begins]
    return not all(whole) if whole else ">>>" in "".join(texts) and "<" not in texts


def _kernel_begin(code: SourceCode, i: int, low: int) -> int | None:
    """Where the postfix expression begins that ends before token ``i``."""
    j = i - 1
    while j >= low:
        token = code.tokens[j]
        if token.text == ">":
            j = code.open_angle(j, low) - 1
            if j < low or code.tokens[j].kind is not Kind.NAME:
                return None
            continue
        if token.text in (")", "]"):
            opening = code.partner[j]
            if opening < low:
                return None
            if _is_operand(code, opening - 1, low):  # a call or a subscript
                j = opening - 1
                continue
            if token.text == "]":
                return None
            return opening
        if token.text in _KEYWORDS or token.kind not in (Kind.NAME, Kind.NUMBER):
            return None
        first = _pasted(code, j, low)
        before = first - 1
        if code.text[before] == "template" and before > low:
            before -= 1
        if before > low and code.text[before] in (".", "->"):
            j = before - 1
        elif before >= low and code.text[before] == "::":
            if not _is_scope(code, before - 1, low):
                return before
            j = before - 1
        else:
            return first if token.kind is Kind.NAME or first < j else None
    return None


def _pasted(code: SourceCode, j: int, low: int) -> int:
    """The first token of the name that ends at ``j``, which may be pasted of several."""
    while j - 2 >= low and code.text[j - 1] == "##":
        j -= 2
    return j


def _is_operand(code: SourceCode, j: int, low: int) -> bool:
    """Whether a bracket after token ``j`` continues an expression."""
    if j < low:
        return False
    token = code.tokens[j]
    if token.kind is Kind.NAME:
        return token.text not in _KEYWORDS
    if token.text == ">":
        opening = code.open_angle(j, low)
        return opening > low and code.tokens[opening - 1].kind is Kind.NAME
    if token.text == "]":
        return code.partner[j] >= low
    if token.text != ")" or code.partner[j] < low:
        return False
    opening = code.partner[j]
    condition = code.text[opening - 1] in _KEYWORDS and opening > low
    return not condition and code.text[opening + 1 : j] != ["void"]


def _is_scope(code: SourceCode, j: int, low: int) -> bool:
    token = code.tokens[j]
    if j < low:
        return False
    return token.text == ">" or (token.kind is Kind.NAME and token.text not in _KEYWORDS)


def _close(code: SourceCode, i: int, last: int, *, gaps: bool) -> int | None:
    """The first of the three '>' that close the launch whose shape begins at ``i``; with ``gaps``
    they may be apart.

    The '>' of ``x<y<z<3>>>(n)`` look the same. A run of three closes as many template arguments
    when so many are open and another run further on can end the launch.
    """
    fallback, angles = None, 0
    while i < last:
        text = code.text[i]
        if text in OPEN:
            if code.partner[i] < 0:
                break
            i = code.partner[i]
        elif text in CLOSE or text in (";", "<<<"):
            break
        elif text == "<" and code.tokens[i - 1].kind is Kind.NAME:
            angles += 1
        elif text == ">":
            run = 1
            while code.text[i + run] == ">" and (gaps or not code.tokens[i + run].gap):
                run += 1
            if run < 3:
                angles = max(0, angles - run)
            elif angles < run:
                return i + max(0, min(run - 3, angles))
            else:
                fallback = fallback or i + run - 3
                angles -= run
            i += run - 1
        i += 1
    return fallback


# ---- what they are -----------------------------------------------------------------------------


def launches(source: SourceMap) -> tuple[Launch, ...]:
    """In the order of their lines."""
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


def _direct(source: SourceMap) -> Iterator[Launch]:
    """As written."""
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


def _meant(source: SourceMap, at: int, launch: Launch) -> Iterable[tuple[str, tuple[str, ...]]]:
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
    """What the variable at token ``i`` is given there: of a choice both, of an array each."""
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


def _uses(source: SourceMap) -> Iterator[Launch]:
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


def _written(source: SourceMap, first: int, last: int, writers: frozenset[str]) -> Iterator[Launch]:
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


def _chevrons(source: SourceMap, i: int) -> Launch | None:
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
    return Launch(*kernel, grid, block, shared, stream, arguments, 0, "")


def _without_arguments(code: SourceCode, i: int, last: int) -> LaunchSyntax | None:
    """A launch in a macro whose use brings the arguments."""
    first = _kernel_begin(code, i, code.earliest(i))
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
    return "".join(text[_pasted(code, end, first) : end + 1]), template


def _call(source: SourceMap, i: int) -> Launch | None:
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
    return Launch(*kernel, grid, block, shared, stream, tuple(listed), 0, "")


def _configuration(source: SourceMap, at: int, given: Range) -> list[str]:
    """What the same function last gave the fields of ``cudaLaunchConfig_t``: by its initializer,
    or one by one."""
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
