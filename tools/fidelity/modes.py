"""Floats in other rounding and denormal modes, and division's steps: oracles in exact fractions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

import numpy as np

from .instructions import PROCESSORS, Row, vector
from .oracle import TYPES, Array, Oracle
from .trial import Trial

NEAREST, UP, DOWN, TO_ZERO = range(4)
#: The modes as the register's lowest byte: how 32 bits round and how 16 and 64 do, which denormals
#: 32 bits have (1: sources, 2: results) and which 16 and 64.
_USUAL = 0xF0
ROUNDED = (0xF9, 0xF6, 0xFF)
FLUSHED = (0x00, 0x60, 0x90, 0x3B)
FEW = (0xFB, 0x02, 0x90)
#: Between an instruction's name and the mode that it is tried in.
MARK = "_mode_"
#: Bits after the point and the least normal number's exponent.
_FORMS = {"f16": (10, -14), "f32": (23, -126), "f64": (52, -1022)}

Value = Fraction | float


@dataclass(frozen=True)
class Mode:
    """The part of a mode that is about one type."""

    round: int
    keeps_sources: bool
    keeps_results: bool

    @classmethod
    def of(cls, mode: int, kind: str) -> Mode:
        by = 0 if kind == "f32" else 2
        denormals = mode >> 4 + by & 3
        return cls(mode >> by & 3, bool(denormals & 1), bool(denormals & 2))


def rounded(x: Value, kind: str, direction: int) -> float:
    """An exact number as the neighbour in a format that the direction asks for."""
    if isinstance(x, float) or x == 0:
        return float(x)
    mantissa, least = _FORMS[kind]
    size = abs(x)
    e = size.numerator.bit_length() - size.denominator.bit_length()
    e = max(e - (size < Fraction(2) ** e), least)
    unit = Fraction(2) ** (e - mantissa)
    whole, rest = divmod(size, unit)
    away = {
        NEAREST: rest * 2 > unit or (rest * 2 == unit and whole & 1 == 1),
        UP: rest > 0 and x > 0,
        DOWN: rest > 0 and x < 0,
        TO_ZERO: False,
    }[direction]
    result = (whole + away) * unit
    most = (2 - Fraction(1, 2**mantissa)) * Fraction(2) ** (1 - least)
    if result > most:
        infinite = direction in (NEAREST, UP if x > 0 else DOWN)
        return math.copysign(math.inf if infinite else float(most), 1 if x > 0 else -1)
    return float(result) if x > 0 else -float(result)


def _sum(product: Value, c: float, direction: int, sign: float) -> Value:
    """``sign`` is that of the product, which a fraction of zero does not have."""
    if isinstance(product, float):
        return product + c
    if not np.isfinite(c):
        return c
    exact = product + Fraction(c)
    if exact:
        return exact
    same = product == 0 and sign == np.copysign(1, c)
    return float(np.copysign(0.0, sign if same else -1 if direction == DOWN else 1))


def _product(a: float, b: float) -> tuple[Value, float]:
    sign = float(np.copysign(1, a) * np.copysign(1, b))
    if not (np.isfinite(a) and np.isfinite(b)):
        return float(np.float64(a) * np.float64(b)), sign
    return Fraction(a) * Fraction(b), sign


def fused(direction: int, a: float, b: float, c: float) -> Value:
    product, sign = _product(a, b)
    return _sum(product, c, direction, sign)


def added(direction: int, a: float, b: float) -> Value:
    return fused(direction, a, 1.0, b)


def multiplied(direction: int, a: float, b: float) -> Value:
    del direction
    product, sign = _product(a, b)
    return float(np.copysign(0.0, sign)) if product == 0 else product


def _scaled(direction: int, a: float, by: float) -> Value:
    del direction
    if a == 0 or not np.isfinite(a):
        return a
    return Fraction(a) * Fraction(2) ** max(-5000, min(5000, int(by)))


def _as_it_is(direction: int, a: float) -> Value:
    del direction
    return a if a == 0 or not np.isfinite(a) else Fraction(a)


def _flush(x: Array) -> Array:
    """Zeros in place of denormals."""
    if x.dtype.kind != "f":
        return x
    least = 2.0 ** _FORMS[f"f{x.dtype.itemsize * 8}"][1]
    return np.where(abs(x.astype(np.float64)) < least, np.copysign(0, x), x).astype(x.dtype)


def arithmetic(exact: Callable[..., Value], result: str, mode: int, *columns: Array) -> Array:
    """``exact`` of each lane, rounded as the result's type is; f64 has the say in what f32 it
    becomes."""
    wide = any(column.dtype == np.float64 for column in columns)
    direction = Mode.of(mode, "f64" if wide else result).round
    sources = []
    for column in columns:
        keeps = column.dtype.kind != "f" or Mode.of(mode, _kind(column)).keeps_sources
        sources.append((column if keeps else _flush(column)).tolist())
    values = [
        rounded(exact(direction, *row), result, direction) for row in zip(*sources, strict=True)
    ]
    found = np.array(values, np.float64).astype(TYPES[result])
    return found if Mode.of(mode, result).keeps_results else _flush(found)


def _kind(column: Array) -> str:
    return f"f{column.dtype.itemsize * 8}"


def _around(oracle: Oracle, mode: int, *columns: Array) -> object:
    """The usual mode's result of sources without denormals, without them itself."""
    sources = [
        x if x.dtype.kind != "f" or Mode.of(mode, _kind(x)).keeps_sources else _flush(x)
        for x in columns
    ]
    given = oracle.function(*sources)
    if oracle.mask:
        return given
    real = oracle.result.startswith("f")
    value = np.asarray(given).astype(TYPES[oracle.result])
    return value if not real or Mode.of(mode, oracle.result).keeps_results else _flush(value)


