"""Workloads from plain tuples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from portkern.spec.op import Derive, Workload

Size = tuple[int, ...]


def workloads(
    axes: tuple[str, ...],
    *,
    ci: list[Size],
    typical: list[Size],
    edge: list[Size],
    heldout: list[Size],
    headline: Sequence[Size] = (),
    scalars: Sequence[str] = (),
    derived: Derive | None = None,
) -> dict[str, tuple[Workload, ...]]:
    """One workload per tuple of axis lengths, named after them (``128x1000``). Lengths of ``axes``
    that are ``derived`` are left out of it, values of ``scalars`` follow."""
    build = partial(_build, axes, scalars, derived)
    return {
        "ci": build(ci),
        "typical": build(typical),
        "edge": build(edge),
        "heldout": build(heldout),
        "headline": build(headline),
    }


def _build(
    axes: tuple[str, ...], scalars: Sequence[str], derived: Derive | None, sizes: Sequence[Size]
) -> tuple[Workload, ...]:
    made = []
    for size in sizes:
        name = "x".join(map(str, size))
        lengths, values = size[: len(size) - len(scalars)], size[len(size) - len(scalars) :]
        given = dict(zip(scalars, values, strict=True))
        dims = dict(zip(axes, lengths, strict=derived is None))
        made.append(Workload(name, dims | dict(derived(dims, given) if derived else {}), given))
    return tuple(made)


def windows(length: int, window: int, stride: int, padding: int = 0) -> int:
    """How many windows fit, at every ``stride``, into a padded length."""
    return (length + 2 * padding - window) // stride + 1
