"""Workloads from plain tuples."""

from __future__ import annotations

from portkern.op import Workload

Size = tuple[int, ...]


def workloads(
    axes: tuple[str, ...], *, ci: list[Size], typical: list[Size], edge: list[Size],
    heldout: list[Size],
) -> dict[str, tuple[Workload, ...]]:  # fmt: skip
    """One workload per tuple of axis lengths, named after them (``128x1000``)."""

    def build(sizes: list[Size]) -> tuple[Workload, ...]:
        return tuple(
            Workload("x".join(map(str, size)), dict(zip(axes, size, strict=True))) for size in sizes
        )

    return {
        "ci": build(ci), "typical": build(typical), "edge": build(edge), "heldout": build(heldout),
    }  # fmt: skip