def _in_halves(exact: Callable[..., Value], kind: str, mode: int, *columns: Array) -> Array:
    """Pairs of 16 or of 32 bits in each source."""
    part = np.dtype(TYPES[kind])
    pairs = [np.ascontiguousarray(x).view(part).reshape(-1, 2) for x in columns]
    halves = [
        arithmetic(exact, kind, mode, *(np.ascontiguousarray(p[:, h]) for p in pairs))
        for h in (0, 1)
    ]
    joined = np.ascontiguousarray(np.stack(halves, 1))
    return joined.view(np.uint32 if kind == "f16" else np.uint64).ravel()


def _ten_and_a_half(direction: int, a: float, b: float, *, added: bool) -> Value:
    return fused(direction, a, b, 10.5) if added else fused(direction, a, 10.5, b)


def exact_operations() -> Iterator[tuple[str, Callable[..., Value]]]:
    """Operations that are rounded once, by mnemonic."""
    for kind in _FORMS:
        yield f"v_add_{kind}", added
        yield f"v_mul_{kind}", multiplied
        yield f"v_fma_{kind}", fused
        yield f"v_fmac_{kind}", fused
        yield f"v_ldexp_{kind}", _scaled
        if kind == "f64":
            continue
        yield f"v_sub_{kind}", lambda d, a, b: added(d, a, -b)
        yield f"v_subrev_{kind}", lambda d, a, b: added(d, b, -a)
        yield f"v_fmaak_{kind}", partial(_ten_and_a_half, added=True)
        yield f"v_fmamk_{kind}", partial(_ten_and_a_half, added=False)
        yield f"v_pk_add_{kind}", added
        yield f"v_pk_mul_{kind}", multiplied
        yield f"v_pk_fma_{kind}", fused
    for to, of in (("f32", "i32 u32 f16 f64"), ("f16", "i16 u16 f32"), ("f64", "f32")):
        yield from ((f"v_cvt_{to}_{one}", _as_it_is) for one in of.split())


