"""Small floating-point types, device mathematics and integer intrinsics of the SIMT executor."""

from __future__ import annotations

import ctypes
import subprocess
import zlib
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

INCLUDE = Path(__file__).parents[1] / "portkern" / "simt" / "include"
PROGRAMS = Path(__file__).parent / "simt" / "numbers"
RECORDED = PROGRAMS / "device.npz"
SAMPLES = 128  # of each operation in the recording

Words = NDArray[numpy.uint64]  # values as the low bits of words, as intrinsics.cu takes them


class Intrinsics:
    """intrinsics.cu, compiled: every operation by name, over arrays of words."""

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

    def __call__(self, name: str, *columns: NDArray[Any]) -> Words:
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


def words(values: NDArray[Any]) -> Words:
    """The bits of the values, each in the low bits of a word."""
    unsigned: NDArray[Any] = numpy.ascontiguousarray(values).view(f"u{values.itemsize}")
    return unsigned.astype(numpy.uint64)


def compile_intrinsics(folder: Path) -> Path:
    library = folder / "intrinsics.so"
    flags = ["-std=c++17", "-O1", "-Wall", "-Werror", "-fPIC", "-shared", f"-I{INCLUDE}"]
    source = PROGRAMS / "intrinsics.cu"
    subprocess.run(["g++", *flags, "-x", "c++", source, "-o", library], check=True)
    return library


# ---- inputs ------------------------------------------------------------------------------

FLOAT_EDGES = [
    *(0.0, 1.0, 1.5, 2.0, 2.5, 3.5, 0.5, 0.75, 0.25, 1 / 3, 3.0, 10.0, 100.0, 127.0, 127.5, 128.0),
    *(255.5, 256.0, 32767.5, 32768.0, 65535.5, 65504.0, 65519.99609375, 65520.0, 65536.0),
    *(6.103515625e-05, 6.097555160522461e-05, 5.960464477539063e-08, 2.9802322387695312e-08),
    *(2.98023260404e-08, 448.0, 456.0, 464.0, 465.0, 480.0, 57344.0, 61440.0, 61441.0, 2.0**-9),
    *(2.0**-10, 2.0**-6, 2.0**-14, 2.0**-16, 2.0**-17, 240.0, 248.0, 2.0**31, 2.0**31 - 128),
    *(2.0**32, 2.0**32 - 256, 2.0**63, 2.0**64, 2.0**126, 2.0**127, 3.4028234663852886e38),
    *(3.3895313892515355e38, 3.396e38, 2.0**-126, 2.0**-149, 2.0**-133, 2.0**-134, 1.17549421e-38),
    *(1.00390625, 1.01171875, 1.00048828125, 1.00146484375, 3.141592653589793, 1.5707963, 6.2831853),
    *(float("inf"), float("nan"), 16777217.0, 1e-20, 1e20, 88.0, 89.0, 104.0, 5.0, 7.25, 25.0),
]
INTEGER_EDGES = [0, 1, 2, 3, 5, 31, 32, 33, 63, 64, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xFFFF]
INTEGER_EDGES += [0x7F7F7F7F, 0x80808080, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x00FF00FF, 2**24 + 1]
INTEGER_EDGES += [2**25 - 1, 65519, 65520, 65521, 2049, 2051, 257, 259, 2**53 + 1, 2**62 + 2**53]
INTEGER_EDGES += [2**63 - 1, 2**63, 2**64 - 1, 2**40 + 2**31, 2**40 + 2**32 + 1, 2**64 - 2**38]
FLOATS: dict[str, Any] = {"f": numpy.float32, "d": numpy.float64}
SIZES = {"f": 4, "d": 8, "h": 2, "b": 2, "H": 4, "B": 4, "i": 4, "u": 4, "s": 2, "w": 2, "c": 1}
SIZES |= {"l": 8, "m": 8}


def edges(letter: str) -> Words:
    """Values at which an argument of this type changes its behaviour."""
    import ml_dtypes

    signed = numpy.array([*FLOAT_EDGES, *(-x for x in FLOAT_EDGES)])
    with numpy.errstate(all="ignore"):
        if letter in FLOATS:
            return words(signed.astype(FLOATS[letter]))
        if letter in "hH":
            return words(signed.astype(numpy.float16))
        if letter in "bB":
            return words(signed.astype(ml_dtypes.bfloat16))
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
        if letter in FLOATS:
            moderate = words((random.standard_normal(count) * 4).astype(FLOATS[letter]))
            column[kind == 2] = moderate[kind == 2]
        if SIZES[letter] < 8:
            column &= numpy.uint64(2 ** (8 * SIZES[letter]) - 1)
    return columns
