"""The units of what sources measure; names and meanings are in :mod:`portkern.agent.feedback`."""

from __future__ import annotations

from collections.abc import Mapping

#: Units in the order in which metrics are told.
UNITS: Mapping[str, str] = {
    "build_errors": "",
    "registers": "/thread",
    "spills": "B",
    "shared_bytes": "B",
    "threads": "/block",
    "occupancy": "of 1",
    "median_us": "µs",
    "speedup": "x",
    "roofline_pct": "%",
    "kernel_us": "µs",
    "memory_pct": "%",
    "compute_pct": "%",
    "tensor_pct": "%",
    "occupancy_pct": "%",
    "l1_hit_pct": "%",
    "l2_pct": "%",
    "l2_hit_pct": "%",
    "bytes_read": "B",
    "bytes_written": "B",
    "instructions": "",
    "ipc": "/cycle",
    "stall_memory_pct": "%",
    "stall_barrier_pct": "%",
    "stall_branch_pct": "%",
    "stall_short_pct": "%",
    "stall_other_pct": "%",
    "divergence_pct": "%",
    "page_faults": "",
}
MEGABYTE = 1e6


def shown(name: str, value: float) -> str:
    """The value with its unit, as people write it."""
    unit = UNITS.get(name, "")
    if unit == "B" and value >= MEGABYTE:
        return f"{value / MEGABYTE:.4g} MB"
    number = f"{value:,.0f}" if value >= 1e3 else f"{value:.3g}"
    return f"{number} {unit}".rstrip()
