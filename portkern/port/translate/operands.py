"""Calls that CUDA and HIP resolve otherwise by the types of what they are given.

``min`` and ``max`` of a signed and an unsigned integer are unsigned in CUDA. HIP has no overload
for the two, and the one of clang's cmath that fits all computes in double: it does not index an
array, compares other values where one is negative, and loses the low bits of 64-bit numbers.
"""

from __future__ import annotations

from portkern.cuda_source.declarations import UNSIGNED
from portkern.port.translate.draft import Draft
from portkern.port.translate.kinds import Kinds

_PAIRS = frozenset(["half2", "__half2", "__nv_bfloat162", "nv_bfloat162"])
_CALLS = frozenset(["min", "max", "atomicAdd"])


def translate_operands(draft: Draft) -> None:
    calls = sorted(i for name in _CALLS for i in draft.places(name) if draft.is_free_name(i))
    own = {draft.code.text[i] for i in calls if _is_definition(draft, i)}
    own |= {draft.code.text[first] for first, _ in draft.words_of_directive("define")}
    kinds = Kinds(draft)
    for i in calls:
        parts = draft.arguments(i)
        if parts is None or len(parts) != 2 or draft.code.text[i] in own:
            continue
        if draft.code.text[i] == "atomicAdd":
            _add_pair(draft, kinds, i, *parts[0])
        elif draft.code.text[i - 1] != "::":
            _mixed(draft, kinds, i, parts)


def _is_definition(draft: Draft, i: int) -> bool:
    code = draft.code
    return code.text[i + 1] == "(" and code.text[code.partner[i + 1] + 1] == "{"


def _mixed(draft: Draft, kinds: Kinds, i: int, parts: list[tuple[int, int]]) -> None:
    a, b = (kinds.of(*part) for part in parts)
    if a is None or b is None or a == b:
        return
    if UNSIGNED.get(a) == b:
        signed = 0
    elif UNSIGNED.get(b) == a:
        signed = 1
    else:
        return
    first, last = parts[signed]
    cast = f"({UNSIGNED[(a, b)[signed]]})"
    shown = draft.code.flat(first, last)
    if last - first > 1:
        draft.insert_before(first, f"{cast}(")
        draft.insert_after(last - 1, ")")
        shown = f"({shown})"
    else:
        draft.insert_before(first, cast)
    why = "CUDA takes both as unsigned; HIP's overload for the two computes in double"
    other = draft.code.flat(*parts[1 - signed])
    texts = (f"{cast}{shown}", other) if signed == 0 else (other, f"{cast}{shown}")
    call = draft.code.text[i]
    draft.note(i, draft.shown(i, parts[1][1] + 1), f"{call}({', '.join(texts)})", why)


def _add_pair(draft: Draft, kinds: Kinds, i: int, first: int, last: int) -> None:
    if kinds.pointee(first, last) in _PAIRS:
        draft.rename(i, "unsafeAtomicAdd", "HIP's atomicAdd takes no pairs of halves; this does")
