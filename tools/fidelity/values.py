"""Inputs of one instruction: random ones, and all that are special for the types of its sources."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]

#: Zeros, denormals, the least and greatest normal numbers, one and its neighbours, halves,
#: infinities, quiet and signalling NaNs with payloads, and what conversions saturate at.
_F16: tuple[int, ...] = (
    0,
    1,
    0x3FF,
    0x400,
    0x3555,
    0x3800,
    0x3BFF,
    0x3C00,
    0x3C01,
    0x4100,
    0x5BFF,
    0x7BFF,
    0x7C00,
)
_F16_NAN = (0x7C01, 0x7D55, 0x7E00, 0x7FFF)
_F32: tuple[int, ...] = (
    0,
    1,
    0x7FFFFF,
    0x800000,
    0x800001,
    0x3DCCCCCD,
    0x3F000000,
    0x3F7FFFFF,
    0x3F800000,
)
_F32 += (0x3F800001, 0x3FC00000, 0x40200000, 0x477FE000, 0x477FF000, 0x4B000001, 0x4F000000)
_F32 += (0x4F800000, 0x7F7FFFFF, 0x7F800000)
_F32_NAN = (0x7F800001, 0x7FA00000, 0x7FC00000, 0x7FFFFFFF)
_F64: tuple[int, ...] = (
    0,
    1,
    (1 << 52) - 1,
    1 << 52,
    0x3FB999999999999A,
    0x3FE0000000000000,
    0x3FF0000000000000,
)
_F64 += (0x3FF0000000000001, 0x3FF8000000000000, 0x41DFFFFFFFC00000, 0x41E0000000000000)
_F64 += (0x41EFFFFFFFE00000, 0x41F0000000000000, 0x47EFFFFFF0000000, 0x4330000000000001)
_F64 += (0x36A0000000000000, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000)
_F64_NAN = (0x7FF0000000000001, 0x7FF8000000000000, 0x7FFFFFFFFFFFFFFF)


def special(kind: str) -> list[int]:
    """The special values of a type, as bits."""
    width = int(kind[1:])
    sign = 1 << (width - 1)
    if kind[0] == "f" and width >= 16:
        known, nans = {16: (_F16, _F16_NAN), 32: (_F32, _F32_NAN), 64: (_F64, _F64_NAN)}[width]
        return [s | x for x in (*known, *nans) for s in (0, sign)]
    near = [0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, 127, 128, 255, 256]
    wide = [(1 << k) - d for k in (15, 16, 23, 24, 31, 32, 63) if k <= width for d in (0, 1)]
    mask = (1 << width) - 1
    some = [x & mask for x in (*near, *wide, 0x0F0F1234, 0xDEADBEEFCAFE5678)]
    return sorted({*some, *(-x & mask for x in some), *(~x & mask for x in some)})


def random(kind: str, count: int, rng: np.random.Generator) -> list[int]:
    """Half of it any bits, half of it numbers near one, or small ones."""
    width = int(kind[1:])
    bits = [int(x) & ((1 << width) - 1) for x in rng.integers(0, 1 << 63, count, dtype=np.uint64)]
    low = rng.integers(0, 2, count)
    if kind[0] == "f" and width >= 16:
        near = rng.standard_normal(count) * np.exp2(rng.integers(-6, 7, count))
        plain = near.astype(f"f{width // 8}").view(f"u{width // 8}")
        return [int(p) if k else x for p, k, x in zip(plain, low, bits, strict=True)]
    shift = rng.integers(0, width, count)
    return [
        (x >> int(s) if width < 63 else x * 2 + 1 >> int(s)) if k else (x * 2 + 1) % (1 << width)
        for x, s, k in zip(bits, shift, low, strict=True)
    ]


def columns(kinds: tuple[str, ...], most: int, seed: int) -> list[list[int]]:
    """The values of each source: specials with specials first, then random ones, ``most`` in all.
    With three sources not all triples are tried, but each pair of specials is."""
    rng = np.random.default_rng(seed)
    specials = [special(kind) for kind in kinds]
    rows = list(product(*specials[:2]))
    for k, one in enumerate(specials[2:], 2):
        picked = rng.integers(0, len(one), len(rows))
        rows = [(*row, one[int(p)]) for row, p in zip(rows, picked, strict=True)]
        rest = [specials[j] for j in range(k)]
        rows += [(*(x[int(rng.integers(0, len(x)))] for x in rest), v) for v in one for _ in (1, 2)]
    if len(rows) > most // 2:
        rows = [rows[int(k)] for k in rng.permutation(len(rows))[: most // 2]]
    found = [list(column) for column in zip(*rows, strict=True)]
    for column, kind in zip(found, kinds, strict=True):
        column += random(kind, most - len(column), rng)
    # Sums that cancel, equal operands: what random bits never give.
    if len(kinds) > 1:
        sign = 1 << (int(kinds[0][1:]) - 1)
        for k in range(len(rows), most, 8):
            found[1][k] = (found[0][k] ^ (sign if k % 16 else 0)) & ((1 << int(kinds[1][1:])) - 1)
    return found
