"""A match: nodes of a graph that one call of an operator is equal to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.nn import functional as F

Node = fx.Node
#: A function of an operator and of the nodes as they are: what is called in place of these.
Make = Callable[[Any, Any], Any]


@dataclass(frozen=True, eq=False)
class GraphMatch:
    """``nodes`` are what one call of ``operator`` stands for, the last gives the result; ``inputs``
    is what the call gets; ``children`` are modules among the nodes."""

    operator: str
    nodes: tuple[Node, ...]
    inputs: tuple[Any, ...]
    make: Make
    children: tuple[tuple[str, type], ...] = ()

    @property
    def theirs(self) -> Callable[..., Any]:
        """The nodes as a function of the inputs."""
        graph = fx.Graph()
        known = {node: graph.placeholder(f"x{place}") for place, node in enumerate(self.inputs)}
        for node in self.nodes:
            if node.op == "call_module":
                arguments = tuple(known[one] for one in node.args if isinstance(one, Node))
                known[node] = graph.call_function(F.silu, arguments)
            else:
                known[node] = graph.node_copy(node, lambda one: known[one])
        graph.output(known[self.nodes[-1]])
        return fx.GraphModule(torch.nn.Module(), graph)

    def ours(self, called: Any) -> Callable[..., Any]:
        made: Callable[..., Any] = self.make(called, self.theirs)
        return made


def plainly(called: Any, theirs: Any) -> Any:
    del theirs
    return called


def alike(called: Any, theirs: Any) -> Any:
    """Promotion of dtypes is the framework's own."""

    def run(*tensors: Any) -> Any:
        first, second = tensors
        return called(first, second) if first.dtype == second.dtype else theirs(first, second)

    return run


def with_eps(eps: float) -> Make:
    def make(called: Any, theirs: Any) -> Any:
        def run(x: Any, weight: Any) -> Any:
            return called(x, weight, eps) if x.dtype == weight.dtype else theirs(x, weight)

        return run

    return make
