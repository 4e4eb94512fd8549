"""Nodes of a graph as they are read: every length in them is an expression over axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch  # noqa: TID253 - imported where a graph is written, in a worker
from torch.export import ExportedProgram  # noqa: TID253
from torch.utils._pytree import tree_leaves  # noqa: TID253

from portkern.worker.lowering.lengths import Lengths

#: Its values are those of its first argument; how they lie in memory is none of a plain kernel's.
_SAME = frozenset("clone alias detach contiguous lift_fresh_copy".split())


@dataclass(frozen=True)
class Example:
    """A tensor without values."""

    shape: tuple[sympy.Expr, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Reading:
    """A node that gives tensors. Nodes among its arguments do as well; numbers that nodes give are
    expressions there. ``example``: an :class:`Example`, or a tuple of what there is in a list."""

    node: torch.fx.Node
    args: tuple[Any, ...]
    kwargs: Mapping[str, object]
    example: Any


def read(program: ExportedProgram, lengths: Lengths) -> list[Reading]:
    """The readings of a graph in order, without what only computes lengths or copies."""
    return [
        Reading(
            node,
            _resolved(node.args, lengths),
            _resolved(node.kwargs, lengths),
            _resolved(node.meta.get("val"), lengths),
        )
        for node in program.graph.nodes
        if node.op == "output" or (_has_tensors(node) and not _is_same(node))
    ]


def _has_tensors(node: torch.fx.Node) -> bool:
    return any(isinstance(one, torch.Tensor) for one in tree_leaves(node.meta.get("val")))


def _is_same(node: torch.fx.Node) -> bool:
    packet = getattr(node.target, "overloadpacket", None)
    return packet is not None and packet.__name__ in _SAME


def _resolved(value: object, lengths: Lengths) -> Any:
    match value:
        case torch.fx.Node():
            if _is_same(value):
                return _resolved(value.args[0], lengths)
            if _has_tensors(value):
                return value
            return _resolved(value.meta.get("val"), lengths)
        case torch.Tensor():
            return Example(tuple(map(lengths.of, value.shape)), value.dtype)
        case torch.SymInt() | torch.SymFloat() | torch.SymBool():
            return lengths.of(value)
        case Mapping():
            return {key: _resolved(one, lengths) for key, one in value.items()}
        case Sequence() if not isinstance(value, str):
            return tuple(_resolved(one, lengths) for one in value)
    return value