#: Exact, or as near as their function is in any mode.
_AROUND = (
    "min max min_num max_num min3 max3 med3 floor ceil trunc rndne frexp_mant rcp rsq sqrt exp log "
    "sin cos div_fixup"
).split()
_AROUND_TOO = (
    "v_rcp_iflag_f32", "v_frexp_exp_i32_f32", "v_frexp_exp_i32_f64", "v_frexp_exp_i16_f16",
)  # fmt: skip
_ALIKE = (
    "v_cvt_f64_i32", "v_cvt_f64_u32", "v_cvt_i32_f32", "v_cvt_u32_f32", "v_cvt_i32_f64",
    "v_cvt_u32_f64", "v_cvt_i16_f16", "v_cvt_u16_f16", "v_cvt_f32_ubyte0",
)  # fmt: skip
_COMPARED = "lt le gt ge eq lg neq nlt nle ngt nge nlg o u".split()


def names() -> set[str]:
    """The instructions that have a model in other modes."""
    exact = {name for name, _ in exact_operations()}
    around = {f"v_{name}_{kind}" for name in _AROUND for kind in _FORMS}
    compared = {f"v_cmp{x}_{n}_{kind}" for x in ("", "x") for n in _COMPARED for kind in _FORMS}
    division = {"v_div_scale_f32", "v_div_scale_f64", "v_div_fmas_f32"}
    return exact | around | compared | division | set(_AROUND_TOO)


def trials(
    family: str, every: list[Row], table: Mapping[str, Oracle], plain: set[str]
) -> list[Trial]:
    """Each of these instructions in some modes, in the longest encoding that it has."""
    exact, known = dict(exact_operations()), names()
    rows = {row.name: row for row in every if row.encoding in ("VOP1", "VOP2", "VOPC")}
    rows |= {row.name: row for row in every if row.encoding in ("VOP3", "VOP3P")}
    found = []
    for name, row in rows.items():
        oracle = table.get(name)
        if oracle is None or (name not in known and name not in _ALIKE):
            continue
        for mode in (*ROUNDED, *FLUSHED) if name in exact else FEW:
            function: Callable[..., object] = partial(_around, oracle, mode)
            if name in exact:
                kind = oracle.packed or oracle.result
                packed = _in_halves if oracle.packed else arithmetic
                function = partial(packed, exact[name], kind, mode)
            text = vector(row, family, plain)
            found.append(_trial(family, name, text.line, mode, replace(oracle, function=function)))
    return [*found, *division(family)]


def _trial(family: str, name: str, line: str, mode: int, oracle: Oracle, more: str = "") -> Trial:
    # Of the mask and EXEC; with RDNA's long compares EXEC alone.
    masks = (4,) if not oracle.to_exec else (4, 5) if family == "cdna" else (5,)
    narrow = family != "cdna" and mode in FLUSHED
    short = (f"s_round_mode {mode & 15:#x}", f"s_denorm_mode {mode >> 4:#x}")
    long = f"s_setreg_imm32_b32 hwreg(1, 0, 8), {mode:#x}"
    return Trial(
        f"{name}{more}{MARK}{mode:02x}", name, line, oracle, masks=masks,
        keeps_half=family != "cdna",
        before="\n".join(short) if narrow else long,
        after=f"s_setreg_imm32_b32 hwreg(1, 0, 8), {_USUAL:#x}",
    )  # fmt: skip


# ---- division


def _biased(x: Array) -> Array:
    bits, most = (23, 255) if x.dtype == np.float32 else (52, 2047)
    return (x.view(f"i{x.dtype.itemsize}") >> bits & most).astype(np.int64)


