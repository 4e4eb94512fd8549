"""Finds the parts of a kernel launch: ``<<<…>>>``, and HIP's macro."""

from __future__ import annotations

from dataclasses import dataclass

from portkern.cuda_source.lexer import CLOSE, OPEN, Kind, Macro, SourceCode, join

Range = tuple[int, int]
_KEYWORDS = frozenset(
    "if else while for switch return do case default goto constexpr throw new delete co_return "
    "not and or sizeof".split()
)
_EMPTY: frozenset[str] = frozenset()


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
    first = kernel_begin(code, i, code.earliest(i))
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
    """The call of hipLaunchKernelGGL at ``i``; None where there is no such call, or where a
    macro's variadic parameter, one of ``variadic``, brings its arguments."""
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


def kernel_begin(code: SourceCode, i: int, low: int) -> int | None:
    """The beginning of the postfix expression that ends before token ``i``."""
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
        first = pasted(code, j, low)
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


def pasted(code: SourceCode, j: int, low: int) -> int:
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
