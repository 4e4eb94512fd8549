"""Inputs that break the known shortcuts of an operator, by what its graph holds: ``peaks(x, 1)``
says of which input, and along which of its dimensions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from portkern.errors import ConfigError, no_such

if TYPE_CHECKING:
    import torch

#: The largest of normal values, in rows as much larger as :func:`_around` makes them.
_FARTHEST = 16
_FORM = re.compile(r"(?P<name>\w+)\((?P<arguments>[^()]*)\)")


def _peaks(
    tensors: list[torch.Tensor], dims: Sequence[int], kind: torch.dtype, generator: torch.Generator
) -> None:
    """Rows around 1e4 and -1e4, whose powers overflow or vanish unless the maximum is taken out."""
    (x,), (dim,) = tensors, dims
    tensors[0] = x + _side(x, dim, generator) * 1e4


def _masked(
    tensors: list[torch.Tensor], dims: Sequence[int], kind: torch.dtype, generator: torch.Generator
) -> None:
    """Half of each row is -inf, but for one element."""
    import torch

    (x,), (dim,) = tensors, dims
    hidden = torch.rand(x.shape, generator=generator) < 0.5
    row = list(x.shape)
    row[dim] = 1
    kept = torch.randint(0, max(x.shape[dim], 1), row, generator=generator)
    if x.numel():
        hidden = hidden.scatter(dim, kept, False)
    tensors[0] = x.masked_fill(hidden, -torch.inf)


def _far(
    tensors: list[torch.Tensor], dims: Sequence[int], kind: torch.dtype, generator: torch.Generator
) -> None:
    """Means of many standard deviations: the difference of E[x^2] and E[x]^2 loses all digits."""
    import torch

    (x,) = tensors
    side = torch.randint(0, 2, (x.shape[0] if x.ndim else 1,), generator=generator) * 2 - 1
    mean = 3000.0 if kind is torch.float32 else 60.0
    tensors[0] = x + side.reshape(-1, *[1] * (x.ndim - 1)) * mean


def _cancelling(
    tensors: list[torch.Tensor], dims: Sequence[int], kind: torch.dtype, generator: torch.Generator
) -> None:
    """The second half of what is summed takes away the first, but for a few per cent."""
    a, dim = tensors[0].to(kind).float(), dims[0]
    half = a.shape[dim] // 2
    first, second = a.narrow(dim, 0, half), a.narrow(dim, half, half)
    if len(tensors) == 1:
        second.copy_(second / 64 - first)
    else:
        second.copy_(-first)
        b, dim = tensors[1].to(kind).float(), dims[1]
        ahead, behind = b.narrow(dim, 0, half), b.narrow(dim, half, half)
        behind.copy_(ahead + behind / 64)
        tensors[1] = b
    tensors[0] = a


def _whole(
    tensors: list[torch.Tensor], dims: Sequence[int], kind: torch.dtype, generator: torch.Generator
) -> None:
    """Any order of adding is exact in float32; the reduced precisions cannot hold the first."""
    import torch

    most = 4095 if kind is torch.float32 else 127
    for number, one in enumerate(tensors):
        top = 1 if number else most
        tensors[number] = torch.randint(-top, top + 1, one.shape, generator=generator).float()


def _steep(
    tensors: list[torch.Tensor], dims: Sequence[int], kind: torch.dtype, generator: torch.Generator
) -> None:
    """So large that powers of what is computed of them overflow unless a maximum is taken out; a
    single number, such as a scale's logarithm, is itself taken to a power."""
    import torch

    factor = 4.0 if kind is torch.float16 else 16.0
    for number, one in enumerate(tensors):
        tensors[number] = one * factor if one.ndim else 6.0 + one.abs()


def _special(
    tensors: list[torch.Tensor], dims: Sequence[int], kind: torch.dtype, generator: torch.Generator
) -> None:
    """NaN and both infinities among normal values: an op without sums says where each goes."""
    import torch

    odd = torch.tensor([torch.nan, torch.inf, -torch.inf])
    for number, one in enumerate(tensors):
        place = torch.rand(one.shape, generator=generator) < 0.05
        which = torch.randint(0, len(odd), one.shape, generator=generator)
        tensors[number] = torch.where(place, odd[which], one)


def _around(
    tensors: list[torch.Tensor],
    numbers: Sequence[float],
    kind: torch.dtype,
    generator: torch.Generator,
) -> None:
    """Rows about as large as a number at which the operator decides, as much smaller and larger: a
    divisor's floor counts only below it, and a saturated value only above. Inputs whose product
    the dtype may not hold stay as they are."""
    import torch

    (number,) = numbers
    limits = torch.finfo(kind)
    if not 8 * limits.smallest_normal <= number < limits.max ** (1 / len(tensors)) / _FARTHEST:
        return
    for place, one in enumerate(tensors):
        row = (*one.shape[:-1], 1) if one.ndim > 1 else ()
        tensors[place] = one * number * 30 ** (1.3 * torch.rand(row, generator=generator) - 1)


