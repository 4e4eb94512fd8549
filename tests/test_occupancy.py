from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portkern.errors import ConfigError
from portkern.spec.occupancy import Limiter, Occupancy, occupancy
from portkern.spec.target import load, names

GPUS = [name for name in names("architecture") if load(name).is_gpu]


def of(
    name: str, *, registers: int = 1, shared: int = 0, threads: int = 256, agprs: int = 0
) -> Occupancy:
    target = load(name)
    return occupancy(target, registers=registers, shared_bytes=shared, threads=threads, agprs=agprs)


# Blocks as computed by NVIDIA's cuda_occupancy.h (CUDA 13.0, largest carve-out, opt-in limit).
@pytest.mark.parametrize(
    ("name", "registers", "shared", "threads", "blocks", "limit"),
    [
        ("sm_90", 32, 0, 256, 8, "threads"),
        ("sm_90", 64, 0, 256, 4, "registers"),  # 64 * 32 = 2048; 16384 // 2048 = 8; 4 * 8 // 8
        ("sm_90", 65, 0, 256, 3, "registers"),  # 2080 -> 2304: 7 warps a sub-partition
        ("sm_90", 72, 0, 64, 14, "registers"),
        ("sm_90", 255, 0, 32, 8, "registers"),
        ("sm_90", 128, 0, 512, 1, "registers"),
        ("sm_90", 128, 0, 1024, 0, "registers"),
        ("sm_90", 32, 100000, 128, 2, "shared"),
        ("sm_90", 32, 232448, 128, 1, "shared"),
        ("sm_90", 32, 232449, 128, 0, "shared"),
        ("sm_90", 16, 0, 32, 32, "blocks"),
        ("sm_80", 40, 20000, 128, 7, "shared"),
        ("sm_80", 168, 0, 352, 1, "registers"),
        ("sm_86", 32, 0, 1024, 1, "threads"),
        ("sm_86", 32, 0, 64, 16, "blocks"),
        ("sm_89", 32, 0, 64, 24, "threads"),
        ("sm_100", 96, 70000, 384, 1, "registers"),
        ("sm_120", 48, 50000, 256, 2, "shared"),
    ],
)
def test_nvidia_agrees_with_nvidias_header(
    name: str, registers: int, shared: int, threads: int, blocks: int, limit: Limiter
) -> None:
    found = of(name, registers=registers, shared=shared, threads=threads)
    assert (found.blocks, found.limited_by) == (blocks, limit)
    assert found.waves == blocks * math.ceil(threads / 32)


def test_nvidia_checks_a_launch_as_if_warps_were_spread_evenly() -> None:
    # 9 warps of 216 registers need 62208 of 65536, but are checked as 12 warps: 82944.
    assert of("sm_90", registers=216, threads=288).blocks == 0
    assert of("sm_90", registers=216, threads=256).blocks == 1


# The steps AMD's guides give for 512 VGPRs per SIMD in granules of 8.
@pytest.mark.parametrize(
    ("vgprs", "waves"), [(64, 8), (72, 7), (80, 6), (96, 5), (128, 4), (168, 3), (256, 2)]
)
@pytest.mark.parametrize("name", ["gfx90a", "gfx942", "gfx950"])
def test_cdna_loses_waves_at_the_known_steps(name: str, vgprs: int, waves: int) -> None:
    assert of(name, registers=vgprs).waves == waves * 4
    if vgprs < 256:
        assert of(name, registers=vgprs + 1).waves < waves * 4


# clang 19 reports 12 waves per SIMD for 98 VGPRs on gfx1201; 1536 VGPRs in granules of 24.
@pytest.mark.parametrize(
    ("name", "vgprs", "waves"),
    [("gfx1100", 96, 16), ("gfx1100", 97, 12), ("gfx1201", 98, 12), ("gfx1201", 256, 5)],
)
def test_rdna_fits_what_1536_registers_allow(name: str, vgprs: int, waves: int) -> None:
    assert of(name, registers=vgprs, threads=128).waves == waves * 4


def test_accumulation_registers_come_out_of_the_same_file() -> None:
    assert of("gfx942", registers=64, agprs=64) == of("gfx942", registers=128)
    # The accumulation half starts at a multiple of 4: 61 -> 64, and 64 + 1 takes the next granule.
    assert of("gfx942", registers=61, agprs=1) == of("gfx942", registers=65)
    assert of("gfx942", registers=256, agprs=256).waves == 4
    assert of("gfx1100", registers=64, agprs=1).limited_by == "registers"
    assert of("gfx1100", registers=64, agprs=1).blocks == 0


