"""Strides that a kernel is given one by one: those of dense tensors, so that no two of its threads
write one element where the original's do not."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_STRIDE = re.compile(r"(\w*?)_?strides?_?([a-z]\w*)", re.IGNORECASE)


@dataclass(frozen=True)
class Axis:
    """``stride`` is the name of its stride, whose value is ``step``."""

    stride: str
    extent: int
    step: int


#: The axes from the outermost to the innermost, as the strides are declared.
Tensor = tuple[Axis, ...]


def tensors(sizes: Mapping[str, int]) -> list[Tensor]:
    """``stride_b, stride_h, stride_d`` are of one tensor, ``o_stride_b, o_stride_h`` of another. An
    axis is as long as the dimension of its name; where there is none, as all dimensions together
    that no other axis of its tensor has."""
    families: dict[str, list[tuple[str, str]]] = {}
    for name in sizes:
        if found := _STRIDE.fullmatch(name):
            families.setdefault(found[1], []).append((name, found[2]))
    strides = {name for family in families.values() for name, _ in family}
    dimensions = {name: size for name, size in sizes.items() if size and name not in strides}
    return [_dense(family, dimensions) for family in families.values() if len(family) > 1]


def _dense(family: Sequence[tuple[str, str]], dimensions: Mapping[str, int]) -> Tensor:
    own = {axis for _, axis in family}
    others = math.prod(size for name, size in dimensions.items() if name not in own)
    axes: list[Axis] = []
    step = 1
    for stride, axis in reversed(family):
        extent = dimensions.get(axis, others)
        axes.insert(0, Axis(stride, extent, step))
        step *= extent
    return tuple(axes)


def values(of: Sequence[Tensor]) -> dict[str, int]:
    return {axis.stride: axis.step for tensor in of for axis in tensor}


def elements(tensor: Tensor) -> int:
    return tensor[0].extent * tensor[0].step
