"""Oracles of vector integers, by the words of AMD's manuals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .oracle import Array, Table

U32, I32, U64, I64 = np.uint32, np.int32, np.uint64, np.int64


def table(into: Table, family: str) -> None:
    """Adds the oracles of integers, moves, masks and carries."""
    _whole(into)
    _bits(into)
    _carries(into)
    _narrow(into, family)
    _bytes(into)
    _comparisons(into)


def wide(x: Array) -> Array:
    return x.astype(U64) if x.dtype.kind == "u" else x.astype(I64)


def saturated(x: Array, to: type[np.integer[Any]]) -> Array:
    info = np.iinfo(to)
    return np.clip(x, info.min, info.max).astype(to)


def _low24(x: Array) -> Array:
    return x & U32(0xFFFFFF)


def _signed24(x: Array) -> Array:
    return (x.view(I32) << 8) >> 8


def shift(x: Array, by: Array, width: int, *, left: bool) -> Array:
    n = (by & (width - 1)).astype(x.dtype)
    return np.asarray(x << n if left else x >> n)


def _whole(into: Table) -> None:
    into.group = "integers of 32 bits"
    into.add("v_mov_b32", "u32 u32", lambda a: a)
    into.add("v_mov_b64", "u64 u64", lambda a: a)
    into.add("v_not_b32", "u32 u32", lambda a: ~a)
    into.add("v_and_b32", "u32 u32 u32", lambda a, b: a & b)
    into.add("v_or_b32", "u32 u32 u32", lambda a, b: a | b)
    into.add("v_xor_b32", "u32 u32 u32", lambda a, b: a ^ b)
    into.add("v_xnor_b32", "u32 u32 u32", lambda a, b: ~(a ^ b))
    into.add("v_add_u32 v_add_nc_u32", "u32 u32 u32", lambda a, b: a + b)
    into.add("v_sub_u32 v_sub_nc_u32", "u32 u32 u32", lambda a, b: a - b)
    into.add("v_subrev_u32 v_subrev_nc_u32", "u32 u32 u32", lambda a, b: b - a)
    into.add("v_add_i32 v_add_nc_i32", "i32 i32 i32", lambda a, b: a + b)
    into.add("v_sub_i32 v_sub_nc_i32", "i32 i32 i32", lambda a, b: a - b)
    into.add("v_mul_lo_u32", "u32 u32 u32", lambda a, b: a * b)
    into.add("v_mul_hi_u32", "u32 u32 u32", lambda a, b: (wide(a) * wide(b) >> U64(32)).astype(U32))
    into.add("v_mul_hi_i32", "i32 i32 i32", lambda a, b: (wide(a) * wide(b) >> 32).astype(I32))
    into.add("v_mul_u32_u24", "u32 u32 u32", lambda a, b: _low24(a) * _low24(b))
    into.add("v_mul_i32_i24", "i32 u32 u32", lambda a, b: _signed24(a) * _signed24(b))
    into.add(
        "v_mul_hi_u32_u24",
        "u32 u32 u32",
        lambda a, b: (wide(_low24(a)) * wide(_low24(b)) >> U64(32)).astype(U32),
    )
    into.add(
        "v_mul_hi_i32_i24",
        "i32 u32 u32",
        lambda a, b: (wide(_signed24(a)) * wide(_signed24(b)) >> 32).astype(I32),
    )
    into.add("v_mad_u32_u24", "u32 u32 u32 u32", lambda a, b, c: _low24(a) * _low24(b) + c)
    into.add("v_mad_i32_i24", "i32 u32 u32 i32", lambda a, b, c: _signed24(a) * _signed24(b) + c)
    for kind in ("u32", "i32", "u16", "i16"):
        most, least = np.maximum, np.minimum
        into.add(f"v_min_{kind}", f"{kind} {kind} {kind}", least)
        into.add(f"v_max_{kind}", f"{kind} {kind} {kind}", most)
        three = f"{kind} {kind} {kind} {kind}"
        into.add(f"v_min3_{kind}", three, lambda a, b, c: np.minimum(np.minimum(a, b), c))
        into.add(f"v_max3_{kind}", three, lambda a, b, c: np.maximum(np.maximum(a, b), c))
        into.add(f"v_med3_{kind}", three, lambda a, b, c: np.sort(np.stack([a, b, c]), 0)[1])
        if kind.endswith("32"):
            into.add(f"v_maxmin_{kind}", three, lambda a, b, c: np.minimum(np.maximum(a, b), c))
            into.add(f"v_minmax_{kind}", three, lambda a, b, c: np.maximum(np.minimum(a, b), c))
    three = "u32 u32 u32 u32"
    into.add("v_lshl_add_u32", three, lambda a, b, c: shift(a, b, 32, left=True) + c)
    into.add("v_add_lshl_u32", three, lambda a, b, c: shift(a + b, c, 32, left=True))
    into.add("v_lshl_or_b32", three, lambda a, b, c: shift(a, b, 32, left=True) | c)
    into.add("v_and_or_b32", three, lambda a, b, c: a & b | c)
    into.add("v_or3_b32", three, lambda a, b, c: a | b | c)
    into.add("v_add3_u32", three, lambda a, b, c: a + b + c)
    into.add("v_xad_u32", three, lambda a, b, c: (a ^ b) + c)
    into.add("v_xor3_b32", three, lambda a, b, c: a ^ b ^ c)
    into.add("v_lshl_add_u64", "u64 u64 u32 u64", lambda a, b, c: (a << wide(b & 7)) + c)


def _bits(into: Table) -> None:
    into.group = "bits"
    three = "u32 u32 u32 u32"
    for suffix, kind, width in (("b32", "u32", 32), ("b64", "u64", 64), ("b16", "u16", 16)):
        by = "u16" if width == 16 else "u32"
        into.add(
            f"v_lshlrev_{suffix}", f"{kind} {by} {kind}",
            lambda a, b, w=width: shift(b, a, w, left=True),
        )  # fmt: skip
        into.add(
            f"v_lshrrev_{suffix}", f"{kind} {by} {kind}",
            lambda a, b, w=width: shift(b, a, w, left=False),
        )  # fmt: skip
        signed = f"i{width}"
        into.add(
            f"v_ashrrev_{signed}", f"{signed} {by} {signed}",
            lambda a, b, w=width: shift(b, a, w, left=False),
        )  # fmt: skip
    into.add(
        "v_bfrev_b32", "u32 u32", lambda a: words_of([int(f"{int(x):032b}"[::-1], 2) for x in a])
    )
    into.add(
        "v_ffbh_u32 v_clz_i32_u32", "i32 u32",
        lambda a: np.array([32 - int(x).bit_length() if x else -1 for x in a], I32),
    )  # fmt: skip
    into.add(
        "v_ffbl_b32 v_ctz_i32_b32", "i32 u32",
        lambda a: np.array([(int(x) & -int(x)).bit_length() - 1 for x in a], I32),
    )  # fmt: skip
    into.add("v_ffbh_i32 v_cls_i32", "i32 i32", lambda a: np.array([alike(int(x)) for x in a], I32))
    into.add(
        "v_bcnt_u32_b32", "u32 u32 u32",
        lambda a, b: words_of([int(x).bit_count() for x in a]) + b,
    )  # fmt: skip
    into.add("v_bfe_u32", three, lambda a, b, c: words_of(map(_field, a, b, c)))
    into.add("v_bfe_i32", three, lambda a, b, c: words_of(map(_signed_field, a, b, c)))
    into.add("v_bfi_b32", three, lambda a, b, c: a & b | ~a & c)
    into.add(
        "v_bfm_b32", "u32 u32 u32",
        lambda a, b: (U32(1) << (a & 31)) - U32(1) << (b & 31),
    )  # fmt: skip
    into.add("v_alignbit_b32", three, lambda a, b, c: _pair(a, b, c & 31))
    into.add("v_alignbyte_b32", three, lambda a, b, c: _pair(a, b, (c & 3) * 8))
    into.add("v_perm_b32", three, lambda a, b, c: words_of(map(_permuted, a, b, c)))


def words_of(values: Iterable[int]) -> Array:
    return np.array([int(x) & 0xFFFFFFFF for x in values], U32)


def _pair(a: Array, b: Array, by: Array) -> Array:
    both = a.astype(U64) << U64(32) | b
    return np.asarray(both >> by.astype(U64)).astype(U32)


def alike(x: int) -> int:
    """How many bits from the top are as the first; -1 where all are."""
    x = ~x if x < 0 else x
    return 32 - x.bit_length() if x else -1


def _field(a: int, b: int, c: int) -> int:
    return int(a) >> (int(b) & 31) & (1 << (int(c) & 31)) - 1


def _signed_field(a: int, b: int, c: int) -> int:
    offset, width = int(b) & 31, int(c) & 31
    if not width:
        return 0
    signed = int(a) - (1 << 32) if a >> 31 else int(a)
    value = signed >> offset & (1 << width) - 1
    # Beyond the top the sign goes on, as the shift is arithmetic.
    return value - (1 << width) if value >> (width - 1) else value


def _permuted(a: int, b: int, c: int) -> int:
    data, result = int(a) << 32 | int(b), 0
    for k in range(4):
        pick = int(c) >> 8 * k & 255
        if pick < 8:
            byte = data >> 8 * pick & 255
        elif pick < 12:
            byte = 255 * (data >> 16 * (pick - 8) + 15 & 1)
        else:
            byte = 0 if pick == 12 else 255
        result |= byte << 8 * k
    return result


def _carries(into: Table) -> None:
    into.group = "carries and 64 bits"

    def carried(sign: int, first: int) -> Callable[..., tuple[Array, Array]]:
        def of(a: Array, b: Array, c: Array | None = None) -> tuple[Array, Array]:
            x, y = (a, b) if first == 0 else (b, a)
            total = x.astype(I64) + sign * y.astype(I64)
            if c is not None:
                total += sign * c.astype(I64)
            return total.astype(U32), (total >> 32 & 1).astype(bool)

        return of

    for names, sign, first in (
        ("v_add_co_u32", 1, 0), ("v_sub_co_u32", -1, 0), ("v_subrev_co_u32", -1, 1)
    ):  # fmt: skip
        into.add(names, "u32 u32 u32", carried(sign, first), mask=True)
    for names, sign, first in (
        ("v_addc_co_u32 v_add_co_ci_u32", 1, 0),
        ("v_subb_co_u32 v_sub_co_ci_u32", -1, 0),
        ("v_subbrev_co_u32 v_subrev_co_ci_u32", -1, 1),
    ):
        into.add(names, "u32 u32 u32 carry", carried(sign, first), mask=True)

    def multiplied(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
        exact = [int(x) * int(y) + int(z) for x, y, z in zip(a, b, c, strict=True)]
        signed = a.dtype.kind == "i"
        over = [not -(1 << 63) <= x < 1 << 63 if signed else x >> 64 > 0 for x in exact]
        return np.array([x % (1 << 64) for x in exact], U64), np.array(over)

    into.add("v_mad_u64_u32 v_mad_co_u64_u32", "u64 u32 u32 u64", multiplied, mask=True)
    into.add("v_mad_i64_i32 v_mad_co_i64_i32", "u64 i32 i32 i64", multiplied, mask=True)
    into.add("v_cndmask_b32", "u32 u32 u32 carry", lambda a, b, c: np.where(c, b, a))
    into.add("v_cndmask_b16", "u16 u16 u16 carry", lambda a, b, c: np.where(c, b, a))


def _narrow(into: Table, family: str) -> None:
    into.group = "integers of 16 bits"
    two, three = "u16 u16 u16", "u16 u16 u16 u16"
    into.add("v_mov_b16", "u16 u16", lambda a: a)
    into.add("v_not_b16", "u16 u16", lambda a: ~a)
    into.add("v_and_b16", two, lambda a, b: a & b)
    into.add("v_or_b16", two, lambda a, b: a | b)
    into.add("v_xor_b16", two, lambda a, b: a ^ b)
    into.add("v_add_u16 v_add_nc_u16", two, lambda a, b: a + b)
    into.add("v_sub_u16 v_sub_nc_u16", two, lambda a, b: a - b)
    into.add("v_subrev_u16", two, lambda a, b: b - a)
    into.add("v_add_i16 v_add_nc_i16", "i16 i16 i16", lambda a, b: a + b)
    into.add("v_sub_i16 v_sub_nc_i16", "i16 i16 i16", lambda a, b: a - b)
    into.add("v_mul_lo_u16", two, lambda a, b: a * b)
    into.add("v_mad_u16 v_mad_legacy_u16", three, lambda a, b, c: a * b + c)
    into.add("v_mad_i16", "i16 i16 i16 i16", lambda a, b, c: a * b + c)
    into.add("v_mad_u32_u16", "u32 u16 u16 u32", lambda a, b, c: a.astype(U32) * b + c)
    into.add("v_mad_i32_i16", "i32 i16 i16 i32", lambda a, b, c: a.astype(I32) * b + c)
    into.add("v_pack_b32_f16", "u32 f16 f16", lambda a, b: _halves(a.view("u2"), b.view("u2")))
    del family
    into.group = "packed integers"
    for name, function in (
        ("add_u16", lambda a, b: a + b),
        ("sub_u16", lambda a, b: a - b),
        ("mul_lo_u16", lambda a, b: a * b),
        ("max_u16", np.maximum),
        ("min_u16", np.minimum),
        ("max_i16", np.maximum),
        ("min_i16", np.minimum),
        ("add_i16", lambda a, b: a + b),
        ("sub_i16", lambda a, b: a - b),
        ("lshlrev_b16", lambda a, b: b << (a & 15)),
        ("lshrrev_b16", lambda a, b: b >> (a & 15)),
        ("ashrrev_i16", lambda a, b: b >> (a & 15)),
    ):
        into.add(f"v_pk_{name}", "u32 u32 u32", _twice(name[-3], function))
    for name in ("mad_u16", "mad_i16"):
        into.add(f"v_pk_{name}", "u32 u32 u32 u32", _twice(name[-3], lambda a, b, c: a * b + c))


def _halves(low: Array, high: Array) -> Array:
    return low.astype(U32) | high.astype(U32) << U32(16)


def _twice(kind: str, function: Callable[..., Array]) -> Callable[..., Array]:
    to = np.int16 if kind == "i" else np.uint16

    def both(*sources: Array) -> Array:
        parts = []
        for by in (0, 16):
            halves = [(s >> U32(by)).astype(np.uint16).view(to) for s in sources]
            parts.append(np.asarray(function(*halves)).astype(to).view(np.uint16))
        return _halves(*parts)

    return both


def _bytes(into: Table) -> None:
    into.group = "bytes and dot products of integers"

    def differences(a: Array, b: Array) -> Array:
        parts = [abs((a >> U32(k) & 255).astype(I64) - (b >> U32(k) & 255)) for k in (0, 8, 16, 24)]
        return np.asarray(sum(parts)).astype(U32)

    three = "u32 u32 u32 u32"
    into.add("v_sad_u8", three, lambda a, b, c: differences(a, b) + c)
    into.add("v_sad_hi_u8", three, lambda a, b, c: (differences(a, b) << U32(16)) + c)
    into.add(
        "v_sad_u16", three,
        lambda a, b, c: np.asarray(
            sum(abs((a >> U32(k) & 0xFFFF).astype(I64) - (b >> U32(k) & 0xFFFF)) for k in (0, 16))
        ).astype(U32) + c,
    )  # fmt: skip
    into.add("v_sad_u32", three, lambda a, b, c: np.where(a > b, a - b, b - a) + c)
    into.add("v_lerp_u8", three, _lerp)
    into.add("v_msad_u8", three, lambda a, b, c: _masked(a, b) + c)
    into.add(
        "v_sat_pk_u8_i16", "u16 u32",
        lambda a: saturated(_part(a, 0), np.uint8).astype(np.uint16)
        | saturated(_part(a, 16), np.uint8).astype(np.uint16) << 8,
    )  # fmt: skip
    into.add(
        "v_cvt_pk_u16_u32", "u32 u32 u32",
        lambda a, b: _halves(saturated(a, np.uint16), saturated(b, np.uint16)),
    )  # fmt: skip
    into.add(
        "v_cvt_pk_i16_i32", "u32 i32 i32",
        lambda a, b: _halves(saturated(a, np.int16).view("u2"), saturated(b, np.int16).view("u2")),
    )  # fmt: skip
    dot = "i32 u32 u32 i32"
    into.add("v_dot4_i32_i8", dot, lambda a, b, c: _dot(a, b, 8, signed=True).astype(I32) + c)
    into.add("v_dot8_i32_i4", dot, lambda a, b, c: _dot(a, b, 4, signed=True).astype(I32) + c)
    into.add("v_dot2_i32_i16", dot, lambda a, b, c: _dot(a, b, 16, signed=True).astype(I32) + c)
    into.add("v_dot4_u32_u8", three, lambda a, b, c: _dot(a, b, 8, signed=False).astype(U32) + c)
    into.add("v_dot8_u32_u4", three, lambda a, b, c: _dot(a, b, 4, signed=False).astype(U32) + c)
    into.add("v_dot2_u32_u16", three, lambda a, b, c: _dot(a, b, 16, signed=False).astype(U32) + c)
    old = "i32 u32 u32 old:i32"
    into.add("v_dot4c_i32_i8", old, lambda a, b, c: _dot(a, b, 8, signed=True).astype(I32) + c)
    into.add("v_dot8c_i32_i4", old, lambda a, b, c: _dot(a, b, 4, signed=True).astype(I32) + c)
    into.add("v_dot2c_i32_i16", old, lambda a, b, c: _dot(a, b, 16, signed=True).astype(I32) + c)


def _part(a: Array, by: int) -> Array:
    return (a >> U32(by)).astype(np.uint16).view(np.int16)


def _dot(a: Array, b: Array, width: int, *, signed: bool) -> Array:
    total = np.zeros(len(a), I64)
    for k in range(0, 32, width):
        x, y = ((s >> U32(k) & U32((1 << width) - 1)).astype(I64) for s in (a, b))
        if signed:
            half = 1 << (width - 1)
            x, y = (x ^ half) - half, (y ^ half) - half
        total += x * y
    return total


def _lerp(a: Array, b: Array, c: Array) -> Array:
    r = np.zeros(len(a), U32)
    for k in (0, 8, 16, 24):
        x, y, z = ((s >> U32(k)) & 255 for s in (a, b, c))
        r |= ((x + y + (z & 1)) >> U32(1) & 255) << U32(k)
    return r


def _masked(a: Array, b: Array) -> Array:
    """Differences of bytes, but of those that the second source has zeros for."""
    total = np.zeros(len(a), U32)
    for k in (0, 8, 16, 24):
        x, y = ((s >> U32(k) & 255).astype(I64) for s in (a, b))
        total += np.where(y == 0, 0, abs(x - y)).astype(U32)
    return total


def _comparisons(into: Table) -> None:
    into.group = "comparisons of integers"
    operators = {
        "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
        "eq": np.equal, "ne": np.not_equal,
    }  # fmt: skip
    for kind in ("i16", "u16", "i32", "u32", "i64", "u64"):
        for x in ("", "x"):
            more = {"mask": True, "to_exec": bool(x)}
            for name, operator in operators.items():
                function = lambda a, b, o=operator: (None, o(a, b))  # noqa: E731
                into.add(f"v_cmp{x}_{name}_{kind}", f"- {kind} {kind}", function, **more)
            for name, value in (("f", False), ("t", True)):
                function = lambda a, b, v=value: (None, np.full(len(a), v))  # noqa: E731
                into.add(f"v_cmp{x}_{name}_{kind}", f"- {kind} {kind}", function, **more)
