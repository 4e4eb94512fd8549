"""Rewrites of device code that names alone do not do: cache hints, traps, launch bounds,
``__CUDA_ARCH__``, tiles' reductions and the widths of hipCUB's warps."""

from __future__ import annotations

import re

from portkern.cuda_source.lexer import ELSES, IFS, Directive, Kind
from portkern.port.translate.draft import Draft
from portkern.port.translate.warps import LANES
from portkern.simt.translate.survey import ASM

_LOADS = {
    "__ldcs": "__builtin_nontemporal_load",
    "__ldlu": "__builtin_nontemporal_load",
    "__ldcg": "",
    "__ldca": "",
}
_STORES = {"__stcs": True, "__stwt": False, "__stcg": False, "__stwb": False}
#: What clang's nontemporal functions take, as pointers to it: HIP's float4 and half are classes.
_PLAIN = frozenset(
    "float double int unsigned short char long int32_t uint32_t int64_t uint64_t int16_t uint16_t "
    "int8_t uint8_t size_t".split()
)
_TRAPS = {"__trap": "__builtin_trap", "__brkpt": "__builtin_trap"}
_CUB_WARPS = frozenset(["WarpReduce", "WarpScan"])
#: The figures by which HIP's compiler reads the second argument of __launch_bounds__: waves per
#: SIMD, of which a compute unit of CDNA has four.
_SIMDS, _WAVE, _MOST_WAVES = 4, 64, 8
_ARCH = "__CUDA_ARCH__"
_HIP_DEVICE = "__HIP_DEVICE_COMPILE__"
#: HIP has the functions that CUDA has from this architecture on; newer ones are matters of PTX.
_NEWEST_ARCH = 800
_OF_NVIDIA = ASM | {"nvcuda", "wmma", "__pipeline_memcpy_async", "cluster", "__nv_tex"}
#: The newest version of the runtime, or the compiler's where that is meant.
_NEWEST_VERSION = 12999
_TESTS = frozenset(["if", "elif"])
_VERSIONS = frozenset(["CUDART_VERSION", "CUDA_VERSION", "__CUDACC_VER_MAJOR__"])


#: What :func:`translate_device` rewrites where it is called.
DEVICE_FUNCTIONS = frozenset([*_LOADS, *_STORES, *_TRAPS, "__nanosleep"])


def translate_device(draft: Draft) -> None:
    defined = {draft.code.text[first] for first, _ in draft.words_of_directive("define")}
    for i, token in enumerate(draft.code.tokens):
        text = token.text
        if token.kind is not Kind.NAME or text in defined:  # what the file defines is its own
            continue
        if text == "__launch_bounds__":
            _launch_bounds(draft, i)
        elif text == "__grid_constant__":
            draft.rename(i, "", "HIP has no such attribute; the parameter is a constant as it is")
        elif text == "register" and draft.code.tokens[i + 1].kind is Kind.NAME:
            draft.rename(i, "", "C++17, which HIP is compiled as, has no register variables")
        elif text in _CUB_WARPS:
            _cub_warp(draft, i)
        elif not draft.is_free_name(i) and draft.code.text[i - 1] != "::":
            continue
        elif text in _LOADS:
            _load(draft, i)
        elif text in _STORES:
            _store(draft, i)
        elif text in _TRAPS and draft.arguments(i) == []:
            draft.rename(i, _TRAPS[text], "HIP's compiler has it as a builtin")
        elif text == "__nanosleep":
            _sleep(draft, i)
        elif text in _TILE_FUNCTIONS:
            _tile_function(draft, i)


