"""Recurrent layers in a graph: one operation each. Torch's own tracer writes out every step in
time, which takes minutes, and says nothing of other lengths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch  # noqa: TID253 - imported where a file is traced, in a worker
from torch.overrides import TorchFunctionMode  # noqa: TID253

#: torch's functions, and how many gates a step has.
GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


@torch.library.custom_op("portkern::recurrent", mutates_args=())
def recurrent(
    x: torch.Tensor,
    states: list[torch.Tensor],
    weights: list[torch.Tensor],
    kind: str,
    biased: bool,
    directions: int,
    batch_first: bool,
) -> list[torch.Tensor]:
    """Outputs of all steps, then the last states. ``kind``: the name of torch's function; weights
    are in its order, with two more for each layer and direction where it is ``biased``. It is
    traced and never run."""
    raise NotImplementedError


@recurrent.register_fake
def _(
    x: torch.Tensor,
    states: list[torch.Tensor],
    weights: list[torch.Tensor],
    kind: str,
    biased: bool,
    directions: int,
    batch_first: bool,
) -> list[torch.Tensor]:
    hidden = states[-1].shape[-1]
    torch._check(weights[0].shape[-1] == x.shape[-1])  # type: ignore[no-untyped-call]
    for weight in weights:
        torch._check(weight.shape[0] == GATES[kind] * hidden)  # type: ignore[no-untyped-call]
    for one in states:
        torch._check(one.shape[0] == len(weights) // (4 if biased else 2))  # type: ignore[no-untyped-call]
    width = directions * states[0].shape[-1]
    return [x.new_empty((*x.shape[:-1], width)), *(torch.empty_like(one) for one in states)]


class Recurrent(TorchFunctionMode):
    """A context in which recurrent layers are called as :func:`recurrent`: those of tensors that
    are not packed sequences, without projections and without active dropout between layers."""

    def __torch_function__(
        self,
        function: Callable[..., object],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        name = getattr(function, "__name__", "")
        if name not in GATES or kwargs or not _is_plain(args):
            return function(*args, **(kwargs or {}))
        x, hx, weights, biased, _, _, _, both, batch_first = args
        states = list(hx) if isinstance(hx, tuple | list) else [hx]
        how = (name, bool(biased), 1 + both, bool(batch_first))
        return tuple(torch.ops.portkern.recurrent(x, states, list(weights), *how))


def _is_plain(args: tuple[Any, ...]) -> bool:
    if len(args) != 9 or not isinstance(args[2], tuple | list):
        return False
    _, _, weights, bias, layers, dropout, training, both, _ = args
    if dropout and training:
        return False
    per_layer = 4 if bias else 2  # a projection is one more
    expected: int = per_layer * layers * (1 + both)
    return len(weights) == expected
