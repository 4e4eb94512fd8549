"""Warp functions: CUDA's warps of 32 lanes on waves of 32 and of 64.

The rule. In CUDA a warp has 32 lanes, and whatever a kernel makes of them (``threadIdx.x / 32``,
``& 31``, a loop from 16, masks of 32 bits) means these. Translated, it keeps *logical warps* of 32
lanes: on a wave of 64 each half is one. Shuffles get the width 32; ballots give the caller's half,
as the 32 bits that CUDA gives, so that all that is done with them stays right; masks are moved to
the caller's half; ``warpSize`` is 32. That is what the kernel did before, on either width.

A function of all lanes of a warp becomes the one of HIP without a mask, which acts on the lanes
that are there: a mask of 64 bits would name the other half too, which may be in another branch.

One exception: a file that takes all it knows of lanes from ``warpSize`` is written for any width.
It keeps ``warpSize``, and its functions span the wave.
"""

from __future__ import annotations

import re

from portkern.cuda_source.lexer import Kind
from portkern.port.translate.draft import Draft

LANES = 32
#: 0 or 32: by how much the caller's half of the wave lies above the first lane.
HALF = "(__lane_id() & 32)"
_HALF_TOKENS = ["(", "__lane_id", "(", ")", "&", "32", ")"]
_SHUFFLES = frozenset(["__shfl", "__shfl_up", "__shfl_down", "__shfl_xor"])
#: What each reduction over a warp does to v with w.
_STEPS = {
    "__reduce_add_sync": "v += w;",
    "__reduce_min_sync": "v = w < v ? w : v;",
    "__reduce_max_sync": "v = v < w ? w : v;",
    "__reduce_and_sync": "v &= w;",
    "__reduce_or_sync": "v |= w;",
    "__reduce_xor_sync": "v ^= w;",
}
_REDUCTIONS = frozenset(_STEPS)
_VOTES = frozenset(["__any", "__all", "__ballot"])
_OTHERS = (
    frozenset(["__match_any_sync", "__match_all_sync", "__activemask", "__syncwarp"]) | _REDUCTIONS
)
#: PyTorch's, for both vendors, with the mask last: their width is the device's by default too.
_OF_TORCH = frozenset(["WARP_SHFL", "WARP_SHFL_UP", "WARP_SHFL_DOWN", "WARP_SHFL_XOR"])
_TORCH_HEADER = "DeviceUtils.cuh"
WARP_FUNCTIONS = _SHUFFLES | _VOTES | _OTHERS | {f"{name}_sync" for name in _SHUFFLES | _VOTES}
_FULL = frozenset(["-1", "~0", "UINT_MAX", "UINT32_MAX", "ULONG_MAX"])
_CASTS = frozenset(
    ["(", ")", "unsigned", "int", "uint32_t", "long", "static_cast", "<", ">", "{", "}"]
)
#: Where 32 is a number of lanes, and not the size of an array.
_BEFORE_LANES = frozenset(["/", "%", "*", "<", "=", "&", "-", "(", ","])
_WHY = "a logical warp of 32 lanes, on waves of 32 and of 64"
_ASSIGNMENTS = frozenset(["=", "&=", "|=", "^=", "+=", "-=", "++", "--", "<<", ">>"])


def translate_warps(draft: Draft) -> None:
    """Shuffles, votes, matches, reductions over a warp, and ``warpSize``."""
    any_width, names = takes_any_width(draft), _names(draft)
    for i, token in enumerate(draft.code.tokens):
        if token.kind is not Kind.NAME or not draft.is_free_name(i):
            continue
        if token.text in names and not _is_declared(draft, i):
            _WarpCall(draft, i, any_width).translate()
    if not any_width:
        _fix_width(draft)


def _names(draft: Draft) -> frozenset[str]:
    """The names of the warp functions that the file may call."""
    if _TORCH_HEADER not in draft.code.source:
        return WARP_FUNCTIONS
    return WARP_FUNCTIONS | {name for name in _OF_TORCH if not _declares(draft, name)}


