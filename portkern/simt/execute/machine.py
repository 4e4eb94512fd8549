"""A target as the executor sees it: the runtime's settings and the compiler's macros."""

from __future__ import annotations

from typing import Literal

from portkern.spec import target as targets
from portkern.spec.target import AmdLimits, NvidiaLimits, Target

Language = Literal["cuda", "hip"]

#: Multiprocessors of a GPU of which only the architecture is known.
USUAL_UNITS = 128
# What code asks for by name; clang defines the same for these processors.
_GFX_FAMILY = {"gfx9": "__GFX9__", "gfx10": "__GFX10__", "gfx11": "__GFX11__", "gfx12": "__GFX12__"}


def with_most_units(target: Target) -> Target | None:
    """The known GPU of a bare architecture that has the most multiprocessors, if it has more than
    :data:`USUAL_UNITS`."""
    known = [one for one in map(targets.load, targets.names("product")) if one.arch == target.arch]
    most = max(known, key=lambda one: one.multiprocessors or 0, default=target)
    has_more = (most.multiprocessors or 0) > USUAL_UNITS
    return most if has_more and not target.multiprocessors else None


def settings(target: Target, language: Language) -> dict[str, str | int]:
    """The facts of ``target`` for ``simt_configure``. Sizes in bytes."""
    limits = target.limits
    facts: dict[str, str | int] = {
        "name": target.title,
        "arch": target.arch,
        "warp": target.warp or 32,
        "hip": int(language == "hip"),
        "waves": int(target.vendor == "amd"),
        "fp8": target.features.fp8,
        "units": target.multiprocessors or USUAL_UNITS,
        "l2_bytes": target.l2_bytes or 32 << 20,
        "memory_bytes": round((target.memory_gb or 64) * 1e9),
    }
    if isinstance(limits, NvidiaLimits):
        number = int(target.arch.removeprefix("sm_"))
        return (
            facts
            | _sizes(limits.block_dim_max, limits.grid_dim_max, limits.threads_block)
            | {
                "shared_static": limits.smem_static_bytes,
                "shared_dynamic": limits.smem_block_bytes,
                "shared_unit": limits.smem_sm_bytes,
                "shared_reserved": limits.smem_reserved_block_bytes,
                "registers_unit": limits.registers_sm,
                "blocks_unit": limits.blocks_sm,
                "threads_unit": limits.warps_sm * 32,
                "constant_bytes": limits.const_bytes,
                "major": number // 10,
                "minor": number % 10,
            }
        )
    assert isinstance(limits, AmdLimits), target
    version = target.arch.removeprefix("gfx")
    grid = [2147483647, 65535, 65535]
    return (
        facts
        | _sizes(limits.block_dim_max, grid, limits.threads_block)
        | {
            "shared_static": limits.lds_block_bytes,
            "shared_dynamic": limits.lds_block_bytes,
            "shared_unit": limits.lds_unit_bytes,
            "shared_reserved": 0,
            "registers_unit": limits.vgprs_simd * limits.simds_unit,
            "blocks_unit": limits.blocks_unit,
            "threads_unit": limits.waves_simd * limits.simds_unit * (target.warp or 64),
            "constant_bytes": 2147483647,
            "major": int(version[:-2]),
            "minor": int(version[-2], 16),
        }
    )


def _sizes(block: list[int], grid: list[int], threads: int) -> dict[str, str | int]:
    sizes: dict[str, str | int] = {"threads_block": threads}
    for axis, b, g in zip("xyz", block, grid, strict=True):
        sizes |= {f"block_{axis}": b, f"grid_{axis}": g}
    return sizes


#: AMD's macros for the width of a warp.
WIDTHS = ("__AMDGCN_WAVEFRONT_SIZE", "__AMDGCN_WAVEFRONT_SIZE__")


def macros(target: Target, language: Language) -> dict[str, str]:
    """The macros that the vendor's compiler defines while it compiles for ``target``."""
    if target.vendor == "nvidia":
        arch = {"__CUDA_ARCH__": f"{target.arch.removeprefix('sm_')}0"}
        return arch | ({"__HIP_PLATFORM_NVIDIA__": "1"} if language == "hip" else {})
    if language == "cuda":
        return {}  # CUDA source on a wide warp: a question about the source, not an AMD build
    family = next(name for gfx, name in _GFX_FAMILY.items() if _of_family(target.arch, gfx))
    return {
        "__HIP_DEVICE_COMPILE__": "1",
        "__AMDGCN__": "1",
        f"__{target.arch}__": "1",
        family: "1",
        **dict.fromkeys(WIDTHS, str(target.warp)),
    }


def _of_family(arch: str, family: str) -> bool:
    """``gfx90a`` is gfx9, ``gfx1100`` is gfx11: the last two digits are minor and stepping."""
    return arch[:-2] == family
