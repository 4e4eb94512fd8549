"""The files that Triton leaves in its cache for one launch: a binary, its metadata and its
assembly."""

from __future__ import annotations

import json
import re
from pathlib import Path

from portkern.spec.backend import Resources
from portkern.spec.target import Target


def kind_of(target: Target) -> str:
    """The suffix of the target's binaries."""
    return "cubin" if target.vendor == "nvidia" else "hsaco"


def resources(cache: Path, kind: str, ptxas_log: str) -> tuple[Resources, ...]:
    """One per kernel and specialisation, in the order in which they were compiled."""
    binaries = sorted(cache.glob(f"*/*.{kind}"), key=lambda file: file.stat().st_mtime_ns)
    return tuple(_read(binary, ptxas_log) for binary in binaries)


def _read(binary: Path, ptxas_log: str) -> Resources:
    metadata = json.loads(binary.with_suffix(".json").read_text())
    name, shared_bytes = metadata["name"], metadata["shared"]
    threads = metadata["num_warps"] * metadata["target"]["warp_size"]
    if binary.suffix == ".hsaco":
        return amd_resources(name, binary.with_suffix(".amdgcn").read_text(), shared_bytes, threads)
    match = re.search(
        rf"Function properties for {re.escape(name)}\n.*?(\d+) bytes spill stores, "
        r"(\d+) bytes spill loads\n.*?Used (\d+) registers",
        ptxas_log,
    )
    if match is None:
        return Resources(name, shared_bytes=shared_bytes, threads=threads)
    stores, loads, registers = map(int, match.groups())
    return Resources(
        name, registers, spills=stores + loads, shared_bytes=shared_bytes, threads=threads
    )


def amd_resources(name: str, assembly: str, shared_bytes: int, threads: int) -> Resources:
    """Resources as the metadata at the end of the assembly says them; ``.vgpr_count`` there
    includes the AGPRs."""

    def number(pattern: str) -> int | None:
        match = re.search(rf"^{pattern}:\s+(\d+)\s*$", assembly, re.MULTILINE)
        return int(match[1]) if match else None

    vgprs = number(r"; NumVgprs")
    return Resources(
        name,
        registers=number(r"\s*\.vgpr_count") if vgprs is None else vgprs,
        agprs=number(r"[\s-]*\.agpr_count") or 0,
        sgprs=number(r"\s*\.sgpr_count"),
        spills=number(r"\s*\.vgpr_spill_count"),
        shared_bytes=shared_bytes,
        threads=threads,
    )
