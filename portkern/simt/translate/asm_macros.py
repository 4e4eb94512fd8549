"""Macros that write inline assembly, or a part of a launch: their uses are expanded first.

An ``asm`` statement can be read where its strings and operands stand, a launch where its kernel,
shape and arguments do. In the body of a macro they may be parameters, or missing; so a use of such
a macro becomes what the preprocessor would make of it, on its line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from portkern.cuda_source.expansion import NoExpansion, expanded, use_at
from portkern.cuda_source.launch_syntax import LaunchSyntax, chevrons, is_unfinished, opens
from portkern.cuda_source.lexer import Macro, SourceCode, join
from portkern.simt.translate.survey import ASM


def with_uses_expanded(source: str) -> str:
    """``source`` with every use of a macro expanded whose assembly depends on its arguments, or
    that writes a launch which its body does not have as a whole; and, among the arguments of
    launches, every use of one that stands for several.

    Macros count that the file itself defines, once: which of several is in force is not known.
    """
    if "#" not in source or not any(word in source for word in (*ASM, "<<", "hipLaunch")):
        return source
    code = SourceCode(source)
    macros = _macros(code)
    several = _users(macros, _has_comma)

    def is_wanted(macro: Macro) -> bool:
        return _varies(macro) or is_unfinished(macro) or _passes_on(macro, several)

    wanted = _users(macros, is_wanted)
    made = _expanded(code, macros, wanted, several)
    # A launch that a macro has begun may have arguments that another stands for.
    return _expanded(SourceCode(made), macros, wanted, several) if made != source else source


def _macros(code: SourceCode) -> dict[str, Macro]:
    """The file's macros that are defined once."""
    found: dict[str, Macro] = {}
    twice: set[str] = set()
    for d in code.directives:
        if d.name not in ("define", "undef") or d.begin + 2 >= d.end:
            continue
        macro = code.macro(d, conditional=False)
        if macro.name in found or d.name == "undef":
            twice.add(macro.name)
        found[macro.name] = macro
    return {name: macro for name, macro in found.items() if name not in twice}


def _users(macros: Mapping[str, Macro], is_meant: Callable[[Macro], bool]) -> set[str]:
    """Macros that are meant, and those that use such."""
    wanted = {name for name, macro in macros.items() if is_meant(macro)}
    while True:
        users = {
            name
            for name, macro in macros.items()
            if name not in wanted and any(token.text in wanted for token in macro.body)
        }
        if not users:
            return wanted
        wanted |= users


def _varies(macro: Macro) -> bool:
    """Whether it has assembly with one of its parameters in it."""
    texts = [token.text for token in macro.body]
    at = next((i for i, text in enumerate(texts) if text in ASM), None)
    if at is None or not macro.order:
        return False
    # Strings and what stands between an operand's ':' and its '(' must be read; a parameter within
    # an operand's expression, or a lone one that is such an expression, is C++.
    depth = 0
    for i in range(at, len(texts)):
        depth += (texts[i] == "(") - (texts[i] == ")")
        if texts[i] in macro.order and (depth == 1 or texts[i - 1] == "#"):
            return True
        if depth == 0 and texts[i] == ")":
            return False
    return False


def _has_comma(macro: Macro) -> bool:
    """Whether it stands for several arguments, as far as its own body says."""
    code = SourceCode(join(macro.body))
    return len(code.split(0, len(code.tokens) - 1)) > 1


def _passes_on(macro: Macro, several: set[str]) -> bool:
    """Whether it gives a launch of its own what stands for several arguments."""
    if not any(token.text in several for token in macro.body):
        return False
    code = SourceCode(join(macro.body))
    return any(code.text[i] in several for range_ in _arguments(code) for i in range_)


def _arguments(code: SourceCode) -> Iterator[range]:
    """The argument ranges of launches, outside of directives."""
    for i, text in enumerate(code.text[:-1]):
        if text == "hipLaunchKernelGGL" and code.text[i + 1] == "(":
            yield range(i + 2, code.partner[i + 1])
        elif opens(code, i) and code.directive(i) is None:
            launch = chevrons(code, i, len(code.tokens) - 1)
            if isinstance(launch, LaunchSyntax):
                yield range(*launch.arguments)


def _expanded(
    code: SourceCode, macros: Mapping[str, Macro], wanted: set[str], several: set[str]
) -> str:
    passed = {i for range_ in _arguments(code) for i in range_} if several else set()
    parts: list[str] = []
    done = i = 0
    while i < len(code.tokens):
        is_meant = code.text[i] in wanted or (i in passed and code.text[i] in several)
        macro = macros[code.text[i]] if is_meant else None
        end = None if macro is None or code.directive(i) else use_at(code, i, macro)
        if end is None:
            i += 1
            continue
        begin, stop = code.tokens[i].begin, code.tokens[end - 1].end
        try:
            text = expanded(code, i, end, macros.get, again=True)
        except NoExpansion:
            i = end
            continue
        lines = "\n" * code.source.count("\n", begin, stop)
        parts += [code.source[done:begin], text, lines]
        done, i = stop, end
    return "".join(parts) + code.source[done:]