def takes_any_width(draft: Draft) -> bool:
    """Whether the file's warp functions and lane arithmetic rest on ``warpSize`` alone."""
    text = draft.code.text
    if "warpSize" not in text or _declares(draft, "warpSize"):
        return False
    used = _names(draft).intersection(text)
    shuffles = {f"{name}_sync" for name in _SHUFFLES} | _SHUFFLES | _OF_TORCH
    if not used & shuffles or used - shuffles - {"__syncwarp", "__any_sync", "__all_sync"}:
        return False
    against = (_means_32_lanes, _names_lanes, _needs_constant)
    return not any(is_against(draft, i) for is_against in against for i in range(len(text)))


def _needs_constant(draft: Draft, i: int) -> bool:
    """Whether ``warpSize`` at token ``i`` has to be a constant, which it is in CUDA alone."""
    text, first = draft.code.text, i
    if text[i] != "warpSize":
        return False
    while first > 0 and text[first - 1] not in (";", "{", "}"):
        first -= 1
    return not {"constexpr", "static_assert", "__shared__", "enum"}.isdisjoint(text[first:i])


def _names_lanes(draft: Draft, i: int) -> bool:
    """Whether a call at token ``i`` has a mask of its own, which has 32 bits."""
    name = draft.code.text[i]
    if name not in WARP_FUNCTIONS or not (name.endswith("_sync") or name == "__syncwarp"):
        return False
    parts = draft.arguments(i)
    return parts is None or (bool(parts) and not is_full(draft, *parts[0]))


def _means_32_lanes(draft: Draft, i: int) -> bool:
    code = draft.code
    text, before = code.text[i], code.text[i - 1] if i else ""
    if code.tokens[i].kind is Kind.NAME:
        return re.fullmatch(r"(?i)\w*(warp|wave)_?(size|width|threads)", text) is not None and (
            text != "warpSize" and code.text[i - 1] not in (".", "->")
        )
    value = _integer(text) if code.tokens[i].kind is Kind.NUMBER else None
    if value is None:
        return False
    if value == 5:
        return before == "<<" or code.text[i - 2 : i] == [">", ">"]
    if value == LANES // 2:
        return before in ("=", "(", ",")
    return value == LANES - 1 or (value == LANES and before in _BEFORE_LANES)


def _integer(text: str) -> int | None:
    plain = text.replace("'", "").rstrip("uUlL")
    try:
        return int(plain, 0)
    except ValueError:
        return None


def _declares(draft: Draft, name: str) -> bool:
    return any(_is_declared(draft, i) for i in draft.places(name))


def _is_declared(draft: Draft, i: int) -> bool:
    """Whether token ``i`` is where the name is declared or defined, and not used."""
    code = draft.code
    d = code.directive(i)
    if d is not None and i == d.begin + 2 and d.name in ("define", "undef", "ifdef", "ifndef"):
        return True
    before = code.tokens[i - 1] if i else None
    keyword = before is not None and before.text in ("return", "else", "do", "case", "in")
    return before is not None and before.kind is Kind.NAME and not keyword and d is None


def _fix_width(draft: Draft) -> None:
    code = draft.code
    host = draft.places("warpSize")
    if not host or _declares(draft, "warpSize"):
        return
    for i in host:
        if draft.is_free_name(i):
            draft.rename(i, str(LANES), _WHY)
        elif WARP_FUNCTIONS.intersection(code.text):
            draft.warn(i, "PK108", "the device's width is 64 on gfx9, the kernels' warps have 32")


