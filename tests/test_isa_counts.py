"""Counts of kernels whose every instruction is written here, on waves of 64 and of 32 lanes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from portkern.isa import runtime_library
from portkern.isa.executor import LaunchBuffer
from portkern.spec.backend import Missing
from tools.fidelity.machine import STYLES, Assembler

PROCESSORS = {"gfx90a": "cdna", "gfx942": "cdna", "gfx1100": "rdna3", "gfx1201": "rdna4"}
#: The threads of a group; a wave of 32 lanes has a partner in it.
THREADS = 64
#: Lanes of each wave that stay on behind a comparison.
ON = 10
MATRIX = {
    "cdna": "v_mfma_f32_16x16x16f16 v[12:15], v[4:5], v[6:7], v[8:11]",
    "rdna3": "v_wmma_f32_16x16x16_f16 v[40:47], v[16:23], v[24:31], v[32:39]",
    "rdna4": "v_wmma_f32_16x16x16_f16 v[40:47], v[16:19], v[24:27], v[32:39]",
}


def body(family: str, *, apart: int, matrices: int, spills: int) -> list[str]:
    """Each thread stores its number into LDS, ``apart`` words from the next one's; all meet; ten
    lanes of each wave add one, and store to memory, a line of 128 bytes each."""
    style, new = STYLES[family], family != "cdna"
    word = "b32" if new else "dword"
    meet = {"rdna4": ["s_barrier_signal -1", "s_barrier_wait -1"]}.get(family, ["s_barrier"])
    add = "v_add_nc_u32_e32" if new else "v_add_u32_e32"
    return [
        f"s_load_{'b128' if new else 'dwordx4'} s[4:7], s[0:1], 0x0",  # 16 bytes by a scalar load
        *style.wait.splitlines(),
        "v_and_b32_e32 v1, 0x3ff, v0",
        f"v_mul_u32_u24_e32 v2, {4 * apart:#x}, v1",
        f"ds_{'store' if new else 'write'}_b32 v2, v1",
        *style.wait.splitlines(),
        *meet,
        *[MATRIX[family], "s_nop 15"] * matrices,
        "s_mov_b32 s20, 0",
        *[f"scratch_store_{word} off, v1, s20"] * spills,
        f"v_and_b32_e32 v3, {style.wave - 1:#x}, v1",  # the lane
        f"v_cmp_gt_u32_e32 {style.vcc}, {ON}, v3",
        f"s_and_{style.size} {style.exec}, {style.exec}, {style.vcc}",
        f"{add} v3, 1, v1",
        "v_lshlrev_b32_e32 v2, 7, v1",
        f"global_store_{word} v2, v3, s[4:5]",
        "s_endpgm",
    ]


@pytest.mark.parametrize("processor", PROCESSORS)
def test_each_class_lines_banks_divergence_and_spills_are_counted(processor: str) -> None:
    if isinstance(found := runtime_library.find(), Missing):
        pytest.skip(str(found))
    family = PROCESSORS[processor]
    style = STYLES[family]
    forms = {
        "plain": {"apart": 1, "matrices": 0, "spills": 0},
        "far": {"apart": 16, "matrices": 0, "spills": 0},
        "matrices": {"apart": 1, "matrices": 3, "spills": 0},
        "spills": {"apart": 1, "matrices": 0, "spills": 2},
    }
    kernels = {name: body(family, **form) for name, form in forms.items()}
    program = Assembler(family, processor).program(kernels)
    waves, groups = THREADS // style.wave, 3
    memory = np.zeros(THREADS * 32, np.int32)
    address = memory.ctypes.data

    def counted(name: str) -> Counter[str]:
        ran = program.run(
            name, [address.to_bytes(8, "little")] * 3, (groups, 1, 1), (THREADS, 1, 1),
            buffers=[LaunchBuffer(address, memory.nbytes)], checks=("counters",),
        )  # fmt: skip
        assert ran.clean, ran.findings
        return Counter(ran.counts)

    every = waves * groups
    plain = counted("plain")
    lanes = np.arange(THREADS) % style.wave
    assert (memory[::32] == np.where(lanes < ON, np.arange(THREADS) + 1, 0)).all()
    waits = len(style.wait.splitlines())
    meets = 2 if family == "rdna4" else 1
    assert plain["waves"] == every
    expected = {
        "vector": 6, "scalar": 2, "scalar_memory": 1, "lds": 1, "memory": 1, "branches": 1,
        "waits": 2 * waits, "barriers": meets, "matrix": 0, "scratch": 0, "atomics": 0,
    }  # fmt: skip
    assert {kind: plain[kind] for kind in expected} == {k: n * every for k, n in expected.items()}
    assert plain["instructions"] == sum(expected.values()) * every
    # Four vector instructions and that of LDS with all lanes, two and the store with ten.
    assert plain["lane_slots"] == 8 * style.wave * every
    assert plain["lanes"] == (5 * style.wave + 3 * ON) * every
    assert plain["scalar_bytes"] == 16 * every
    assert plain["store_bytes"] == 4 * ON * every and plain["load_bytes"] == 0
    assert (plain["requests"], plain["lines"]) == (every, ON * every)
    assert plain["least_lines"] == every
    passes = style.wave // 32
    assert plain["lds_passes"] == plain["least_lds_passes"] == passes * every
    assert plain["lds_bytes"] == 4 * style.wave * every and plain["lds_requests"] == every
    # Sixteen words apart all lanes meet at two banks.
    far = counted("far")
    assert far["lds_passes"] == 16 * passes * every
    assert far["least_lds_passes"] == plain["least_lds_passes"]
    matrices = counted("matrices")
    # The executor has one name for what chips call otherwise.
    [name] = (kind for kind in matrices if kind.startswith(("v_mfma", "v_wmma")))
    assert name.startswith(MATRIX[family].partition("16x16x16")[0])
    assert matrices["matrix"] == matrices[name] == 3 * every
    assert matrices["instructions"] - plain["instructions"] == 6 * every
    spills = counted("spills")
    assert spills["scratch"] == 2 * every
    assert spills["scratch_bytes"] == 2 * 4 * style.wave * every


def test_waves_that_a_chip_holds_follow_from_registers_and_lds() -> None:
    """RDNA's SIMD has 1,536 registers of 32 lanes for at most 16 waves (CDNA: 512 of 64 for 8)."""
    from portkern.spec import target
    from portkern.spec.occupancy import occupancy

    def of(name: str, registers: int, shared: int = 0) -> float:
        return occupancy(
            target.load(name), threads=256, registers=registers, shared_bytes=shared
        ).fraction

    assert of("gfx1100", 96) == 1.0 and of("gfx1201", 96) == 1.0
    assert of("gfx1100", 97) < 1.0  # 15 waves of 120 registers would fit, of groups of 8 fewer
    assert of("gfx942", 64) == 1.0 and of("gfx942", 128) == 0.5
