"""Exact counts of what launches did: instructions by class, lanes, and what memory was asked for.

They follow from the object and the inputs alone, and know nothing of time. ``least`` stands for
what the same bytes would take at their best: all of a line used, no two lanes at one bank.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

#: What the runtime counts itself, in its order.
TOTALS = (
    "waves",
    "load_bytes",
    "store_bytes",
    "requests",
    "lines",
    "least_lines",
    "lds_bytes",
    "lds_requests",
    "lds_passes",
    "least_lds_passes",
    "scratch_bytes",
    "scalar_bytes",
)
#: Instructions of arithmetic on matrices, which are counted by their names as well.
_MATRIX = ("v_mfma", "v_smfmac", "v_wmma", "v_swmmac")
_WAITS = ("s_wait", "s_nop", "s_delay_alu", "s_sleep", "s_clause")
_FLOW = ("s_branch", "s_cbranch", "s_setpc", "s_swappc", "s_call", "s_endpgm")
_MEMORY = ("FLAT", "GLOBAL", "MUBUF", "MTBUF", "VFLAT", "VGLOBAL", "VBUFFER")


def kind_of(mnemonic: str, encoding: str) -> str:
    """The class of an instruction: ``vector matrix scalar waits branches barriers lds memory
    scratch scalar_memory``."""
    if mnemonic.startswith(_MATRIX):
        return "matrix"
    if encoding.startswith("VOP"):
        return "vector"
    if encoding == "SMEM":
        return "scalar_memory"
    if encoding in ("DS", "VDS"):
        return "lds"
    if encoding.endswith("SCRATCH"):
        return "scratch"
    if encoding in _MEMORY:
        return "memory"
    if mnemonic.startswith("s_barrier"):
        return "barriers"
    if mnemonic.startswith(_WAITS):
        return "waits"
    return "branches" if mnemonic.startswith(_FLOW) else "scalar"


def of(
    executed: Iterable[tuple[str, str, int, int]], totals: Sequence[int], wave_size: int
) -> dict[str, int]:
    """The counts by name, from mnemonic, encoding, executions and active lanes of each instruction.
    ``lanes`` is of vector instructions and those of memory, ``lane_slots`` what it would be with
    all lanes on; atomics of memory and LDS are counted beside their class."""
    counts: Counter[str] = Counter(dict(zip(TOTALS, totals, strict=True)))
    for mnemonic, encoding, times, lanes in executed:
        if not times:
            continue
        kind = kind_of(mnemonic, encoding)
        counts["instructions"] += times
        counts[kind] += times
        if kind == "matrix":
            counts[mnemonic] += times
        if "_atomic" in mnemonic:
            counts["atomics"] += times
        if kind in ("vector", "lds", "memory", "scratch"):
            counts["lanes"] += lanes
            counts["lane_slots"] += times * wave_size
    return {name: number for name, number in counts.items() if number}


def added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sums of several launches."""
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return dict(total)