def _load(draft: Draft, i: int) -> None:
    code, parts = draft.code, draft.arguments(i)
    if parts is None or len(parts) != 1:
        return
    first, last = parts[0]
    before, argument = code.flat(i, last + 1), code.flat(first, last)
    if _LOADS[code.text[i]] and _points_to_plain(draft, first, last):
        function = _LOADS[code.text[i]]
        draft.replace(i, i + 1, function)
        draft.note(i, before, f"{function}({argument})", "HIP's spelling of a streaming load")
        return
    draft.replace(i, i + 1, "(*")
    draft.insert_after(last, ")")
    draft.note(i, before, f"(*({argument}))", "HIP has no such cache hint; the load is the same")


def _store(draft: Draft, i: int) -> None:
    code, parts = draft.code, draft.arguments(i)
    if parts is None or len(parts) != 2:
        return
    (first, last), (start, stop) = parts
    before = code.flat(i, stop + 1)
    target, value = code.flat(first, last), code.flat(start, stop)
    draft.replace(i, i + 1, "(*")
    draft.replace(last, last + 1, ") =")
    draft.insert_before(start, "(")
    draft.insert_after(stop, ")")
    after = f"(*({target}) = ({value}))"
    draft.note(i, before, after, "HIP has no such cache hint; the store is the same")


def _points_to_plain(draft: Draft, first: int, last: int) -> bool:
    """Whether the argument is a parameter or variable that is a pointer to a plain number
    everywhere in the file, or such a cast, with or without an offset."""
    code = draft.code
    texts = code.text[first:last]
    if texts[:1] in (["reinterpret_cast"], ["static_cast"]) or texts[:1] == ["("]:
        return False
    names = [i for i in range(first, last) if code.tokens[i].kind is Kind.NAME]
    if not names or (texts[0] == "&") != ("[" in texts):
        return False
    name = code.text[names[0]]
    before = ("*", "__restrict__", "__restrict", "restrict")
    declared = [i for i in draft.places(name) if code.text[i - 1] in before]
    types = [_pointee(draft, i) for i in declared]
    return bool(types) and all(types)


def _pointee(draft: Draft, i: int) -> bool:
    """Whether token ``i`` is declared as a pointer to a plain number."""
    text, i = draft.code.text, i - 1
    while text[i] in ("__restrict__", "__restrict", "restrict", "const"):
        i -= 1
    return (
        text[i] == "*"
        and text[i - 1] in _PLAIN | {"const"}
        and (text[i - 1] != "const" or text[i - 2] in _PLAIN)
    )


def _sleep(draft: Draft, i: int) -> None:
    parts = draft.arguments(i)
    if parts is None or len(parts) != 1:
        return
    last = draft.code.partner[i + 1] + 1
    if any(text in ("=", "++", "--", "*=", "+=") for text in draft.code.text[i:last]):
        return
    why = "AMD's s_sleep takes a constant, of 64 clocks; how long it sleeps is a hint in both"
    draft.note(i, draft.code.flat(i, last), "__builtin_amdgcn_s_sleep(1)", why)
    draft.replace(i, last, "__builtin_amdgcn_s_sleep(1)")


def _launch_bounds(draft: Draft, i: int) -> None:
    code, parts = draft.code, draft.arguments(i)
    if parts is None or len(parts) not in (2, 3) or any(a >= b for a, b in parts):
        return
    threads, blocks = (code.flat(*part) for part in parts[:2])
    waves = _waves(threads, blocks)
    first, last = parts[1][0], code.partner[i + 1]
    if code.flat(first, last) == waves:
        return
    why = "in CUDA the second argument is blocks per multiprocessor, in HIP waves per SIMD"
    draft.note(i, code.flat(i, last + 1), f"__launch_bounds__({threads}, {waves})", why)
    draft.replace(first, last, waves)


