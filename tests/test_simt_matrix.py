"""Matrix instructions of the executor: AMD's builtins, wmma, rocwmma, and pipelines around them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy
import pytest
from numpy.typing import NDArray

from portkern import target
from portkern.simt import build, program, toolbox
from portkern.simt.options import Run
from tests.simt.matrix.layouts import MULTIPLIES, Multiply

pytestmark = pytest.mark.skipif(
    not isinstance(toolbox.find(), toolbox.Toolbox), reason=str(toolbox.find())
)
SOURCES = Path(__file__).parent / "simt" / "matrix"
CHECKED = Run(races=True, bounds=True, uninitialised=True, alignment=True)

Numbers = NDArray[numpy.int64]

# ---- elements as bits


def _eight_bits(exponent: int, bias: int, *, fnuz: bool) -> NDArray[numpy.float64]:
    """The values of all 256 codes; what is no number is NaN."""
    mantissa = 7 - exponent
    codes = numpy.arange(256)
    fraction, power = codes % (1 << mantissa), codes >> mantissa & ((1 << exponent) - 1)
    values = numpy.where(
        power == 0,
        fraction * 2.0 ** (1 - bias - mantissa),
        (1 + fraction / (1 << mantissa)) * 2.0 ** (power - bias),
    )
    values = numpy.where(codes >= 128, -values, values)
    if fnuz:
        values[0x80] = numpy.nan
    elif exponent == 5:
        values[power == 31] = numpy.nan  # infinities too: no test uses them
    else:
        values[[0x7F, 0xFF]] = numpy.nan
    return values


EIGHT_BITS = {
    ("fp8", False): _eight_bits(4, 7, fnuz=False),
    ("bf8", False): _eight_bits(5, 15, fnuz=False),
    ("fp8", True): _eight_bits(4, 8, fnuz=True),
    ("bf8", True): _eight_bits(5, 16, fnuz=True),
}
BITS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64, "s32": 32, "s8": 8, "u8": 8, "fp8": 8,
        "bf8": 8, "s4": 4, "u4": 4}  # fmt: skip


def encode(values: Numbers, kind: str, fnuz: bool) -> NDArray[numpy.uint64]:
    if kind in ("f16", "f32", "f64"):
        floats = values.astype(f"f{BITS[kind] // 8}")
        return floats.view(f"u{floats.itemsize}").astype(numpy.uint64)
    if kind == "bf16":
        return (values.astype(numpy.float32).view(numpy.uint32) >> 16).astype(numpy.uint64)
    if kind in ("fp8", "bf8"):
        table = EIGHT_BITS[kind, fnuz]
        codes = [int(numpy.flatnonzero(table == value)[0]) for value in values.ravel()]
        return numpy.array(codes, numpy.uint64).reshape(values.shape)
    return values.astype(numpy.uint64) & numpy.uint64((1 << BITS[kind]) - 1)


def pack(codes: NDArray[numpy.uint64], bits: int) -> bytes:
    """Elements of each lane (rows), low bits first."""
    places = numpy.arange(bits, dtype=numpy.uint64)
    planes = (codes[..., None] >> places & numpy.uint64(1)).astype(numpy.uint8)
    return numpy.packbits(planes.reshape(len(codes), -1), axis=1, bitorder="little").tobytes()


def decode(raw: bytes, kind: str, lanes: int) -> Numbers:
    width = BITS[kind] // 8
    if kind == "bf16":
        halves = numpy.frombuffer(raw, numpy.uint16).astype(numpy.uint32) << 16
        values: NDArray[Any] = halves.view(numpy.float32)
    else:
        values = numpy.frombuffer(raw, f"{'i' if kind == 's32' else 'f'}{width}")
    return values.reshape(lanes, -1).astype(numpy.int64)


# ---- AMD's builtins, on operands laid out by AMD's formulas

RANGES = {"s8": (-128, 128), "u8": (0, 256), "s4": (-8, 8), "u4": (0, 16)}


class Operands:
    """Small random matrices of one instruction and the registers that hold them."""

    def __init__(self, one: Multiply, fnuz: bool) -> None:
        random = numpy.random.default_rng(len(one.name) * 1000 + one.k + one.cbsz + one.blgp)
        low, high = RANGES.get(one.a, (-2, 3))
        lower, higher = RANGES.get(one.b, (-2, 3))
        self.one, self.fnuz = one, fnuz
        # What the lanes hold; which of it a product uses is the instruction's modifiers' matter.
        self.a = random.integers(low, high, (one.lanes, one.inputs))
        self.b = random.integers(lower, higher, (one.lanes, one.inputs))
        self.c = random.integers(-3, 4, (one.lanes, one.outputs))
        if one.clamp:
            self.c = random.choice([-(1 << 31), (1 << 31) - 1], (one.lanes, one.outputs))
        if one.family == "rdna3":
            self.a = numpy.tile(self.a[:16], (one.lanes // 16, 1))
            self.b = numpy.tile(self.b[:16], (one.lanes // 16, 1))

    def registers(self) -> bytes:
        kinds = (self.one.a, self.one.b, self.one.c)
        parts = zip((self.a, self.b, self.c), kinds, strict=True)
        return b"".join(pack(encode(v, kind, self.fnuz), BITS[kind]) for v, kind in parts)

    def result(self) -> Numbers:
        """D as the lanes get it, from the matrices that the registers stand for."""
        one = self.one
        d = self.c.copy()
        signs = [-1 if one.a == "f64" and one.blgp >> i & 1 else 1 for i in range(3)]
        for block in range(one.blocks):
            a = numpy.zeros((one.m, one.k), numpy.int64)
            b = numpy.zeros((one.k, one.n), numpy.int64)
            for k in range(one.k):
                for i in range(one.m):
                    lanes, place = one.left(i, k, one.block_of_left(block))
                    a[i, k] = self.a[lanes[0], place]
                    lanes, place = one.right(k, i, block)
                    b[k, i] = self.b[lanes[0], place]
            product = signs[0] * signs[1] * (a @ b)
            for i in range(one.m):
                for j in range(one.n):
                    lane, place = one.result(i, j, block)
                    d[lane, place] = product[i, j] + signs[2] * self.c[lane, place]
        if one.clamp:
            d = numpy.clip(d, -(1 << 31), (1 << 31) - 1)
        return d


@pytest.fixture(scope="module")
def amd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build.build_program(
        SOURCES / "amd.hip", tmp_path_factory.mktemp("amd") / "amd", target=target.load("gfx942"),
        language="hip",
    )  # fmt: skip


@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_amd_builtins_multiply_as_amds_layouts_say(amd: Path, arch: str, tmp_path: Path) -> None:
    """All builtins of the wave's width run on each target: which it has is the compiler's matter,
    but the 8-bit formats are the target's."""
    where = target.load(arch)
    fnuz = where.features.fp8 == "fnuz"
    chosen = [Operands(one, fnuz) for one in MULTIPLIES if one.lanes == where.warp]
    (tmp_path / "in").write_bytes(b"".join(one.registers() for one in chosen))
    files = [str(where.warp), str(tmp_path / "in"), str(tmp_path / "out")]
    outcome = program.run(amd, target=where, language="hip", arguments=files)
    assert outcome.status == 0, outcome
    raw, at = (tmp_path / "out").read_bytes(), 0
    for operands in chosen:
        one = operands.one
        size = one.lanes * one.outputs * BITS[one.c] // 8
        got = decode(raw[at : at + size], one.c, one.lanes)
        numpy.testing.assert_array_equal(got, operands.result(), err_msg=str(one))
        at += size
    assert at == len(raw)


