"""Oracles of the scalar unit: results, SCC and EXEC."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .floats import strict
from .integers import alike, words_of
from .oracle import TYPES, Array, Table, bounded, fused, ordered

U32, I32, U64, I64, F32 = np.uint32, np.int32, np.uint64, np.int64, np.float32


def table(into: Table, family: str) -> None:
    """Adds the oracles of scalar arithmetic, comparisons and masks."""
    _arithmetic(into)
    _bits(into)
    _comparisons(into)
    _masks(into, 64 if family == "cdna" else 32)
    _floats(into)


def _set(function: Callable[..., Array]) -> Callable[..., tuple[Array, Array]]:
    """SCC says whether the result is not zero."""

    def both(*sources: Array) -> tuple[Array, Array]:
        result = np.asarray(function(*sources))
        return result, result != 0

    return both


def _sum(sign: int, *, signed: bool) -> Callable[..., tuple[Array, Array]]:
    def both(a: Array, b: Array, c: Array | None = None) -> tuple[Array, Array]:
        exact = a.astype(I64) + sign * b.astype(I64)
        if c is not None:
            exact += sign * c.astype(I64)
        bits = exact.astype(U32)
        inside = exact == (bits.view(I32) if signed else bits).astype(I64)
        return bits, ~inside

    return both


def _arithmetic(into: Table) -> None:
    into.group = "scalar integers"
    scc: dict[str, Any] = {"mask": True}
    two, signed = "u32 u32 u32", "u32 i32 i32"
    into.add("s_add_u32 s_add_co_u32", two, _sum(1, signed=False), **scc)
    into.add("s_sub_u32 s_sub_co_u32", two, _sum(-1, signed=False), **scc)
    into.add("s_addc_u32 s_add_co_ci_u32", f"{two} carry", _sum(1, signed=False), **scc)
    into.add("s_subb_u32 s_sub_co_ci_u32", f"{two} carry", _sum(-1, signed=False), **scc)
    into.add("s_add_i32 s_add_co_i32", signed, _sum(1, signed=True), **scc)
    into.add("s_sub_i32 s_sub_co_i32", signed, _sum(-1, signed=True), **scc)
    into.add("s_addk_i32 s_addk_co_i32", "u32 old:i32 imm", _sum(1, signed=True), **scc)
    into.add("s_mulk_i32", "i32 old:i32 imm", lambda a, b: a * b)
    into.add("s_movk_i32", "i32 imm", lambda a: a)
    into.add("s_cmovk_i32", "i32 imm carry old:i32", lambda a, c, old: np.where(c, a, old))
    into.add("s_mul_i32", two, lambda a, b: a * b)
    into.add("s_mul_u64", "u64 u64 u64", lambda a, b: a * b)
    into.add("s_add_nc_u64 s_add_u64", "u64 u64 u64", lambda a, b: a + b)
    into.add("s_sub_nc_u64 s_sub_u64", "u64 u64 u64", lambda a, b: a - b)
    into.add("s_mul_hi_u32", two, lambda a, b: (a.astype(U64) * b >> U64(32)).astype(U32))
    into.add("s_mul_hi_i32", "i32 i32 i32", lambda a, b: (a.astype(I64) * b >> 32).astype(I32))
    for kind in ("i32", "u32"):
        into.add(
            f"s_min_{kind}", f"{kind} {kind} {kind}", lambda a, b: (np.minimum(a, b), a < b), **scc
        )
        into.add(
            f"s_max_{kind}", f"{kind} {kind} {kind}", lambda a, b: (np.maximum(a, b), a > b), **scc
        )
    for k in range(1, 5):
        into.add(
            f"s_lshl{k}_add_u32", two,
            lambda a, b, k=k: (
                (a << U32(k)) + b, ((a.astype(U64) << U64(k)) + b) >> U64(32) != 0
            ), **scc,
        )  # fmt: skip
    into.add("s_abs_i32", "u32 i32", _set(lambda a: abs(a.astype(I64)).astype(U32)), **scc)
    into.add("s_absdiff_i32", "u32 i32 i32", _set(_apart), **scc)
    into.add("s_sext_i32_i8", "i32 u32", lambda a: a.astype(np.int8).astype(I32))
    into.add("s_sext_i32_i16", "i32 u32", lambda a: a.astype(np.int16).astype(I32))
    into.add("s_mov_b32", "u32 u32", lambda a: a)
    into.add("s_mov_b64", "u64 u64", lambda a: a)
    for width in (32, 64):
        kind = f"u{width}"
        into.add(
            f"s_cmov_b{width}", f"{kind} {kind} carry old:{kind}", lambda a, c, o: np.where(c, a, o)
        )
        into.add(
            f"s_cselect_b{width}", f"{kind} {kind} {kind} carry", lambda a, b, c: np.where(c, a, b)
        )
    halves = (("ll", 0, 0), ("lh", 0, 16), ("hh", 16, 16), ("hl", 16, 0))
    for name, first, second in halves:
        into.add(
            f"s_pack_{name}_b32_b16", two,
            lambda a, b, f=first, s=second: a >> U32(f) & U32(0xFFFF) | b >> U32(s) << U32(16),
        )  # fmt: skip


def _apart(a: Array, b: Array) -> Array:
    """The difference wraps before its sign is taken, as the text has it."""
    wrapped = a - b
    return np.where(wrapped < 0, -wrapped, wrapped).view(U32)


def _bits(into: Table) -> None:
    into.group = "scalar bits"
    scc: dict[str, Any] = {"mask": True}
    for width in (32, 64):
        kind, pair = f"u{width}", f"u{width} u{width} u{width}"
        for name, function in (
            ("and", lambda a, b: a & b), ("or", lambda a, b: a | b), ("xor", lambda a, b: a ^ b),
            ("andn2", lambda a, b: a & ~b), ("orn2", lambda a, b: a | ~b),
            ("nand", lambda a, b: ~(a & b)), ("nor", lambda a, b: ~(a | b)),
            ("xnor", lambda a, b: ~(a ^ b)),
        ):  # fmt: skip
            names = f"s_{name}_b{width}"
            if name.endswith("n2"):
                names += f" s_{name[:-2]}_not1_b{width}"
            into.add(names, pair, _set(function), **scc)
        into.add(f"s_not_b{width}", f"{kind} {kind}", _set(lambda a: ~a), **scc)
        into.add(
            f"s_brev_b{width}", f"{kind} {kind}",
            lambda a, w=width, k=kind: np.array(
                [int(f"{int(x):0{w}b}"[::-1], 2) for x in a], _to(k)
            ),
        )  # fmt: skip
        into.add(
            f"s_bcnt1_i32_b{width}", f"u32 {kind}",
            _set(lambda a: words_of([int(x).bit_count() for x in a])), **scc,
        )  # fmt: skip
        into.add(
            f"s_bcnt0_i32_b{width}", f"u32 {kind}",
            _set(lambda a, w=width: words_of([w - int(x).bit_count() for x in a])), **scc,
        )  # fmt: skip
        into.add(
            f"s_ff1_i32_b{width} s_ctz_i32_b{width}", f"i32 {kind}",
            lambda a: np.array([(int(x) & -int(x)).bit_length() - 1 for x in a], I32),
        )  # fmt: skip
        into.add(
            f"s_ff0_i32_b{width}", f"i32 {kind}",
            lambda a: np.array([(int(x) & -int(x)).bit_length() - 1 for x in ~a], I32),
        )  # fmt: skip
        clz = f"s_flbit_i32_b{width} s_clz_i32_u{width}"
        into.add(
            clz, f"i32 {kind}",
            lambda a, w=width: np.array([w - int(x).bit_length() if x else -1 for x in a], I32),
        )  # fmt: skip
        names = "s_flbit_i32 s_cls_i32" if width == 32 else "s_flbit_i32_i64 s_cls_i32_i64"
        into.add(
            names, f"i32 i{width}",
            lambda a, w=width: np.array([_like_of(int(x), w) for x in a], I32),
        )  # fmt: skip
        into.add(
            f"s_wqm_b{width}", f"{kind} {kind}", _set(partial(_quads, width, whole=True)), **scc
        )
        into.add(
            f"s_quadmask_b{width}",
            f"{kind} {kind}",
            _set(partial(_quads, width, whole=False)),
            **scc,
        )
        into.add(f"s_bitset0_b{width}", f"{kind} u32 old:{kind}", partial(_bit_put, width, 0))
        into.add(f"s_bitset1_b{width}", f"{kind} u32 old:{kind}", partial(_bit_put, width, 1))
        into.add(f"s_lshl_b{width}", f"{kind} {kind} u32", _set(partial(_shift, width, "l")), **scc)
        into.add(f"s_lshr_b{width}", f"{kind} {kind} u32", _set(partial(_shift, width, "r")), **scc)
        into.add(
            f"s_ashr_i{width}", f"i{width} i{width} u32", _set(partial(_shift, width, "r")), **scc
        )
        into.add(
            f"s_bfm_b{width}", f"{kind} u32 u32",
            lambda a, b, w=width, k=kind: np.array(
                [
                    ((1 << (int(x) & w - 1)) - 1 << (int(y) & w - 1)) % (1 << w)
                    for x, y in zip(a, b, strict=True)
                ],
                _to(k),
            ),
        )  # fmt: skip
        into.add(f"s_bfe_u{width}", f"{kind} {kind} u32", _set(partial(_field, width)), **scc)
        into.add(f"s_bfe_i{width}", f"i{width} i{width} u32", _set(partial(_field, width)), **scc)
    into.add(
        "s_bitreplicate_b64_b32", "u64 u32",
        lambda a: np.array([int("".join(c * 2 for c in f"{int(x):032b}"), 2) for x in a], U64),
    )  # fmt: skip


def _to(kind: str) -> Any:
    return TYPES[kind]


def _like_of(x: int, width: int) -> int:
    return (
        alike(x) if width == 32 else -1 if x in (0, -1) else 64 - (x if x >= 0 else ~x).bit_length()
    )


def _quads(width: int, a: Array, *, whole: bool) -> Array:
    def of(x: int) -> int:
        used = [k for k in range(width // 4) if x >> 4 * k & 15]
        return sum((15 << 4 * k) if whole else 1 << k for k in used)

    return np.array([of(int(x)) for x in a], a.dtype)


def _bit_put(width: int, value: int, at: Array, old: Array) -> Array:
    bit = old.dtype.type(1) << (at & U32(width - 1)).astype(old.dtype)
    return np.asarray(old | bit if value else old & ~bit)


def _shift(width: int, way: str, a: Array, by: Array) -> Array:
    n = (by & U32(width - 1)).astype(a.dtype)
    return np.asarray(a << n if way == "l" else a >> n)


def _field(width: int, a: Array, at: Array) -> Array:
    """Bits 5:0 (or 4:0) are the offset, 22:16 the width; a signed one goes on with its top bit."""

    def of(x: int, s: int) -> int:
        offset, n = s & (width - 1), s >> 16 & 127
        value = x >> offset & (1 << n) - 1
        if signed and 0 < n <= width and value >> (n - 1) & 1:
            value -= 1 << n
        return value % (1 << width)

    signed = a.dtype.kind == "i"
    bits = [of(int(x), int(s)) for x, s in zip(a, at, strict=True)]
    return np.array(bits, U32 if width == 32 else U64).view(a.dtype)


def _comparisons(into: Table) -> None:
    into.group = "scalar comparisons"
    operators = {
        "eq": np.equal, "lg": np.not_equal, "gt": np.greater, "ge": np.greater_equal,
        "lt": np.less, "le": np.less_equal,
    }  # fmt: skip
    for name, operator in operators.items():
        function = lambda a, b, o=operator: (None, o(a, b))  # noqa: E731
        for kind in ("i32", "u32"):
            into.add(f"s_cmp_{name}_{kind}", f"- {kind} {kind}", function, mask=True)
            unsigned = ":u16" if kind == "u32" else ""
            into.add(f"s_cmpk_{name}_{kind}", f"- old:{kind} imm{unsigned}", function, mask=True)
        if name in ("eq", "lg"):
            into.add(f"s_cmp_{name}_u64", "- u64 u64", function, mask=True)
    for width in (32, 64):
        for bit in (0, 1):
            into.add(
                f"s_bitcmp{bit}_b{width}", f"- u{width} u32",
                lambda a, b, w=width, v=bit: (
                    None, (a >> (b & U32(w - 1)).astype(a.dtype) & a.dtype.type(1)) == v
                ), mask=True,
            )  # fmt: skip


def _masks(into: Table, wave: int) -> None:
    """EXEC is kept, then changed; or changed, and the result kept too."""
    into.group = "masks of lanes"
    changes: dict[str, Callable[[Array, Array], Array]] = {
        "and": lambda a, x: a & x, "or": lambda a, x: a | x, "xor": lambda a, x: a ^ x,
        "andn2": lambda a, x: a & ~x, "andn1": lambda a, x: ~a & x,
        "orn2": lambda a, x: a | ~x, "orn1": lambda a, x: ~a | x,
        "nand": lambda a, x: ~(a & x), "nor": lambda a, x: ~(a | x), "xnor": lambda a, x: ~(a ^ x),
    }  # fmt: skip
    newer = {"andn2": "and_not1", "andn1": "and_not0", "orn2": "or_not1", "orn1": "or_not0"}
    for width in (32, 64):
        if width > wave:
            continue
        kind = f"u{width}"
        for name, change in changes.items():
            for ending in ("saveexec", "wrexec"):
                if ending == "wrexec" and not name.startswith("andn"):
                    continue
                names = f"s_{name}_{ending}_b{width}"
                if name in newer:
                    names += f" s_{newer[name]}_{ending}_b{width}"

                def of(
                    a: Array, x: Array, c: Any = change, keeps: bool = ending == "saveexec"
                ) -> Any:
                    result = c(a, x)
                    return x if keeps else result, result != 0, result

                into.add(names, f"{kind} {kind} exec:{kind}", of, mask=True, to_exec=True)


def _floats(into: Table) -> None:
    into.group = "scalar floats"
    two = "f32 f32 f32"
    into.add("s_add_f32", two, lambda a, b: a + b)
    into.add("s_sub_f32", two, lambda a, b: a - b)
    into.add("s_mul_f32", two, lambda a, b: a * b)
    into.add("s_fmac_f32", f"{two} old:f32", fused)
    for name, rounding in (
        ("ceil", np.ceil), ("floor", np.floor), ("trunc", np.trunc), ("rndne", np.rint)
    ):  # fmt: skip
        into.add(f"s_{name}_f32", "f32 f32", rounding)
        into.add(f"s_{name}_f16", "f16 f16", rounding)
    for kind in ("f32", "f16"):
        pair = f"{kind} {kind} {kind}"
        for n, low in (("min", True), ("max", False)):
            into.add(f"s_{n}_num_{kind}", pair, partial(ordered, least=low, ieee=False))
            into.add(f"s_{n}imum_{kind}", pair, partial(strict, least=low))
    into.add("s_add_f16", "f16 f16 f16", lambda a, b: a + b)
    into.add("s_sub_f16", "f16 f16 f16", lambda a, b: a - b)
    into.add("s_mul_f16", "f16 f16 f16", lambda a, b: a * b)
    into.add("s_cvt_f16_f32", "f16 f32", lambda a: a.astype(np.float16))
    into.add("s_cvt_f32_f16", "f32 f16", lambda a: a.astype(F32))
    high = lambda a: (a >> U32(16)).astype("u2").view(np.float16).astype(F32)  # noqa: E731
    into.add("s_cvt_hi_f32_f16", "f32 u32", high)
    into.add("s_fmaak_f32", two, lambda a, b: fused(a, b, np.full(len(a), F32(10.5))))
    into.add("s_fmamk_f32", two, lambda a, b: fused(a, np.full(len(a), F32(10.5)), b))
    into.add("s_cvt_f32_i32", "f32 i32", lambda a: a.astype(F32))
    into.add("s_cvt_f32_u32", "f32 u32", lambda a: a.astype(F32))
    into.add("s_cvt_i32_f32", "i32 f32", lambda a: bounded(a, -(2**31), 2**31 - 1, I32))
    into.add("s_cvt_u32_f32", "u32 f32", lambda a: bounded(a, 0, 2**32 - 1, U32))
    both = {
        "lt": np.less, "eq": np.equal, "le": np.less_equal, "gt": np.greater,
        "ge": np.greater_equal, "lg": lambda a, b: (a < b) | (a > b),
        "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    }  # fmt: skip
    negated = {
        "u": "o",
        "nge": "ge",
        "nlg": "lg",
        "ngt": "gt",
        "nle": "le",
        "neq": "eq",
        "nlt": "lt",
    }
    for kind in ("f32", "f16"):
        for name, operator in both.items():
            function = lambda a, b, o=operator: (None, o(a, b))  # noqa: E731
            into.add(f"s_cmp_{name}_{kind}", f"- {kind} {kind}", function, mask=True)
        for name, positive in negated.items():
            function = lambda a, b, o=both[positive]: (None, ~o(a, b))  # noqa: E731
            into.add(f"s_cmp_{name}_{kind}", f"- {kind} {kind}", function, mask=True)
