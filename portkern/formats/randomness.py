"""Random numbers in a problem's forward: with them there is no right answer. Dropout is off then,
and what is drawn there becomes inputs."""

from __future__ import annotations

import ast

from portkern.spec.foreign_text import python_tree

WITHOUT_DROPOUT = "Its dropout is off: with it there is no right answer."
AS_INPUTS = "What its forward draws at random is its inputs: with it there is no right answer."
_DROPOUT = """

# ---- portkern: dropout is off, as with it there is no right answer


def _portkern_without_dropout(kind):
    from torch.nn.modules.dropout import _DropoutNd

    construct = kind.__init__

    def __init__(self, *args, **kwargs):
        construct(self, *args, **kwargs)
        for module in self.modules():
            if isinstance(module, _DropoutNd):
                module.p = 0.0

    kind.__init__ = __init__


_portkern_without_dropout(Model)
"""
_DRAWN = """

# ---- portkern: what forward draws is given to it, as with random numbers there is no right answer


def _portkern_with_drawn(kind, inputs, arguments):
    import torch
    from torch.overrides import TorchFunctionMode

    forward = kind.forward

    class Draws(TorchFunctionMode):
        def __init__(self, given=None):
            super().__init__()
            self.given, self.drawn = given and list(given), []

        def __torch_function__(self, function, types, args=(), kwargs=None):
            if getattr(function, "__name__", "") not in ("rand", "randn"):
                return function(*args, **(kwargs or {{}}))
            if self.given:
                return self.given.pop(0)
            self.drawn.append(function(*args, **(kwargs or {{}})))
            return self.drawn[-1]

    def get_inputs():
        given = list(inputs())
        if len(given) != {count}:
            raise ValueError(f"get_inputs() gives {{len(given)}} inputs, expected {count}")
        with Draws() as draws, torch.no_grad():
            forward(kind(*arguments()), *given)
        return [*given, *draws.drawn]

    def with_drawn(self, {taken}, *drawn):
        with Draws(drawn):
            return forward(self, {taken})

    kind.forward = with_drawn
    return get_inputs


get_inputs = _portkern_with_drawn(Model, get_inputs, get_init_inputs)
"""


def without_dropout(data: bytes) -> bytes | None:
    """The file with its ``Model``'s dropout layers off; None where it has no ``Model``."""
    return None if _forward(data) is None else data.rstrip() + _DROPOUT.encode()


def with_drawn_inputs(data: bytes) -> bytes | None:
    """The file with what its ``Model`` draws by ``rand`` and ``randn`` as further inputs; None
    where it has none whose arguments all have names."""
    forward = _forward(data)
    if forward is None or forward.args.vararg or forward.args.kwonlyargs:
        return None
    names = [one.arg for one in forward.args.args]
    required = names[1 : len(names) - len(forward.args.defaults)]
    if not required:
        return None
    return data.rstrip() + _DRAWN.format(taken=", ".join(required), count=len(required)).encode()


def _forward(data: bytes) -> ast.FunctionDef | None:
    try:
        tree = python_tree(data)
    except (SyntaxError, ValueError):
        return None
    for kind in tree.body:
        if isinstance(kind, ast.ClassDef) and kind.name == "Model":
            for node in kind.body:
                if isinstance(node, ast.FunctionDef) and node.name == "forward":
                    return node
    return None
