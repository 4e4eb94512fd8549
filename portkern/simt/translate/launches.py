"""Kernel launches: ``k<<<g, b, s, st>>>(args)`` and HIP's hipLaunchKernelGGL."""

from __future__ import annotations

from collections.abc import Sequence

from portkern.cuda_source.launch_syntax import Broken, LaunchSyntax, Range, chevrons, ggl
from portkern.cuda_source.lexer import Kind, Macro, SourceCode, join
from portkern.simt.translate.asm_statement import literal
from portkern.simt.translate.edit import SourceDraft, Writer

_CONSTANTS = frozenset(["true", "false", "nullptr", "NULL", "__null"])
_EMPTY: frozenset[str] = frozenset()


def rewrite_chevrons(draft: SourceDraft, i: int) -> None:
    """The launch whose '<<<' begins at ``i``."""
    place = draft.places[i]
    params = (place.macro.params if place.macro else None) or _EMPTY
    _rewrite(draft, i, chevrons(draft.code, i, place.last, params))


def rewrite_ggl(draft: SourceDraft, i: int) -> None:
    """The call of hipLaunchKernelGGL at ``i``."""
    macro = draft.places[i].macro
    launch = ggl(draft.code, i, macro.variadic if macro else _EMPTY)
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