def test_every_multiply_of_the_list_is_checked() -> None:
    text = (SOURCES / "amd_list.h").read_text()
    listed = re.findall(r"^(?:MFMA|WMMA)(?:_\w+)?\((\w+)", text, re.MULTILINE)
    assert listed == [one.name for one in MULTIPLIES]


# ---- matrices in C++

Built = Callable[..., Path]


@pytest.fixture
def built(tmp_path: Path) -> Built:
    def make(name: str, mode: toolbox.Mode = "fast", arch: str = "h100") -> Path:
        source, where = SOURCES / name, target.load(arch)
        language: build.Language = "hip" if source.suffix == ".hip" else "cuda"
        return build.build_program(
            source, tmp_path / source.stem, target=where, language=language, mode=mode
        )

    return make


@pytest.mark.parametrize("warp", [32, 64])
@pytest.mark.parametrize("mode", ["fast", "check"])
def test_wmma_multiplies_fragments_of_every_shape_type_and_layout(
    built: Built, mode: toolbox.Mode, warp: int
) -> None:
    """A 64-lane warp that runs one CUDA block of 32 threads has a half that is one CUDA warp."""
    how = CHECKED if mode == "check" else Run()
    outcome = program.run(built("wmma.cu", mode), how, warp=warp)
    assert (outcome.status, outcome.output.split()) == (0, ["done"]), outcome
    assert not outcome.findings


@pytest.mark.parametrize("mode", ["fast", "check"])
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_rocwmma_multiplies_fragments_on_both_widths(
    built: Built, mode: toolbox.Mode, arch: str
) -> None:
    where = target.load(arch)
    how = CHECKED if mode == "check" else Run()
    outcome = program.run(built("rocwmma.hip", mode, arch), how, target=where, language="hip")
    assert (outcome.status, outcome.output.split()) == (0, ["done"]), outcome
    assert not outcome.findings
