"""The right result of an instruction: a function of its sources by the manual's words, in numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
#: numpy's types by ours. ``b`` is bits, ``u24`` and the like are 32 bits of which some count.
TYPES = {
    "f16": np.float16, "f32": np.float32, "f64": np.float64,
    "u8": np.uint32, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
    "i16": np.int16, "i32": np.int32, "i64": np.int64, "u128": np.uint32,
}  # fmt: skip


@dataclass(frozen=True)
class Oracle:
    """``result`` and ``sources`` are types; a source ``old:f32`` is what the destination held,
    ``carry`` the mask's bit, ``lane`` the number of the lane. ``mask``: the function gives a pair,
    of which the second is a bit of a mask; ``result`` is empty where there is no other.
    ``ulps``: how far hardware may be away, 0 for not at all."""

    result: str
    sources: tuple[str, ...]
    function: Callable[..., Any]
    group: str
    mask: bool = False
    ulps: float = 0.0
    to_exec: bool = False
    #: The floats that the result is packed of.
    packed: str = ""
    #: How far away a result may be, of the sources: where sums are rounded more than once.
    within: Callable[..., Any] | None = None
    #: Sees all lanes of a wave at once, and which of them are active.
    wave: bool = False

    @property
    def inputs(self) -> tuple[str, ...]:
        """Types of the sources that the instruction names."""
        return tuple(s for s in self.sources if s in TYPES)


class Table(dict[str, Oracle]):
    """Oracles by mnemonic."""

    def __init__(self) -> None:
        super().__init__()
        self.group = ""

    def add(self, names: str, types: str, function: Callable[..., Any], **more: Any) -> None:
        """``types``: the result's, then the sources', separated by spaces; ``-`` for none."""
        result, *sources = types.split()
        for name in names.split():
            if name in self:
                raise ValueError(f"{name} has an oracle already")
            kept = "" if result == "-" else result
            self[name] = Oracle(kept, tuple(sources), function, self.group, **more)


# ---- rounding


def odd(total: Array, error: Array) -> Array:
    """A sum of doubles rounded to odd: rounding it once more is rounding the exact sum once."""
    bits = total.view(np.int64)
    even = (bits & 1) == 0
    up = (error > 0) == (total > 0)
    moved = np.where(up, bits + 1, bits - 1).view(np.float64)
    inexact = np.isfinite(total) & (error != 0) & even & (total != 0)
    return np.where(inexact, moved, total)


def sum_error(a: Array, b: Array) -> tuple[Array, Array]:
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


def fused(a: Array, b: Array, c: Array) -> Array:
    """a * b + c, rounded once."""
    if a.dtype == np.float64:
        return _each(_fused64, a, b, c)
    product = a.astype(np.float64) * b.astype(np.float64)
    total, error = sum_error(product, c.astype(np.float64))
    return odd(total, error).astype(a.dtype)


def _each(function: Callable[..., float], *columns: Array) -> Array:
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return np.array([function(*row) for row in rows], np.float64)


def _fused64(a: float, b: float, c: float) -> float:
    if np.isinf(c) and np.isfinite(a) and np.isfinite(b):
        return c
    if not all(map(np.isfinite, (a, b, c))):
        return float(np.float64(a) * np.float64(b) + np.float64(c))
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return float(np.float64(a) * np.float64(b) + np.float64(c)) if c == 0 or a * b == 0 else 0.0
    return rounded(exact)


def rounded(exact: Fraction) -> float:
    """The nearest double; division of integers rounds rightly."""
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")


def quiet(x: Array) -> Array:
    """A NaN that does not signal."""
    width = x.dtype.itemsize * 8
    bit = {16: 1 << 9, 32: 1 << 22, 64: 1 << 51}[width]
    bits = x.view(f"u{width // 8}") | np.array(bit, f"u{width // 8}")
    return np.asarray(bits.view(x.dtype))


def signals(x: Array) -> Array:
    """Whether a value is a signalling NaN."""
    width = x.dtype.itemsize * 8
    bit = {16: 1 << 9, 32: 1 << 22, 64: 1 << 51}[width]
    return np.asarray(
        np.isnan(x) & ((x.view(f"u{width // 8}") & np.array(bit, f"u{width // 8}")) == 0)
    )


def ordered(a: Array, b: Array, *, least: bool, ieee: bool) -> Array:
    """The lesser or greater: -0 is below +0; a number goes before a quiet NaN, and under IEEE a
    signalling one before all."""
    below = (a < b) | ((a == b) & np.signbit(a) & ~np.signbit(b))
    picked = np.where(below == least, a, b)
    picked = np.where((a == b) & (np.signbit(a) == np.signbit(b)), a, picked)
    picked = np.where(np.isnan(b), a, np.where(np.isnan(a), b, picked))
    picked = np.where(np.isnan(a) & np.isnan(b), quiet(a), picked)
    if ieee:
        picked = np.where(signals(b), quiet(b), picked)
        picked = np.where(signals(a), quiet(a), picked)
    return picked.astype(a.dtype)


def bounded(x: Array, low: float, high: float, to: Any) -> Array:
    """A conversion to integers that saturates, NaN to zero, after truncation."""
    wide = np.trunc(np.where(np.isnan(x), 0, x.astype(np.float64)))
    inside = np.clip(wide, low, high)
    exact = np.array([int(v) for v in inside], dtype=object)
    return np.array([int(min(max(v, int(low)), int(high))) for v in exact]).astype(to)


Oracles = Mapping[str, Oracle]
