"""Folds over a warp by loops of shuffles: the lanes meet once, not once for each step.

``for (int d = 16; d > 0; d /= 2) v += __shfl_xor_sync(mask, v, d);`` stays as it is, behind a call
that does the same for all lanes at once and says so. It declines where a step would have something
to report, and in checked builds.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from portkern.cuda_source.lexer import Kind, SourceCode
from portkern.simt.translate.edit import SourceDraft

_SHUFFLE = re.compile(r"__shfl_(xor|down|up)(_sync)?")
_MOVES = {"xor": "exclusive", "down": "down", "up": "up"}
_TYPES = frozenset(
    ["float", "double", "int", "unsigned", "long", "short", "auto", "const", "uint32_t", "size_t"]
)
#: What a step may call: functions of values alone.
_PURE = frozenset(["max", "min", "fmaxf", "fminf", "fmax", "fmin", "fmaf", "fma", "__fadd_rn"])
#: What makes a body more than a formula, or depend on who runs it.
_REFUSED = frozenset(
    [
        *("[", "->", ".", "#", "{", "}", "if", "else", "for", "while", "do", "return", "break"),
        *("continue", "goto", "switch", "asm", "static", "new", "delete", "threadIdx", "blockIdx"),
        *("++", "--", "lane_id", "this", "volatile"),
    ]
)
_NAME = Kind.NAME


class _Loop(NamedTuple):
    kind: str  # how the declaration of the counter begins
    counter: str
    value: str  # what is shuffled
    call: int
    arguments: list[tuple[int, int]]
    head: tuple[int, int]  # between the parentheses of the for
    body: tuple[int, int]  # without braces
    end: int  # its last token


def rewrite_shuffles(draft: SourceDraft, i: int) -> None:
    """Put the call before the ``for`` at ``i``, if it is such a loop."""
    code, place = draft.code, draft.places[i]
    if place.macro is not None or not place.scope.device:
        return
    loop = _parsed(code, i, place.last)
    if loop is None or code.has_directive(i, loop.end):
        return
    pragma = code.directive(i - 1) if i else None
    if pragma is not None and pragma.name == "pragma":  # it would not stand before the loop
        draft.replace(pragma.begin, pragma.end, "")
    shuffle = _SHUFFLE.fullmatch(code.text[loop.call])
    assert shuffle is not None
    texts = [code.flat(*argument) for argument in loop.arguments]
    lanes = f"::simt::shuffle_lanes({texts.pop(0)})" if shuffle[2] else "::simt::converged"
    width = texts[2] if len(texts) > 2 else "warpSize"
    closing = code.partner[loop.call + 1]
    first, last = loop.body
    step = f"{code.flat(first, loop.call)} simt_got {code.flat(closing + 1, last)}"
    draft.insert_before(
        i,
        f"{{ if (!::simt::shuffle_loop<::simt::Move::{_MOVES[shuffle[1]]}, "
        f"{'true' if _is_uniform(code, loop) else 'false'}>({lanes}, {loop.value}, "
        f"[&](auto simt_each) {{ for ({code.flat(*loop.head)}) "
        f"simt_each((long)({loop.counter}), (int)({texts[1]}), (int)({width})); }}, "
        f"[&]([[maybe_unused]] {loop.kind} {loop.counter}, auto& {loop.value}, auto simt_got) "
        f"{{ {step} }})) ",
    )
    draft.insert_after(loop.end, " }")


def _is_uniform(code: SourceCode, loop: _Loop) -> bool:
    """Whether the steps are written with the counter and constants, by their looks."""
    fixed = [*range(*loop.head), *(j for a in loop.arguments[-2:] for j in range(*a))]
    names = {code.text[j] for j in fixed if code.tokens[j].kind is _NAME}
    return all(
        name in _TYPES | {loop.counter, loop.value, "warpSize"} or name.isupper() for name in names
    )


def _parsed(code: SourceCode, i: int, last: int) -> _Loop | None:
    text = code.text
    closing = code.partner[i + 1] if text[i + 1] == "(" else -1
    if closing < 0 or closing + 2 >= last:
        return None
    counter = i + 2
    while text[counter] in _TYPES:
        counter += 1
    if counter == i + 2 or code.tokens[counter].kind is not _NAME or text[counter + 1] != "=":
        return None
    first, end = closing + 1, closing + 1
    if text[first] == "{":
        end = code.partner[first]
        first, stop = first + 1, end
    else:
        while end < last and text[end] not in (";", "{", "}"):
            end = max(end, code.partner[end]) + 1
        stop = end + 1
    calls = [j for j in range(first, stop) if _SHUFFLE.fullmatch(text[j])]
    if end < 0 or len(calls) != 1 or text[calls[0] + 1] != "(" or text[stop - 1] != ";":
        return None
    call = calls[0]
    arguments = code.split(call + 2, code.partner[call + 1])
    synced = text[call].endswith("_sync")
    loop = _Loop(
        " ".join(text[i + 2 : counter]),
        text[counter],
        text[arguments[int(synced)][0]] if len(arguments) > int(synced) + 1 else "",
        call,
        arguments,
        (i + 2, closing),
        (first, stop),
        end,
    )
    return loop if len(arguments) <= int(synced) + 3 and _is_formula(code, loop, synced) else None


def _is_formula(code: SourceCode, loop: _Loop, synced: bool) -> bool:
    """Whether each step is a function of the lane's own variables and of what it is given."""
    text, kinds = code.text, code.tokens
    begin, stop = loop.arguments[int(synced)] if loop.value else (0, 0)
    if stop - begin != 1 or kinds[begin].kind is not _NAME or loop.value == loop.counter:
        return False
    closing = code.partner[loop.call + 1]
    first, last = loop.body
    body = [*range(first, loop.call), *range(closing + 1, last)]
    fixed = [*range(*loop.head), *(j for a in loop.arguments for j in range(*a) if j != begin)]
    if _REFUSED & {text[j] for j in body}:
        return False
    called = [j for j in [*body, *fixed] if kinds[j].kind is _NAME and text[j + 1] == "("]
    if any(text[j] not in _PURE for j in called):
        return False
    declared = {text[j + 1] for j in body if text[j] in _TYPES and text[j + 1] not in _TYPES}
    known = {loop.value, "threadIdx", "blockIdx"} | declared
    if known & {text[j] for j in fixed}:
        return False
    # All that is assigned is the value, or declared in the step.
    targets = [text[j - 1] for j in body if re.fullmatch(r"[-+*/&|^]?=", text[j])]
    return set(targets) <= {loop.value} | declared and loop.value in targets