def _waves(threads: str, blocks: str) -> str:
    lanes = _SIMDS * _WAVE
    if threads.isdecimal() and blocks.isdecimal():
        return str(min(max(-(-int(threads) * int(blocks) // lanes), 1), _MOST_WAVES))
    return f"(({threads}) * ({blocks}) + {lanes - 1}) / {lanes}"


def _cub_warp(draft: Draft, i: int) -> None:
    code = draft.code
    if code.text[i + 1] != "<":
        return
    close = code.close_angle(i + 1, len(code.tokens))
    if close < 0 or len(code.split(i + 2, close)) != 1 or "..." in code.text[i:close]:
        return
    before = code.flat(i, close)
    draft.insert_before(close, f", {LANES}")
    why = "hipCUB's warps are as wide as the device's; CUB's have 32 lanes"
    draft.note(i, f"{before}>", f"{before}, {LANES}>", why)


# ---- conditions ---------------------------------------------------------------------------


def translate_conditions(draft: Draft) -> None:
    """``__CUDA_ARCH__`` and CUDA's versions, where they ask for what HIP has."""
    for d in draft.code.directives:
        texts = set(draft.code.text[d.begin : d.end])
        if d.name not in (*IFS, "elif") or texts & {_HIP_DEVICE, "__HIPCC__", "__HIP__"}:
            continue
        if _ARCH in texts and not _needs_nvidia(draft, d):
            _arch(draft, d)
        if texts & _VERSIONS:
            _version(draft, d)


def _needs_nvidia(draft: Draft, d: Directive) -> bool:
    """Whether what the condition guards, in any branch, is of NVIDIA's machine alone."""
    depth, code = 0, draft.code
    for other in code.directives:
        if other.begin <= d.begin:
            continue
        if other.name in IFS:
            depth += 1
        elif other.name == "endif" or (other.name in ELSES and depth == 0):
            if depth == 0:
                return not _OF_NVIDIA.isdisjoint(code.text[d.end : other.begin])
            depth -= 1
    return False


def _arch(draft: Draft, d: Directive) -> None:
    code, first, last = draft.code, d.begin + 2, d.end
    why = f"HIP's device pass defines {_HIP_DEVICE}"
    if d.name in ("ifdef", "ifndef") and code.text[first:last] == [_ARCH]:
        not_, join = ("", "||") if d.name == "ifdef" else ("!", "&&")
        condition = f"{not_}defined({_ARCH}) {join} {not_}defined({_HIP_DEVICE})"
        draft.note(d.begin, f"#{d.name} {_ARCH}", f"#if {condition}", why)
        draft.replace(d.begin + 1, last, f"if {condition}")
        return
    for i in range(first, last):
        if code.text[i] == "defined" and _ARCH in code.text[i + 1 : i + 3]:
            end = i + 2 if code.text[i + 1] == _ARCH else i + 4
            text = f"(defined({_ARCH}) || defined({_HIP_DEVICE}))"
            draft.note(i, code.flat(i, end), text, why)
            draft.replace(i, end, text)
        elif code.text[i] == _ARCH and i + 2 < last + 1:
            _compared(draft, i, last, why)


def _compared(draft: Draft, i: int, last: int, why: str) -> None:
    """``__CUDA_ARCH__ >= 600`` and its like."""
    code, at = draft.code, _comparison(draft, i, last)
    if at is None or int(code.text[at].rstrip("uUlL")) > _NEWEST_ARCH:
        return
    compared = code.flat(i, at + 1)
    if code.text[i + 1].startswith(">"):
        text = f"(defined({_HIP_DEVICE}) || {compared})"
    else:
        text = f"(!defined({_HIP_DEVICE}) && {compared})"
    draft.note(i, compared, text, why)
    draft.replace(i, at + 1, text)


def _version(draft: Draft, d: Directive) -> None:
    """HIP has what CUDA 12 has of the runtime: "at least" holds."""
    code, why = draft.code, "hipcc defines no version of CUDA's"
    for i in range(d.begin + 2, d.end):
        if code.text[i] not in _VERSIONS or code.text[i - 1] == "defined" or d.name not in _TESTS:
            continue
        before, at = code.text[i - 2 : i], _comparison(draft, i, d.end)
        if before == ["defined", "("] and draft.code.text[i + 1] == ")":
            text = f"(defined({code.text[i]}) || defined(__HIPCC__))"
            draft.note(i, f"defined({code.text[i]})", text, why)
            draft.replace(i - 2, i + 2, text)
        elif at is None or int(code.text[at].rstrip("uUlL")) > _NEWEST_VERSION:
            draft.warn(i, "PK105", f"{code.flat(d.begin, d.end)}: {why}")
        else:
            compared = code.flat(i, at + 1)
            newer = code.text[i + 1].startswith(">")
            own = "defined(__HIPCC__) ||" if newer else "!defined(__HIPCC__) &&"
            draft.note(i, compared, f"({own} {compared})", why)
            draft.replace(i, at + 1, f"({own} {compared})")


def _comparison(draft: Draft, i: int, last: int) -> int | None:
    """The place of the number that token ``i`` is compared with for "at least" or "less than"."""
    code, at = draft.code, i + 2
    if at >= last or code.text[i + 1] not in (">=", ">", "<", "<="):
        return None
    at += code.text[i + 1] == ">" and code.text[at] == "="
    number = at < last and re.fullmatch(r"\d+[uUlL]*", code.text[at])
    alone = at + 1 >= last or code.text[at + 1] in (")", "&&", "||")
    return at if number and alone and code.text[i - 1] not in ("+", "-", "*", "/") else None


# ---- cooperative groups -------------------------------------------------------------------

_TILE_FUNCTIONS = frozenset(
    "reduce inclusive_scan exclusive_scan memcpy_async invoke_one labeled_partition".split()
)
_OPERATIONS = {
    "plus": "v = v + w;",
    "less": "v = w < v ? w : v;",
    "greater": "v = v < w ? w : v;",
    "bit_and": "v = v & w;",
    "bit_or": "v = v | w;",
    "bit_xor": "v = v ^ w;",
}


#: The words of any type of plain data, shuffled one by one.
_WORDS = (
    "int p[(sizeof(v) + 3) / 4]; __builtin_memcpy(p, &v, sizeof(v)); "
    "for (int& q : p) q = g.shfl_xor(q, o); auto w = v; __builtin_memcpy(&w, p, sizeof(v)); "
    "v = f(v, w);"
)


def _tile_function(draft: Draft, i: int) -> None:
    code = draft.code
    if code.text[i - 1] != "::" or code.text[i - 2] not in ("cg", "cooperative_groups"):
        return
    parts = draft.arguments(i)
    if parts is None:
        return
    if code.text[i] != "reduce" or len(parts) != 3:
        draft.warn(i, "PK104", f"HIP has no {code.flat(i - 2, i + 1)}")
        return
    known = _operation(draft, *parts[2])
    step = f"auto w = g.shfl_xor(v, o); {known}" if known else _WORDS
    parameters = "auto g, auto v" if known else "auto g, auto v, auto f"
    loop = f"for (int o = g.size() / 2; o > 0; o /= 2) {{ {step} }}"
    text = f"[]({parameters}) {{ {loop} return v; }}"
    first, close = i - 2, code.partner[i + 1]
    draft.replace(first, i + 1, text)
    end = parts[1][1] if known else close
    if known:
        draft.replace(end, close, "")
    arguments = code.flat(parts[0][0], end)
    why = "HIP has no cooperative_groups/reduce.h: the same over the tile's shuffles"
    draft.note(i, code.flat(first, close + 1), f"{text}({arguments})", why)


def _operation(draft: Draft, first: int, last: int) -> str:
    """The operation that `cg::plus<T>{}` applies to v and w; "" for any that is not known."""
    texts = draft.code.text[first:last]
    if len(texts) < 5 or texts[0] not in ("cg", "cooperative_groups") or texts[1] != "::":
        return ""
    if texts[-2:] not in (["{", "}"], ["(", ")"]) or texts[3] != "<" or texts[-3] != ">":
        return ""
    return _OPERATIONS.get(texts[2], "")
