"""The sizes that one step of an environment is evaluated on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkern.spec.op import Op, Workload

if TYPE_CHECKING:
    from numpy.random import Generator

#: Sets of which a workload is drawn for each step beside those that are told.
_DRAWN_OF = ("heldout", "edge")


def told_and_drawn(op: Op, generator: Generator | None) -> list[tuple[str, Workload]]:
    """Returns the sizes of ``ci``, which authors are told, and one that the generator draws."""
    told = [("ci", workload) for workload in op.workloads["ci"]]
    others = [(name, size) for name in _DRAWN_OF for size in op.workloads.get(name, ())]
    if generator is None or not others:
        return told
    return [*told, others[int(generator.integers(len(others)))]]
