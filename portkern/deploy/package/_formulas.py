"""Formulas over several nodes that one operator computes."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.nn import functional as F

from ._call import HOOKS
from ._match import GraphMatch, alike, with_eps
from ._nodes import bound, calls, ordered, product

Node = fx.Node


@dataclass(frozen=True)
class Formulas:
    """The formulas in a module's graph, whose nodes gave these values."""

    module: torch.nn.Module
    values: Mapping[Any, Any]

    def of(self, node: Node) -> Iterator[GraphMatch]:
        """The matches that end with a node."""
        yield from self.silu_mul(node)
        yield from self.rmsnorm(node)
        yield from self.bias_gelu(node)

    def silu(self, node: Any) -> tuple[Any, tuple[Node, ...], tuple[tuple[str, type], ...]] | None:
        """The input, the nodes and the child of what is silu of something."""
        if not isinstance(node, Node):
            return None
        if node.op == "call_module" and len(node.args) == 1 and not node.kwargs:
            child = self.module.get_submodule(str(node.target))
            plain = (
                type(child) is torch.nn.SiLU and not child.inplace and "." not in str(node.target)
            )
            if (
                plain
                and not any(getattr(child, name) for name in HOOKS)
                and "forward" not in child.__dict__
            ):
                return node.args[0], (node,), ((str(node.target), torch.nn.SiLU),)
        if node.target is F.silu and (said := bound(node, ("input", "inplace"))):
            return (said["input"], (node,), ()) if not said.get("inplace") else None
        if pair := product(node):
            for one, other in (pair, pair[::-1]):
                if calls(other, (torch.sigmoid, F.sigmoid, "sigmoid")) and other.args == (one,):
                    return one, (other, node), ()
        return None

    def silu_mul(self, node: Node) -> Iterator[GraphMatch]:
        pair = product(node)
        for gate, up in (pair, pair[::-1]) if pair else ():
            if (said := self.silu(gate)) and isinstance(up, Node) and isinstance(said[0], Node):
                x, inner, children = said
                a, b = self.values.get(x), self.values.get(up)
                if (
                    isinstance(a, torch.Tensor)
                    and isinstance(b, torch.Tensor)
                    and a.shape == b.shape
                ):
                    yield GraphMatch("silu_mul", ordered((*inner, node)), (x, up), alike, children)

    def bias_gelu(self, node: Node) -> Iterator[GraphMatch]:
        said = bound(node, ("input", "approximate")) if node.target is F.gelu else None
        if not said or said.get("approximate", "none") != "none":
            return
        added = said["input"]
        if (
            isinstance(added, Node)
            and added.target in (operator.add, torch.add)
            and len(added.args) == 2
            and not added.kwargs
        ):
            for x, bias in (added.args, added.args[::-1]):
                if isinstance(x, Node) and self.vector(bias):
                    yield GraphMatch("bias_gelu", (added, node), (x, bias), alike)

    def vector(self, node: Any) -> bool:
        """Whether it is a parameter or a buffer of one dimension."""
        one = self.values.get(node) if isinstance(node, Node) and node.op == "get_attr" else None
        return isinstance(one, torch.Tensor) and one.dim() == 1

    def rmsnorm(self, node: Node) -> Iterator[GraphMatch]:
        """x * rsqrt(mean(x²) + eps) * weight, in any of the ways that it is written."""
        pair = product(node)
        for weight, scaled in (pair, pair[::-1]) if pair else ():
            if not self.vector(weight) or not isinstance(scaled, Node):
                continue
            inner: list[Node] = [node]
            if (said := self.normalised(_cast(scaled, inner), inner)) is None:
                continue
            x, eps = said
            own = self.values.get(x)
            if isinstance(own, torch.Tensor) and own.shape[-1:] == self.values[weight].shape:
                make = with_eps(eps)
                yield GraphMatch("rmsnorm", ordered(inner), (x, weight), make)

    def normalised(self, node: Node, inner: list[Node]) -> tuple[Node, float] | None:
        inner.append(node)
        pair = product(node)
        for x, scale in (pair, pair[::-1]) if pair else ():
            tried = list(inner)
            if isinstance(scale, Node) and (under := _root(scale, tried)) is not None:
                said = self.mean_square(x, under, tried)
                if said is not None:
                    inner[:] = tried
                    return said
        if calls(node, (operator.truediv, torch.div)) and len(node.args) == 2:
            x, below = node.args
            if calls(below, (torch.sqrt, "sqrt")):
                inner.append(below)
                return self.mean_square(x, below.args[0], inner)
        return None

    def mean_square(self, x: Any, under: Any, inner: list[Node]) -> tuple[Node, float] | None:
        """The input and eps, where ``under`` is mean(x², -1) + eps."""
        if not isinstance(under, Node) or under.target not in (operator.add, torch.add, "add"):
            return None
        if len(under.args) != 2 or under.kwargs:
            return None
        mean, eps = under.args if isinstance(under.args[0], Node) else under.args[::-1]
        if not isinstance(eps, float) or not calls(mean, (torch.mean, "mean")):
            return None
        said = bound(mean, ("input", "dim", "keepdim"))
        if not said or said.get("dim") not in (-1, (-1,), [-1]) or said.get("keepdim") is not True:
            return None
        squared = said["input"]
        if not isinstance(squared, Node) or (base := _squared(squared)) is None:
            return None
        inner += [under, mean, squared]
        wide: list[Node] = []
        known, first = _cast(x, wide), _cast(base, wide)
        if known is not first or not isinstance(known, Node):
            return None
        inner += [one for one in dict.fromkeys(wide) if one not in inner]
        return known, eps


def _root(node: Node, inner: list[Node]) -> Any:
    """Returns the term, where it is one over the square root of that."""
    if calls(node, (torch.rsqrt, "rsqrt")):
        inner.append(node)
        return node.args[0]
    if (
        calls(node, (operator.pow, torch.pow, "pow"))
        and len(node.args) == 2
        and node.args[1] == -0.5
    ):
        inner.append(node)
        return node.args[0]
    if calls(node, (operator.truediv,)) and node.args[0] in (1, 1.0):
        below = node.args[1]
        if calls(below, (torch.sqrt, "sqrt")):
            inner += [node, below]
            return below.args[0]
    return None


def _squared(node: Node) -> Any:
    if (
        calls(node, (operator.pow, torch.pow, "pow"))
        and len(node.args) == 2
        and node.args[1] in (2, 2.0)
    ):
        return node.args[0]
    if calls(node, (torch.square, "square")):
        return node.args[0]
    pair = product(node)
    return pair[0] if pair and pair[0] is pair[1] else None


def _cast(node: Any, inner: list[Node]) -> Any:
    """The tensor below conversions to float32 and back to an input's own dtype."""
    while calls(node, ("float", "to", "type_as")) and not node.kwargs:
        kind = node.args[1] if len(node.args) == 2 else None
        if node.target == "to" and calls(kind, (getattr,)) and kind.args[1] == "dtype":
            inner.append(kind)
        elif node.target == "to" and kind is not torch.float32:
            break
        inner.append(node)
        node = node.args[0]
    return node
