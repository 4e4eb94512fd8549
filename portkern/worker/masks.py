"""Inputs of timed calls that make no sense until their call: nobody works on those of later ones.

A round's calls have their buffers side by side. On a GPU one launch could answer them all in less
time than launches take, while the call that warms up is not counted. So the evaluator hands over
inputs behind a mask, and each is taken off just before its call, outside of what is timed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

#: What elements are masked as, by their bytes.
_INTEGERS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}


def mask(tensor: torch.Tensor, key: int) -> None:
    """Puts the mask of this key over a dense tensor's elements, or takes it off, without a trace in
    the framework's version of the tensor."""
    import torch

    if not tensor.numel():
        return
    plain = tensor.data.view(getattr(torch, _INTEGERS[tensor.element_size()]))
    generator = torch.Generator(tensor.device).manual_seed(key)
    plain.bitwise_xor_(torch.empty_like(plain).random_(generator=generator))