# Each size would fit once more if it were divided without rounding, gfx1100's also if rounded to
# the 512 bytes its descriptor is encoded in. 13653 on gfx950 is the case of llvm-project#219172.
@pytest.mark.parametrize(
    ("name", "shared", "blocks"),
    [
        ("gfx942", 13000, 4),  # granule 512: 13312; 65536 / 13312 = 4.9
        ("gfx950", 13653, 11),  # granule 1280: 14080; 163840 / 14080 = 11.6
        ("gfx1100", 43520, 2),  # granule 1024: 44032; 131072 / 44032 = 2.98
        ("gfx1201", 43520, 2),
    ],
)
def test_lds_is_rounded_up_to_its_granule_before_dividing(
    name: str, shared: int, blocks: int
) -> None:
    found = of(name, shared=shared, threads=128)
    assert (found.blocks, found.limited_by) == (blocks, "shared")


def test_a_block_of_rdna_gets_half_of_what_its_wgp_has() -> None:
    assert of("gfx1100", shared=65536).blocks == 2
    assert of("gfx1100", shared=65537).blocks == 0


def test_the_waves_of_a_block_must_be_resident_together() -> None:
    # 16 waves in 4 SIMDs need 4 each; 136 VGPRs leave room for 3.
    assert of("gfx942", registers=128, threads=1024).blocks == 1
    assert of("gfx942", registers=136, threads=1024).blocks == 0
    # 5 waves: 8 slots hold one block, and 3 slots stay empty.
    assert of("gfx942", registers=256, threads=320).waves == 5


def test_barriers_limit_the_blocks_of_more_than_one_wave() -> None:
    # 16 barriers in a CU and 32 in a WGP (LLVM getMaxWorkGroupsPerCU); one wave needs none.
    assert of("gfx942", threads=128).blocks == 16
    assert of("gfx942", threads=64).blocks == 32
    assert of("gfx1100", threads=64).blocks == 32
    assert of("gfx1100", threads=32).blocks == 64


@pytest.mark.parametrize("name", GPUS)
def test_a_kernel_beyond_the_limits_has_no_occupancy_and_a_reason(name: str) -> None:
    def reason(found: Occupancy) -> Limiter:
        assert (found.blocks, found.waves, found.fraction) == (0, 0, 0)
        return found.limited_by

    assert reason(of(name, threads=1025)) == "launch"
    assert reason(of(name, threads=0)) == "launch"
    assert reason(of(name, registers=257)) == "registers"
    assert reason(of(name, shared=300_000)) == "shared"


@pytest.mark.parametrize("name", GPUS)
def test_a_light_kernel_fills_the_machine(name: str) -> None:
    assert of(name, registers=16).fraction == 1
    assert of(name, registers=16).limited_by == "threads"


@pytest.mark.parametrize("name", ["x86_64", "aarch64", "opencl_generic"])
def test_occupancy_is_for_gpus(name: str) -> None:
    with pytest.raises(ConfigError, match=f"No occupancy for '{name}': it is defined for GPUs"):
        of(name)


def test_negative_resources_are_a_callers_mistake() -> None:
    with pytest.raises(ValueError, match="shared_bytes=-1"):
        of("sm_90", shared=-1)


@given(
    name=st.sampled_from(GPUS),
    registers=st.integers(0, 300),
    shared=st.integers(0, 260_000),
    threads=st.integers(1, 1024),
    agprs=st.integers(0, 260),
    more=st.integers(0, 5_000),
)
def test_more_of_anything_never_raises_occupancy(
    name: str, registers: int, shared: int, threads: int, agprs: int, more: int
) -> None:
    here = of(name, registers=registers, shared=shared, threads=threads, agprs=agprs)
    assert 0 <= here.waves <= here.max
    assert 0 <= here.fraction <= 1
    warp = load(name).warp
    assert warp is not None
    assert here.waves == here.blocks * math.ceil(threads / warp)
    for heavier in (
        of(name, registers=registers + more, shared=shared, threads=threads, agprs=agprs),
        of(name, registers=registers, shared=shared + more, threads=threads, agprs=agprs),
        of(name, registers=registers, shared=shared, threads=threads, agprs=agprs + more),
    ):
        assert heavier.waves <= here.waves
