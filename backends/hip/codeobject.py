"""Reads what an AMD code object says of its kernels: a msgpack note in an ELF file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from portkern.spec.backend import Resources
from portkern.spec.file_build import KernelObject
from portkern.toolchain import amd_metadata

from ..cuda.ptxas import readable

# Clang's block size limit where a kernel has no __launch_bounds__.
_ANY_BLOCK = 1024


def resources(path: Path) -> tuple[Resources, ...]:
    """One value per kernel, in the file's order. Raises BuildError for a file without metadata."""
    return tuple(map(_kernel, amd_metadata.kernels(path)))


def kernels(path: Path) -> tuple[KernelObject, ...]:
    """The same in full."""
    return tuple(map(_object, amd_metadata.kernels(path)))


def _object(facts: dict[str, Any]) -> KernelObject:
    agprs = facts.get(".agpr_count", 0)
    return KernelObject(
        readable(facts[".name"]),
        facts[".name"],
        facts[".vgpr_count"] - agprs,  # both kinds are in that count, from gfx90a on
        agprs,
        facts[".sgpr_count"],
        facts[".group_segment_fixed_size"],
        facts[".private_segment_fixed_size"],
        facts[".vgpr_spill_count"],
        facts[".sgpr_spill_count"],
        facts[".max_flat_workgroup_size"],
        facts[".wavefront_size"],
    )


def _kernel(facts: dict[str, Any]) -> Resources:
    threads = facts[".max_flat_workgroup_size"]
    agprs = facts.get(".agpr_count", 0)
    return Resources(
        kernel=readable(facts[".name"]),
        registers=facts[".vgpr_count"] - agprs,  # both kinds are in that count, from gfx90a on
        agprs=agprs,
        sgprs=facts[".sgpr_count"],
        # An array that is indexed at run time goes to scratch memory too, and costs the same.
        spills=max(facts[".vgpr_spill_count"], facts[".private_segment_fixed_size"] // 4),
        shared_bytes=facts[".group_segment_fixed_size"],
        threads=None if threads == _ANY_BLOCK else threads,
    )
