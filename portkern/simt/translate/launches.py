"""Kernel launches: ``k<<<g, b, s, st>>>(args)`` and HIP's hipLaunchKernelGGL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from portkern.cuda_source.lexer import CLOSE, OPEN, Kind, Macro, SourceCode, join
from portkern.simt.translate.asm_statement import literal
from portkern.simt.translate.edit import SourceDraft, Writer

Range = tuple[int, int]
_KEYWORDS = frozenset(
    "if else while for switch return do case default goto constexpr throw new delete co_return "
    "not and or sizeof".split()
)
_CONSTANTS = frozenset(["true", "false", "nullptr", "NULL", "__null"])
_EMPTY: frozenset[str] = frozenset()


@dataclass(frozen=True)
class LaunchSyntax:
    first: int
    kernel: Range
    shape: Range  # grid, block, dynamic shared memory, stream
    arguments: Range
    last: int
    bare: bool = False  # ``arguments`` is a macro's parameter that brings its own parentheses


@dataclass(frozen=True)
class Broken:
    reason: str


def rewrite_chevrons(draft: SourceDraft, i: int) -> None:
    """The launch whose '<<<' is at ``i``."""
    _rewrite(draft, i, _chevrons(draft, i))


def rewrite_ggl(draft: SourceDraft, i: int) -> None:
    """The call of hipLaunchKernelGGL at ``i``."""
    launch = _ggl(draft, i)
    if launch is not None:
        _rewrite(draft, i, launch)


def _rewrite(draft: SourceDraft, i: int, launch: LaunchSyntax | Broken) -> None:
    place = draft.places[i]
    if isinstance(launch, Broken):
        draft.report(i, "SX007", f"a launch that cannot be parsed: {launch.reason}")
    elif place.scope.device and not place.scope.host:
        text = draft.stub(i, "SX006", "a kernel launched from a kernel")
        draft.replace(launch.first, launch.last, text)
    else:
        macro = place.macro
        if macro is None and draft.code.has_directive(*launch.kernel):
            draft.report(i, "SX007", "a launch whose kernel is chosen by #if")
            return
        draft.replace(launch.first, launch.last, lambda w: _write(w, draft.code, launch, macro))


def is_spread_out(code: SourceCode, i: int, last: int) -> bool:
    """Whether `<`, `<`, `<` with gaps between them begin at ``i``: a launch that somebody's
    formatter has broken, for C++ has no such sequence outside ``operator<< <T>``."""
    text = "".join(code.text[i : min(i + 3, last)])
    two = "".join(code.text[i : min(i + 2, last)])
    return (text == "<<<" or two == "<<<") and code.text[i - 1] != "operator"


# ---- parsing ------------------------------------------------------------------------------


def _chevrons(draft: SourceDraft, i: int) -> LaunchSyntax | Broken:
    code, place = draft.code, draft.places[i]
    macro = place.macro
    first = _kernel(code, i, code.earliest(i))
    if first is None:
        return Broken("no kernel before <<<")
    close = _close(code, i, place.last)
    if close is None:
        return Broken("no >>> after <<<")
    if close == i + 1:
        return Broken("no grid and block between <<< and >>>")
    opening = close + 3
    if macro is not None and macro.params and code.text[opening] in macro.params:
        arguments = (opening, opening + 1)
        return LaunchSyntax(first, (first, i), (i + 1, close), arguments, opening + 1, bare=True)
    if code.text[opening] != "(" or code.partner[opening] < 0:
        return Broken("no parenthesised arguments after >>>")
    last = code.partner[opening]
    return LaunchSyntax(first, (first, i), (i + 1, close), (opening + 1, last), last + 1)


def _ggl(draft: SourceDraft, i: int) -> LaunchSyntax | Broken | None:
    code, macro = draft.code, draft.places[i].macro
    if code.text[i + 1] != "(":
        return None
    last = code.partner[i + 1]
    if last < 0:
        return Broken("hipLaunchKernelGGL without its closing parenthesis")
    parts = code.split(i + 2, last)
    if len(parts) < 5:
        if macro is not None and not macro.variadic.isdisjoint(code.text[i + 2 : last]):
            return None  # the arguments are not here
        return Broken("hipLaunchKernelGGL takes a kernel, grid, block, bytes, stream, arguments")
    first, end = parts[0]
    if code.text[first] == "HIP_KERNEL_NAME" and code.partner[first + 1] == end - 1:
        first, end = first + 2, end - 1
    arguments = (parts[5][0], last) if len(parts) > 5 else (last, last)
    return LaunchSyntax(i, (first, end), (parts[1][0], parts[4][1]), arguments, last + 1)


def _kernel(code: SourceCode, i: int, low: int) -> int | None:
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


def _close(code: SourceCode, i: int, last: int) -> int | None:
    """The first of the three '>' that close the '<<<' at ``i``.

    The '>' of ``x<y<z<3>>>(n)`` look the same. A run of three closes as many template arguments
    when so many are open and another run further on can end the launch.
    """
    fallback, angles = None, 0
    i += 1
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
            while code.text[i + run] == ">" and not code.tokens[i + run].gap:
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


# ---- writing ------------------------------------------------------------------------------


def _write(w: Writer, code: SourceCode, launch: LaunchSyntax, macro: Macro | None) -> None:
    first, last = launch.arguments
    w.put("::simt::launch(")
    w.reach(launch.shape[0])
    w.put("::simt::Shape(")
    w.copy(*launch.shape)
    w.reach(launch.shape[1])
    w.put(f"), {display(code, launch.kernel, macro)}, [=")
    kernel = code.flat(*launch.kernel)
    if launch.bare or (macro is None and code.has_directive(first, last)):
        # An #if chooses among the arguments: they stay together, and on their lines.
        w.put(f"]() mutable SIMT_THREAD {{ {kernel}{' ' if launch.bare else '('}")
        w.reach(first)
        w.copy(first, last)
        w.reach(launch.last - 1)
        w.put("; })" if launch.bare else "); })")
        return
    passed = []
    for n, (a, b) in enumerate(code.split(first, last)):
        if _stays(code, a, b, macro):
            members = _members(code, a, b) if macro is None else []
            for k, member in enumerate(members):
                w.put(f", simt_a{n}_{k} = ({code.flat(*member)})")
            passed.append(_with_members(code, a, b, members, f"simt_a{n}_"))
            continue
        w.put(f", simt_a{n} = (")
        w.reach(a)
        w.copy(a, b)
        w.put(")")
        passed.append(f"simt_a{n}")
    w.put(f"]() mutable SIMT_THREAD {{ {kernel}({', '.join(passed)}); }})")


def _stays(code: SourceCode, first: int, last: int, macro: Macro | None) -> bool:
    """Whether the argument is named in each call of the kernel instead of copied once.

    Literals keep what they convert to (0 is a null pointer); braces and packs have no type.
    """
    tokens = code.tokens[first:last]
    if not tokens or tokens[0].text == "{" or tokens[-1].text == "...":
        return True
    if macro is not None:
        i = first
        while i < last:
            if code.text[i] in macro.variadic:
                return True
            i = max(i, code.partner[i]) + 1
    if tokens[0].text in ("-", "+"):
        tokens = tokens[1:]
    constant = all(t.kind in (Kind.NUMBER, Kind.CHAR, Kind.STRING) for t in tokens)
    return constant or (len(tokens) == 1 and tokens[0].text in _CONSTANTS)


def _members(code: SourceCode, first: int, last: int) -> list[Range]:
    """Elements of a braced argument that are members of something, such as ``buffer.data``: else
    the kernel's threads would have a copy of the whole, which frees what it owns when it goes. What
    may be a constant stays: as a variable it could not be narrowed."""
    if first >= last or code.text[first] != "{" or code.partner[first] != last - 1:
        return []
    found = []
    for a, b in code.split(first + 1, last - 1):
        if code.text[a] == "{":
            found += _members(code, a, b)
        elif code.text[a] != "." and not {".", "->"}.isdisjoint(code.text[a:b]):
            found.append((a, b))
    return found


def _with_members(
    code: SourceCode, first: int, last: int, members: Sequence[Range], name: str
) -> str:
    """The argument with names in place of its members."""
    parts, at = [], first
    for k, (a, b) in enumerate(members):
        parts += [code.flat(at, a), f" {name}{k}"]
        at = b
    return "".join([*parts, code.flat(at, last)])


def display(code: SourceCode, kernel: Range, macro: Macro | None) -> str:
    """The kernel's name as a string literal; a macro's parameters in it are stringified."""
    first, last = kernel
    if code.text[first] == "(" and code.partner[first] == last - 1:
        first, last = first + 1, last - 1
    params = (macro.params if macro else None) or _EMPTY
    if params.isdisjoint(code.text[first:last]):
        plain = [t for t in code.tokens[first:last] if t.text != "##"]
        return literal(join(plain))
    parts, text = [], ""
    for i in range(first, last):
        token, pasted = code.tokens[i], "##" in code.text[max(first, i - 1) : i + 1]
        text += " " if token.gap and i > first and not pasted else ""
        if token.text in params:
            parts += [literal(text), f"#{token.text}"] if text else [f"#{token.text}"]
            text = ""
        elif token.text != "##":
            text += token.text
    if text:
        parts.append(literal(text))
    return " ".join(parts)
