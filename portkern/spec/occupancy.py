"""How many warps of a kernel fit on one multiprocessor, from its static resources alone.

NVIDIA: the rule of CUDA 13.0's ``cuda_occupancy.h``, at the largest shared-memory carve-out.
AMD: the rule of LLVM's ``AMDGPUBaseInfo.cpp``, with LDS rounded up to its granule before dividing
(llvm-project#205637: LLVM before mid-2026, and so clang 19's "Occupancy" remark, did not round).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from portkern.errors import ConfigError
from portkern.spec.backend import Resources
from portkern.spec.target import AmdLimits, NvidiaLimits, Target, TpuLimits

Limiter = Literal["registers", "shared", "threads", "blocks", "launch"]


@dataclass(frozen=True)
class Occupancy:
    """Warps (waves) resident at once on one SM, CU or, on RDNA, WGP (two CUs).

    ``blocks`` is 0 when the kernel cannot be launched at all; ``limited_by`` says why.
    """

    waves: int
    max: int
    blocks: int
    limited_by: Limiter

    @property
    def fraction(self) -> float:
        return self.waves / self.max


def occupancy(
    target: Target, *, registers: int, shared_bytes: int, threads: int, agprs: int = 0
) -> Occupancy:
    """``registers`` per thread (VGPRs on AMD), ``shared_bytes`` static plus dynamic per block,
    ``threads`` per block, ``agprs`` accumulation VGPRs per thread (CDNA only).

    SGPRs are not counted: they limit nothing on RDNA, and on CDNA only beyond 100, to 7 waves.
    """
    if min(registers, shared_bytes, agprs) < 0:
        msg = f"Resources cannot be negative, got {registers=}, {shared_bytes=}, {agprs=}"
        raise ValueError(msg)
    limits = target.limits
    if target.warp is None or not isinstance(limits, NvidiaLimits | AmdLimits):
        msg = f"No occupancy for {target.name!r}: it is defined for GPUs, nvidia or amd"
        raise ConfigError(msg)
    if isinstance(limits, NvidiaLimits):
        most = limits.warps_sm
    else:
        most = limits.waves_simd * limits.simds_unit
    if not 1 <= threads <= limits.threads_block:
        return Occupancy(waves=0, max=most, blocks=0, limited_by="launch")
    waves = _ceil_div(threads, target.warp)
    if isinstance(limits, NvidiaLimits):
        fits = _nvidia_blocks(limits, target.warp, waves, registers, shared_bytes)
    else:
        fits = _amd_blocks(limits, waves, _unified_vgprs(registers, agprs), shared_bytes)
        if registers > limits.vgprs_thread or agprs > limits.agprs_thread:
            fits["registers"] = 0
    # The first of equals is named, and hard limits come first: fewer registers would not help.
    limiter = min(fits, key=lambda limit: fits[limit])
    blocks = fits[limiter]
    return Occupancy(waves=blocks * waves, max=most, blocks=blocks, limited_by=limiter)


def no_place(target: Target, used: Resources) -> str:
    """Why ``target`` can never launch a kernel that takes so much; empty where it may, and where
    nothing is known of it."""
    limits = target.limits
    most: dict[str, tuple[int | None, int | None]] = {
        "B of shared memory per block": (used.shared_bytes, target.shared_block_bytes)
    }
    if isinstance(limits, NvidiaLimits):
        most["registers per thread"] = (used.registers, limits.registers_thread)
    elif isinstance(limits, AmdLimits):
        most["registers per thread"] = (used.registers, limits.vgprs_thread)
        most["accumulation registers per thread"] = (used.agprs, limits.agprs_thread)
    elif isinstance(limits, TpuLimits):
        most["B of vector memory"] = (used.vmem_bytes, limits.vmem_bytes)
    if isinstance(limits, NvidiaLimits | AmdLimits):
        most["threads per block"] = (used.threads, limits.threads_block)
    for what, (taken, limit) in most.items():
        if taken is not None and limit is not None and taken > limit:
            return f"{used.kernel} takes {taken:,} {what}, {target.name} has {limit:,}"
    return _no_place_together(target, used)


def _no_place_together(target: Target, used: Resources) -> str:
    """Says the same of registers and threads together, where both are known."""
    if not target.is_gpu or used.registers is None or not used.threads:
        return ""
    found = occupancy(
        target,
        registers=used.registers,
        shared_bytes=used.shared_bytes or 0,
        threads=used.threads,
        agprs=used.agprs or 0,
    )
    if found.blocks:
        return ""
    return (
        f"{used.kernel} takes {used.registers} registers in each of {used.threads} threads, for "
        f"which {target.name} has no room in a block"
    )


def _nvidia_blocks(
    limits: NvidiaLimits, warp: int, warps: int, registers: int, shared_bytes: int
) -> dict[Limiter, int]:
    """The blocks that each resource alone would admit to one SM."""
    fits: dict[Limiter, int] = {
        "threads": limits.warps_sm // warps,
        "blocks": limits.blocks_sm,
        "registers": limits.blocks_sm,
    }
    if registers:
        per_warp = _round_up(registers * warp, limits.register_granule)
        # The hardware checks a launch as if the warps were spread evenly over the sub-partitions.
        assumed = per_warp * _round_up(warps, limits.subpartitions_sm)
        if registers > limits.registers_thread or assumed > limits.registers_block:
            fits["registers"] = 0
        else:
            # A warp's registers lie in one sub-partition, so each of the four rounds down alone.
            per_subpartition = limits.registers_sm // limits.subpartitions_sm // per_warp
            fits["registers"] = per_subpartition * limits.subpartitions_sm // warps
    shared = _round_up(shared_bytes, limits.smem_granule_bytes)
    fits["shared"] = limits.smem_sm_bytes // (shared + limits.smem_reserved_block_bytes)
    if shared > limits.smem_block_bytes:
        fits["shared"] = 0
    return fits


def _amd_blocks(limits: AmdLimits, waves: int, vgprs: int, shared_bytes: int) -> dict[Limiter, int]:
    """The blocks that each resource alone would admit to one unit, whole blocks only: the waves
    of a block share an LDS and a barrier and must be resident together."""
    slots = limits.waves_simd * limits.simds_unit
    allocated = _round_up(max(vgprs, 1), limits.vgpr_granule)
    waves_simd = min(limits.waves_simd, limits.vgprs_simd // allocated)
    fits: dict[Limiter, int] = {
        "threads": slots // waves,
        "blocks": limits.blocks_unit if waves > 1 else slots,
        "registers": waves_simd * limits.simds_unit // waves,
    }
    shared = _round_up(shared_bytes, limits.lds_granule_bytes)
    fits["shared"] = limits.lds_unit_bytes // shared if shared else slots
    if shared_bytes > limits.lds_block_bytes:
        fits["shared"] = 0
    return fits


def _unified_vgprs(vgprs: int, agprs: int) -> int:
    """The registers that both kinds take together: since gfx90a they share one file, the
    accumulation half starting at a multiple of 4 (LLVM ``getTotalNumVGPRs``)."""
    return _round_up(vgprs, 4) + agprs if agprs else vgprs


def _ceil_div(value: int, step: int) -> int:
    return -(-value // step)


def _round_up(value: int, step: int) -> int:
    return _ceil_div(value, step) * step
