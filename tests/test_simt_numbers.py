"""Small floating-point types, device mathematics and integer intrinsics of the SIMT executor."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from pathlib import Path
from typing import Any

import mpmath  # type: ignore[import-untyped]
import numpy
import pytest
import scipy.special
from numpy.typing import NDArray

ml_dtypes: Any = pytest.importorskip("ml_dtypes", reason="no ml_dtypes, which jax brings")
INCLUDE = Path(__file__).parents[1] / "portkern" / "simt" / "include"
PROGRAMS = Path(__file__).parent / "simt" / "numbers"
RECORDED = PROGRAMS / "device.npz"
SAMPLES = 128  # of each operation in the recording

Array = NDArray[Any]
Words = NDArray[numpy.uint64]  # values as the low bits of words, as the programs take them
MODES = {"rn": "nearest", "rz": "zero", "rd": "down", "ru": "up"}


# ---- the programs ------------------------------------------------------------------------


class Program:
    """A list of operations in C++: each by name, over arrays of words."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.simt_name.restype = ctypes.c_char_p
        self._library.simt_signature.restype = ctypes.c_char_p
        self._index: dict[str, int] = {}
        self.signatures: dict[str, str] = {}
        for index in range(self._library.simt_operations()):
            name = self._library.simt_name(index).decode()
            self._index[name] = index
            self.signatures[name] = self._library.simt_signature(index).decode()

    def __call__(self, name: str, *columns: Array) -> Words:
        count = len(columns[0])
        given = numpy.zeros((3, count), numpy.uint64)
        for row, column in zip(given, columns, strict=False):
            row[:] = words(column)
        out = numpy.zeros(count, numpy.uint64)
        self._library.simt_run(
            ctypes.c_int(self._index[name]),
            given.ctypes.data_as(ctypes.c_void_p),
            out.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_size_t(count),
        )
        return out


def words(values: Array) -> Words:
    """The bits of the values, each in the low bits of a word."""
    unsigned: Array = numpy.ascontiguousarray(values).view(f"u{values.itemsize}")
    return unsigned.astype(numpy.uint64)


def values(bits: Array, dtype: Any) -> Array:
    """The other way round: the low bits of each word as ``dtype``."""
    size = numpy.dtype(dtype).itemsize
    result: Array = bits.astype(f"u{size}").view(dtype)
    return result


def compile_program(compiler: str, source: str, folder: Path, *flags: str) -> Path:
    """``compiler``: g++, or clang, whose object g++ links: zig would build its libc++ first."""
    target, library = folder / f"{source}.o", folder / f"{source}.so"
    command = ["g++"] if compiler == "g++" else [sys.executable, "-m", "ziglang", "c++"]
    command += [] if compiler == "g++" else ["-fno-sanitize=undefined"]
    command += ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", f"-I{INCLUDE}", *flags]
    command += ["-fno-exceptions", "-x", "c++", "-c", str(PROGRAMS / source), "-o", str(target)]
    subprocess.run(command, check=True)
    subprocess.run(["g++", "-shared", target, "-o", library], check=True)
    return library


def half_instructions() -> list[str]:
    """The flags for F16C, where this machine has it."""
    if platform.machine() != "x86_64" or "f16c" not in Path("/proc/cpuinfo").read_text():
        return []
    return ["-mf16c"]


