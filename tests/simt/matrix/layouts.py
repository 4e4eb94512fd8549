"""Where AMD's matrix instructions keep their elements, by AMD's Matrix Instruction Calculator.

Each function says lane and place within the lane's registers of one element; the executor's headers
go the other way round.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Multiply:
    """One builtin: M x K times K x N, ``blocks`` times. ``family``: cdna, rdna3 or rdna4."""

    name: str
    family: str
    m: int
    n: int
    k: int
    blocks: int
    a: str
    b: str
    c: str
    lanes: int = 64
    cbsz: int = 0
    abid: int = 0
    blgp: int = 0
    upper: bool = False
    clamp: bool = False

    @property
    def inputs(self) -> int:
        """Elements of A in a lane."""
        if self.family == "rdna3":
            return self.k
        return self.m * self.k * self.blocks // self.lanes

    @property
    def outputs(self) -> int:
        """Elements of C in a lane, unused halves of registers included."""
        return self.m * self.n * self.blocks // self.lanes * self.spread

    @property
    def spread(self) -> int:
        return 2 if self.family == "rdna3" and self.c in ("f16", "bf16") else 1

    def left(self, i: int, k: int, block: int) -> tuple[list[int], int]:
        """Lanes (several hold the same where an instruction wants that) and place of A[i, k]."""
        if self.family == "rdna3":
            return list(range(i, self.lanes, 16)), k
        if self.family == "rdna4":
            return self._rdna4(i, k)
        lane = block * self.m + k // self.inputs * self.m * self.blocks + i
        return [lane], k % self.inputs

    def right(self, k: int, j: int, block: int) -> tuple[list[int], int]:
        lanes, place = self.left(j, k, block)
        return [_permuted(lane, 0 if self.a == "f64" else self.blgp) for lane in lanes], place

    def _rdna4(self, i: int, k: int) -> tuple[list[int], int]:
        sixteen = self.a in ("f16", "bf16")
        if self.lanes == 32:
            if sixteen:
                return [16 * (k // 4 % 2) + i], k // 8 * 4 + k % 4
            return [16 * (k // self.inputs) + i], k % self.inputs
        if sixteen:
            return [32 * (k // 8 % 2) + 16 * (k // 4 % 2) + i], k % 4
        run = self.inputs
        return [32 * (k // run % 2) + 16 * (k // (2 * run) % 2) + i], k % run

    def result(self, i: int, j: int, block: int) -> tuple[int, int]:
        """Lane and place of C[i, j] and D[i, j]."""
        if self.family == "rdna3":
            rows = self.lanes // 16
            return i % rows * 16 + j, i // rows * self.spread + self.upper
        if self.family == "rdna4":
            if self.lanes == 32:
                return i // 8 * 16 + j, i % 8
            return 32 * (i // 4 % 2) + 16 * (i // 8) + j, i % 4
        height = 1 if self.c == "f64" else 4
        strips = 64 // self.n
        abreast = max(1, 64 // (self.n * self.m // height))
        place = block * (self.m * self.n // 64) + i // (height * strips) * height + i % height
        lane = block % abreast * self.n + i // height % strips * abreast * self.n + j
        return lane, place

    def block_of_left(self, block: int) -> int:
        """The block whose A is used for ``block`` (CBSZ and ABID)."""
        if not self.cbsz:
            return block
        return (block >> self.cbsz << self.cbsz) + self.abid


def _permuted(lane: int, blgp: int) -> int:
    """The lane that B is read from instead of ``lane`` (BLGP)."""
    if blgp in (0, 3):
        return (lane + 16) % 64 if blgp else lane
    if blgp < 3:
        return lane % 32 + 32 * (blgp - 1)
    return lane % 16 + 16 * (blgp - 4)


def _mfma(name: str, shape: str, a: str, c: str = "f32", b: str = "", **modes: int) -> Multiply:
    m, k, blocks = (int(part) for part in shape.split())
    return Multiply(name, "cdna", m, m, k, blocks, a, b or a, c, **modes)  # type: ignore[arg-type]


#: in the order of amd_list.h
MULTIPLIES = [
    _mfma("f32_32x32x1f32", "32 1 2", "f32"),
    _mfma("f32_16x16x1f32", "16 1 4", "f32"),
    _mfma("f32_4x4x1f32", "4 1 16", "f32"),
    _mfma("f32_32x32x2f32", "32 2 1", "f32"),
    _mfma("f32_16x16x4f32", "16 4 1", "f32"),
    _mfma("f32_32x32x4f16", "32 4 2", "f16"),
    _mfma("f32_16x16x4f16", "16 4 4", "f16"),
    _mfma("f32_4x4x4f16", "4 4 16", "f16"),
    _mfma("f32_32x32x8f16", "32 8 1", "f16"),
    _mfma("f32_16x16x16f16", "16 16 1", "f16"),
    _mfma("f32_32x32x2bf16", "32 2 2", "bf16"),
    _mfma("f32_16x16x2bf16", "16 2 4", "bf16"),
    _mfma("f32_4x4x2bf16", "4 2 16", "bf16"),
    _mfma("f32_32x32x4bf16", "32 4 1", "bf16"),
    _mfma("f32_16x16x8bf16", "16 8 1", "bf16"),
    _mfma("f32_32x32x4bf16_1k", "32 4 2", "bf16"),
    _mfma("f32_16x16x4bf16_1k", "16 4 4", "bf16"),
    _mfma("f32_4x4x4bf16_1k", "4 4 16", "bf16"),
    _mfma("f32_32x32x8bf16_1k", "32 8 1", "bf16"),
    _mfma("f32_16x16x16bf16_1k", "16 16 1", "bf16"),
    _mfma("i32_32x32x4i8", "32 4 2", "s8", "s32"),
    _mfma("i32_16x16x4i8", "16 4 4", "s8", "s32"),
    _mfma("i32_4x4x4i8", "4 4 16", "s8", "s32"),
    _mfma("i32_32x32x8i8", "32 8 1", "s8", "s32"),
    _mfma("i32_16x16x16i8", "16 16 1", "s8", "s32"),
    _mfma("i32_32x32x16_i8", "32 16 1", "s8", "s32"),
    _mfma("i32_16x16x32_i8", "16 32 1", "s8", "s32"),
    _mfma("f64_16x16x4f64", "16 4 1", "f64", "f64"),
    _mfma("f64_4x4x4f64", "4 4 4", "f64", "f64"),
    _mfma("f32_16x16x8_xf32", "16 8 1", "f32"),
    _mfma("f32_32x32x4_xf32", "32 4 1", "f32"),
    _mfma("f32_16x16x32_f16", "16 32 1", "f16"),
    _mfma("f32_32x32x16_f16", "32 16 1", "f16"),
    _mfma("f32_16x16x32_bf16", "16 32 1", "bf16"),
    _mfma("f32_32x32x16_bf16", "32 16 1", "bf16"),
    _mfma("i32_16x16x64_i8", "16 64 1", "s8", "s32"),
    _mfma("i32_32x32x32_i8", "32 32 1", "s8", "s32"),
    *(
        _mfma(f"f32_{shape}_{a}_{b}", sizes, a, b=b)
        for shape, sizes in (("16x16x32", "16 32 1"), ("32x32x16", "32 16 1"))
        for a in ("fp8", "bf8")
        for b in ("fp8", "bf8")
    ),
    _mfma("f32_16x16x4f16", "16 4 4", "f16", cbsz=1),
    _mfma("f32_16x16x4f16", "16 4 4", "f16", cbsz=1, abid=1),
    _mfma("f32_16x16x4f16", "16 4 4", "f16", cbsz=2, abid=3),
    _mfma("f32_4x4x4f16", "4 4 16", "f16", cbsz=3, abid=5),
    _mfma("f32_32x32x4f16", "32 4 2", "f16", blgp=1),
    _mfma("f32_32x32x4f16", "32 4 2", "f16", blgp=2),
    *(_mfma("f32_16x16x16f16", "16 16 1", "f16", blgp=blgp) for blgp in (3, 4, 5, 6, 7)),
    _mfma("f64_16x16x4f64", "16 4 1", "f64", "f64", blgp=5),
]


def _wmma(name: str, family: str, k: int, a: str, c: str, b: str = "", **modes: int) -> Multiply:
    lanes = 64 if "w64" in name else 32
    return Multiply(name, family, 16, 16, k, 1, a, b or a, c, lanes, **modes)  # type: ignore[arg-type]


MULTIPLIES += [
    _wmma("f32_16x16x16_f16_w32", "rdna3", 16, "f16", "f32"),
    _wmma("f32_16x16x16_bf16_w32", "rdna3", 16, "bf16", "f32"),
    _wmma("f16_16x16x16_f16_w32", "rdna3", 16, "f16", "f16"),
    _wmma("f16_16x16x16_f16_w32", "rdna3", 16, "f16", "f16", upper=True),
    _wmma("bf16_16x16x16_bf16_w32", "rdna3", 16, "bf16", "bf16"),
    _wmma("i32_16x16x16_iu8_w32", "rdna3", 16, "s8", "s32"),
    _wmma("i32_16x16x16_iu8_w32", "rdna3", 16, "s8", "s32", "u8", clamp=True),
    _wmma("i32_16x16x16_iu4_w32", "rdna3", 16, "u4", "s32", "s4"),
    _wmma("f32_16x16x16_f16_w32_gfx12", "rdna4", 16, "f16", "f32"),
    _wmma("f32_16x16x16_bf16_w32_gfx12", "rdna4", 16, "bf16", "f32"),
    _wmma("f16_16x16x16_f16_w32_gfx12", "rdna4", 16, "f16", "f16"),
    _wmma("bf16_16x16x16_bf16_w32_gfx12", "rdna4", 16, "bf16", "bf16"),
    _wmma("i32_16x16x16_iu8_w32_gfx12", "rdna4", 16, "s8", "s32"),
    _wmma("i32_16x16x16_iu4_w32_gfx12", "rdna4", 16, "s4", "s32", "u4"),
    _wmma("i32_16x16x32_iu4_w32_gfx12", "rdna4", 32, "u4", "s32"),
    _wmma("f32_16x16x16_fp8_bf8_w32_gfx12", "rdna4", 16, "fp8", "f32", "bf8"),
    _wmma("f32_16x16x16_bf8_bf8_w32_gfx12", "rdna4", 16, "bf8", "f32"),
    _wmma("f32_16x16x16_f16_w64", "rdna3", 16, "f16", "f32"),
    _wmma("f16_16x16x16_f16_w64", "rdna3", 16, "f16", "f16", upper=True),
    _wmma("i32_16x16x16_iu8_w64", "rdna3", 16, "u8", "s32", "s8"),
    _wmma("f32_16x16x16_f16_w64_gfx12", "rdna4", 16, "f16", "f32"),
    _wmma("i32_16x16x16_iu8_w64_gfx12", "rdna4", 16, "s8", "s32"),
    _wmma("i32_16x16x32_iu4_w64_gfx12", "rdna4", 32, "s4", "s32"),
]
