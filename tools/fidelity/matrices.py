"""Matrix instructions, each on whole matrices: where their elements lie by AMD's manuals, and how
products and sums are rounded, in whole numbers apart from the models.

CDNA2 and CDNA3 round as MMA-Sim published it, which compared its model with such chips bit by bit;
of CDNA4 nothing is published, so that it is taken for CDNA3. Of RDNA nothing is known but that
sums of exact products lie near: each is added by a fused step in the order of the depth.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from portkern.isa import runtime_library
from portkern.isa.executor import LaunchBuffer, ObjectProgram

from . import machine
from .instructions import Row, rows, span
from .oracle import Array, Oracle, fused
from .trial import Trial, Verdict
from .values import Words, random, special

#: The processors of each family, as their matrix units are.
PROCESSORS = {
    "cdna": ("gfx90a", "gfx942", "gfx950"),
    "rdna3": ("gfx1100",),
    "rdna4": ("gfx1201",),
}
_NAME = re.compile(
    r"v_(?:mfma|wmma)_(?P<to>f32|f64|i32)_(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)"
    r"(?:_(?P<blocks>\d+)b)?_?(?P<a>xf32|bf16|f16|f32|f64|fp8|bf8|iu8|i8)(?P<more>_1k|_fp8|_bf8)?"
)
#: Blocks of those of CDNA2's names that do not say it.
_BLOCKS = {"32x32x4bf16_1k": 2, "16x16x4bf16_1k": 4, "4x4x4bf16_1k": 16}
_BLOCKS |= {"32x32x2bf16": 2, "16x16x2bf16": 4, "4x4x2bf16": 16}
#: Words of a lane: 8 of A, 8 of B, 32 of C; then as many results as fit.
WORDS, A, B, C, LARGEST = 64, 0, 8, 16, 32
REGISTERS = {A: 32, B: 40, C: 64}
_RESULT = 96
#: Bits below the leading one, and the exponent of the least normal number.
FORMATS = {
    "f16": (10, 5, 15),
    "bf16": (7, 8, 127),
    "xf32": (10, 8, 127),
    "f32": (23, 8, 127),
    "fp8": (3, 4, 7),
    "bf8": (2, 5, 15),
}

#: A finite number as a whole one and the exponent that its format gives it, which is its leading
#: bit's but of denormals; ``mantissa * 2 ** (exponent - fraction)``.
Parts = tuple[int, int]


@dataclass(frozen=True)
class Matrix:
    """A matrix instruction of one processor."""

    name: str
    processor: str
    m: int
    n: int
    k: int
    blocks: int
    a: str
    b: str
    to: str
    operands: tuple[int, int, int]

    @property
    def waves(self) -> int:
        return 64 if self.processor.startswith("gfx9") else 32

    @property
    def line(self) -> str:
        a, b, c = self.operands
        sources = span("v", REGISTERS[A], a), span("v", REGISTERS[B], b), span("v", REGISTERS[C], c)
        signs = " neg_lo:[1,1,0]" if self.a == "iu8" else ""
        name = self.name
        if self.processor == "gfx90a":
            name = re.sub(r"(_\d+b)?_(f16|f32|f64|i8)$", r"\2", name)
        return f"{name} {span('v', _RESULT, c)}, {', '.join(sources)}{signs}"

    @property
    def trial(self) -> Trial:
        oracle = Oracle("", (), self.product, "matrices")
        return Trial(f"{self.name}_{self.processor}", self.name, self.line, oracle)

    # ---- where elements lie

    @property
    def held(self) -> int:
        """Elements of A, and of B, in a lane."""
        if self.processor == "gfx1100":
            return self.k
        return self.m * self.k * self.blocks // self.waves

    def factors(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Row (of A; of B the column), place in the depth, block, lane, and element of the lane. In
        RDNA3's waves both halves have all."""
        for block in range(self.blocks):
            for row in range(self.m):
                for k in range(self.k):
                    lane = row + self.m * (block + self.blocks * (k // self.held))
                    for again in range(2 if self.processor == "gfx1100" else 1):
                        yield row, k, block, lane + 16 * again, k % self.held

    def place(self, row: int, column: int, block: int) -> tuple[int, int]:
        """Lane and register of a result."""
        if self.processor == "gfx1100":
            return column + 16 * (row % 2), row // 2
        if self.processor == "gfx1201":
            return column + 16 * (row // 8), row % 8
        if self.to == "f64":
            if self.m == 16:
                return column + 16 * (row % 4), row // 4
            return column + 4 * block + 16 * row, 0
        if self.m == 32:
            return column + 32 * (row // 4 % 2), row % 4 + 4 * (row // 8) + 16 * block
        if self.m == 16:
            return column + 16 * (row // 4), row % 4 + 4 * block
        return column + 4 * block, row

    # ---- what comes out

    @property
    def product(self) -> Callable[..., Array]:
        """The product of ``[rows, depth]`` and ``[depth, columns]``, plus what was there."""
        if self.to == "i32":
            return _whole
        if self.a in ("f32", "f64") or not self.processor.startswith("gfx9"):
            return _chained
        if self.processor == "gfx90a":
            pairs = self.a == "bf16" and not self.name.endswith("_1k")
            return lambda a, b, c: _flushed(a, b, c, self.a, 2 if pairs else 4)
        return self._truncated

    def _truncated(self, a: Array, b: Array, c: Array) -> Array:
        depth = {"xf32": 4, "fp8": 16, "bf8": 16}.get(self.a, 8)
        form, to = (Format.of(kind, self.processor) for kind in (self.a, self.b))
        fraction, tiny = form.fraction + to.fraction, depth == 16
        left = [[form.parts(x) for x in row] for row in a.tolist()]
        right = [[to.parts(x) for x in column] for column in b.T.tolist()]
        out = c.astype(np.float32)
        for first in range(0, self.k, depth):
            part = slice(first, first + depth)
            exact = a[:, part, None] * b[None, part, :]
            # A product that no float of 32 bits can hold is infinite.
            plain = out + np.where(abs(exact) < 2.0**128, exact, exact * np.inf).sum(1)
            for i, row in enumerate(left):
                for j, column in enumerate(right):
                    if np.isfinite(plain[i, j]):
                        terms = list(zip(row[part], column[part], strict=True))
                        out[i, j] = _step(terms, fraction, float(out[i, j]), tiny=tiny)
                    else:
                        out[i, j] = plain[i, j]
        return out


@dataclass(frozen=True)
class Format:
    fraction: int
    least: int
    bias: int
    width: int
    fnuz: bool

    @classmethod
    def of(cls, kind: str, processor: str) -> Format:
        fraction, exponent, bias = FORMATS[kind]
        fnuz = kind in ("fp8", "bf8") and processor == "gfx942"
        return cls(fraction, 1 - bias - fnuz, bias + fnuz, exponent, fnuz)

    def parts(self, x: float) -> Parts:
        if x == 0 or not np.isfinite(x):
            return 0, self.least
        exponent = max(int(np.frexp(x)[1]) - 1, self.least)
        return int(np.ldexp(x, self.fraction - exponent)), exponent

    def value(self, bits: int) -> float:
        """The number that eight bits stand for."""
        sign = -1.0 if bits >> 7 else 1.0
        field, rest = (
            bits >> self.fraction & ((1 << self.width) - 1),
            bits & (1 << self.fraction) - 1,
        )
        if self.fnuz:
            if bits == 0x80:
                return float("nan")
        elif self.width == 5 and field == 31:
            return float("nan") if rest else sign * float("inf")
        elif self.width == 4 and field == 15 and rest == 7:
            return float("nan")
        whole = rest + (1 << self.fraction if field else 0)
        return sign * float(np.ldexp(whole, max(field, 1) - self.bias - self.fraction))


_SINGLE = Format(23, -126, 127, 8, False)


def _shifted(x: int, by: int) -> int:
    """``x * 2 ** by``, downwards."""
    return x << by if by >= 0 else x >> -by


def _cut(terms: list[tuple[int, int]], fraction: int) -> tuple[int, int | None]:
    """The sum of mantissas with exponents, each cut off 24 bits below the greatest exponent towards
    zero, in units of that bit; the greatest exponent, None where all are zero."""
    top = max((e for x, e in terms if x), default=None)
    if top is None:
        return 0, None
    total = 0
    for x, e in terms:
        size = _shifted(abs(x), e - fraction - top + 24)
        total += size if x > 0 else -size
    return total, top


def _step(terms: list[tuple[Parts, Parts]], fraction: int, old: float, *, tiny: bool) -> float:
    """Products that the unit adds at once, to what was there."""
    products = [(x[0] * y[0], x[1] + y[1]) for x, y in terms]
    parts = [products[::2], products[1::2]] if tiny else [products]
    sums = [_cut(part, fraction) for part in parts]
    tops = [top for _, top in sums if top is not None]
    mantissa, exponent = _SINGLE.parts(old)
    of_dot = max(tops, default=None)
    top = exponent if of_dot is None else max(of_dot, exponent)
    units = 0  # of 2 ** (top - 32)
    if of_dot is not None:
        dot = sum(_shifted(x, e - of_dot) for x, e in sums if e is not None)
        units = _shifted(dot, of_dot - top + 8)
    if not (tiny and exponent < top - 25):
        units += _shifted(mantissa, exponent + 1 - top) << 8
    if units == 0:
        return 0.0
    leading = max(abs(units).bit_length() - 33 + top, -126)
    by = leading - 31 - (top - 32)
    return _nearest(_shifted(units, -by), leading - 31)


def _nearest(units: int, exponent: int) -> float:
    """``units * 2 ** exponent`` as the nearest float of 32 bits, of two the even one."""
    size = abs(units)
    last = max(size.bit_length() - 24 + exponent, -149)
    drop = last - exponent
    if drop > 0:
        half, rest = 1 << (drop - 1), size & ((1 << drop) - 1)
        size >>= drop
        size += rest > half or (rest == half and size & 1)
        exponent = last
    value = float(np.ldexp(float(size), exponent))
    value = value if value < 2.0**128 else float("inf")
    return value if units > 0 else -value


def _flushed(a: Array, b: Array, c: Array, kind: str, at_once: int) -> Array:
    """CDNA2: denormals are zeros, products and sums of pairs are rounded."""
    least = 2.0**-14 if kind == "f16" else 2.0**-126

    def flush(x: Array) -> Array:
        return np.where(abs(x) < np.float32(2.0**-126), np.copysign(0, x), x).astype(np.float32)

    a, b = (np.where(abs(x) < least, 0, x).astype(np.float32) for x in (a, b))
    out = np.where(abs(c) < np.float32(2.0**-126), 0, c).astype(np.float32)
    for first in range(0, a.shape[1], at_once):
        some = [flush(np.multiply.outer(a[:, k], b[k])) for k in range(first, first + at_once)]
        while len(some) > 1:
            some = [flush(x + y) for x, y in zip(some[::2], some[1::2], strict=True)]
        out = flush(out + some[0])
    return out


def _chained(a: Array, b: Array, c: Array) -> Array:
    """One product after the other, each step rounded once."""
    out = c.ravel()
    for k in range(a.shape[1]):
        x = np.repeat(a[:, k], b.shape[1]).astype(c.dtype)
        out = fused(x, np.tile(b[k], a.shape[0]).astype(c.dtype), out)
    return out.reshape(c.shape)


def _whole(a: Array, b: Array, c: Array) -> Array:
    return (a.astype(np.int64) @ b.astype(np.int64) + c).astype(np.int32)


# ---- trials


def of(row: Row, processor: str) -> Matrix | None:
    """The instruction of a table's row; None for one that is none of matrices, or that is tried
    otherwise."""
    found = _NAME.fullmatch(row.name)
    if found is None:
        return None
    a, more = found["a"], found["more"] or ""
    blocks = found["blocks"] or _BLOCKS.get(row.name.rpartition("f32_")[2], 1)
    m, n, k = (int(found[name]) for name in ("m", "n", "k"))
    second = more[1:] if more in ("_fp8", "_bf8") else a
    bits = row.bits("src0"), row.bits("src1"), row.bits("src2")
    return Matrix(row.name, processor, m, n, k, int(blocks), a, second, found["to"], bits)


def every(family: str, processor: str) -> list[Matrix]:
    """All that have models; CDNA2 has rows of its own."""
    library = runtime_library.load()
    tables = [*rows(family), *(rows("gfx90a") if processor == "gfx90a" else ())]
    known = (row for row in tables if library.isa_has_model(row.name.encode()))
    return [one for row in known if (one := of(row, processor))]


def body(style: machine.Style, matrix: Matrix) -> list[str]:
    """A kernel that gives each lane its parts of three matrices, and stores what comes out."""
    four = "dwordx4" if style.wave == 64 else "b128"
    add = "v_add_u32_e32" if style.wave == 64 else "v_add_nc_u32_e32"
    words = range(0, LARGEST, 4)
    return [
        f"s_load_{four} s[4:7], s[0:1], 0x0",
        style.wait,
        f"s_mul_i32 s3, {style.group}, {style.wave}",
        "v_and_b32_e32 v28, 0x3ff, v0",
        f"{add} v2, s3, v28",
        "v_lshlrev_b32_e32 v3, 8, v2",
        *(
            f"{style.load} v[{first + k}:{first + k + 3}], v3, s[4:5] offset:{4 * (at + k)}"
            for at, first in REGISTERS.items()
            for k in (words if at == C else (0, 4))
        ),
        style.wait,
        *("s_nop 15",) * 2,
        matrix.line,
        *("s_nop 15",) * 4,
        *(
            f"{style.store} v3, v[{_RESULT + k}:{_RESULT + k + 3}], s[6:7] offset:{4 * k}"
            for k in words
        ),
        "s_endpgm",
    ]


@dataclass
class Run:
    """A matrix instruction on ``waves`` waves of drawn matrices."""

    matrix: Matrix
    waves: int
    seed: int

    @cached_property
    def given(self) -> list[tuple[Array, Array, Array, Words]]:
        """The matrices of each wave and block as numbers; the words of the wave's lanes are the
        same array for its blocks."""
        one, rng, found = self.matrix, np.random.default_rng(self.seed), []
        for wave in range(self.waves):
            words = rng.integers(0, 1 << 32, (one.waves, WORDS), dtype=np.uint32)
            numbers = [
                self._factor(words, at, kind, rng, hard=wave % 2 == 1)
                for at, kind in ((A, one.a), (B, one.b))
            ]
            old = self._old(words, rng, hard=wave % 2 == 1)
            found += [
                (numbers[0][block], numbers[1][block].T, old[block], words)
                for block in range(one.blocks)
            ]
        return found

    def _factor(
        self, words: Words, at: int, kind: str, rng: np.random.Generator, *, hard: bool
    ) -> Array:
        one = self.matrix
        count = one.blocks * one.m * one.k
        bits = drawn(kind, count, rng, hard=hard)
        numbers = numbers_of(kind, bits, one.processor)
        shaped = bits.reshape(one.blocks, one.m, one.k)
        width = {"f64": 64, "f32": 32, "xf32": 32, "f16": 16, "bf16": 16}.get(kind, 8)
        for row, k, block, lane, element in one.factors():
            _put(words[lane], at, element, width, int(shaped[block, row, k]))
        return numbers.reshape(shaped.shape)

    def _old(self, words: Words, rng: np.random.Generator, *, hard: bool) -> Array:
        one = self.matrix
        count = one.blocks * one.m * one.n
        bits = drawn(one.to, count, rng, hard=hard)
        shaped = bits.reshape(one.blocks, one.m, one.n)
        for block in range(one.blocks):
            for row in range(one.m):
                for column in range(one.n):
                    lane, register = one.place(row, column, block)
                    width = 64 if one.to == "f64" else 32
                    _put(words[lane], C, register, width, int(shaped[block, row, column]))
        return numbers_of(one.to, bits, one.processor).reshape(shaped.shape)

    def verdict(self, program: ObjectProgram) -> Verdict:
        one = self.matrix
        words = np.concatenate([g[3] for g in self.given[:: one.blocks]])
        out = np.zeros_like(words)
        arrays = (words, out)
        ran = program.run(
            one.trial.kernel,
            [array.ctypes.data.to_bytes(8, "little") for array in (*arrays, out)],
            (self.waves, 1, 1),
            (one.waves, 1, 1),
            buffers=[LaunchBuffer(array.ctypes.data, array.nbytes) for array in arrays],
        )
        inputs = self.waves * one.blocks * one.m * one.n
        if not ran.clean:
            return Verdict(one.trial, inputs, inputs, str(ran.findings[-1]))
        wrong, example = 0, ""
        kind = {"f32": np.float32, "f64": np.float64, "i32": np.int32}[one.to]
        for number, (a, b, c, _) in enumerate(self.given):
            wave, block = divmod(number, one.blocks)
            lanes = out[wave * one.waves : (wave + 1) * one.waves]
            with np.errstate(all="ignore"):
                want = np.asarray(one.product(a, b, c))
            got = np.array(
                [
                    [_taken(lanes, *one.place(row, column, block), kind) for column in range(one.n)]
                    for row in range(one.m)
                ]
            )
            bad = ~((got == want) | (np.isnan(got) & np.isnan(want)))
            wrong += int(bad.sum())
            if bad.any() and not example:
                row, column = (int(x) for x in np.argwhere(bad)[0])
                terms = list(zip(a[row].tolist(), b[:, column].tolist(), strict=True))
                example = f"{terms} + {c[row, column]!r}: {got[row, column]!r}, expected "
                example += repr(want[row, column])
        return Verdict(one.trial, inputs, wrong, example)


def _put(words: Words, at: int, element: int, width: int, bits: int) -> None:
    if width == 64:
        words[at + 2 * element], words[at + 2 * element + 1] = bits & 0xFFFFFFFF, bits >> 32
        return
    each = 32 // width
    word, shift = at + element // each, element % each * width
    mask = ((1 << width) - 1) << shift
    words[word] = (int(words[word]) & ~mask) | (bits << shift & mask)


def _taken(lanes: Words, lane: int, register: int, kind: type) -> Array:
    size = np.dtype(kind).itemsize // 4
    first = register * size
    return np.asarray(np.ascontiguousarray(lanes[lane, first : first + size]).view(kind)[0])


def drawn(kind: str, count: int, rng: np.random.Generator, *, hard: bool) -> Array:
    """Bits of elements: of numbers near one; where ``hard``, of all sizes, with special values."""
    if kind in ("fp8", "bf8", "i8", "iu8"):
        bits = rng.integers(0, 256, count).astype(np.uint64)
        nans = {"fp8": (0x80, 0x7F, 0xFF), "bf8": (0x80, *range(0x7C, 0x80), *range(0xFC, 0x100))}
        rare = np.isin(bits, nans.get(kind, ())) & (rng.random(count) < 0.97)
        return np.where(rare, bits ^ np.uint64(0x50), bits)
    wide = {"bf16": "f32", "xf32": "f32"}.get(kind, kind)
    near = rng.standard_normal(count) * np.exp2(rng.integers(-3, 4, count))
    width = int(wide[1:])
    if wide[0] == "i":
        return np.array(random(wide, count, rng), np.uint64)
    bits = near.astype(f"f{width // 8}").view(f"u{width // 8}").astype(np.uint64)
    if hard:
        # Few are infinite or no numbers, as whole rows then are.
        known = np.array(special(wide), np.uint64)
        finite = np.isfinite(known.astype(f"u{width // 8}").view(f"f{width // 8}"))
        bits = np.where(rng.random(count) < 0.2, rng.choice(known[finite], count), bits)
        bits = np.where(rng.random(count) < 0.004, rng.choice(known[~finite], count), bits)
        small = np.array(random(wide, count, rng), np.uint64)
        sane = np.isfinite(small.astype(f"u{width // 8}").view(f"f{width // 8}"))
        bits = np.where(sane & (rng.random(count) < 0.3), small, bits)
    return bits >> np.uint64(16) if kind == "bf16" else bits


def numbers_of(kind: str, bits: Array, processor: str) -> Array:
    """The elements' values: doubles, or whole numbers."""
    if kind in ("fp8", "bf8"):
        form = Format.of(kind, processor)
        return np.array([form.value(int(x)) for x in bits])
    if kind in ("i8", "iu8"):
        return bits.astype(np.uint8).view(np.int8).astype(np.int64)
    if kind == "i32":
        return bits.astype(np.uint32).view(np.int32).astype(np.int64)
    if kind == "f64":
        return bits.astype(np.uint64).view(np.float64)
    if kind == "f16":
        return bits.astype(np.uint16).view(np.float16).astype(np.float64)
    words = (bits << np.uint64(16) if kind == "bf16" else bits).astype(np.uint32)
    if kind == "xf32":
        words &= np.uint32(0xFFFFE000)
    numbers = words.view(np.float32)
    with np.errstate(invalid="ignore"):  # of a NaN that signals
        return numbers if kind == "f32" else numbers.astype(np.float64)


def verdicts(
    family: str, count: int, only: str = "", part: tuple[int, int] = (0, 1)
) -> list[Verdict]:
    """Each matrix instruction of each processor, on at least ``count`` results."""
    found = []
    for processor in PROCESSORS[family]:
        chosen = [one for one in every(family, processor) if only in one.trial.kernel]
        chosen = chosen[part[0] :: part[1]]
        assembler = machine.Assembler(family, processor)
        bad = assembler.refused([one.line for one in chosen])
        chosen = [one for number, one in enumerate(chosen) if number not in bad]
        if not chosen:
            continue
        program = assembler.program(
            {one.trial.kernel: body(assembler.style, one) for one in chosen}
        )
        for one in chosen:
            waves = max(2, -(-count // (one.blocks * one.m * one.n)))
            found.append(Run(one, waves, zlib.crc32(one.trial.kernel.encode())).verdict(program))
    return found