@pytest.fixture(scope="module", params=["g++", pytest.param("clang", marks=pytest.mark.full)])
def intrinsics(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    """intrinsics.cu without the processor's half instructions by g++, with them by clang."""
    if request.param == "clang":
        pytest.importorskip("ziglang")
    flags = [] if request.param == "g++" else half_instructions()
    folder = tmp_path_factory.mktemp(request.param)
    return Program(compile_program(request.param, "intrinsics.cu", folder, *flags))


@pytest.fixture(scope="module")
def hip(tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder = tmp_path_factory.mktemp("hip")
    flags = ["-D__HIP_PLATFORM_AMD__=1", *half_instructions()]
    return Program(compile_program("g++", "hip.cpp", folder, *flags))


# ---- inputs ------------------------------------------------------------------------------

FLOAT_EDGES = [
    *(0.0, 1.0, 1.5, 2.0, 2.5, 3.5, 0.5, 0.75, 0.25, 1 / 3, 3.0, 10.0, 100.0, 127.0, 127.5, 128.0),
    *(255.5, 256.0, 32767.5, 32768.0, 65535.5, 65504.0, 65519.99609375, 65520.0, 65536.0),
    *(6.103515625e-05, 6.097555160522461e-05, 5.960464477539063e-08, 2.9802322387695312e-08),
    *(2.98023260404e-08, 448.0, 456.0, 464.0, 465.0, 480.0, 57344.0, 61440.0, 61441.0, 2.0**-9),
    *(2.0**-10, 2.0**-6, 2.0**-14, 2.0**-16, 2.0**-17, 240.0, 248.0, 2.0**31, 2.0**31 - 128),
    *(2.0**32, 2.0**32 - 256, 2.0**63, 2.0**64, 2.0**126, 2.0**127, 3.4028234663852886e38),
    *(3.3895313892515355e38, 3.396e38, 2.0**-126, 2.0**-149, 2.0**-133, 2.0**-134, 1.17549421e-38),
    *(
        1.00390625,
        1.01171875,
        1.00048828125,
        1.00146484375,
        3.141592653589793,
        1.5707963,
        6.2831853,
    ),
    *(float("inf"), float("nan"), 16777217.0, 1e-20, 1e20, 88.0, 89.0, 104.0, 5.0, 7.25, 25.0),
]
INTEGER_EDGES = [0, 1, 2, 3, 5, 31, 32, 33, 63, 64, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xFFFF]
INTEGER_EDGES += [0x7F7F7F7F, 0x80808080, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x00FF00FF, 2**24 + 1]
INTEGER_EDGES += [2**25 - 1, 65519, 65520, 65521, 2049, 2051, 257, 259, 2**53 + 1, 2**62 + 2**53]
INTEGER_EDGES += [2**63 - 1, 2**63, 2**64 - 1, 2**40 + 2**31, 2**40 + 2**32 + 1, 2**64 - 2**38]
# The letters of signatures: a type each, capitals for pairs.
DTYPES: dict[str, Any] = {
    **{"f": numpy.float32, "d": numpy.float64, "h": numpy.float16, "b": ml_dtypes.bfloat16},
    **{"i": numpy.int32, "u": numpy.uint32, "l": numpy.int64, "m": numpy.uint64},
    **{"s": numpy.int16, "w": numpy.uint16, "c": numpy.uint8, "H": numpy.uint32, "B": numpy.uint32},
}


def edges(letter: str) -> Words:
    """Values at which an argument of this type changes its behaviour."""
    if letter in "fdhHbB":
        signed = numpy.array([*FLOAT_EDGES, *(-x for x in FLOAT_EDGES)])
        with numpy.errstate(all="ignore"):
            return words(signed.astype(DTYPES[letter.lower()]))
    integers = numpy.array(INTEGER_EDGES, numpy.uint64)
    return numpy.concatenate([integers, ~integers])


def samples(name: str, signature: str, count: int = SAMPLES) -> Words:
    """Three columns of inputs: edges, random bits and moderate numbers. The same at every call."""
    random = numpy.random.RandomState(zlib.crc32(name.encode()))
    columns = numpy.zeros((3, count), numpy.uint64)
    for column, letter in zip(columns, signature.rstrip("~"), strict=False):
        column[:] = random.randint(0, 2**32, count, numpy.uint64) << numpy.uint64(32)
        column |= random.randint(0, 2**32, count, numpy.uint64)
        kind = random.randint(0, 4, count)
        known = edges(letter)
        pick = known[random.randint(0, len(known), count)]
        if letter in "HB":
            pick |= known[random.randint(0, len(known), count)] << numpy.uint64(16)
        column[kind < 2] = pick[kind < 2]
        if letter in "fd":
            moderate = words((random.standard_normal(count) * 4).astype(DTYPES[letter]))
            column[kind == 2] = moderate[kind == 2]
        size = numpy.dtype(DTYPES[letter]).itemsize
        column &= numpy.uint64(2 ** (8 * size) - 1)
    return columns


def arguments(columns: Words, signature: str) -> list[Array]:
    return [
        values(column, DTYPES[letter])
        for column, letter in zip(columns, signature.rstrip("~"), strict=False)
    ]


# ---- reference rounding ------------------------------------------------------------------


@dataclass(frozen=True)
class Format:
    """A narrow format by the values of its codes, which ml_dtypes and numpy know."""

    dtype: Any
    bits: int
    largest: int  # code of the largest finite number
    overflow: int  # code of what is above it
    signed_overflow: bool = True

    @property
    def table(self) -> Array:
        """The value of each code, as float64."""
        codes = numpy.arange(2**self.bits, dtype=f"u{self.bits // 8}")
        with numpy.errstate(all="ignore"):
            result: Array = codes.view(self.dtype).astype(numpy.float64)
        return result

    def round(self, x: Array, mode: str, saturate: bool = False) -> Words:
        """The codes of ``x`` (float64, or long double for 64-bit integers), by definition."""
        positive = self.table[: self.largest + 1]
        ladder = numpy.append(positive, 2 * positive[-1] - positive[-2]).astype(x.dtype)
        size, negative = numpy.abs(x), numpy.signbit(x)
        low = numpy.searchsorted(ladder[:-1], size, side="right") - 1
        below, above = ladder[low], ladder[low + 1]
        up = size > below
        if mode == "nearest":
            up = (size - below > above - size) | ((size - below == above - size) & (low % 2 == 1))
        elif mode == "zero":
            up = numpy.zeros_like(up)
        else:
            up &= negative == (mode == "down")
        code = low + up
        over = (code > self.largest) | numpy.isinf(x)
        top = self.largest if saturate else self.overflow
        code = numpy.where(over, top, code)
        if self.signed_overflow:
            code = numpy.where(negative, code + 2 ** (self.bits - 1), code)
        else:  # no negative zero: its code is the NaN
            flip = negative & (code != 0) & (code != self.overflow)
            code = numpy.where(flip, code + 2 ** (self.bits - 1), code)
        result: Words = code.astype(numpy.uint64)
        return result

    def points(self) -> Array:
        """Every value, the middle to the next, both's neighbours, and numbers beyond (float64)."""
        positive = self.table[: self.largest + 1]
        middles = (positive[1:] + positive[:-1]) / 2
        last = positive[-1] * 2 - positive[-2]
        exact = numpy.concatenate([positive, middles, [last, (last + positive[-1]) / 2, 3 * last]])
        near = exact[exact < 3e38].astype(numpy.float32)
        near = near[near == exact[: len(near)]]
        up = numpy.float32(numpy.inf)
        around = [exact, numpy.nextafter(near, -up), numpy.nextafter(near, up)]
        everything = numpy.concatenate([*around, [2.0**-149, 2.0**-140, 1e30, numpy.inf]])
        return numpy.concatenate([everything, -everything])


HALF = Format(numpy.float16, 16, 0x7BFF, 0x7C00)
BFLOAT16 = Format(ml_dtypes.bfloat16, 16, 0x7F7F, 0x7F80)
E4M3 = Format(ml_dtypes.float8_e4m3fn, 8, 0x7E, 0x7F)
E5M2 = Format(ml_dtypes.float8_e5m2, 8, 0x7B, 0x7C)
E4M3_FNUZ = Format(ml_dtypes.float8_e4m3fnuz, 8, 0x7F, 0x80, signed_overflow=False)
E5M2_FNUZ = Format(ml_dtypes.float8_e5m2fnuz, 8, 0x7F, 0x80, signed_overflow=False)
SIXTEEN = [
    pytest.param("half", "h", HALF, id="half"),
    pytest.param("bfloat16", "b", BFLOAT16, id="bfloat16"),
]


def round_exactly(x: Fraction, digits: int, lowest: int, mode: str) -> Fraction:
    """Rounds to ``digits`` significant bits, or to multiples of the last place at 2**``lowest``."""
    if x == 0:
        return x
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, lowest) - digits + 1)
    kept, rest = divmod(size, unit)
    if mode == "nearest":
        kept += 2 * rest > unit or (2 * rest == unit and kept % 2)
    elif mode != "zero":
        kept += rest != 0 and (x < 0) == (mode == "down")
    return kept * unit if x > 0 else -kept * unit


PRECISION = {"h": (11, -14, 65504.0), "b": (8, -126, 3.3895313892515355e38)}
PRECISION |= {"f": (24, -126, 3.4028234663852886e38), "d": (53, -1022, sys.float_info.max)}


def rounded(x: Fraction, letter: str, mode: str) -> float:
    """``x`` in the type of the letter, as a float; infinite, or the largest, beyond its range."""
    digits, lowest, largest = PRECISION[letter]
    result = round_exactly(x, digits, lowest, mode)
    if abs(result) <= largest:
        return float(result)
    inward = mode == "zero" or (mode == "down" and x > 0) or (mode == "up" and x < 0)
    return (largest if inward else float("inf")) * (1 if x > 0 else -1)


def root(x: Fraction) -> Fraction:
    """The square root to many bits, with one more that says whether anything was cut off."""
    scaled = x * 4**1300
    whole = isqrt(int(scaled))
    return Fraction(2 * whole + (whole * whole != scaled), 2 * 2**1300)


def same(got: Array, expected: Array) -> Array:
    """Equal, or both NaN."""
    both: Array = (got == expected) | ((got != got) & (expected != expected))
    return both


def saturated(x: Array, dtype: Any, mode: str, nan: int) -> Array:
    """Float64 numbers as integers, the nearest where they are out of range."""
    steps = {"nearest": numpy.rint, "zero": numpy.trunc, "down": numpy.floor, "up": numpy.ceil}
    info = numpy.iinfo(dtype)
    with numpy.errstate(invalid="ignore"):
        whole = steps[mode](x)
        below, above = whole < float(info.min), whole >= float(info.max) + (info.bits < 64)
        result: Array = numpy.where(below | above | (x != x), 0, whole).astype(dtype)
    result[below], result[above] = info.min, info.max
    result[x != x] = numpy.array(nan, f"u{info.bits // 8}").view(dtype)
    return result