def div_scale(of_numerator: bool, mode: int, d: Array, n: Array) -> tuple[Array, Array]:
    """The scaled operand, and whether the quotient is to be scaled, too: the manual's text with the
    corrections without which no quotient is right."""
    if not Mode.of(mode, _kind(d)).keeps_sources:
        d, n = _flush(d), _flush(n)
    single = d.dtype == np.float32
    near, far, tiny = (64, 96, 23) if single else (128, 768, 53)
    least = 2.0 ** _FORMS[_kind(d)][1]
    one = d.dtype.type(1)
    inverse, quotient = (abs((x / d).astype(np.float64)) for x in (one, n))
    far_inverse = (inverse > 0) & (inverse < least)
    far_quotient = (quotient > 0) & (quotient < least)
    small = (abs(d.astype(np.float64)) > 0) & (abs(d.astype(np.float64)) < least)
    s0 = n if of_numerator else d
    is_d, is_n = s0 == d, s0 == n
    cases = (
        ((n == 0) | (d == 0), None, False),
        (_biased(n) - _biased(d) >= far, np.where(is_d, near, 0), True),
        (small, near, False),
        (far_inverse & far_quotient, np.where(is_d, -near, 0), True),
        (far_inverse, -near, False),
        (far_quotient, np.where(is_n, near, 0), True),
        (_biased(n) <= tiny, near, False),
    )
    by, later, open_ = np.zeros(len(d), np.int64), np.zeros(len(d), bool), np.ones(len(d), bool)
    for holds, shift, scales in cases:
        now = open_ & holds
        by = np.where(now, 0 if shift is None else shift, by)
        later |= now & scales
        open_ &= ~holds
    value = np.ldexp(s0.astype(np.float64), by.astype(np.int32)).astype(s0.dtype)
    value = np.where(cases[0][0], s0.dtype.type(np.nan), value)
    return (value if Mode.of(mode, _kind(d)).keeps_results else _flush(value)), later


def div_fmas(mode: int, carry: Array, a: Array, b: Array, c: Array) -> Array:
    """The quotient, scaled where that was asked for, rounded once."""
    kind = _kind(a)
    of, near = Mode.of(mode, kind), 64 if kind == "f32" else 128
    sources = [x if of.keeps_sources else _flush(x) for x in (a, b, c)]
    large = _biased(sources[2]) > (127 if kind == "f32" else 1023)
    values = []
    for scale, up, *row in zip(carry, large, *(x.tolist() for x in sources), strict=True):
        x = fused(of.round, *row)
        if scale and not isinstance(x, float):
            x *= Fraction(2) ** (near if up else -near)
        values.append(rounded(x, kind, of.round))
    found = np.array(values, np.float64).astype(TYPES[kind])
    return found if of.keeps_results else _flush(found)


def _twice(carry: Array, a: Array, b: Array, c: Array) -> Array:
    """Denormal quotients of 64 bits are rounded twice here: their last bit is open."""
    exact = abs(div_fmas(_USUAL, carry, a, b, c))
    return np.where(carry & (exact < 2.0**-1021), 2.0**-1074, 0)


def division(family: str) -> list[Trial]:
    """Division's two steps that only make sense together with it, each for itself."""
    wave, found = PROCESSORS[family][1], []
    pair = "s[20:21]" if wave == 64 else "s20"
    for kind, width in (("f32", 1), ("f64", 2)):
        s = [f"v{k}" if width == 1 else f"v[{k}:{k + 1}]" for k in (32, 34, 36, 40)]
        for mode in (_USUAL, *FEW) if kind == "f32" else (_USUAL, 0x00):
            for numerator in (False, True):
                oracle = Oracle(
                    kind, (kind, kind), partial(div_scale, numerator, mode), "division", mask=True
                )
                line = f"v_div_scale_{kind} {s[3]}, {pair}, {s[int(numerator)]}, {s[0]}, {s[1]}"
                more = "_numerator" if numerator else "_denominator"
                found.append(_trial(family, f"v_div_scale_{kind}", line, mode, oracle, more))
            if kind == "f64" and mode != _USUAL:
                continue
            oracle = Oracle(
                kind, ("carry", kind, kind, kind), partial(div_fmas, mode), "division",
                within=_twice if kind == "f64" else None,
            )  # fmt: skip
            line = f"v_div_fmas_{kind} {s[3]}, {s[0]}, {s[1]}, {s[2]}"
            found.append(
                replace(_trial(family, f"v_div_fmas_{kind}", line, mode, oracle), masks=())
            )
    return found
