"""Nodes of a graph: which function one calls, and with what."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, TypeGuard

import torch
from torch import fx

Node = fx.Node


def calls(node: Any, targets: Sequence[Any]) -> TypeGuard[Node]:
    if not isinstance(node, Node) or node.op not in ("call_function", "call_method"):
        return False
    return any(
        node.target is one or (isinstance(one, str) and node.target == one) for one in targets
    )


def bound(node: Node, names: Sequence[str]) -> dict[str, Any] | None:
    """Arguments by name; None for one that is not known."""
    if len(node.args) > len(names) or {*node.kwargs} - {*names}:
        return None
    said = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    return said if names[0] in said else None


def product(node: Any) -> tuple[Any, Any] | None:
    if not calls(node, (operator.mul, torch.mul, "mul")) or len(node.args) != 2 or node.kwargs:
        return None
    return node.args


def ordered(nodes: Sequence[Node]) -> tuple[Node, ...]:
    return tuple(sorted(dict.fromkeys(nodes)))