# ---- 16 bits: conversions ----------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(("name", "letter", "format"), SIXTEEN)
@pytest.mark.parametrize("mode", MODES)
def test_floats_round_to_16_bits_in_every_mode(
    intrinsics: Program, name: str, letter: str, format: Format, mode: str
) -> None:
    x = numpy.concatenate([format.points(), samples(name, "f", 100_000)[0].astype(float)])
    with numpy.errstate(all="ignore"):
        single = x.astype(numpy.float32)
        single = numpy.append(single, values(samples(name, "f", 100_000)[0], numpy.float32))
    single = single[~numpy.isnan(single)]
    expected = format.round(single.astype(float), MODES[mode])
    assert (intrinsics(f"float2{name}_{mode}", single) == expected).all()
    if mode == "rn":
        x = x[~numpy.isnan(x)]
        assert (intrinsics(f"float2{name}", single) == expected).all()
        assert (intrinsics(f"double2{name}", x) == format.round(x, "nearest")).all()
        near = numpy.nextafter(x, numpy.inf), numpy.nextafter(x, -numpy.inf)
        for double in near:
            assert (intrinsics(f"double2{name}", double) == format.round(double, "nearest")).all()


@pytest.mark.parametrize(("name", "letter", "format"), SIXTEEN)
def test_16_bits_become_the_float_that_they_are(
    intrinsics: Program, name: str, letter: str, format: Format
) -> None:
    codes = numpy.arange(2**16, dtype=numpy.uint16)
    got = values(intrinsics(f"{name}2float", codes), numpy.float32)
    assert same(got, format.table).all()
    numbers = got == got
    assert (numpy.signbit(got) == numpy.signbit(format.table))[numbers].all()
    back = intrinsics(f"float2{name}", got)
    assert (back[numbers] == codes[numbers]).all()
    assert (back[~numbers] == 0x7FFF).all()  # NVIDIA's only NaN


INTEGERS = {"short": "s", "ushort": "w", "int": "i", "uint": "u", "ll": "l", "ull": "m"}


@pytest.mark.parametrize(("name", "letter", "format"), SIXTEEN)
@pytest.mark.parametrize("mode", MODES)
def test_16_bits_become_integers_that_saturate(
    intrinsics: Program, name: str, letter: str, format: Format, mode: str
) -> None:
    codes = numpy.arange(2**16, dtype=numpy.uint16)
    for integer, kind in INTEGERS.items():
        nan = 1 << 63 if kind in "lm" else 0
        expected = saturated(format.table, DTYPES[kind], MODES[mode], nan)
        got = values(intrinsics(f"{name}2{integer}_{mode}", codes), DTYPES[kind])
        assert (got == expected).all(), integer


@pytest.mark.parametrize(("name", "letter", "format"), SIXTEEN)
@pytest.mark.parametrize("mode", MODES)
def test_integers_round_once_to_16_bits(
    intrinsics: Program, name: str, letter: str, format: Format, mode: str
) -> None:
    for integer, kind in INTEGERS.items():
        given = values(samples(integer, kind, 4000)[0], DTYPES[kind])
        small = numpy.arange(-70000, 70000, 3, dtype=numpy.int64).astype(DTYPES[kind])
        given = numpy.concatenate([given, small])
        expected = format.round(given.astype(numpy.longdouble), MODES[mode])
        assert (intrinsics(f"{integer}2{name}_{mode}", given) == expected).all(), integer
        if mode == "rn" and kind in "iulm":
            word = {"i": "int", "u": "uint", "l": "long", "m": "ulong"}[kind]
            assert (intrinsics(f"{name}_from_{word}", given) == expected).all(), integer


# ---- 16 bits: arithmetic -----------------------------------------------------------------

ARITHMETIC: dict[str, Callable[..., Fraction]] = {
    "hadd": lambda a, b: a + b,
    "hsub": lambda a, b: a - b,
    "hmul": lambda a, b: a * b,
    "hdiv": lambda a, b: a / b,
    "hfma": lambda a, b, c: a * b + c,
}