def is_full(draft: Draft, first: int, last: int) -> bool:
    """Whether the mask in the range names all lanes whatever happens."""
    code = draft.code
    texts = [t for t in code.text[first:last] if t not in _CASTS]
    word = "".join(texts)
    if word.rstrip("uUlL") in _FULL:
        return True
    if len(texts) != 1:
        return False
    value = _integer(word)
    if value is not None:
        return value in (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
    if not word.isidentifier():
        return False
    if word not in draft.full_masks:
        draft.full_masks[word] = False  # what a name that stands for itself gets
        draft.full_masks[word] = _is_full_constant(draft, word)
    return draft.full_masks[word]


def _is_full_constant(draft: Draft, name: str) -> bool:
    """A macro or variable of this file that is all ones wherever it gets a value."""
    code, values = draft.code, 0
    for i in draft.places(name):
        d = code.directive(i)
        if d is not None and d.name == "define" and i == d.begin + 2:
            if d.body != i + 1 or not is_full(draft, d.body, d.end):
                return False
            values += 1
        elif _is_parameter(draft, i) or code.text[i - 1] in ("&", "++", "--"):
            return False
        elif code.text[i + 1] in _ASSIGNMENTS:
            end = i + 2
            while code.text[end] not in (";", ",", "") and end < i + 12:
                end += 1
            if code.text[i + 1] != "=" or not is_full(draft, i + 2, end):
                return False
            values += 1
    return values > 0


def _is_parameter(draft: Draft, i: int) -> bool:
    code = draft.code
    typed = code.tokens[i - 1].kind is Kind.NAME and code.text[i - 1] != "return"
    return typed and code.text[i + 1] in (",", ")", "[", ";")


class _WarpCall:
    """One use of a warp function, at token ``i``."""

    def __init__(self, draft: Draft, i: int, any_width: bool) -> None:
        self.draft, self.i, self.any_width = draft, i, any_width
        self.name = draft.code.text[i]
        self.base = self.name.removesuffix("_sync")
        self.masked = self.name.endswith("_sync") or self.name == "__syncwarp"

    def translate(self) -> None:
        draft, parts = self.draft, self.draft.arguments(self.i)
        if parts is None or any(self._is_pack(*part) for part in parts):
            code = "PK107" if parts is None and draft.code.text[self.i + 1] == "(" else "PK103"
            draft.warn(self.i, code, f"the arguments of {self.name} are not seen")
            return
        least = {"__activemask": 0, "__syncwarp": 0}.get(self.name, 2 if self.masked else 1)
        if len(parts) < least or self._is_done():
            return
        self.parts = parts
        self.close = draft.code.partner[self.i + 1]
        self.full = not self.masked or not parts or is_full(draft, *parts[0])
        self.before = draft.shown(self.i, self.close + 1)
        if self.base in _SHUFFLES | _OF_TORCH:
            self._shuffle()
        elif self.base in _VOTES:
            self._vote()
        elif self.name == "__syncwarp":
            self._barrier()
        else:
            self._lanes()

    def _is_pack(self, first: int, last: int) -> bool:
        return "__VA_ARGS__" in self.draft.code.text[first:last]

    def _is_done(self) -> bool:
        """Whether the call has been translated already."""
        code = self.draft.code
        close = code.partner[self.i + 1]
        shift = code.text[close + 1 : close + 3 + len(_HALF_TOKENS)]
        return shift == [">", ">", *_HALF_TOKENS] or "__lane_id" in code.text[self.i : close]

    def _note(self, after: str, why: str = _WHY) -> None:
        self.draft.note(self.i, self.before, after, why)

    def _rest(self) -> str:
        """The arguments after the mask."""
        skip = 1 if self.masked else 0
        if len(self.parts) <= skip:
            return ""
        return self.draft.shown(self.parts[skip][0], self.close)

    def _drop_mask(self) -> None:
        first = self.parts[0][0]
        last = self.parts[1][0] if len(self.parts) > 1 else self.close
        if first < last:
            self.draft.replace(first, last, "")
            if not self.draft.code.tokens[last].gap.strip(" "):
                self.draft.gaps[last] = ""

    def _move_mask(self) -> str:
        """The mask's bits are those of the caller's half."""
        draft, (first, last) = self.draft, self.parts[0]
        if self.full:
            moved = f"0xffffffffull << {HALF}"
            draft.replace(first, last, moved)
            return moved
        draft.insert_before(first, "(unsigned long long)(unsigned)(")
        draft.insert_after(last - 1, f") << {HALF}")
        return f"(unsigned long long)(unsigned)({draft.shown(first, last)}) << {HALF}"

    def _shuffle(self) -> None:
        draft = self.draft
        width = len(self.parts) >= (4 if self.masked else 3)
        tail = "" if width or self.any_width else f", {LANES}"
        if self.full:
            if not self.masked and not tail:
                return
            if self.masked:
                draft.replace(self.i, self.i + 1, self.base)
                self._drop_mask()
            after = f"{self.base}({self._rest()}{tail})"
        else:
            after = f"{self.name}({self._move_mask()}, {self._rest()}{tail})"
        if tail:
            draft.insert_before(self.close, tail)
        self._note(after)

    def _vote(self) -> None:
        draft, rest = self.draft, self._rest()
        function = "__ballot"
        if self.any_width and self.full:
            if self.masked:
                draft.replace(self.i, self.i + 1, self.base)
                self._drop_mask()
                self._note(f"{self.base}({rest})")
            return
        negated = self.base == "__all"
        if self.full and self.masked:
            self._drop_mask()
            mask = ""
        elif self.full:
            mask = ""
        else:
            function, mask = "__ballot_sync", f"{self._move_mask()}, "
        first = self.parts[1 if self.masked else 0][0]
        if negated:
            self._negate(first)
        head = "" if self.base == "__ballot" else "("
        tail = {"__ballot": "", "__any": " != 0)", "__all": " == 0)"}[self.base]
        draft.replace(self.i, self.i + 1, f"{head}(unsigned)({function}")
        draft.insert_after(self.close, f" >> {HALF}){tail}")
        shown = f"!({rest})" if negated else rest
        self._note(f"{head}(unsigned)({function}({mask}{shown}) >> {HALF}){tail}")

    def _negate(self, first: int) -> None:
        draft = self.draft
        draft.insert_before(first, "!(")
        draft.insert_before(self.close, ")")

    def _barrier(self) -> None:
        if not self.parts:
            return
        if self.full:
            self._drop_mask()
            self._note("__syncwarp()")
        else:
            self._note(f"__syncwarp({self._move_mask()})")

    def _lanes(self) -> None:
        """Functions whose result are lanes, and reductions."""
        draft = self.draft
        if self.name in _REDUCTIONS and self.full:
            self._reduce()
            return
        if self.name == "__activemask":
            call = "__activemask()"
        elif self.name == "__match_any_sync" and self.full:
            self._drop_mask()
            draft.replace(self.i, self.i + 1, "__match_any")
            call = f"__match_any({self._rest()})"
        else:
            call = f"{self.name}({self._move_mask()}, {self._rest()})"
        if self.name in _REDUCTIONS:
            self._note(call)
            return
        draft.insert_before(self.i, "(unsigned)(")
        draft.insert_after(self.close, f" >> {HALF})")
        self._note(f"(unsigned)({call} >> {HALF})")

    def _reduce(self) -> None:
        """HIP has the reductions since ROCm 7 alone, and of a whole mask."""
        draft, (first, last) = self.draft, self.parts[1]
        step = f"auto w = __shfl_xor(v, o, {LANES}); {_STEPS[self.name]}"
        loop = f"for (int o = {LANES // 2}; o > 0; o /= 2) {{ {step} }}"
        function = f"[](auto v) {{ {loop} return v; }}"
        ordered = self.name.removesuffix("_sync").endswith(("add", "min", "max"))
        type_ = "+" if ordered else "(unsigned)"
        self._drop_mask()
        draft.replace(self.i, self.i + 1, function)
        draft.insert_before(first, f"{type_}(")
        draft.insert_after(last - 1, ")")
        self._note(f"{function}({type_}({draft.shown(first, last)}))")
