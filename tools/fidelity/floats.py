"""Oracles of vector floats: arithmetic, functions, conversions, division, comparisons."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import mpmath  # type: ignore[import-untyped]
import numpy as np

from .oracle import Array, Table, bounded, fused, ordered, signals

F16, F32, F64, U32, I32 = np.float16, np.float32, np.float64, np.uint32, np.int32
mpmath.mp.prec = 120


def table(into: Table, family: str) -> None:
    """Adds the oracles of floats; RDNA4 has no IEEE mode."""
    ieee = family != "rdna4"
    _arithmetic(into)
    _extremes(into, ieee=ieee)
    _rounding(into, ieee=ieee)
    _functions(into)
    _conversions(into)
    _packed(into, ieee=ieee)
    _products(into)
    _small_formats(into, fnuz=False)
    _division(into)
    _comparisons(into)


def _legacy(a: Array, b: Array) -> Array:
    return np.where((a == 0) | (b == 0), F32(0), a * b)


def _arithmetic(into: Table) -> None:
    for kind in ("f32", "f64", "f16"):
        into.group = f"arithmetic of {kind}"
        two, three = f"{kind} {kind} {kind}", f"{kind} {kind} {kind} {kind}"
        into.add(f"v_add_{kind}", two, lambda a, b: a + b)
        into.add(f"v_mul_{kind}", two, lambda a, b: a * b)
        into.add(f"v_fma_{kind}", three, fused)
        into.add(f"v_fmac_{kind}", f"{two} old:{kind}", fused)
        if kind == "f64":
            continue
        into.add(f"v_sub_{kind}", two, lambda a, b: a - b)
        into.add(f"v_subrev_{kind}", two, lambda a, b: b - a)
        into.add(f"v_fmaak_{kind}", two, lambda a, b: fused(a, b, _constant(a)))
        into.add(f"v_fmamk_{kind}", two, lambda a, b: fused(a, _constant(a), b))
    into.group = "arithmetic of f16"
    into.add("v_mad_f16", "f16 f16 f16 f16", lambda a, b, c: a * b + c)
    into.add("v_mac_f16", "f16 f16 f16 old:f16", lambda a, b, c: a * b + c)
    into.group = "arithmetic of f32"
    into.add("v_mul_legacy_f32 v_mul_dx9_zero_f32", "f32 f32 f32", _legacy)
    into.add(
        "v_fma_dx9_zero_f32", "f32 f32 f32 f32",
        lambda a, b, c: np.where((a == 0) | (b == 0), c, fused(a, b, c)),
    )  # fmt: skip
    into.add(
        "v_fmac_dx9_zero_f32", "f32 f32 f32 old:f32",
        lambda a, b, c: np.where((a == 0) | (b == 0), c, fused(a, b, c)),
    )  # fmt: skip
    into.group = "faces of cubes"
    three = "f32 f32 f32 f32"
    into.add("v_cubeid_f32", three, lambda x, y, z: _cube(x, y, z)[0])
    into.add("v_cubesc_f32", three, lambda x, y, z: _cube(x, y, z)[1])
    into.add("v_cubetc_f32", three, lambda x, y, z: _cube(x, y, z)[2])
    into.add("v_cubema_f32", three, lambda x, y, z: _cube(x, y, z)[3])


def _constant(like: Array) -> Array:
    return np.full(len(like), 10.5, like.dtype)


def _cube(x: Array, y: Array, z: Array) -> tuple[Array, Array, Array, Array]:
    ax, ay, az = abs(x), abs(y), abs(z)
    on_z, on_y = (az >= ax) & (az >= ay), ay >= ax
    face = np.where(
        on_z, np.where(z < 0, 5, 4), np.where(on_y, np.where(y < 0, 3, 2), np.where(x < 0, 1, 0))
    )
    s = np.where(on_z, np.where(z < 0, -x, x), np.where(on_y, x, np.where(x < 0, z, -z)))
    t = np.where(on_z, -y, np.where(on_y, np.where(y < 0, -z, z), -y))
    most = np.where(on_z, z, np.where(on_y, y, x)) * F32(2)
    return face.astype(F32), s, t, most


def strict(a: Array, b: Array, *, least: bool) -> Array:
    """Minimum and maximum of IEEE 754-2019: a NaN whenever there is one."""
    nan = np.isnan(a) | np.isnan(b)
    return np.where(nan, F64(np.nan).astype(a.dtype), ordered(a, b, least=least, ieee=False))


def _extremes(into: Table, *, ieee: bool) -> None:
    into.group = "least and greatest floats"
    least, most = (partial(ordered, least=x, ieee=ieee) for x in (True, False))
    strict_least, strict_most = (partial(strict, least=x) for x in (True, False))

    def middle(a: Array, b: Array, c: Array) -> Array:
        top = most(most(a, b), c)
        plain = np.where(top == a, most(b, c), np.where(top == b, most(a, c), most(a, b)))
        nan = np.isnan(a) | np.isnan(b) | np.isnan(c)
        return np.where(nan, least(least(a, b), c), plain)

    for kind in ("f32", "f64", "f16"):
        two, three = f"{kind} {kind} {kind}", f"{kind} {kind} {kind} {kind}"
        for n, f, g in (
            ("min", least, strict_least),
            ("max", most, strict_most),
        ):  # fmt: skip
            other, strict_other = (most, strict_most) if n == "min" else (least, strict_least)
            names = (f"v_{n}_{kind} v_{n}_num_{kind}", f"v_{n}imum_{kind}")
            into.add(names[0], two, f)
            into.add(names[1], two, g)
            if kind == "f64":
                continue
            into.add(
                f"v_{n}3_{kind} v_{n}3_num_{kind}", three,
                lambda a, b, c, f=f: f(f(a, b), c),
            )  # fmt: skip
            into.add(f"v_{n}imum3_{kind}", three, lambda a, b, c, g=g: g(g(a, b), c))
            pair = "minmax" if n == "min" else "maxmin"
            into.add(
                f"v_{pair}_{kind} v_{pair}_num_{kind}", three,
                lambda a, b, c, f=f, o=other: o(f(a, b), c),
            )  # fmt: skip
            pair = "minimummaximum" if n == "min" else "maximumminimum"
            into.add(
                f"v_{pair}_{kind}", three, lambda a, b, c, f=g, o=strict_other: o(f(a, b), c)
            )  # fmt: skip
        if kind != "f64":
            into.add(f"v_med3_{kind} v_med3_num_{kind}", three, middle)


def _fraction(a: Array) -> Array:
    below = {F16: 1 - 2.0**-11, F32: 1 - 2.0**-24, F64: 1 - 2.0**-53}[a.dtype.type]
    return np.asarray(np.minimum(a - np.floor(a), a.dtype.type(below)))


def _exponent(a: Array) -> Array:
    _, e = np.frexp(a.astype(F64))
    return np.where(np.isfinite(a) & (a != 0), e, 0).astype(I32)


def _mantissa(a: Array) -> Array:
    m, _ = np.frexp(a)
    return np.where(np.isfinite(a), m, a).astype(a.dtype)


def _rounding(into: Table, *, ieee: bool) -> None:
    del ieee
    for kind in ("f32", "f64", "f16"):
        into.group = "rounding and parts of floats"
        one = f"{kind} {kind}"
        into.add(f"v_floor_{kind}", one, np.floor)
        into.add(f"v_ceil_{kind}", one, np.ceil)
        into.add(f"v_trunc_{kind}", one, np.trunc)
        into.add(f"v_rndne_{kind}", one, np.rint)
        into.add(f"v_fract_{kind}", one, _fraction)
        into.add(f"v_frexp_mant_{kind}", one, _mantissa)
        by = "i16" if kind == "f16" else "i32"
        into.add(f"v_frexp_exp_{by}_{kind}", f"{by} {kind}", _exponent)
        into.add(f"v_ldexp_{kind}", f"{kind} {kind} {by}", _scaled)


def _scaled(a: Array, by: Array) -> Array:
    """a * 2^by, rounded once."""
    n = np.clip(by.astype(I32), -5000, 5000)
    if a.dtype == F64:
        return np.asarray(np.ldexp(a, n))
    # Exact in doubles but for what is far out of range anyhow.
    return np.ldexp(a.astype(F64), np.clip(n, -600, 600)).astype(a.dtype)


def _through(
    function: Callable[[mpmath.mpf], mpmath.mpf], x: Array, limits: dict[float, float]
) -> Array:
    """A function of reals, in doubles; ``limits`` are its values at zeros and infinities."""

    def of(value: float) -> float:
        if value != value:
            return value
        if value in limits or np.isinf(value):
            return limits.get(value, float("nan"))
        result = function(mpmath.mpf(value))
        return float(result) if isinstance(result, mpmath.mpf) else float("nan")

    return np.array([of(v) for v in x.astype(F64).tolist()])


def _flushed(x: Array) -> Array:
    """The unit of functions takes and gives no denormals of 32 bits."""
    tiny = abs(x) < 2.0**-126
    return np.where(tiny, np.copysign(0, x), x)


def _signed_zero(x: Array, y: Array) -> Array:
    return np.where(x == 0, np.copysign(y, x), y)


_INF = float("inf")


def _reciprocal(x: Array) -> Array:
    exact = _through(lambda v: 1 / v, x, {_INF: 0.0, -_INF: -0.0, 0.0: _INF})
    return np.where(np.isinf(x) | (x == 0), np.copysign(exact, x), exact)


def _inverse_root(x: Array) -> Array:
    root = _through(lambda v: 1 / mpmath.sqrt(v), x, {_INF: 0.0, -_INF: float("nan"), 0.0: _INF})
    return _signed_zero(x, root)


def _root(x: Array) -> Array:
    return _signed_zero(x, _through(mpmath.sqrt, x, {_INF: _INF, 0.0: 0.0}))


def _power(x: Array) -> Array:
    return _through(lambda v: mpmath.power(2, v), np.clip(x.astype(F64), -2000, 2000), {})


def _log(x: Array) -> Array:
    return _through(lambda v: mpmath.log(v, 2), x, {_INF: _INF, 0.0: -_INF})


def _wave(function: Callable[[mpmath.mpf], mpmath.mpf]) -> Callable[[Array], Array]:
    def of(x: Array) -> Array:
        turned = np.where(np.isfinite(x), x.astype(F64) - np.rint(x.astype(F64)), np.nan)
        return _through(lambda v: function(2 * mpmath.pi * v), turned, {})

    return of


def _functions(into: Table) -> None:
    functions = (
        ("rcp", _reciprocal),
        ("rsq", _inverse_root),
        ("sqrt", _root),
        ("exp", _power),
        ("log", _log),
    )
    for name, function in functions:
        into.group = "functions of f32 (within an ulp)"
        flushed = lambda a, f=function: _flushed(f(_flushed(a)))  # noqa: E731
        names = f"v_{name}_f32 v_s_{name}_f32" + (" v_rcp_iflag_f32" if name == "rcp" else "")
        names += f" v_{name}_legacy_f32" if name in ("exp", "log") else ""
        into.add(names, "f32 f32", flushed, ulps=1)
        into.group = "functions of f16 (within an ulp)"
        into.add(f"v_{name}_f16 v_s_{name}_f16", "f16 f16", function, ulps=1)
        if name in ("rcp", "rsq", "sqrt"):
            into.group = "functions of f64 (to 2^-20)"
            into.add(f"v_{name}_f64", "f64 f64", function, ulps=2.0**32)
    for name, wave in (("sin", _wave(mpmath.sin)), ("cos", _wave(mpmath.cos))):
        into.group = "sine and cosine of turns (within 2^-20)"
        into.add(f"v_{name}_f32", "f32 f32", wave, ulps=-(2.0**-20))
        into.add(f"v_{name}_f16", "f16 f16", wave, ulps=-(2.0**-10))


def _half_to_zero(a: Array) -> Array:
    near = a.astype(F16)
    away = abs(near.astype(F32)) > abs(a)
    return np.where(away, (near.view("u2") - 1).view(F16), near).astype(F16).view("u2")


def bf16(a: Array) -> Array:
    """The nearest bfloat16, as bits; a NaN stays one."""
    x = a.view(U32).astype(np.uint64)
    rounded = (x + 0x7FFF + (x >> 16 & 1)) >> 16
    return np.where(np.isnan(a), x >> 16 | 0x40, rounded).astype(np.uint16)


def _pair(low: Array, high: Array) -> Array:
    return low.astype(U32) | high.astype(U32) << U32(16)


def _normed(a: Array, most: int) -> Array:
    """A number of [-1, 1] or [0, 1] as an integer, to the nearest even."""
    low = -most if most == 32767 else 0
    x = np.where(np.isnan(a), 0, a.astype(F64))
    nearest = np.rint(np.clip(x, low / most, 1.0) * most)
    return np.asarray(nearest.astype(np.int64).astype(np.uint16))


def _conversions(into: Table) -> None:
    into.group = "conversions"
    into.add("v_cvt_f32_i32", "f32 i32", lambda a: a.astype(F32))
    into.add("v_cvt_f32_u32", "f32 u32", lambda a: a.astype(F32))
    into.add("v_cvt_f64_i32", "f64 i32", lambda a: a.astype(F64))
    into.add("v_cvt_f64_u32", "f64 u32", lambda a: a.astype(F64))
    into.add("v_cvt_f64_f32", "f64 f32", lambda a: a.astype(F64))
    into.add("v_cvt_f32_f64", "f32 f64", lambda a: a.astype(F32))
    into.add("v_cvt_f32_f16", "f32 f16", lambda a: a.astype(F32))
    into.add("v_cvt_f16_f32", "f16 f32", lambda a: a.astype(F16))
    into.add("v_cvt_f16_u16", "f16 u16", lambda a: a.astype(F16))
    into.add("v_cvt_f16_i16", "f16 i16", lambda a: a.astype(F16))
    into.add("v_cvt_f32_bf16", "f32 u16", lambda a: (a.astype(U32) << U32(16)).view(F32))
    into.add("v_cvt_u32_u16", "u32 u16", lambda a: a.astype(U32))
    into.add("v_cvt_i32_i16", "i32 i16", lambda a: a.astype(I32))
    for k in range(4):
        into.add(
            f"v_cvt_f32_ubyte{k}", "f32 u32",
            lambda a, k=k: (a >> U32(8 * k) & U32(255)).astype(F32),
        )  # fmt: skip
    for kind in ("f32", "f64"):
        into.add(f"v_cvt_u32_{kind}", f"u32 {kind}", lambda a: bounded(a, 0, 2**32 - 1, U32))
        into.add(f"v_cvt_i32_{kind}", f"i32 {kind}", lambda a: bounded(a, -(2**31), 2**31 - 1, I32))
    into.add("v_cvt_u16_f16", "u16 f16", lambda a: bounded(a, 0, 65535, np.uint16))
    into.add("v_cvt_i16_f16", "i16 f16", lambda a: bounded(a, -32768, 32767, np.int16))
    into.add(
        "v_cvt_flr_i32_f32 v_cvt_floor_i32_f32", "i32 f32",
        lambda a: bounded(np.floor(a), -(2**31), 2**31 - 1, I32),
    )  # fmt: skip
    into.add(
        "v_cvt_rpi_i32_f32 v_cvt_nearest_i32_f32", "i32 f32",
        lambda a: bounded(np.floor(a.astype(F64) + 0.5), -(2**31), 2**31 - 1, I32),
    )  # fmt: skip
    two = "u32 f32 f32"
    into.add(
        "v_cvt_pkrtz_f16_f32 v_cvt_pk_rtz_f16_f32", two,
        lambda a, b: _pair(_half_to_zero(a), _half_to_zero(b)), packed="f16",
    )  # fmt: skip
    into.add("v_cvt_pk_bf16_f32", two, lambda a, b: _pair(bf16(a), bf16(b)))
    into.add(
        "v_cvt_pk_f16_f32", two,
        lambda a, b: _pair(a.astype(F16).view("u2"), b.astype(F16).view("u2")), packed="f16",
    )  # fmt: skip
    for sign, most in (("i", 32767), ("u", 65535)):
        for kind in ("f32", "f16"):
            into.add(
                f"v_cvt_pknorm_{sign}16_{kind} v_cvt_pk_norm_{sign}16_{kind}", f"u32 {kind} {kind}",
                lambda a, b, m=most: _pair(_normed(a, m), _normed(b, m)),
            )  # fmt: skip
        into.add(f"v_cvt_norm_{sign}16_f16", f"{sign}16 f16", lambda a, m=most: _normed(a, m))
    into.add(
        "v_cvt_pk_i16_f32", two,
        lambda a, b: _pair(*(bounded(x, -32768, 32767, np.int16).view("u2") for x in (a, b))),
    )  # fmt: skip
    into.add(
        "v_cvt_pk_u16_f32", two,
        lambda a, b: _pair(*(bounded(x, 0, 65535, np.uint16) for x in (a, b))),
    )  # fmt: skip
    into.add("v_cvt_pk_u8_f32", "u32 f32 u32 u32", _byte_put)
    into.add(
        "v_cvt_off_f32_i4", "f32 u32",
        lambda a: (((a & U32(15)).astype(I32) ^ 8) - 8).astype(F32) / F32(16),
    )  # fmt: skip


def _byte_put(a: Array, at: Array, into: Array) -> Array:
    value = bounded(a, 0, 255, U32)
    by = (at & U32(3)) * U32(8)
    return np.asarray(into & ~(U32(255) << by) | value << by)


def _packed(into: Table, *, ieee: bool) -> None:
    into.group = "packed floats and dot products"
    least, most = (partial(ordered, least=x, ieee=ieee) for x in (True, False))

    def twice(function: Callable[..., Array]) -> Callable[..., Array]:
        def both(*sources: Array) -> Array:
            parts = [(s >> U32(by)).astype(np.uint16).view(F16) for by in (0, 16) for s in sources]
            n = len(sources)
            halves = (function(*parts[:n]), function(*parts[n:]))
            return _pair(*(h.astype(F16).view("u2") for h in halves))

        return both

    def wide(function: Callable[..., Array]) -> Callable[..., Array]:
        def both(*sources: Array) -> Array:
            parts = [s.view(F32).reshape(-1, 2) for s in sources]
            halves = [function(*(np.ascontiguousarray(p[:, h]) for p in parts)) for h in (0, 1)]
            return np.ascontiguousarray(np.stack(halves, 1)).view(np.uint64).ravel()

        return both

    for name, function in (
        ("v_pk_add_f16", lambda a, b: a + b),
        ("v_pk_mul_f16", lambda a, b: a * b),
        ("v_pk_min_f16 v_pk_min_num_f16", least),
        ("v_pk_max_f16 v_pk_max_num_f16", most),
        ("v_pk_minimum_f16", partial(strict, least=True)),
        ("v_pk_maximum_f16", partial(strict, least=False)),
    ):
        into.add(name, "u32 u32 u32", twice(function), packed="f16")
    into.add("v_pk_fma_f16", "u32 u32 u32 u32", twice(fused), packed="f16")
    into.add("v_pk_fmac_f16", "u32 u32 u32 old:u32", twice(fused), packed="f16")
    for name, low in (("minimum", True), ("maximum", False)):
        three = lambda a, b, c, x=low: strict(strict(a, b, least=x), c, least=x)  # noqa: E731
        into.add(f"v_pk_{name}3_f16", "u32 u32 u32 u32", twice(three), packed="f16")
    into.add("v_pk_add_f32", "u64 u64 u64", wide(lambda a, b: a + b), packed="f32")
    into.add("v_pk_mul_f32", "u64 u64 u64", wide(lambda a, b: a * b), packed="f32")
    into.add("v_pk_fma_f32", "u64 u64 u64 u64", wide(fused), packed="f32")
    into.add(
        "v_pk_mov_b32", "u64 u64 u64",
        lambda a, b: (a & np.uint64(0xFFFFFFFF)) | b << np.uint64(32),
    )  # fmt: skip


def _products(into: Table) -> None:
    """Dot products of two, and multiply-add of mixed widths: with plain operands all are floats."""
    into.group = "dot products of floats (last bits unknown)"

    def halves(x: Array) -> list[Array]:
        return [(x >> U32(by)).astype(np.uint16).view(F16).astype(F64) for by in (0, 16)]

    def bfloats(x: Array) -> list[Array]:
        return [((x >> U32(by)) << U32(16)).view(F32).astype(F64) for by in (0, 16)]

    for kind, parts in (("f16", halves), ("bf16", bfloats)):

        def dot(a: Array, b: Array, c: Array, parts: Callable[..., list[Array]] = parts) -> Array:
            terms = [x * y for x, y in zip(parts(a), parts(b), strict=True)]
            return np.asarray(terms[0] + terms[1] + c.astype(F64))

        def size(a: Array, b: Array, c: Array, parts: Callable[..., list[Array]] = parts) -> Array:
            terms = [abs(x * y) for x, y in zip(parts(a), parts(b), strict=True)]
            return (terms[0] + terms[1] + abs(c.astype(F64))) * 2.0**-22 + 2.0**-148

        into.add(f"v_dot2_f32_{kind}", "f32 u32 u32 f32", dot, within=size)
        for name in ("dot2c", "dot2acc"):
            into.add(f"v_{name}_f32_{kind}", "f32 u32 u32 old:f32", dot, within=size)
    into.group = "arithmetic of mixed widths"
    three = "f32 f32 f32"
    into.add("v_fma_mix_f32", f"f32 {three}", fused)
    into.add("v_fma_mixlo_f16", f"f16 {three}", lambda a, b, c: fused(a, b, c).astype(F16))
    into.add("v_fma_mixhi_f16", f"f16 {three}", lambda a, b, c: fused(a, b, c).astype(F16))


def small(x: Array, mantissa: int, *, fnuz: bool) -> Array:
    """Bytes of fp8 (3 bits after the point) or bf8 (2) as floats, by their definition."""
    bits = 7 - mantissa
    bias = (1 << bits - 1) - 1 + fnuz
    e, m = x >> mantissa & (1 << bits) - 1, x & (1 << mantissa) - 1
    size = np.where(
        e > 0,
        (1 + m / (1 << mantissa)) * 2.0 ** (e.astype(F64) - bias),
        m / (1 << mantissa) * 2.0 ** (1 - bias),
    )
    if fnuz:
        size = np.where(x == 0x80, np.nan, size)
    elif mantissa == 3:
        size = np.where(x & 0x7F == 0x7F, np.nan, size)
    else:
        size = np.where(e == 31, np.where(m > 0, np.nan, np.inf), size)
    return np.where(x & 0x80, -size, size).astype(F32)


def _to_small(a: Array, mantissa: int, *, fnuz: bool) -> Array:
    """The nearest byte, even ones first: found among all of them."""
    every = np.arange(256, dtype=U32)
    values = small(every, mantissa, fnuz=fnuz).astype(F64)
    positive = every[(every < 128) & np.isfinite(values)]
    known = values[positive.astype(int)]
    size = abs(a.astype(F64))
    above = np.clip(np.searchsorted(known, size), 1, len(known) - 1)
    low, high = known[above - 1], known[above]
    up = (size - low > high - size) | ((size - low == high - size) & (positive[above] & 1 == 0))
    byte = np.where(up, positive[above], positive[above - 1])
    # Half a step beyond the greatest is too large.
    step = known[-1] - known[-2]
    over = np.where(
        (size >= known[-1] + step / 2) & (positive[-1] & 1 == 1), True, size > known[-1] + step / 2
    )
    infinite = 0x80 if fnuz else 0x7F if mantissa == 3 else 0x7C
    byte = np.where(over, infinite, byte)
    sign = np.where(np.signbit(a), 0x80, 0)
    signed = byte | sign
    if fnuz:
        signed = np.where((byte == 0) | over, byte, signed)
    nan = 0x80 if fnuz else 0x7F if mantissa == 3 else 0x7E
    return np.where(np.isnan(a), nan if fnuz else nan | sign, signed).astype(U32)


def _small_formats(into: Table, *, fnuz: bool) -> None:
    into.group = "conversions of fp8 and bf8"
    for name, mantissa in (("fp8", 3), ("bf8", 2)):
        one = partial(small, mantissa=mantissa, fnuz=fnuz)
        into.add(f"v_cvt_f32_{name}", "f32 u32", lambda a, f=one: f(a & U32(255)))

        def both(a: Array, f: Callable[..., Array] = one) -> Array:
            low, high = (f(a >> U32(by) & U32(255)).view(U32) for by in (0, 8))
            return low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)

        into.add(f"v_cvt_pk_f32_{name}", "u64 u32", both, packed="f32")
        to = partial(_to_small, mantissa=mantissa, fnuz=fnuz)
        into.add(
            f"v_cvt_pk_{name}_f32", "u16 f32 f32",
            lambda a, b, f=to: (f(a) | f(b) << U32(8)).astype(np.uint16),
        )  # fmt: skip


def _division(into: Table) -> None:
    into.group = "division"
    for kind in ("f32", "f64", "f16"):
        into.add(f"v_div_fixup_{kind}", f"{kind} {kind} {kind} {kind}", _fixed)


def _fixed(q: Array, d: Array, n: Array) -> Array:
    """The quotient where it is special; else its magnitude with the sign of both."""
    sign = np.where(np.signbit(d) != np.signbit(n), -1.0, 1.0)
    result = np.copysign(q, sign)
    if q.dtype != F16:
        far = {F32: -150, F64: -1075}[q.dtype.type]
        raw = [x.view(f"i{x.dtype.itemsize}") for x in (n, d)]
        bits, most = (23, 255) if q.dtype == F32 else (52, 2047)
        en, ed = ((r >> bits & most).astype(np.int64) for r in raw)
        # Steps before this one may have made a NaN of what is too large.
        result = np.where(np.isfinite(q), result, np.copysign(np.inf, sign))
        result = np.where(en - ed < far, np.copysign(0, sign), result)
    result = np.where((np.isinf(d)) | (n == 0), np.copysign(0, sign), result)
    result = np.where((d == 0) | np.isinf(n), np.copysign(np.inf, sign), result)
    nan = ((d == 0) & (n == 0)) | (np.isinf(d) & np.isinf(n))
    result = np.where(nan | np.isnan(d) | np.isnan(n), np.nan, result)
    return np.asarray(result).astype(q.dtype)


def _comparisons(into: Table) -> None:
    into.group = "comparisons and classes of floats"
    both = {
        "f": lambda a, b: np.zeros(len(a), bool), "lt": np.less, "eq": np.equal,
        "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
        "lg": lambda a, b: (a < b) | (a > b),
        "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    }  # fmt: skip
    negated = {"u": "o", "nge": "ge", "nlg": "lg", "ngt": "gt", "nle": "le", "neq": "eq"}
    negated |= {"nlt": "lt", "t": "f", "tru": "f"}
    for kind in ("f16", "f32", "f64"):
        for x in ("", "x"):
            more = {"mask": True, "to_exec": bool(x)}
            for name, operator in both.items():
                function = lambda a, b, o=operator: (None, o(a, b))  # noqa: E731
                into.add(f"v_cmp{x}_{name}_{kind}", f"- {kind} {kind}", function, **more)
            for name, positive in negated.items():
                function = lambda a, b, o=both[positive]: (None, ~o(a, b))  # noqa: E731
                into.add(f"v_cmp{x}_{name}_{kind}", f"- {kind} {kind}", function, **more)
            into.add(f"v_cmp{x}_class_{kind}", f"- {kind} u32", _class, **more)


def _class(a: Array, asked: Array) -> tuple[None, Array]:
    tiny = {F16: 2.0**-14, F32: 2.0**-126, F64: 2.0**-1022}[a.dtype.type]
    negative, size = np.signbit(a), abs(a.astype(F64))
    kinds = (
        (signals(a), 0, 0), (np.isnan(a) & ~signals(a), 1, 1), (np.isinf(a), 2, 9),
        ((size >= tiny) & np.isfinite(a), 3, 8), ((size > 0) & (size < tiny), 4, 7),
        (size == 0, 5, 6),
    )  # fmt: skip
    bit = np.zeros(len(a), U32)
    for holds, below, above in kinds:
        bit = np.where(holds, np.where(negative, below, above), bit).astype(U32)
    return None, (asked >> bit & U32(1)).astype(bool)
