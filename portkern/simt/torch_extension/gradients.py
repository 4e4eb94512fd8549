"""Gradients that autograd functions of an extension's C++ calculate, as those of PyTorch's own:
what such a function made has a step, whose backward pass is called where torch comes to it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from portkern.simt.torch_extension.values import LIST, TENSOR, TensorMemory, TensorValue, tensors

if TYPE_CHECKING:
    import torch


@dataclass(eq=False)
class Step:
    """One use of an autograd function. ``inputs`` are the tensors it was given, in their places;
    ``outputs`` says which of a call's tensors it made, and as its how many-th output."""

    library: ctypes.CDLL
    maker: int
    inputs: Sequence[torch.Tensor | None]
    outputs: dict[int, int]

    def __del__(self) -> None:
        self.library.simt_torch_release_maker(self.maker)


def steps(library: ctypes.CDLL, memory: TensorMemory, result: TensorValue) -> Sequence[Step]:
    """The steps that made the tensors of a result."""
    found: dict[int, Step] = {}
    for place, handle in enumerate(_handles(result)):
        number = ctypes.c_int64()
        maker = library.simt_torch_maker(handle, ctypes.byref(number))
        if not maker:
            continue
        if maker in found:
            library.simt_torch_release_maker(maker)
        else:
            count = library.simt_torch_maker_inputs(maker)
            given = (library.simt_torch_maker_input(maker, i) for i in range(count))
            found[maker] = Step(library, maker, [memory.tensor_of(each) for each in given], {})
        found[maker].outputs[place] = number.value
    return list(found.values())


def _handles(value: TensorValue) -> Iterator[int]:
    if value.kind == TENSOR:
        yield value.tensor or 0
    elif value.kind == LIST:
        for i in range(value.count):
            yield from _handles(value.items[i])


def attached(
    returned: object,
    known: Sequence[Step],
    backward: Callable[[Step, Sequence[object]], Sequence[Any]],
) -> object:
    """The same result with tensors that have these gradients."""
    made = list(tensors(returned))
    instead: dict[int, torch.Tensor] = {}
    for step in known:
        inputs = [t for t in step.inputs if t is not None and t.requires_grad]
        if inputs:
            places = list(step.outputs)
            outputs = _function().apply(step, backward, *(made[p] for p in places), *inputs)
            instead |= zip(places, outputs, strict=True)
    return _replaced(returned, iter(range(len(made))), instead)


def _replaced(value: object, places: Iterator[int], instead: Mapping[int, torch.Tensor]) -> object:
    import torch

    if isinstance(value, torch.Tensor):
        return instead.get(next(places), value)
    if isinstance(value, (list, tuple)):
        return type(value)(_replaced(each, places, instead) for each in value)
    return value


def _function() -> Any:
    import torch

    class OfExtension(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, step: Step, backward: Any, *given: torch.Tensor) -> Any:
            ctx.step, ctx.call = step, backward
            return tuple(t.view_as(t) for t in given[: len(step.outputs)])

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
            numbers = list(ctx.step.outputs.values())
            of_outputs: list[torch.Tensor | None] = [None] * (max(numbers) + 1)
            for number, gradient in zip(numbers, gradients, strict=True):
                of_outputs[number] = gradient
            found = ctx.call(ctx.step, of_outputs)
            of_inputs = [
                gradient
                for gradient, given in zip(found, ctx.step.inputs, strict=False)
                if given is not None and given.requires_grad
            ]
            return (None, None, *[None] * len(gradients), *of_inputs)

    return OfExtension