def _halves(
    tensors: list[torch.Tensor],
    numbers: Sequence[float],
    kind: torch.dtype,
    generator: torch.Generator,
) -> None:
    """Halves of a power of two, of which each row and column has the largest: what is divided by
    the largest less one step lies between two whole numbers, however it is divided. What stands
    beside the first is a power of two, and changes none of that."""
    import torch

    most = int(numbers[0])
    half = torch.arange(-min(most, 512), min(most, 512)) + 0.5
    inverse = torch.ones(()) / most
    half = half[(half * inverse * most == half) & (half / most * most == half)]
    half = half[half.to(kind).float() == half]
    x, *others = tensors
    if not x.numel():
        return
    chosen = half[torch.randint(0, max(len(half), 1), x.shape, generator=generator)]
    ends = torch.rand(x.shape, generator=generator) < 0.125
    for dim, length in enumerate(x.shape):
        row = [1 if n == dim else size for n, size in enumerate(x.shape)]
        ends.scatter_(dim, torch.randint(0, max(length, 1), row, generator=generator), True)
    sides = torch.where(chosen < 0, -float(most), float(most))
    step = 2.0 ** int(torch.randint(-2, 3, (), generator=generator))
    tensors[0] = torch.where(ends, sides, chosen) * step
    for place, one in enumerate(others, 1):
        power = torch.randint(-1, 2, one.shape, generator=generator)
        tensors[place] = 2.0**power


def _side(x: torch.Tensor, dim: int, generator: torch.Generator) -> torch.Tensor:
    import torch

    row = list(x.shape)
    row[dim] = 1
    return torch.randint(0, 2, row, generator=generator) * 2 - 1


_Change = Callable[[list["torch.Tensor"], Any, "torch.dtype", "torch.Generator"], None]
#: The number of tensors that each may be called with, and what follows: a dimension each, or one
#: number after all.
_KNOWN: Mapping[str, tuple[_Change, Sequence[int], Literal["", "dims", "number"]]] = {
    "peaks": (_peaks, (1,), "dims"),
    "masked": (_masked, (1,), "dims"),
    "far": (_far, (1,), ""),
    "cancelling": (_cancelling, (1, 2), "dims"),
    "whole": (_whole, (1, 2), ""),
    "special": (_special, (0,), ""),
    "steep": (_steep, range(1, 65), ""),
    "around": (_around, range(1, 65), "number"),
    "halves": (_halves, range(1, 65), "number"),
}
_NUMBERS = {"": r"", "dims": r"-?\d+", "number": r"\d+(\.\d+)?(e-?\d+|e\+\d+)?"}


@dataclass(frozen=True)
class Adversary:
    """One of the above, of inputs by their place; called as :class:`portkern.spec.op.Op` says."""

    text: str
    name: str
    places: tuple[int, ...]
    numbers: tuple[float, ...]

    @classmethod
    def parse(cls, text: str, inputs: Sequence[str], floats: Sequence[str]) -> Adversary:
        """``special()`` is of all ``floats``. Raises ConfigError."""
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise ConfigError(f"Got adversary {text!r}, expected one such as 'peaks(x, 1)'")
        name = match["name"]
        if name not in _KNOWN:
            raise no_such("adversary", name, _KNOWN)
        _, counts, follows = _KNOWN[name]
        given = [word.strip() for word in match["arguments"].split(",") if word.strip()]
        named, said = given, list[str]()
        if follows == "dims":
            named, said = given[::2], given[1::2]
        elif follows == "number":
            named, said = given[:-1], given[-1:]
        for one in named:
            if one not in floats:
                raise no_such(f"input of floats for {name}", one, floats)
        fitting = all(re.fullmatch(_NUMBERS[follows], number) for number in said)
        expected = {"": 0, "dims": len(named), "number": 1}[follows]
        if len(named) not in counts or len(said) != expected or not fitting:
            raise ConfigError(f"Got adversary {text!r}, expected one such as 'peaks(x, 1)'")
        if name == "around" and math.isinf(float(said[0])):
            raise ConfigError(f"Got adversary {text!r}, expected a finite number in it")
        if name == "halves" and float(said[0]) not in range(1, 1 << 16):
            raise ConfigError(f"Got adversary {text!r}, expected a whole number from 1 to 65535")
        chosen = named if named else list(floats)
        kind = int if follows == "dims" else float
        places = tuple(map(list(inputs).index, chosen))
        return cls(text.strip(), name, places, tuple(map(kind, said)))

    def __call__(
        self, kind: torch.dtype, generator: torch.Generator, *inputs: torch.Tensor
    ) -> Sequence[torch.Tensor]:
        changed = list(inputs)
        part = [changed[place] for place in self.places]
        _KNOWN[self.name][0](part, self.numbers, kind, generator)
        for place, tensor in zip(self.places, part, strict=True):
            changed[place] = tensor
        return changed
