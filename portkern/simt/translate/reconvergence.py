"""Statements that lanes of a wave leave one by one: where they end, the wave comes together.

A thread that waits for another does so in a loop. In programs that can wait, each loop without a
count, and each statement that may hold one, gets a ``simt::Statement``; what goes round in a loop
gives way. What a loop waits for, and how it looks there, is not asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from portkern.cuda_source.lexer import ELSES, IFS, Kind, SourceCode
from portkern.simt.translate.edit import SourceDraft
from portkern.simt.translate.survey import SourceFunction

LOOPS = frozenset(["while", "do", "for"])
STATEMENTS = LOOPS | {"if", "switch"}
#: A program without any of these has no way to see what another thread stores, nor with which
#: others it meets.
WAITS = re.compile(
    r"atomic|volatile|activemask|coalesced_threads|\basm\b|\b__asm|__ldc[vg]\b|acquire|sleep"
    r"|__nontemporal|\bwhile\s*\([^;{}]*\)\s*(?:;|\{\s*\})"
)
#: Calls that return without another thread's doing.
_PLAIN = re.compile(
    r"__(?!syncwarp|shfl|ballot|any|all|activemask|match|reduce|ldc[vg]|builtin_amdgcn)\w+"
    r"|atomic\w+|f?(min|max|abs|ma)f?|l?labs|(r?sqrt|exp2?|exp10|expm1|log2?|log10|log1p|pow|a?sin"
    r"|a?cos|a?tan2?|a?sinh|a?cosh|a?tanh|floor|ceil|round|rint|trunc|fmod|erfc?|copysign|ldexp)f?"
    r"|make_\w+|printf|assert|is(nan|inf|finite)|sizeof|alignof|decltype|\w+_cast|return|defined"
    r"|if|switch|constexpr|catch|float\d?|double\d?|u?int\d?|unsigned|long|short|char|bool|half"
    r"|void|size_t|u?int(8|16|32|64)_t|dim3"
)
_HERE = "simt_here_"
#: A round of a loop: lanes that go on to the next one wait for those still in this one.
_ROUND = "simt_round_"


def rewrite_statement(draft: SourceDraft, i: int) -> None:
    """Mark the statement at ``i`` where lanes of a wave may wait in it."""
    code, place = draft.code, draft.places[i]
    in_macro = place.macro is not None
    if not draft.world.waits or not (place.scope.device or in_macro) or draft.is_constant(i):
        return
    parts = _parts(code, i, place.last)
    if parts is None or not (in_macro or _is_whole(code, i, parts[-1][1])):
        return
    end = _end_of(code, i, parts)
    is_loop = code.text[i] in LOOPS and not _is_counted(code, i)
    inside = range(i + 1, end + 1)
    if not (is_loop or _may_wait(code, inside)) or _is_jumped_into(code, inside):
        return
    draft.insert_before(i, f"{{ ::simt::Statement {_HERE}; ")
    if code.text[i] in LOOPS:
        begun = f"{_HERE}.turn();" if is_loop else ""
        if "continue" in code.text[parts[0][0] : parts[0][1] + 1]:
            begun += f" ::simt::Statement {_ROUND};"
        if begun:
            _begin(draft, parts[0], begun)
    elif len(parts) > 1:
        for which, part in enumerate(parts):
            _begin(draft, part, f"{_HERE}.branch({which});")
    draft.insert_after(end, " }")


def rewrite_function(draft: SourceDraft, function: SourceFunction) -> None:
    """Mark the body of a function that some lanes may return from while others wait in it. A kernel
    they leave for good."""
    code, body = draft.code, function.body
    inside = range(body + 1, code.partner[body])
    head = code.outside_directives(function.head, body)
    is_kernel = any("__global__" in draft.world.stands_for(word) for word in head)
    if not draft.world.waits or is_kernel or draft.is_constant(body):
        return
    if not inside or not _is_whole(code, inside.start, inside.stop):
        return
    if _returns_early(code, inside) and _may_wait(code, inside):
        draft.insert_after(body, f" ::simt::Statement {_HERE};")


def _returns_early(code: SourceCode, inside: range) -> bool:
    """Whether a ``return`` is not the last statement."""
    returns = (j for j in inside if code.text[j] == "return")
    return any(_statement_end(code, j, inside.stop) != inside.stop - 1 for j in returns)


def _begin(draft: SourceDraft, part: tuple[int, int], text: str) -> None:
    """Put a statement at the beginning of one that may have no braces. Its own first token may be
    another's to replace."""
    code, (first, last) = draft.code, part
    if code.text[first] == "{":
        draft.insert_after(first, f" {text}")
        return
    before = first - 1
    if code.directive(first) is None:  # else all of it is a macro's
        while (directive := code.directive(before)) is not None:
            before = directive.begin - 1
    draft.insert_after(before, f" {{ {text}")
    draft.insert_after(last, " }")


