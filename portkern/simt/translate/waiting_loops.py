"""Loops in which a thread waits for another: what polls gives way, and waves leave them whole."""

from __future__ import annotations

import re

from portkern.cuda_source.lexer import Kind, SourceCode
from portkern.simt.translate.edit import SourceDraft

LOOPS = frozenset(["while", "do", "for"])
#: What takes a lock, or announces that it is free.
_ATOMIC = re.compile(
    r"atomic(CAS|Exch)(_block|_system)?|__hip_atomic_(compare_exchange_\w+|exchange|store)"
    r"|compare_exchange_(strong|weak)|exchange|test_and_set|clear|store"
    r"|\w*([uU]n[lL]ock|[rR]elease)\w*"
)
_RELEASES = frozenset(["store", "clear", "__hip_atomic_store"])
#: Statements of several parts, whose end is not looked for.
_COMPOUND = LOOPS | {"if", "switch", "try", "else"}


def rewrite_loop(draft: SourceDraft, i: int) -> None:
    """Mark the loop at ``i`` where it waits: an empty one polls; behind one that takes what it does
    not give back, the lanes of a wave wait for each other."""
    code, place = draft.code, draft.places[i]
    if not place.scope.device or place.macro is not None:
        return
    found = _extent(code, i, place.last)
    if found is None:
        return
    body, end = found
    if code.has_directive(i, end):
        return
    left = ""
    if _takes_and_keeps(code, i, end):
        draft.insert_before(i, "{ ")
        left = " ::simt::left_waiting_loop(); }"
    silent = code.text[i] != "do" and not any(_is_atomic(code, j) for j in range(i, end))
    if silent and code.text[body] == ";":
        draft.replace(body, body + 1, f"{{ ::simt::polled(); }}{left}")
        return
    if silent and code.text[body : body + 2] == ["{", "}"]:
        draft.insert_after(body, " ::simt::polled(); ")
    if left:
        draft.insert_after(end, left)


def _extent(code: SourceCode, i: int, last: int) -> tuple[int, int] | None:
    """Where the body of the loop begins, and its last token."""
    if code.text[i] == "do":
        end = _statement_end(code, i + 1, last)
        if end is None or code.text[end + 1] != "while" or code.text[end + 2] != "(":
            return None
        closing = code.partner[end + 2]
        return (i + 1, closing + 1) if closing > 0 and code.text[closing + 1] == ";" else None
    if code.text[i] == "while" and _ends_a_do(code, i):
        return None
    closing = code.partner[i + 1] if code.text[i + 1] == "(" else -1
    if closing < 0:
        return None
    end = _statement_end(code, closing + 1, last)
    return (closing + 1, end) if end is not None else None


def _statement_end(code: SourceCode, i: int, last: int) -> int | None:
    """The last token of a block or of a simple statement."""
    if code.text[i] == "{":
        return code.partner[i] if code.partner[i] > 0 else None
    if code.text[i] in _COMPOUND:
        return None
    while i < last and code.text[i] not in (";", "{", "}"):
        i = max(i, code.partner[i]) + 1
    return i if i < last and code.text[i] == ";" else None


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


def _takes_and_keeps(code: SourceCode, first: int, last: int) -> bool:
    """Whether the loop has one atomic that may take something, and nothing that gives it back."""
    atomics = [j for j in range(first, last) if _is_atomic(code, j)]
    if len(atomics) != 1 or code.text[atomics[0]] in _RELEASES:
        return False
    call = atomics[0]
    closing = code.partner[call + 1]
    if closing < 0:
        return False
    inside = range(call + 2, closing)
    if code.text[call - 1] in (".", "->"):  # a member: the object is what is taken
        named: str | None = code.text[call - 2]
    else:
        named = next((code.text[j] for j in inside if code.tokens[j].kind is Kind.NAME), None)
    return named is not None and named not in code.text[closing:last]


def _is_atomic(code: SourceCode, j: int) -> bool:
    return code.text[j + 1] == "(" and _ATOMIC.fullmatch(code.text[j]) is not None
