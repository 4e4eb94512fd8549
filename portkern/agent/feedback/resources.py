"""The resources of the target that a build uses, by kernel: known without running anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from portkern.agent.axes import Measured
from portkern.agent.feedback.rendering import Form, sentences
from portkern.agent.task import Task
from portkern.records.record import BuildResources, Record
from portkern.spec.candidate import Candidate
from portkern.spec.occupancy import Limiter, Occupancy, occupancy
from portkern.spec.target import NvidiaLimits, Target

_LIMITED: dict[Limiter, str] = {
    "registers": "registers",
    "shared": "shared memory",
    "threads": "the threads of its blocks",
    "blocks": "the number of blocks",
    "launch": "blocks that are too large to launch",
}


class ResourceFeedback:
    kind: ClassVar[str] = "resources"
    stage: ClassVar[int] = 2

    def __init__(self, *, render: Form) -> None:
        self._render = render

    def measure(self, task: Task, candidate: Candidate, records: Sequence[Record]) -> Measured:
        kernels = list(
            {resource.kernel: resource for r in records for resource in r.resources}.values()
        )
        metrics = dict(_worst(kernels))
        lines = [_told(kernel, task.target) for kernel in kernels]
        if self._render == "nl":
            lines += sentences(metrics)
        return Measured(metrics, "Resources of the build", "\n".join(lines))


def _worst(kernels: Sequence[BuildResources]) -> Iterator[tuple[str, float]]:
    for name in ("registers", "spills", "shared_bytes", "threads"):
        known = [getattr(kernel, name) for kernel in kernels if getattr(kernel, name) is not None]
        if known:
            yield name, float(max(known))
    fractions = [kernel.occupancy for kernel in kernels if kernel.occupancy is not None]
    if fractions:
        yield "occupancy", min(fractions)


def _told(used: BuildResources, target: Target) -> str:
    parts = []
    if used.registers is not None:
        limits = target.limits
        nvidia = isinstance(limits, NvidiaLimits)
        most = getattr(limits, "registers_thread" if nvidia else "vgprs_thread", None)
        parts.append(f"{used.registers} of {most or '?'} registers per thread")
    parts += [f"{used.agprs} accumulation registers"] if used.agprs else []
    if used.spills is not None:
        unit = "B" if target.vendor == "nvidia" else "registers"
        parts.append(f"{used.spills} {unit} spilled" if used.spills else "no spills")
    if used.shared_bytes is not None:
        most = target.shared_block_bytes
        parts.append(f"{used.shared_bytes} of {most or '?'} B shared memory per block")
    if used.threads is not None:
        parts.append(f"{used.threads} threads per block")
    return f"{used.kernel}: {', '.join([*parts, _occupied(used, target)])}"


def _occupied(used: BuildResources, target: Target) -> str:
    if not target.is_gpu or used.registers is None:
        return "occupancy is not defined here" if not target.is_gpu else "occupancy unknown"
    if used.threads is None:
        return "occupancy unknown: the size of its blocks is chosen at launch"
    occupied: Occupancy = occupancy(
        target,
        registers=used.registers,
        agprs=used.agprs or 0,
        shared_bytes=used.shared_bytes or 0,
        threads=used.threads,
    )
    return (
        f"occupancy {occupied.fraction:.0%} ({occupied.waves} of {occupied.max} warps), "
        f"limited by {_LIMITED[occupied.limited_by]}"
    )