# ---- where statements end


def _parts(code: SourceCode, i: int, last: int) -> list[tuple[int, int]] | None:
    """The first and the last token of the statements that the one at ``i`` consists of."""
    if code.text[i] == "do":
        first = _next(code, i + 1)
        end = _statement_end(code, first, last)
        if end is None or end + 2 >= last or code.text[end + 1 : end + 3] != ["while", "("]:
            return None
        closing = code.partner[end + 2]
        is_ended = 0 < closing < last - 1 and code.text[closing + 1] == ";"
        return [(first, end)] if is_ended else None
    opening = i + 2 if code.text[i + 1] == "constexpr" else i + 1
    closing = code.partner[opening] if code.text[opening] == "(" else -1
    if closing < 0 or (code.text[i] == "while" and _ends_a_do(code, i)):
        return None
    parts: list[tuple[int, int]] = []
    first = _next(code, closing + 1)
    while (end := _statement_end(code, first, last)) is not None:
        parts.append((first, end))
        after = _next(code, end + 1)
        if code.text[i] != "if" or len(parts) == 2 or after >= last or code.text[after] != "else":
            return parts
        first = _next(code, after + 1)
    return None


def _end_of(code: SourceCode, i: int, parts: list[tuple[int, int]]) -> int:
    end = parts[-1][1]
    return code.partner[end + 2] + 1 if code.text[i] == "do" else end


def _statement_end(code: SourceCode, i: int, last: int) -> int | None:
    """The last token of the statement at ``i``; None where that is not known."""
    if i >= last:
        return None
    if code.text[i] == "{":
        return code.partner[i] if code.partner[i] > 0 else None
    if code.text[i] in STATEMENTS:
        parts = _parts(code, i, last)
        return _end_of(code, i, parts) if parts is not None else None
    if code.text[i] in ("else", "case", "default", "try", "#"):
        return None
    while i < last and code.text[i] not in (";", "{", "}"):
        i = max(i, code.partner[i]) + 1
    return i if i < last and code.text[i] == ";" else None


def _next(code: SourceCode, i: int) -> int:
    """The first token from ``i`` on that is not part of a directive."""
    while i < len(code.tokens) and code.text[i] == "#" and (d := code.directive(i)) is not None:
        i = d.end
    return i


def _ends_a_do(code: SourceCode, i: int) -> bool:
    before = i - 1
    if code.text[before] == "}":
        opening = code.partner[before]
        return opening > 0 and code.text[opening - 1] == "do"
    if code.text[before] != ";":
        return False
    first = before
    while first > 0 and code.text[first - 1] not in (";", "{", "}"):
        first -= 1
    return code.text[first] == "do"


def _is_whole(code: SourceCode, first: int, last: int) -> bool:
    """Whether each condition of the preprocessor that is in the range begins and ends there."""
    depth = 0
    for directive in code.directives:
        if not first <= directive.begin <= last:
            continue
        depth += (directive.name in IFS) - (directive.name == "endif")
        if depth < 0 or (depth == 0 and directive.name in ELSES):
            return False
    return depth == 0


# ---- what they hold


def _is_counted(code: SourceCode, i: int) -> bool:
    """A ``for`` that counts up to what nobody else changes."""
    if code.text[i] != "for":
        return False
    text = code.text[i + 2 : code.partner[i + 1]]
    if text.count(";") != 2:
        return ":" in text and ";" not in text
    first, second = (n for n, word in enumerate(text) if word == ";")
    condition = text[first + 1 : second]
    is_plain = not {"(", "*", "[", "->", "="}.intersection(condition)
    return bool(condition) and is_plain and second + 1 < len(text)


def _may_wait(code: SourceCode, inside: range) -> bool:
    return any(
        (code.text[j] in LOOPS and not _is_counted(code, j)) or _is_call(code, j) for j in inside
    )


def _is_call(code: SourceCode, j: int) -> bool:
    """Whether token ``j`` is a call that may wait: of a function, a lambda, an object or a macro
    of the program."""
    if code.tokens[j].kind is not Kind.NAME or code.text[j] in LOOPS:
        return False
    after = j + 1
    if code.text[after] == "<":
        after = code.close_angle(after, len(code.text)) + 1
    return after > 0 and code.text[after] == "(" and not _PLAIN.fullmatch(code.text[j])


def _is_jumped_into(code: SourceCode, inside: range) -> bool:
    """Whether it has labels, which may be jumped to over what is declared before it."""
    texts = code.text[inside.start - 1 : inside.stop]
    return ("case" in texts and "switch" not in texts) or any(_labels(code, inside))


def _labels(code: SourceCode, inside: range) -> Iterator[bool]:
    for j in inside:
        if code.text[j] == ":" and code.text[j - 2] in (";", "{", "}"):
            yield code.tokens[j - 1].kind is Kind.NAME and code.text[j - 1] != "default"
