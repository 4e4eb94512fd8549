"""A module's forward as a graph: traced, run, and with calls of operators put in."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from ._call import ForwardCall, NoTrace
from ._match import GraphMatch

Node = fx.Node


class _Tracer(fx.Tracer):
    def __init__(self, call: ForwardCall) -> None:
        super().__init__()
        self._call = call

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        return True

    def create_args_for_root(
        self, root_fn: Any, is_module: bool, concrete_args: Any = None
    ) -> tuple[Any, list[Any]]:
        number = iter(range(100))

        def one(kind: Any) -> Any:
            if kind is not torch.Tensor:
                return kind
            return self.create_proxy("placeholder", f"given_{next(number)}", (), {})

        given = [one(kind) for kind in self._call.given]
        named = {name: one(kind) for name, kind in self._call.named}
        return (lambda *taken: root_fn(*taken, **named)), [self.root, *given]


def traced(module: torch.nn.Module, call: ForwardCall) -> fx.Graph:
    """Raises NoTrace."""
    try:
        graph = _Tracer(call).trace(module)
    except Exception as error:  # whatever a user's forward raises for a stand-in of a tensor
        raise NoTrace(f"it cannot be traced: {str(error).splitlines()[0][:80]}") from error
    for node in graph.nodes:
        if _in_place(node):
            raise NoTrace("its forward changes a tensor in place")
        if node.op == "get_attr" and str(node.target).startswith("_tensor_constant"):
            raise NoTrace("its forward makes a tensor of its own")
    return graph


def _in_place(node: Node) -> bool:
    if node.op == "call_method":
        return str(node.target).endswith("_")
    if node.op != "call_function":
        return False
    name = getattr(node.target, "__name__", "")
    changed = node.target in _CHANGING or (name.endswith("_") and not name.endswith("__"))
    return changed or node.kwargs.get("out") is not None or node.kwargs.get("inplace") is True


_CHANGING = {
    operator.setitem,
    *(
        getattr(operator, name)
        for name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imatmul", "ipow", "iand")
    ),
}


class _Values(fx.Interpreter):
    """Runs a graph and keeps what each node gave."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.values: dict[Node, Any] = {}

    def run_node(self, n: Node) -> Any:
        self.values[n] = made = super().run_node(n)
        return made


def values(module: torch.nn.Module, graph: fx.Graph, tensors: Sequence[Any]) -> dict[Node, Any]:
    ran = _Values(fx.GraphModule(module, graph))
    ran.run(*tensors)
    return ran.values


def rewritten(
    module: torch.nn.Module, graph: fx.Graph, taken: Sequence[tuple[GraphMatch, Any]]
) -> Callable[..., Any]:
    """A forward of the module and the tensors of a call, in which matches call what is given."""
    for match, called in taken:
        with graph.inserting_before(match.nodes[-1]):
            made = graph.call_function(match.ours(called), match.inputs)
        match.nodes[-1].replace_all_uses_with(made)
        for node in reversed(match.nodes):
            graph.erase_node(node)
    graph.lint()
    # The class of a graph's module has the code, which reads children and parameters of ``self``.
    forward: Callable[..., Any] = type(fx.GraphModule(module, graph)).forward
    return forward
