"""Inputs for a kernel that is evaluated: fresh values from a secret seed, drawn from distributions
that each break another kind of shortcut.

All tensors are contiguous, row-major: native kernels receive raw pointers and no strides, and the
others are held to the same.
"""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from portkern.errors import ReferenceFailed
from portkern.evaluator import imported
from portkern.spec.imported import ImportedInputs, ImportedReference
from portkern.spec.op import Op, StoredTensor, TensorSpec, Workload

if TYPE_CHECKING:
    import torch

#: Makes a float32 tensor of this shape for a cell of this torch dtype, with this generator.
Draw = Callable[[tuple[int, ...], "torch.dtype", "torch.Generator"], "torch.Tensor"]
#: Workloads whose largest tensor is no larger see all distributions …
FEW_ELEMENTS = 1 << 13
#: … and above this, inputs of no more than two are kept for timed calls.
MANY_ELEMENTS = 1 << 22
BASE = "normal"
#: Normal values, of which a part at a random place is what the op's adversaries make of them:
#: nobody who looks at some of an input knows that all of it is usual.
IN_PART = "partly odd"
#: Such a part has so much of an axis at most.
PART = 1 / 4
#: Adversaries of an op that has none.
OTHERS = ("offset", "heavy")


def _normal(shape: tuple[int, ...], kind: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    import torch

    return torch.randn(shape, generator=generator)


def _uniform(shape: tuple[int, ...], kind: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    import torch

    return torch.rand(shape, generator=generator)


def _heavy(shape: tuple[int, ...], kind: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    return _normal(shape, kind, generator) * _normal(shape, kind, generator).exp()


def _ties(shape: tuple[int, ...], kind: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    return (_uniform(shape, kind, generator) * 8 - 4).round() * 0.5


def _zeros(shape: tuple[int, ...], kind: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    import torch

    values = _normal(shape, kind, generator)
    return torch.where(_seldom(shape, generator), values.sign() * 0.0, values)


def _subnormal(
    shape: tuple[int, ...], kind: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    """Subnormal numbers among normal ones, the first of which is normal: hardware may flush them to
    zero, so that nothing may be divided by them."""
    import torch

    values = _normal(shape, kind, generator)
    least = torch.finfo(kind if kind.is_floating_point else torch.float32).smallest_normal
    small = (values * 0.25).clamp(-1, 1) * least
    chosen = _seldom(shape, generator)
    chosen.view(-1)[:1] = False
    return torch.where(chosen, small, values)


def _one_hot(shape: tuple[int, ...], kind: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """One element of each row, at a random place; parameters, which have no rows, are normal."""
    import torch

    if len(shape) < 2:
        return _normal(shape, kind, generator)
    place = torch.randint(0, shape[-1], (*shape[:-1], 1), generator=generator)
    value = _normal(tuple(place.shape), kind, generator)
    return torch.zeros(shape).scatter_(-1, place, value + value.sign())


def _constant(
    shape: tuple[int, ...], kind: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    """A tensor of one value of five bits, so that sums and products of it are exact in float32."""
    import torch

    value = int(torch.randint(1, 32, (), generator=generator)) * 0.125
    sign = int(torch.randint(0, 2, (), generator=generator)) * 2 - 1
    return torch.full(shape, sign * value)


def _seldom(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    import torch

    return torch.rand(shape, generator=generator) < 0.0625


#: A mean far from 0 breaks one-pass variances and the guess that a mean is 0, a tiny scale breaks
#: absolute tolerances, ties and signed zeros break comparisons; a heavy tail and single elements
#: are missed by those who read a part; a constant row has no variance to divide by.
DISTRIBUTIONS: Mapping[str, Draw] = {
    BASE: _normal,
    "uniform": _uniform,
    "offset": lambda shape, kind, g: _normal(shape, kind, g) * 0.25 + 2.0,
    "tiny": lambda shape, kind, g: _normal(shape, kind, g) * 1e-3,
    "heavy": _heavy,
    "ties": _ties,
    "zeros": _zeros,
    "subnormal": _subnormal,
    "one-hot": _one_hot,
    "constant": _constant,
}


def _integers(
    spec: TensorSpec, dims: Mapping[str, int], distribution: str, generator: torch.Generator
) -> torch.Tensor:
    """Integers within the spec's bounds: one value everywhere, a few or the largest ones where the
    distribution asks for these, else all equally likely."""
    import torch

    low, high = spec.bounds(dims)
    shape, span = spec.sizes(dims), max(high - low, 1)

    def upto(most: int, *size: int) -> torch.Tensor:
        return torch.randint(0, most, size or shape, generator=generator)

    if distribution == "constant":
        offset = upto(span, 1).expand(shape)
    elif distribution == "ties":
        offset = upto(span, 4)[upto(4)]
    elif distribution == "offset":
        offset = span - 1 - upto(min(span, 2))
    else:
        offset = upto(span)
    return offset + low


def _fan_in(values: torch.Tensor) -> torch.Tensor:
    return values / math.sqrt(max(math.prod(values.shape[1:]), 1))


def _unit(values: torch.Tensor) -> torch.Tensor:
    """Uniform of normal ones, and away from both ends, where logarithms have none."""
    import torch

    uniform: torch.Tensor = torch.special.ndtr(values.clamp(-3, 3))
    return uniform


#: What :attr:`Op.draws` names: parameters as layers initialise them, scales of norms, variances,
#: probabilities, numbers of which none is less than the one before, bytes of floats (e4m3) that are
#: numbers.
DRAWS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "fan_in": _fan_in,
    "scale": lambda values: values * 0.25 + 1.0,
    "positive": lambda values: values.abs(),
    "unit": _unit,
    "float8": lambda values: values - (values & 127 == 127).to(values.dtype),
    "rising": lambda values: values.sort(-1).values,
}


def sizes_of(op: Op, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The inputs' absolute values; bytes of floats lose their sign."""
    return [
        tensor & 127 if op.draws.get(spec.name) == "float8" else tensor.abs()
        for spec, tensor in zip(op.signature.inputs, tensors, strict=True)
    ]


def draw(
    op: Op, workload: Workload, dtype: str, distribution: str, *, device: str = "cpu"
) -> tuple[torch.Tensor, ...]:
    """Tensors for one call, made on ``device``. ``distribution`` is one of the above or of the op's
    own adversaries, which are made of normal values, or :data:`IN_PART`."""
    import torch

    with torch.device(device):
        return _draw(op, workload, dtype, distribution, torch.Generator(device))


def _draw(
    op: Op, workload: Workload, dtype: str, distribution: str, generator: torch.Generator
) -> tuple[torch.Tensor, ...]:
    import torch

    generator.manual_seed(secrets.randbits(62))
    adversary = op.adversaries.get(distribution)
    values = DISTRIBUTIONS[BASE if adversary or distribution == IN_PART else distribution]
    kinds = [getattr(torch, spec.resolve(dtype)) for spec in op.signature.inputs]
    drawn = [
        values(spec.sizes(workload.dims), kind, generator)
        if kind.is_floating_point
        else _integers(spec, workload.dims, distribution, generator)
        for spec, kind in zip(op.signature.inputs, kinds, strict=True)
    ]
    for number, spec in enumerate(op.signature.inputs):
        if op.draws.get(spec.name) in DRAWS:
            drawn[number] = DRAWS[op.draws[spec.name]](drawn[number])
    if op.own_inputs:
        drawn = _of_file(op, op.own_inputs, workload, drawn)
    if workload.stored:
        drawn = _with_stored(op, workload, dtype, drawn)
    if adversary:
        drawn = list(adversary(getattr(torch, dtype), generator, *drawn))
    elif distribution == IN_PART:
        for name in op.adversaries or OTHERS:
            odd = _draw(op, workload, dtype, name, generator)
            _put_parts(op, workload, drawn, odd)
    return tuple(tensor.to(kind) for tensor, kind in zip(drawn, kinds, strict=True))


def _put_parts(
    op: Op, workload: Workload, usual: Sequence[torch.Tensor], odd: Sequence[torch.Tensor]
) -> None:
    """Puts parts of the odd inputs in the place of usual ones, but where a file or the workload
    makes these, whose elements may depend on each other."""
    made = {*workload.stored, *_of_file_alone(op)}
    for part in _parts(op, workload):
        for spec, tensor, other in zip(op.signature.inputs, usual, odd, strict=True):
            if spec.name not in made and not part.keys().isdisjoint(spec.shape):
                place = tuple(part.get(axis, slice(None)) for axis in spec.shape)
                tensor[place] = other[place].to(tensor.dtype)


def _parts(op: Op, workload: Workload) -> list[Mapping[str | int, slice]]:
    """One or two parts of an op's inputs, as ranges of axes: rows, along the first axis that an
    output has; a tile, along all of these; or one along all axes, which is a part of a row too. An
    input without an axis of an output is given in part along its first."""
    given = [[axis for axis in spec.shape if isinstance(axis, str)] for spec in op.signature.inputs]
    of_outputs = {axis for spec in op.signature.outputs for axis in spec.shape}
    outer = [axis for axes in given for axis in axes if axis in of_outputs]
    others = [axes[0] for axes in given if axes and of_outputs.isdisjoint(axes)]
    rows = [axis for axis in [*outer, *others] if workload.dims[axis] > 1][:1]
    every = [axis for axes in given for axis in axes]
    kinds = [*{frozenset(axes): axes for axes in (rows, [*outer, *others], every)}.values()]
    chosen = random.SystemRandom()
    some = chosen.sample(kinds, chosen.randint(1, min(2, len(kinds))))
    return [{axis: _range(workload.dims[axis]) for axis in axes} for axes in some]


def _range(length: int) -> slice:
    """A range of an axis: as often short as long, and one in eight at the end."""
    chosen = random.SystemRandom()
    most = max(int(length * PART), min(length, 1))
    size = min(int(math.exp(chosen.uniform(0, math.log(most + 1)))), most)
    start = chosen.randint(0, length - size) if chosen.random() < 0.875 else length - size
    return slice(start, start + size)


def _of_file_alone(op: Op) -> set[str]:
    """The inputs that the op's own file makes."""
    return {*op.own_inputs.names, *op.own_inputs.state} if op.own_inputs else set()


def _of_file(
    op: Op, own: ImportedInputs, workload: Workload, drawn: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """The inputs, with those that the op's own file makes, in a confined worker. Raises
    ReferenceFailed."""
    if not isinstance(op.reference, ImportedReference):
        raise ReferenceFailed(f"{op.name} has inputs of a file, and no reference of one")
    worker = imported.worker_of(op.reference)
    made = worker.drawn(own, workload.dims, secrets.randbits(62))
    names = [spec.name for spec in op.signature.inputs]
    made_of = [*(name for name in own.names if name in names), *own.state]
    given = dict(zip(made_of, made, strict=True))
    taken = []
    for spec, tensor in zip(op.signature.inputs, drawn, strict=True):
        mine = given.get(spec.name, tensor)
        if mine.shape != tensor.shape:
            raise ReferenceFailed(
                f"The file of {op.name} gives {spec.name}{list(mine.shape)[:8]} for "
                f"{dict(workload.dims)}, expected {list(tensor.shape)}"
            )
        taken.append(mine.to(tensor.device))
    return taken


def _with_stored(
    op: Op, workload: Workload, dtype: str, drawn: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """The inputs, with those that the workload comes with. Raises ReferenceFailed."""
    given = list(drawn)
    for number, spec in enumerate(op.signature.inputs):
        if spec.name not in workload.stored:
            continue
        tensor = _loaded(workload.stored[spec.name])
        expected = spec.sizes(workload.dims), spec.resolve(dtype)
        got = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
        if got != expected:
            raise ReferenceFailed(
                f"{workload.stored[spec.name].path} has {spec.name} as {got[1]}{list(got[0])[:8]}, "
                f"expected {expected[1]}{list(expected[0])} for workload {workload.name}"
            )
        if spec.within and not _lies_within(tensor, spec.bounds(workload.dims)):
            low, high = spec.bounds(workload.dims)
            raise ReferenceFailed(
                f"{workload.stored[spec.name].path} has {spec.name} with elements outside of "
                f"{low} to {high - 1}, which is what they lie between for workload {workload.name}"
            )
        given[number] = tensor.to(given[number].device)
    return given


def _lies_within(tensor: torch.Tensor, bounds: tuple[int, int]) -> bool:
    """Whether all elements do: what else they index would be read by the reference, too."""
    low, high = bounds
    return tensor.numel() == 0 or (int(tensor.min()) >= low and int(tensor.max()) < high)


def _loaded(stored: StoredTensor) -> torch.Tensor:
    """Raises ReferenceFailed."""
    import torch

    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise ReferenceFailed(
            f"{stored.path} needs safetensors, and it is not installed; "
            "pip install 'portkern[formats]'"
        ) from error
    try:
        with safe_open(stored.path, framework="pt") as file:
            tensor: torch.Tensor = file.get_tensor(stored.key)
            # A byte that is neither 0 nor 1 would be another value to a kernel than to torch.
            return tensor.view(torch.uint8) != 0 if tensor.dtype is torch.bool else tensor
    except (OSError, SafetensorError) as error:
        said = " ".join(str(error).split())
        raise ReferenceFailed(f"Cannot read {stored.key!r} of {stored.path}: {said}") from error


def choose(op: Op, workload: Workload, among: Sequence[str]) -> tuple[str, ...]:
    """Which distributions this workload is evaluated on, the base first.

    All see the op's adversaries, whole and in part, without which an op is not tested at any size.
    Small ones see all of ``among`` beside them and two draws in part, larger ones one of each;
    nobody knows which, nor in which order.
    """
    sizes = [tensor.nelements(workload.dims) for tensor in op.signature.inputs]
    others = [name for name in among if name != BASE]
    stored = len(workload.stored) == len(sizes)
    of_file = _of_file_alone(op)
    drawn = [spec for spec in op.signature.inputs if spec.name not in of_file]
    if 0 in sizes or stored or not drawn:
        return (BASE,)  # there is nothing to draw
    many = max(sizes, default=0) > FEW_ELEMENTS
    if many:
        others = _random_choice(others)
    further = [*op.adversaries, *others]
    further += [IN_PART] * (1 if many else 2) if further else []
    return (BASE, *secrets.SystemRandom().sample(further, len(further)))


def kept(op: Op, workload: Workload, among: Sequence[str]) -> Sequence[str]:
    """The distributions whose inputs are kept for timed calls: of large ones, the base and one
    other."""
    if largest(op, workload) <= MANY_ELEMENTS:
        return among
    return [among[0], IN_PART] if IN_PART in among else among[:2]


def largest(op: Op, workload: Workload) -> int:
    """Elements of the largest input; 0 when there is none."""
    return max((tensor.nelements(workload.dims) for tensor in op.signature.inputs), default=0)


def _random_choice(names: Sequence[str]) -> list[str]:
    return [secrets.choice(names)] if names else []
