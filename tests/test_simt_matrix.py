"""Matrix instructions of the executor: AMD's, mma, wgmma, rocwmma; and what brings their tiles."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from numpy.typing import NDArray

from portkern.simt.execute import build, program, runtime_library
from portkern.simt.execute.machine import Language
from portkern.simt.execute.options import ExecutorOptions, Mode
from portkern.spec import target
from tests.simt.matrix.layouts import MULTIPLIES, Multiply

pytestmark = pytest.mark.skipif(
    not isinstance(runtime_library.find(), runtime_library.Toolbox),
    reason=str(runtime_library.find()),
)
SOURCES = Path(__file__).parent / "simt" / "matrix"
CHECKED = ExecutorOptions(races=True, bounds=True, uninitialised=True, alignment=True)

Numbers = NDArray[numpy.int64]

# ---- elements as bits


def _eight_bits(exponent: int, bias: int, *, fnuz: bool) -> NDArray[numpy.float64]:
    """The values of all 256 codes; what is not a number is NaN."""
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
BITS = {
    "f16": 16,
    "bf16": 16,
    "f32": 32,
    "f64": 64,
    "s32": 32,
    "s8": 8,
    "u8": 8,
    "fp8": 8,
    "bf8": 8,
    "s4": 4,
    "u4": 4,
}


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
        SOURCES / "amd.hip",
        tmp_path_factory.mktemp("amd") / "amd",
        build.CompileOptions(target=target.load("gfx942"), language="hip"),
    )


@pytest.mark.sampled()
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
    def make(name: str, mode: Mode = "fast", arch: str = "h100") -> Path:
        source, where = SOURCES / name, target.load(arch)
        language: Language = "hip" if source.suffix == ".hip" else "cuda"
        return build.build_program(
            source,
            tmp_path / source.stem,
            build.CompileOptions(target=where, language=language, mode=mode),
        )

    return make


@pytest.mark.full
@pytest.mark.parametrize("warp", [32, 64])
@pytest.mark.parametrize("mode", ["fast", "check"])
def test_wmma_multiplies_fragments_of_every_shape_type_and_layout(
    built: Built, mode: Mode, warp: int
) -> None:
    """A 64-lane warp that runs one CUDA block of 32 threads has a half that is one CUDA warp."""
    how = CHECKED if mode == "check" else ExecutorOptions()
    outcome = program.run(built("wmma.cu", mode), how, warp=warp)
    assert (outcome.status, outcome.output.split()) == (0, ["done"]), outcome
    assert not outcome.findings


@pytest.mark.sampled()
@pytest.mark.parametrize("mode", ["fast", "check"])
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_rocwmma_multiplies_fragments_on_both_widths(built: Built, mode: Mode, arch: str) -> None:
    where = target.load(arch)
    how = CHECKED if mode == "check" else ExecutorOptions()
    outcome = program.run(built("rocwmma.hip", mode, arch), how, target=where, language="hip")
    assert (outcome.status, outcome.output.split()) == (0, ["done"]), outcome
    assert not outcome.findings


@pytest.mark.parametrize("mode", ["fast", "check"])
def test_asynchronous_copies_arrive_with_the_wait_that_covers_them(
    built: Built, mode: Mode
) -> None:
    """The copies arrive as late as the model allows, so that a missing wait shows; a GPU may be
    earlier."""
    how = CHECKED if mode == "check" else ExecutorOptions(workers=2)
    outcome = program.run(built("pipeline.cu", mode), how)
    looks_too_early = {("SX201", 19)} if mode == "check" else set()
    assert {(finding.code, finding.line) for finding in outcome.findings} == looks_too_early
    assert outcome.status == 0
    arrived = [0, 20, 70, 100]
    zero_filled, by_pieces = [20, 21, 0, 0], [22, 0, 0, 20]
    assert [int(line) for line in outcome.output.split()] == arrived + zero_filled + by_pieces


# ---- AMD's builtins between lanes

Lane = Callable[[int], int]


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _dot(a: int, b: int, bits: int, *, left: bool, right: bool) -> int:
    """Sum of products of the elements of two words; ``left`` and ``right``: signed."""
    total = 0
    for i in range(0, 32, bits):
        x, y = a >> i & ((1 << bits) - 1), b >> i & ((1 << bits) - 1)
        total += (_signed(x, bits) if left else x) * (_signed(y, bits) if right else y)
    return total


def _perm(hi: int, lo: int, selectors: int) -> int:
    data = hi << 32 | lo
    result = 0
    for i in range(4):
        s = selectors >> 8 * i & 0xFF
        byte = 0xFF if s > 12 else 0
        if s < 8:
            byte = data >> 8 * s & 0xFF
        elif s < 12:
            byte = 0xFF * (data >> (16 * (s - 8) + 15) & 1)
        result |= byte << 8 * i
    return _signed(result, 32)


def _row(lane: int) -> int:
    return lane // 16 * 16


WORD = 0x1234 << 32 | 0x56789ABC
#: What each line of lanes.hip should be; lane i brings 100 + i.
LANES: dict[str, Lane] = {
    "row_shr": lambda i: 98 + i if i % 16 >= 2 else 1000,
    "row_shr_bound": lambda i: 98 + i if i % 16 >= 2 else 0,
    "row_shl": lambda i: 103 + i if i % 16 <= 12 else 1000,
    "row_ror": lambda i: 100 + _row(i) + (i - 4) % 16,
    "row_masked": lambda i: 99 + i if i // 16 % 2 and i % 16 else 1000,
    "bank_masked": lambda i: 100 + _row(i) + (i - 1) % 16 if i // 4 % 2 == 0 else 1000,
    "quad_perm": lambda i: 100 + i // 4 * 4 + 3 - i % 4,
    "row_mirror": lambda i: 100 + _row(i) + 15 - i % 16,
    "row_half_mirror": lambda i: 100 + i // 8 * 8 + 7 - i % 8,
    "row_bcast15": lambda i: 99 + _row(i) if i // 16 % 2 else 0,
    "row_bcast31": lambda i: 131 if i >= 32 else 0,
    "wave_shl": lambda i: 101 + i if i < 63 else 1000,
    "wave_rol": lambda i: 100 + (i + 1) % 64,
    "wave_shr": lambda i: 99 + i if i else 1000,
    "wave_ror": lambda i: 100 + (i - 1) % 64,
    "row_share": lambda i: 105 + _row(i),
    "row_xmask": lambda i: 100 + (i ^ 3),
    "float_dpp": lambda i: 99 + i if i % 16 else 0,
    "swizzle_xor": lambda i: 100 + (i ^ 16),
    "swizzle_broadcast": lambda i: 103 + i // 32 * 32,
    "swizzle_quad": lambda i: 100 + i // 4 * 4 + 3 - i % 4,
    "bpermute": lambda i: 100 + (i * 5 + 3) % 64,
    "permute": lambda i: 100 + (i - 3) * pow(5, -1, 64) % 64,
    "readlane": lambda i: 137,
    "readfirstlane": lambda i: 100,
    "first_of_some": lambda i: 121 if i > 20 else 0,
    "bpermute_inactive": lambda i: 97 + i if i - 3 > 20 else 0,
    "ballot": lambda i: int(i % 3 == 0),
    "mbcnt": lambda i: i,
    "mbcnt_some": lambda i: 5 + bin((0xFF << 32 | 0xF0) & ((1 << i) - 1)).count("1"),
    "permlane16": lambda i: 100 + _row(i) + (i % 8 if i % 16 < 8 else 7 - i % 8),
    "permlanex16": lambda i: 100 + (_row(i) ^ 16) + (0 if i % 16 < 8 else 15),
    "permlane64": lambda i: 100 + (i ^ 32),
    "mov_dpp8": lambda i: 100 + i // 8 * 8 + 7 - i % 8,
    "perm": lambda i: _perm(0x83828180, 0x07060504, 0x0D0C0B05 + i % 4),
    "alignbit": lambda i: _signed(WORD >> i % 32, 32),
    "alignbyte": lambda i: _signed(WORD >> 8 * (i % 4), 32),
    "ubfe": lambda i: 0xDEADBEEF >> i % 32 & 0x1FF,
    "sbfe": lambda i: _signed(_signed(0xDEADBEEF, 32) >> i % 32, 9),
    "sdot4": lambda i: 100 + _dot(0x01FF8002, 0x03FE0710 + i, 8, left=True, right=True),
    "sdot4_clamp": lambda i: 0x7FFFFFFF,
    "udot4": lambda i: 100 + _dot(0x01FF8002, 0x03FE0710 + i, 8, left=False, right=False),
    "sudot4": lambda i: 100 + _dot(0x01FF8002, 0x03FE0710 + i, 8, left=True, right=False),
    "sdot8": lambda i: 7 + _dot(0x12F87654, 0x3FE07101 + i, 4, left=True, right=True),
    "fmed3": lambda i: min(max(100 + i, 120), 130),
    "fract": lambda i: i % 16 * 16,
    "sine": lambda i: [0, 1000, 0, -1000][i % 4],
    "workitem": lambda i: i + 64,
}


@pytest.mark.parametrize("mode", ["fast", "check"])
def test_amd_lanes_read_each_other_as_the_isa_says(built: Built, mode: Mode) -> None:
    how = CHECKED if mode == "check" else ExecutorOptions()
    where = target.load("gfx942")
    outcome = program.run(built("lanes.hip", mode, "gfx942"), how, target=where, language="hip")
    assert outcome.status == 0 and not outcome.errors, outcome
    lines = dict(line.split(" ", 1) for line in outcome.output.splitlines())
    assert list(lines) == list(LANES)
    for name, expected in LANES.items():
        assert [int(x) for x in lines[name].split()] == [expected(i) for i in range(64)], name


# ---- warpgroups and the copy engine


@pytest.mark.full
@pytest.mark.parametrize("mode", ["fast", "check"])
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("wgmma.cu", id="wgmma of every kind of operand in every layout"),
        pytest.param("tensor_copies.cu", id="boxes of tensors at every edge"),
    ],
)
def test_what_hopper_alone_has_does_what_ptx_says(tmp_path: Path, name: str, mode: Mode) -> None:
    hopper = target.load("sm_90")
    options = build.CompileOptions(target=hopper, language="cuda", mode=mode)
    built = build.build_program(SOURCES / name, tmp_path / "program", options)
    how = CHECKED if mode == "check" else ExecutorOptions(order="random", seed=3)
    ended = program.run(built, how, target=hopper, language="cuda")
    assert ended.status == 0 and not ended.findings, ended


def test_a_box_counts_as_one_request_of_whole_sectors(tmp_path: Path) -> None:
    """Six rows of 256 bytes, by a thread; two warps store 128 bytes each."""
    hopper = target.load("sm_90")
    options = build.CompileOptions(target=hopper, language="cuda", mode="check")
    source = SOURCES.parent / "bugs" / "tma_stage_refilled_early.cu"
    built = build.build_program(source, tmp_path / "program", options)
    how = ExecutorOptions(counters=True)
    ended = program.run(built, how, target=hopper, language="cuda")
    (launch,) = ended.counters
    counted = launch["counters"]
    assert (counted["requests"], counted["transactions"]) == (6 + 2, 6 * 8 + 2 * 4)
    assert counted["least_transactions"] == counted["transactions"]
    assert counted["load_bytes"] == 6 * 256
    assert counted["atomics"] == 6 * (64 + 2)  # arrivals, and copies announced and there
