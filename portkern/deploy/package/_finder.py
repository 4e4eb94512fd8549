"""Finds in a graph the calls that are equal to operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from . import _functions
from ._call import HOOKS
from ._formulas import Formulas
from ._match import GraphMatch

Node = fx.Node


def matches(
    module: torch.nn.Module, graph: fx.Graph, known: Mapping[Node, Any]
) -> list[GraphMatch]:
    """The matches in the order of the graph; no two share a node."""
    return _Finder(module, known).all(graph)


@dataclass
class _Finder:
    module: torch.nn.Module
    values: Mapping[Any, Any]
    found: list[GraphMatch] = field(default_factory=list)
    used: set[Node] = field(default_factory=set)

    def all(self, graph: fx.Graph) -> list[GraphMatch]:
        # From the end: what several nodes stand for goes before a part of it.
        for node in reversed(list(graph.nodes)):
            if node in self.used:
                continue
            for match in self.of(node):
                if not self.used & {*match.nodes} and self.fits(match):
                    self.found.append(match)
                    self.used |= {*match.nodes}
                    break
        return list(reversed(self.found))

    def fits(self, match: GraphMatch) -> bool:
        """Whether a match can be replaced: all inputs are tensors, nobody else reads what is
        between, and nothing that may change a tensor in place happens there."""
        inner, known = {*match.nodes[:-1]}, {*match.nodes, *match.inputs}
        if any(one not in known for node in match.nodes for one in node.all_input_nodes):
            return False
        if any(user not in match.nodes for node in inner for user in node.users):
            return False
        if not all(isinstance(self.values.get(one), torch.Tensor) for one in match.inputs):
            return False
        node = match.nodes[0]
        while node is not match.nodes[-1]:
            if node.op == "call_module" and node not in inner and not self.quiet(node):
                return False
            node = node.next
        return True

    def quiet(self, node: Node) -> bool:
        """Modules of torch's own, which change nothing in place."""
        return all(
            type(one).__module__.startswith("torch.nn.modules.")
            and not getattr(one, "inplace", False)
            and not any(getattr(one, name) for name in HOOKS)
            for one in self.module.get_submodule(str(node.target)).modules()
        )

    def of(self, node: Node) -> Iterator[GraphMatch]:
        yield from Formulas(self.module, self.values).of(node)
        if (match := _functions.of(node, self.values)) is not None:
            yield match