def middles_of_products(dtype: Any) -> list[Array]:
    """Products in the middle of two numbers, and a third that tips them either way."""
    table = {"float16": (10, 14), "bfloat16": (7, 120)}[numpy.dtype(dtype).name]
    digits, reach = table
    factors = [1 + 2.0**-k for k in range(1, digits + 1)]
    tips = [s * 2.0**-k for k in (digits + 2, 12, reach // 2, reach - 2, reach) for s in (1, -1)]
    rows = [(a, b, c) for a in factors for b in factors for c in tips]
    return list(numpy.array(rows).astype(dtype).T)


@pytest.mark.parametrize("operation", ARITHMETIC)
@pytest.mark.parametrize(("name", "letter", "format"), SIXTEEN)
def test_arithmetic_of_16_bits_rounds_once(
    intrinsics: Program, name: str, letter: str, format: Format, operation: str
) -> None:
    arity = 3 if operation == "hfma" else 2
    given = arguments(samples(operation, letter * arity, 3000), letter * arity)
    if operation == "hfma":
        middles = middles_of_products(format.dtype)
        given = [numpy.concatenate(columns) for columns in zip(given, middles, strict=True)]
    got = format.table[intrinsics(f"{name}_{operation}", *given)]
    columns = [format.table[words(column)] for column in given]
    finite = numpy.isfinite(columns).all(axis=0) & ((operation != "hdiv") | (columns[1] != 0))
    exact = ARITHMETIC[operation]
    for row, result in zip(numpy.transpose(columns)[finite], got[finite], strict=True):
        expected = rounded(exact(*map(Fraction, row)), letter, "nearest")
        assert result == expected, row
    with numpy.errstate(all="ignore"):
        special = [column[~finite] for column in columns]
        expected_special = exact(*special)  # infinite, NaN, or exact in double
    assert same(got[~finite], numpy.asarray(expected_special)).all()

    one = numpy.minimum(numpy.maximum(got, 0), 1)
    fused = operation == "hfma"
    if operation != "hdiv":
        unit = format.table[intrinsics(f"{name}_{operation}_sat", *given)]
        assert (unit == numpy.where(got != got, 0, one)).all()
    if fused:
        relu = format.table[intrinsics(f"{name}_hfma_relu", *given)]
        assert same(relu, numpy.where(got < 0, 0, got)).all()


def test_pairs_do_twice_what_scalars_do(intrinsics: Program) -> None:
    words_of = {"hadd": 2, "hsub": 2, "hmul": 2, "hmax": 2, "hmin": 2, "heq": 2, "hltu": 2}
    words_of |= {"hneg": 1, "habs": 1, "hfma": 3, "hfma_relu": 3, "hmax_nan": 2, "hadd_sat": 2}
    for name, letter in (("half", "H"), ("bfloat16", "B")):
        for word, arity in words_of.items():
            pairs = samples(word, letter * arity, 500)
            base, _, suffix = word.partition("_")
            got = intrinsics(f"{name}_{base}2{'_' * bool(suffix)}{suffix}", *pairs)
            low = intrinsics(f"{name}_{word}", *(pairs & numpy.uint64(0xFFFF)))
            high = intrinsics(f"{name}_{word}", *(pairs >> numpy.uint64(16)))
            if word in ("heq", "hltu"):
                one = numpy.uint64(0x3C00 if name == "half" else 0x3F80)
                low, high = low * one, high * one
            assert (got == (low | high << numpy.uint64(16))).all(), word


@pytest.mark.parametrize(("name", "letter", "format"), SIXTEEN)
def test_comparisons_and_extrema_know_nan_and_signed_zero(
    intrinsics: Program, name: str, letter: str, format: Format
) -> None:
    known = edges(letter)
    left, right = (side.ravel() for side in numpy.meshgrid(known, known))
    a, b = format.table[left], format.table[right]
    unordered = (a != a) | (b != b)
    orders = {"eq": a == b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}
    orders["ne"] = (a < b) | (a > b)
    for word, expected in orders.items():
        assert (intrinsics(f"{name}_h{word}", left, right) == expected).all(), word
        assert (intrinsics(f"{name}_h{word}u", left, right) == (expected | unordered)).all(), word
    relations = sum(
        orders[word].astype(int) << bit
        for bit, word in enumerate(["eq", "ne", "lt", "le", "gt", "ge"])
    )
    relations = relations | unordered.astype(int) << 1  # C++'s != is true of a NaN
    assert (intrinsics(f"{name}_relations", left, right) == relations).all()

    order = numpy.where(numpy.signbit(a) & (a == 0), -1e-300, a)  # -0 is below +0
    other = numpy.where(numpy.signbit(b) & (b == 0), -1e-300, b)
    for word, first in (("hmax", order > other), ("hmin", order < other)):
        pick = numpy.where(a != a, right, numpy.where(b != b, left, 0))
        pick = numpy.where(unordered, pick, numpy.where(first, left, right))
        pick = numpy.where((a != a) & (b != b), 0x7FFF, pick)
        assert (intrinsics(f"{name}_{word}", left, right) == pick).all()
        pick = numpy.where(unordered, 0x7FFF, pick)
        assert (intrinsics(f"{name}_{word}_nan", left, right) == pick).all()


UNARY: dict[str, Callable[[Array], Array]] = {
    "sqrt": numpy.sqrt,
    "rsqrt": lambda x: 1 / numpy.sqrt(x),
    "rcp": lambda x: 1 / x,
    "exp": numpy.exp,
    "exp2": numpy.exp2,
    "exp10": scipy.special.exp10,
    "log": numpy.log,
    "log2": numpy.log2,
    "log10": numpy.log10,
    "sin": numpy.sin,
    "cos": numpy.cos,
    "tanh": numpy.tanh,
    "floor": numpy.floor,
    "ceil": numpy.ceil,
    "rint": numpy.rint,
    "trunc": numpy.trunc,
}


@pytest.mark.parametrize(("name", "letter", "format"), SIXTEEN)
def test_functions_of_16_bits_are_right_for_every_argument(
    intrinsics: Program, name: str, letter: str, format: Format
) -> None:
    codes = numpy.arange(2**16, dtype=numpy.uint16)
    for word, function in UNARY.items():
        with numpy.errstate(all="ignore"):
            exact = function(format.table)
        numbers = exact == exact
        got = intrinsics(f"{name}_h{word}", codes)
        expected = format.round(numpy.where(numbers, exact, 0), "nearest")
        assert (got == numpy.where(numbers, expected, 0x7FFF)).all(), word


# ---- 8 bits ------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "format"), [("e4m3", E4M3), ("e5m2", E5M2)])
def test_8_bit_floats_of_cuda(intrinsics: Program, name: str, format: Format) -> None:
    codes = numpy.arange(256, dtype=numpy.uint8)
    table = format.table
    assert same(values(intrinsics(f"{name}_to_float", codes), numpy.float32), table).all()
    assert same(values(intrinsics(f"{name}_to_half", codes), numpy.float16), table).all()
    whole = values(intrinsics(f"{name}_to_int", codes), numpy.int32)
    assert (whole == saturated(table, numpy.int32, "zero", 0)).all()
    small = values(intrinsics(f"{name}_to_schar", codes), numpy.int8)
    assert (small == saturated(table, numpy.int8, "zero", 0)).all()

    x = format.points()
    single = x.astype(numpy.float32)
    saturating = format.round(single.astype(float), "nearest", saturate=True)
    assert (intrinsics(f"float_to_{name}", single) == saturating).all()
    overflowing = format.round(single.astype(float), "nearest")
    assert (intrinsics(f"float_to_{name}_nosat", single) == overflowing).all()
    theirs = words(single.astype(format.dtype))
    assert same(table[overflowing], table[theirs]).all()
    expected = format.round(x, "nearest", saturate=True)
    assert (intrinsics(f"double_to_{name}", x) == expected).all()
    assert table[intrinsics(f"float_to_{name}", numpy.array([numpy.nan], numpy.float32))] != 0

    halves = numpy.arange(2**16, dtype=numpy.uint16)
    numbers = HALF.table == HALF.table
    got = intrinsics(f"half_to_{name}", halves)[numbers]
    assert (got == format.round(HALF.table[numbers], "nearest", saturate=True)).all()
    numbers = BFLOAT16.table == BFLOAT16.table
    got = intrinsics(f"bfloat16_to_{name}", halves)[numbers]
    assert (got == format.round(BFLOAT16.table[numbers], "nearest", saturate=True)).all()


@pytest.mark.parametrize(
    ("name", "format"),
    [("e4m3", E4M3), ("e5m2", E5M2), ("e4m3_fnuz", E4M3_FNUZ), ("e5m2_fnuz", E5M2_FNUZ)],
)
def test_8_bit_floats_of_hip(hip: Program, name: str, format: Format) -> None:
    codes = numpy.arange(256, dtype=numpy.uint8)
    table = format.table
    assert same(values(hip(f"{name}_to_float", codes), numpy.float32), table).all()
    assert same(values(hip(f"{name}_to_half", codes), numpy.float16), table).all()
    x = format.points()
    single = x.astype(numpy.float32)
    overflowing = format.round(single.astype(float), "nearest")
    assert (hip(f"float_to_{name}_nosat", single) == overflowing).all()
    assert same(table[overflowing], table[words(single.astype(format.dtype))]).all()
    saturating = format.round(single.astype(float), "nearest", saturate=True)
    if "fnuz" in name:  # infinities become NaN
        saturating = numpy.where(numpy.isinf(single), 0x80, saturating).astype(numpy.uint64)
    assert (hip(f"float_to_{name}", single) == saturating).all()
    assert (hip(f"{name}_of_float", single) == saturating).all()
    nan = hip(f"float_to_{name}", numpy.array([numpy.nan], numpy.float32))
    assert (table[nan] != table[nan]).all()


def test_hip_keeps_payloads_and_its_own_idea_of_unequal(hip: Program) -> None:
    nan = numpy.array([0x7F812345, 0xFFC00001], numpy.uint32)
    assert list(hip("float2bfloat16", nan)) == [0x7F81, 0xFFC1]
    assert list(hip("hne", *(numpy.array([0x7E00, 0x3C00], numpy.uint16),) * 2)) == [1, 0]
    nan_float = numpy.array([numpy.nan, 1.5], numpy.float32)
    assert list(values(hip("float2ll_rz", nan_float), numpy.int64)) == [0, 1]
    x = numpy.array([1.0, 1.00390625, 1.01171875, -3.1], numpy.float32)
    assert (hip("hip_bfloat16", x) == BFLOAT16.round(x.astype(float), "nearest")).all()
    assert (hip("hip_bfloat16_truncate", x) == BFLOAT16.round(x.astype(float), "zero")).all()
    assert (values(hip("native_half", x), numpy.float32) == x.astype(numpy.float16)).all()
    assert (values(hip("ocml", x), numpy.float32) == 10 * x).all()


# ---- floats and integers -----------------------------------------------------------------


@pytest.mark.parametrize("source", ["float", "double"])
@pytest.mark.parametrize("mode", MODES)
def test_floats_become_integers_that_saturate(intrinsics: Program, source: str, mode: str) -> None:
    letter = source[0]
    given = arguments(samples(source, letter, 20_000), letter)[0]
    with numpy.errstate(all="ignore"):
        larger = given[:5000] * given.dtype.type(2**20)
    given = numpy.concatenate([given, larger, values(edges(letter), given.dtype)])
    for integer in ("int", "uint", "ll", "ull"):
        dtype = DTYPES[INTEGERS[integer]]
        bits = 8 * numpy.dtype(dtype).itemsize
        nan = 1 << (bits - 1) if bits == 64 or letter == "d" else 0
        with numpy.errstate(invalid="ignore"):
            expected = saturated(given.astype(float), dtype, MODES[mode], nan)
        got = values(intrinsics(f"{source}2{integer}_{mode}", given), dtype)
        assert (got == expected).all(), integer


@pytest.mark.parametrize("mode", MODES)
def test_numbers_become_floats_in_every_mode(intrinsics: Program, mode: str) -> None:
    for integer, letter in (("int", "i"), ("uint", "u"), ("ll", "l"), ("ull", "m")):
        given = values(samples(integer, letter, 1000)[0], DTYPES[letter])
        for target in ("float", "double") if letter in "lm" else ("float",):
            got = intrinsics(f"{integer}2{target}_{mode}", given)
            expected = [rounded(Fraction(int(v)), target[0], MODES[mode]) for v in given]
            assert list(values(got, DTYPES[target[0]])) == expected
    given = values(samples("double2float", "d", 1000)[0], numpy.float64)
    given = numpy.append(given, numpy.float32(given[numpy.abs(given) < 1e30]) * (1 + 2.0**-40))
    given = given[numpy.isfinite(given)]
    got = intrinsics(f"double2float_{mode}", given)
    expected = [rounded(Fraction(v), "f", MODES[mode]) for v in given]
    assert list(values(got, numpy.float32)) == expected


EXACT: dict[str, tuple[str, Callable[..., Fraction]]] = {
    "fadd": ("ff", lambda a, b: a + b),
    "fsub": ("ff", lambda a, b: a - b),
    "fmul": ("ff", lambda a, b: a * b),
    "fdiv": ("ff", lambda a, b: a / b),
    "frcp": ("f", lambda a: 1 / a),
    "fsqrt": ("f", root),
    "fmaf": ("fff", lambda a, b, c: a * b + c),
    "dadd": ("dd", lambda a, b: a + b),
    "dsub": ("dd", lambda a, b: a - b),
    "dmul": ("dd", lambda a, b: a * b),
    "ddiv": ("dd", lambda a, b: a / b),
    "drcp": ("d", lambda a: 1 / a),
    "dsqrt": ("d", root),
    "fma": ("ddd", lambda a, b, c: a * b + c),
}


@pytest.mark.parametrize("mode", MODES)
def test_arithmetic_rounds_as_its_suffix_says(intrinsics: Program, mode: str) -> None:
    for name, (signature, exact) in EXACT.items():
        columns = arguments(samples(name, signature, 400), signature)
        if "sqrt" in name:
            columns = [numpy.abs(columns[0])]
        ok = numpy.isfinite(columns).all(axis=0) & (columns[-1] != 0)
        got = values(intrinsics(f"{name}_{mode}", *columns), columns[0].dtype)
        for row, result in zip(numpy.transpose(columns)[ok], got[ok], strict=True):
            expected = rounded(exact(*map(Fraction, map(float, row))), signature[0], MODES[mode])
            assert result == expected, (name, row)


# ---- mathematics -------------------------------------------------------------------------


def ulps(got: Array, exact: Array) -> Array:
    """How far float32 results are from float64 ones, in units of the float's last place."""
    _, exponent = numpy.frexp(exact)
    error: Array = numpy.abs(got - exact) / 2.0 ** numpy.maximum(exponent - 24, -149)
    return error


def span(low: float, high: float, count: int = 200_000) -> Array:
    return numpy.linspace(low, high, count, dtype=numpy.float32)


@dataclass(frozen=True)
class Bound:
    """The error that CUDA documents: ``ulp`` units, or ``absolute``, over ``x``."""

    x: Array
    exact: Callable[[Array], Array]
    ulp: Callable[[Array], Array] | None = None
    absolute: float = 0.0


POSITIVE = 2.0 ** span(1.0, 127.9)
FAST: dict[str, list[Bound]] = {
    "__expf": [Bound(span(-87, 88.7), numpy.exp, lambda x: 2 + numpy.floor(numpy.abs(1.173 * x)))],
    "__exp10f": [
        Bound(span(-37, 38.5), scipy.special.exp10, lambda x: 2 + numpy.floor(abs(2.97 * x)))
    ],
    "__logf": [
        Bound(span(0.5, 2), numpy.log, absolute=2.0**-21.41),
        Bound(POSITIVE, numpy.log, lambda x: 3 + 0 * x),
        Bound(1 / POSITIVE[:-2000], numpy.log, lambda x: 3 + 0 * x),
    ],
    "__log2f": [
        Bound(span(0.5, 2), numpy.log2, absolute=2.0**-22),
        Bound(POSITIVE, numpy.log2, lambda x: 2 + 0 * x),
    ],
    "__log10f": [
        Bound(span(0.5, 2), numpy.log10, absolute=2.0**-24 * 1.35),
        Bound(POSITIVE, numpy.log10, lambda x: 3 + 0 * x),
    ],
    "__sinf": [Bound(span(-numpy.pi, numpy.pi), numpy.sin, absolute=2.0**-21.41)],
    "__cosf": [Bound(span(-numpy.pi, numpy.pi), numpy.cos, absolute=2.0**-21.19)],
    "__tanhf": [Bound(span(-9, 9), numpy.tanh, lambda x: 2.0**13 + 0 * x)],
}


@pytest.mark.parametrize("name", FAST)
def test_fast_intrinsics_err_as_documented_and_do_err(intrinsics: Program, name: str) -> None:
    errors = []
    for bound in FAST[name]:
        got = values(intrinsics(name, bound.x), numpy.float32)
        exact = bound.exact(bound.x.astype(float))
        error = numpy.abs(got - exact)
        if bound.ulp is None:
            assert error.max() <= bound.absolute
        else:
            assert (ulps(got, exact) <= bound.ulp(bound.x)).all()
        errors.append(ulps(got, exact).max())
    assert max(errors) > 1  # none is as good as the C library's


def test_fast_intrinsics_lose_what_the_hardware_loses(intrinsics: Program) -> None:
    def fast(name: str, *columns: Sequence[float]) -> list[float]:
        given = [numpy.array(column, numpy.float32) for column in columns]
        return [float(x) for x in values(intrinsics(name, *given), numpy.float32)]

    assert fast("__sinf", [1e-7, 0.0]) == [0, 0]
    assert fast("__fdividef", [1.0, -1.0, 6.0], [2.0**126.5, 3e38, 3.0]) == [0, 0, 2]
    assert numpy.isnan(fast("__fdividef", [float("inf")], [2.0**127])).all()
    assert fast("__logf", [1.0, 0.0]) == [0, -numpy.inf]
    assert abs(fast("__logf", [1 + 2.0**-23])[0] / numpy.log1p(2.0**-23) - 1) > 0.1
    assert abs(fast("__powf", [1.001], [20000.0])[0] / 1.001**20000 - 1) > 1e-5
    assert fast("__expf", [-200.0, 200.0]) == [0, numpy.inf]
    assert fast("__saturatef", [-1.0, 0.25, 7.0, float("nan")]) == [0, 0.25, 1, 0]


# Documented maxima in ulps ("Standard Functions" of the same chapter) over a range.
SINGLE: dict[str, tuple[float, float, float, Callable[[Array], Array]]] = {
    "rsqrtf": (2, 1e-3, 1e6, lambda x: 1 / numpy.sqrt(x)),
    "rcbrtf": (1, 1e-3, 1e6, lambda x: 1 / numpy.cbrt(x)),
    "exp10f": (2, -37, 38, scipy.special.exp10),
    "sinpif": (1, -8, 8, lambda x: numpy.sin(numpy.pi * (x - 2 * numpy.rint(x / 2)))),
    "cospif": (1, -8, 8, lambda x: numpy.sin(numpy.pi * (0.5 - abs(x - 2 * numpy.rint(x / 2))))),
    "erfinvf": (2, -0.99999, 0.99999, scipy.special.erfinv),
    "erfcinvf": (4, 1e-30, 1.9999, scipy.special.erfcinv),
    "erfcxf": (4, -9, 1e4, scipy.special.erfcx),
    "normcdff": (5, -14, 9, scipy.special.ndtr),
    "normcdfinvf": (5, 1e-30, 0.99999, scipy.special.ndtri),
    "cyl_bessel_i0f": (6, -80, 80, scipy.special.i0),
    "cyl_bessel_i1f": (6, -80, 80, scipy.special.i1),
}
DOUBLE: dict[str, tuple[float, float, float, Callable[[Any], Any]]] = {
    "rsqrt": (1, 1e-3, 1e6, lambda x: 1 / mpmath.sqrt(x)),
    "rcbrt": (1, 1e-3, 1e6, lambda x: 1 / mpmath.cbrt(x)),
    "sinpi": (2, -8, 8, mpmath.sinpi),
    "cospi": (2, -8, 8, mpmath.cospi),
    "erfinv": (5, -0.9999, 0.9999, mpmath.erfinv),
    "erfcx": (4, -25, 40, lambda x: mpmath.exp(x * x) * mpmath.erfc(x)),
    "normcdf": (5, -37, 8, mpmath.ncdf),
    "cyl_bessel_i0": (6, -100, 100, lambda x: mpmath.besseli(0, x)),
    "cyl_bessel_i1": (6, -100, 100, lambda x: mpmath.besseli(1, x)),
}


@pytest.mark.parametrize("name", SINGLE)
def test_functions_of_floats_err_no_more_than_documented(intrinsics: Program, name: str) -> None:
    allowed, low, high, exact = SINGLE[name]
    x = numpy.linspace(low, high, 3001)
    if low > 0:
        x = numpy.append(x, numpy.geomspace(low, high, 3001))
    x = x.astype(numpy.float32)
    got, expected = values(intrinsics(name, x), numpy.float32), exact(x.astype(float))
    normal = (numpy.abs(expected) > 2.0**-120) & (numpy.abs(expected) < 3e38)
    assert ulps(got, expected)[normal].max() <= allowed


@pytest.mark.parametrize("name", DOUBLE)
def test_functions_of_doubles_err_no_more_than_documented(intrinsics: Program, name: str) -> None:
    allowed, low, high, exact = DOUBLE[name]
    x = numpy.linspace(low, high, 83)
    with mpmath.workdps(50):
        for at, got in zip(x, values(intrinsics(name, x), float), strict=True):
            expected = exact(mpmath.mpf(float(at)))
            assert abs(mpmath.mpf(float(got)) - expected) <= allowed * numpy.spacing(abs(got)), at


def test_inverses_invert(intrinsics: Program) -> None:
    z = numpy.append(numpy.geomspace(1e-300, 1, 400)[:-1], numpy.linspace(1.001, 1.99, 100))
    roots = values(intrinsics("erfcinv", z), float)
    # d log(erfc(y)) = -2 / sqrt(pi) / erfcx(y) dy
    sensitivity = 2 / numpy.sqrt(numpy.pi) / scipy.special.erfcx(roots) * numpy.abs(roots)
    error = numpy.abs(scipy.special.erfc(roots) / z - 1)
    assert (error <= 2.0**-52 * (6 * sensitivity + 300)).all()
    quantiles = values(intrinsics("normcdfinv", z[z < 1]), float)
    assert numpy.allclose(
        quantiles, -numpy.sqrt(2) * scipy.special.erfcinv(2 * z[z < 1]), rtol=1e-14
    )


def test_functions_at_their_ends(intrinsics: Program) -> None:
    inf, nan = numpy.inf, numpy.nan
    ends: dict[str, tuple[list[float], list[float]]] = {
        "rsqrtf": ([0.0, inf, -1.0], [inf, 0, nan]),
        "sinpif": ([0.0, 1.0, -3.0, 0.5, inf, 2.0**30], [0, 0, 0, 1, nan, 0]),
        "cospif": ([0.0, 1.0, 0.5, -1.5, inf, 2.0**30], [1, -1, 0, 0, nan, 1]),
        "erfinvf": ([1.0, -1.0, 0.0, 2.0], [inf, -inf, 0, nan]),
        "erfcinvf": ([0.0, 2.0, 1.0, -1.0], [inf, -inf, 0, nan]),
        "normcdff": ([-inf, inf, 0.0, nan], [0, 1, 0.5, nan]),
        "normcdfinvf": ([0.0, 1.0, 0.5, 2.0], [-inf, inf, 0, nan]),
        "erfcxf": ([inf, -inf], [0, inf]),
        "cyl_bessel_i0f": ([0.0, inf], [1, inf]),
    }
    for name, (x, expected) in ends.items():
        got = values(intrinsics(name, numpy.array(x, numpy.float32)), numpy.float32)
        assert same(got, numpy.array(expected)).all(), name
    columns = [numpy.array([v], numpy.float32) for v in (3e38, 1e38, inf)]
    assert values(intrinsics("norm3df", *columns), numpy.float32)[0] == inf
    big = [numpy.array([v]) for v in (3e200, 4e200, 0.0)]
    assert values(intrinsics("norm3d", *big), float)[0] == pytest.approx(5e200)
    tiny = [numpy.array([v]) for v in (3e-200, 4e-200, nan)]
    assert numpy.isnan(values(intrinsics("norm3d", *tiny), float)[0])


# ---- integers ----------------------------------------------------------------------------


def signed(x: int, bits: int) -> int:
    return (x & (1 << bits) - 1) - (x << 1 & 1 << bits)


def clamp(x: int, low: int, high: int) -> int:
    return max(low, min(high, x))


def funnel(hi: int, lo: int, shift: int, left: bool) -> int:
    both = hi << 32 | lo
    return (both << shift >> 32 if left else both >> shift) & 0xFFFFFFFF


def dot(a: Sequence[int], b: Sequence[int], c: int) -> int:
    return sum(x * y for x, y in zip(a, b, strict=False)) + c


def parts(word: int, bits: int, sign: bool) -> list[int]:
    lanes = [word >> i & (1 << bits) - 1 for i in range(0, 32, bits)]
    return [signed(lane, bits) for lane in lanes] if sign else lanes


BIG: dict[str, Callable[..., int]] = {
    "popc": lambda x: x.bit_count(),
    "popcll": lambda x: x.bit_count(),
    "clz": lambda x: 32 - (x % 2**32).bit_length(),
    "clzll": lambda x: 64 - (x % 2**64).bit_length(),
    "ffs": lambda x: (x & -x).bit_length(),
    "ffsll": lambda x: (x & -x).bit_length(),
    "brev": lambda x: int(f"{x:032b}"[::-1], 2),
    "brevll": lambda x: int(f"{x:064b}"[::-1], 2),
    "byte_perm": lambda x, y, s: sum(
        ((y << 32 | x) >> 8 * (s >> 4 * k & 7) & 0xFF) << 8 * k for k in range(4)
    ),
    "funnelshift_l": lambda lo, hi, n: funnel(hi, lo, n % 32, True),
    "funnelshift_r": lambda lo, hi, n: funnel(hi, lo, n % 32, False),
    "funnelshift_lc": lambda lo, hi, n: funnel(hi, lo, min(n, 32), True),
    "funnelshift_rc": lambda lo, hi, n: funnel(hi, lo, min(n, 32), False),
    "mulhi": lambda x, y: x * y >> 32,
    "umulhi": lambda x, y: x * y >> 32,
    "mul64hi": lambda x, y: x * y >> 64,
    "umul64hi": lambda x, y: x * y >> 64,
    "mul24": lambda x, y: signed(x, 24) * signed(y, 24),
    "umul24": lambda x, y: (x % 2**24) * (y % 2**24),
    "hadd": lambda x, y: x + y >> 1,
    "rhadd": lambda x, y: x + y + 1 >> 1,
    "uhadd": lambda x, y: x + y >> 1,
    "urhadd": lambda x, y: x + y + 1 >> 1,
    "sad": lambda x, y, z: abs(x - y) + z,
    "usad": lambda x, y, z: abs(x - y) + z,
    "dp4a_s": lambda a, b, c: dot(parts(a, 8, True), parts(b, 8, True), c),
    "dp4a_u": lambda a, b, c: dot(parts(a, 8, False), parts(b, 8, False), c),
    "dp4a_c": lambda a, b, c: dot(parts(a, 8, True), parts(b, 8, True), c),
    "dp2a_lo_s": lambda a, b, c: dot(parts(a, 16, True), parts(b, 8, True), c),
    "dp2a_lo_u": lambda a, b, c: dot(parts(a, 16, False), parts(b, 8, False), c),
    "dp2a_hi_s": lambda a, b, c: dot(parts(a, 16, True), parts(b, 8, True)[2:], c),
    "dp2a_hi_u": lambda a, b, c: dot(parts(a, 16, False), parts(b, 8, False)[2:], c),
    "max_int_uint": lambda x, y: max(x % 2**32, y),
    "min_int_uint": lambda x, y: min(x % 2**32, y),
    "max_ll_ull": lambda x, y: max(x % 2**64, y),
    "min_long_long": min,
    "vimax3_s32": max,
    "vimin3_u32": min,
    "vimax3_s32_relu": lambda x, y, z: max(x, y, z, 0),
    "vimin3_s32_relu": lambda x, y, z: max(min(x, y, z), 0),
    "viaddmax_s32": lambda x, y, z: max(signed(x + y, 32), z),
    "viaddmin_s32_relu": lambda x, y, z: max(min(signed(x + y, 32), z), 0),
    "viaddmin_u32": lambda x, y, z: min((x + y) % 2**32, z),
    "vibmax_s32": lambda x, y: max(x, y) % 2**32 | (x >= y) << 32,
    "vibmin_u32": lambda x, y: min(x, y) | (x <= y) << 32,
}


@pytest.mark.parametrize("name", BIG)
def test_integer_intrinsics_agree_with_unbounded_integers(intrinsics: Program, name: str) -> None:
    signature = intrinsics.signatures[name]
    columns = arguments(samples(name, signature, 1500), signature)
    got = intrinsics(name, *columns)
    wide = "ll" in name or "64" in name or name.startswith("vib") or name == "min_long_long"
    for row, result in zip(zip(*columns, strict=True), got, strict=True):
        expected = BIG[name](*map(int, row))
        assert int(result) == expected % 2 ** (64 if wide else 32), row


Lane = Callable[[int, int], int]
# By name: whether lanes are signed, and the function of two lanes. N below is 2 or 4 lanes.
LANES: dict[str, tuple[bool, Lane]] = {
    "vabs": (True, lambda a, b: abs(a)),
    "vneg": (True, lambda a, b: -a),
    "vadd": (False, lambda a, b: a + b),
    "vsub": (False, lambda a, b: a - b),
    "vavgu": (False, lambda a, b: a + b + 1 >> 1),
    "vavgs": (True, lambda a, b: a + b + (a + b >= 0) >> 1),
    "vhaddu": (False, lambda a, b: a + b >> 1),
    "vmaxs": (True, max),
    "vmaxu": (False, max),
    "vmins": (True, min),
    "vminu": (False, min),
    "vabsdiffs": (True, lambda a, b: abs(a - b)),
    "vabsdiffu": (False, lambda a, b: abs(a - b)),
    "vseteq": (False, lambda a, b: a == b),
    "vsetne": (False, lambda a, b: a != b),
    "vsetges": (True, lambda a, b: a >= b),
    "vsetgeu": (False, lambda a, b: a >= b),
    "vsetgts": (True, lambda a, b: a > b),
    "vsetgtu": (False, lambda a, b: a > b),
    "vsetles": (True, lambda a, b: a <= b),
    "vsetleu": (False, lambda a, b: a <= b),
    "vsetlts": (True, lambda a, b: a < b),
    "vsetltu": (False, lambda a, b: a < b),
}
SATURATING: dict[str, tuple[bool, Lane]] = {
    "vabsss": (True, lambda a, b: abs(a)),
    "vnegss": (True, lambda a, b: -a),
    "vaddss": (True, lambda a, b: a + b),
    "vaddus": (False, lambda a, b: a + b),
    "vsubss": (True, lambda a, b: a - b),
    "vsubus": (False, lambda a, b: a - b),
}


@pytest.mark.parametrize("lanes", [2, 4])
def test_simd_in_a_word_works_lane_by_lane(intrinsics: Program, lanes: int) -> None:
    bits = 32 // lanes
    left, right = (column.tolist() for column in samples("simd", "uu", 1000)[:2])
    columns = [numpy.array(side, numpy.uint64) for side in (left, right)]

    def pack(results: Sequence[int]) -> int:
        return sum((r % 2**bits) << bits * k for k, r in enumerate(results))

    def check(name: str, sign: bool, lane: Lane) -> None:
        got = intrinsics(f"{name}{lanes}", *columns).tolist()
        for a, b, result in zip(left, right, got, strict=True):
            pairs = zip(parts(a, bits, sign), parts(b, bits, sign), strict=True)
            assert result == pack([lane(x, y) for x, y in pairs]), (name, a, b)

    for name, (sign, lane) in LANES.items():
        check(name, sign, lane)
        if name.startswith("vset"):
            check(name.replace("set", "cmp"), sign, lambda a, b, lane=lane: -lane(a, b))  # type: ignore[misc]
    for name, (sign, lane) in SATURATING.items():
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if sign else (0, 2**bits - 1)
        check(name, sign, lambda a, b, f=lane, m=low, n=high: clamp(f(a, b), m, n))  # type: ignore[misc]
    for name, sign in (("vsads", True), ("vsadu", False)):
        got = intrinsics(f"{name}{lanes}", *columns).tolist()
        for a, b, result in zip(left, right, got, strict=True):
            pairs = zip(parts(a, bits, sign), parts(b, bits, sign), strict=True)
            assert result == sum(abs(x - y) for x, y in pairs)


# ---- beside a GPU ------------------------------------------------------------------------


def without_nans(results: Words, name: str) -> Words:
    """Every NaN as one: a CPU's float arithmetic keeps payloads, NVIDIA's has a single NaN."""
    wide = name.startswith(("d", "fma_", "max_")) or name.endswith("to_double")
    each = results if wide else results.view(numpy.uint32)
    numbers = values(each, f"f{each.itemsize}")
    fixed = numpy.where(numbers == numbers, each, each.dtype.type(0xFFFFFFFF))
    return fixed.view(numpy.uint64)


def recording() -> dict[str, Words]:
    with numpy.load(RECORDED) as recorded:
        return dict(zip(recorded["names"].tolist(), recorded["outputs"], strict=True))


# What a NaN becomes differs between CUDA's own host and device code here.
NANS = {"double2bfloat16", "double_to_e4m3", "double_to_e5m2", "e5m2_from_double"}
FLOAT_RESULTS = (
    "half2float",
    "half22float2",
    "half_low2float",
    "half_high2float",
    "half_to_double",
)


def test_exact_operations_answer_bit_for_bit_as_an_h200_did(intrinsics: Program) -> None:
    recorded = recording()
    exact = [name for name, letters in intrinsics.signatures.items() if letters[-1] != "~"]
    assert set(recorded) == set(intrinsics.signatures)
    for name in exact:
        columns = samples(name, intrinsics.signatures[name])
        got, expected = intrinsics(name, *columns), recorded[name]
        arithmetic = name.rpartition("_")[0] in EXACT or name in (*FLOAT_RESULTS, "frsqrt_rn")
        if arithmetic or name in ("fmaxf", "fminf", "max_float_double"):
            got, expected = without_nans(got, name), without_nans(expected, name)
        wrong = got != expected
        if name in NANS:
            given = values(columns[0], numpy.float64)
            wrong &= given == given
        assert not wrong.any(), (name, columns[:, wrong][:, 0], got[wrong][0], expected[wrong][0])


def test_approximations_are_near_those_of_an_h200(intrinsics: Program) -> None:
    recorded = recording()
    for name, letters in intrinsics.signatures.items():
        if letters[-1] != "~":
            continue
        dtype = DTYPES[letters[0].lower()]
        got = values(intrinsics(name, *samples(name, letters)), dtype).astype(float)
        gpu = values(recorded[name], dtype).astype(float)
        digits = {"h": 9, "b": 6, "f": 17, "d": 48}[letters[0].lower()]
        floor = {"h": 2.0**-23, "b": 1e-37, "f": 2.0**-20, "d": 1e-15}[letters[0].lower()]
        finite = numpy.isfinite(gpu)
        assert (numpy.isfinite(got) == finite).all(), name
        assert same(got[~finite], gpu[~finite]).all(), name
        digits = 15 if name == "__tanhf" else digits  # the unit's own error
        error = numpy.abs(got[finite] - gpu[finite])
        assert (error <= numpy.abs(gpu[finite]) * 2.0**-digits + floor).all(), name


# ---- compiling ---------------------------------------------------------------------------

WITHOUT = ["HALF_CONVERSIONS", "HALF_OPERATORS", "HALF2_OPERATORS"]
WITHOUT += ["BFLOAT16_CONVERSIONS", "BFLOAT16_OPERATORS", "BFLOAT162_OPERATORS"]


@pytest.mark.parametrize("compiler", ["g++", "clang"])
@pytest.mark.parametrize(
    "flags",
    [
        pytest.param([], id="cuda"),
        pytest.param(["-DWITHOUT", *(f"-D__CUDA_NO_{name}__" for name in WITHOUT)], id="without"),
        pytest.param(["-D__HIP_PLATFORM_AMD__=1", "-D__gfx942__"], id="hip"),
    ],
)
def test_types_convert_as_the_vendors_do(compiler: str, flags: list[str], tmp_path: Path) -> None:
    if compiler == "clang":
        pytest.importorskip("ziglang")
    compile_program(compiler, "types.cpp", tmp_path, *flags)
