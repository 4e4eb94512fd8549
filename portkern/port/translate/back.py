"""HIP to CUDA: launches, and warp functions without a mask."""

from __future__ import annotations

from portkern.cuda_source.lexer import Kind
from portkern.port.translate.draft import Draft
from portkern.port.translate.warps import HALF

_SHUFFLES = frozenset(["__shfl", "__shfl_up", "__shfl_down", "__shfl_xor"])
_VOTES = frozenset(["__any", "__all", "__ballot", "__match_any"])
_FULL = "0xffffffffu"
_HALF_TOKENS = ["(", "__lane_id", "(", ")", "&", "32", ")"]
#: The lane of a thread: CUDA has a register for it, and no function.
_LANE = '[] { unsigned lane; asm("mov.u32 %0, %%laneid;" : "=r"(lane)); return lane; }()'
_WHY = "CUDA's warp functions take the lanes that meet, in 32 bits"


def translate_back(draft: Draft) -> None:
    for i, token in enumerate(draft.code.tokens):
        if token.kind is not Kind.NAME or not draft.is_free_name(i):
            continue
        if token.text == "hipLaunchKernelGGL":
            _launch(draft, i)
        elif token.text in _SHUFFLES | _VOTES:
            _masked(draft, i)
        elif token.text.endswith("_sync"):
            _narrow_mask(draft, i)
        elif token.text == "__lane_id" and draft.arguments(i) == []:
            if not _half(draft, i):
                draft.note(i, "__lane_id()", _LANE, "CUDA has no function for the lane")
                draft.replace(i, draft.code.partner[i + 1] + 1, _LANE)
        elif token.text == "__builtin_nontemporal_load":
            draft.rename(i, "__ldcs", "CUDA's spelling of a streaming load")
        elif token.text == "__launch_bounds__":
            _bounds(draft, i)


def _launch(draft: Draft, i: int) -> None:
    """``hipLaunchKernelGGL(k, g, b, bytes, stream, …)`` as ``k<<<g, b, bytes, stream>>>(…)``."""
    code, parts = draft.code, draft.arguments(i)
    if parts is None or len(parts) < 5 or "__VA_ARGS__" in code.text[i : parts[4][1]]:
        return
    before = code.flat(i, code.partner[i + 1] + 1)
    first, last = parts[0]
    draft.replace(i, i + 2, "")
    if code.text[first] == "HIP_KERNEL_NAME" and code.partner[first + 1] == last - 1:
        draft.replace(first, first + 2, "")
        draft.replace(last - 1, last, "")
        first, last = first + 2, last - 1
    draft.replace(parts[0][1], parts[0][1] + 1, "<<<")
    shape = ", ".join(code.flat(*part) for part in parts[1:5])
    arguments = code.flat(parts[5][0], code.partner[i + 1]) if len(parts) > 5 else ""
    if len(parts) > 5:
        draft.replace(parts[4][1], parts[4][1] + 1, ">>>(")
    else:
        draft.insert_before(code.partner[i + 1], ">>>(")
    after = f"{code.flat(first, last)}<<<{shape}>>>({arguments})"
    draft.note(i, before, after, "CUDA's syntax of a launch")


def _masked(draft: Draft, i: int) -> None:
    code, parts = draft.code, draft.arguments(i)
    if parts is None or not parts or "__VA_ARGS__" in code.text[i : code.partner[i + 1]]:
        return
    name, close = code.text[i], code.partner[i + 1]
    before = code.flat(i, close + 1)
    draft.replace(i, i + 1, f"{name}_sync")
    draft.insert_before(parts[0][0], f"{_FULL}, ")
    after = f"{name}_sync({_FULL}, {code.flat(parts[0][0], close)})"
    draft.note(i, before, after, _WHY)


def _narrow_mask(draft: Draft, i: int) -> None:
    """A literal of all 64 lanes names the 32 of a warp."""
    code, parts = draft.code, draft.arguments(i)
    if not parts:
        return
    first, last = parts[0]
    literal = code.text[first].lower().rstrip("ul")
    if last == first + 1 and literal == "0xffffffffffffffff":
        draft.rename(first, _FULL, _WHY)


def _half(draft: Draft, i: int) -> bool:
    """Drop a shift by the caller's half of a wave, which is 0 in a warp of 32."""
    code = draft.code
    if code.text[i - 1 : i - 1 + len(_HALF_TOKENS)] != _HALF_TOKENS:
        return False
    end = i - 1 + len(_HALF_TOKENS)
    for operator in (["<<"], [">", ">"]):
        first = i - 1 - len(operator)
        if code.text[first : i - 1] == operator:
            draft.note(first, f"{''.join(operator)} {HALF}", "", "a warp of 32 has one half")
            draft.replace(first, end, "")
            draft.gaps[first] = ""
            return True
    return False


def _bounds(draft: Draft, i: int) -> None:
    code, parts = draft.code, draft.arguments(i)
    if parts is None or len(parts) != 2:
        return
    threads, waves = (code.flat(*part) for part in parts)
    if not threads.isdecimal() or not waves.isdecimal() or not int(threads):
        return
    blocks = str(max(int(waves) * 256 // int(threads), 1))
    if blocks != waves:
        why = "in CUDA the second argument is blocks per multiprocessor, in HIP waves per SIMD"
        draft.rename(parts[1][0], blocks, why)
