"""Trials of what tracing says of an operator: at each proposed size the file's own code is
called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from portkern.spec.expression import Expression
from portkern.spec.from_torch import sizes as rules
from portkern.spec.from_torch.traced import Traced, TracedTensor
from portkern.spec.imported import ImportedInputs
from portkern.spec.op import CELL, FLOATS
from portkern.worker.tracing.calling import FakeCall
from portkern.worker.tracing.constants import with_numbers
from portkern.worker.tracing.loading import LoadedOperator, NotAnOperator, drawn


def with_workloads(
    traced: Traced, call: FakeCall, keys: Mapping[str, str], own: ImportedInputs | None = None
) -> Traced:
    """The traced operator with the proposed sizes at which the outputs are as large as was traced.
    ``keys``: what the call knows each input by; ``own``: what the file makes itself, which has to
    follow. Raises NotAnOperator where not even the file's own size is such."""
    free = traced.axes
    tensors = (*traced.inputs, *traced.outputs)
    sizes = rules.Sizes(
        free,
        tuple(map(Expression, traced.requires)),
        {name: Expression(text) for name, text in traced.derived.items()},
        lambda dims: sum(_elements(one.shape, dims) for one in tensors),
        Expression(traced.flops),
        traced.beside,
        lambda dims: _fits(traced, call, keys, sizes.all(dims), own),
    )
    if not _fits(traced, call, keys, sizes.all(free), own):
        raise NotAnOperator(
            "gives outputs of other sizes than it was traced with, at its own sizes"
        )
    workloads: dict[str, tuple[Mapping[str, int], ...]] = {}
    for name, proposed in rules.propose(sizes).items():
        several = [sizes.all(dims) for dims in proposed]
        fitting = [dims for dims in several if dims and _fits(traced, call, keys, dims, own)]
        workloads[name] = tuple(fitting)
    as_is = (dict(sizes.all(free) or {}),)
    notes = traced.notes
    if not workloads["ci"]:
        notes += ("No smaller size than the file's works.",) if free else ()
    if free and not workloads["edge"]:
        notes += ("`edge` is empty: at none of its sizes are the outputs as they were traced.",)
    for name in ("ci", "typical", "heldout"):
        workloads[name] = (workloads[name] if free else ()) or workloads["ci"] or as_is
    if own is not None and sizes.cost(free) <= rules.MOST["edge"]:
        # What the file writes into an input, such as padding, may lie beyond smaller sizes.
        workloads["ci"] = tuple({str(dims): dims for dims in (*workloads["ci"], *as_is)}.values())
    if call.loaded.cases:
        notes += (_add_cases(workloads, traced, call, keys, sizes),)
    return replace(traced, workloads=workloads, notes=notes)


def _add_cases(
    workloads: dict[str, tuple[Mapping[str, int], ...]],
    traced: Traced,
    call: FakeCall,
    keys: Mapping[str, str],
    sizes: rules.Sizes,
) -> str:
    """The file's own further sizes, each to the first set that takes as much; says how many."""
    fitting = 0
    for given in call.loaded.cases:
        free = _lengths_in(traced, given)
        dims = sizes.all(free) if free is not None else None
        takes = (
            [
                name
                for name in ("ci", "typical", "headline")
                if sizes.cost(free or {}) <= rules.MOST[name]
            ]
            if dims
            else []
        )
        if dims is None or not takes or not _fits(traced, call, keys, dims):
            continue
        fitting += 1
        if not any(dims == known for several in workloads.values() for known in several):
            workloads[takes[0]] = (*workloads.get(takes[0], ()), dims)
    number = len(call.loaded.cases)
    rest = "" if fitting == number else "; the others differ in more than sizes, or are too large"
    return f"{fitting} of the file's {number} further cases are workloads{rest}."


def _lengths_in(traced: Traced, given: Sequence[object]) -> dict[str, int] | None:
    """The lengths of the free axes in these inputs; None where they differ in more than lengths
    and the values of scalars, which stay what they are in the example."""
    tensors = {one.name: one for one in traced.inputs}
    scalars = {one.name: one for one in traced.scalars}
    if len(given) != len(traced.arguments):
        return None
    lengths: dict[str, int] = {}
    for argument, value in zip(traced.arguments, given, strict=True):
        if argument.name in tensors:
            if not _is_such(tensors[argument.name], value, lengths, traced.axes):
                return None
        elif argument.name in scalars:
            if type(value) is not type(scalars[argument.name].default):
                return None
        elif repr(value) != argument.value:
            return None
    return {**traced.axes, **lengths}


def _is_such(
    spec: TracedTensor, value: Any, lengths: dict[str, int], axes: Mapping[str, int]
) -> bool:
    """Whether a tensor is as the spec says, with what it adds to ``lengths``. Lengths that follow
    from others are looked at when it is called."""
    shape = getattr(value, "shape", None)
    if shape is None or len(shape) != len(spec.shape):
        return False
    dtype = str(value.dtype).removeprefix("torch.")
    if dtype != spec.dtype and not (spec.dtype == CELL and dtype in FLOATS):
        return False
    for length, known in zip(shape, spec.shape, strict=True):
        if isinstance(known, int):
            if known != length:
                return False
        elif known in axes and lengths.setdefault(known, int(length)) != length:
            return False
    return True


def _elements(shape: Sequence[int | str], dims: Mapping[str, int]) -> int:
    count = 1
    for length in shape:
        count *= dims[length] if isinstance(length, str) else length
    return count


def _fits(
    traced: Traced,
    call: FakeCall,
    keys: Mapping[str, str],
    dims: Mapping[str, int] | None,
    own: ImportedInputs | None = None,
) -> bool:
    if dims is None:
        return False

    def size(shape: Sequence[int | str]) -> list[int]:
        return [dims[length] if isinstance(length, str) else length for length in shape]

    for one in traced.inputs:
        low, high = one.within or (0, 1)
        top = dims[high] if isinstance(high, str) else high
        if top <= low and 0 not in size(one.shape):
            return False
    shapes = {keys[one.name]: size(one.shape) for one in traced.inputs}
    try:
        if traced.constants:
            call = with_numbers(call, {name: dims[name] for name in traced.constants})
        outputs = call.outputs(shapes)
        made = sizes_made(call.loaded, own, dims) if own else {}
    except Exception:  # noqa: BLE001 - of the file's own code, at a size that it was not written for
        return False
    if made is None or any(shapes[key] != size for key, size in made.items()):
        return False
    return [list(one.shape) for one in outputs] == [size(one.shape) for one in traced.outputs]


def sizes_made(
    loaded: LoadedOperator, own: ImportedInputs, dims: Mapping[str, int]
) -> dict[str, list[int]] | None:
    """The sizes of the inputs that the file makes itself when it is asked for ``dims``; None where
    it raises."""
    try:
        with loaded.fake:
            made = drawn(own, dims, 0)
    except Exception:  # noqa: BLE001 - of the file's own code, at a size that it was not written for
        return None
    places = [f"input.{number}" for number, name in enumerate(own.names) if name]
    return {key: list(one.shape) for key, one in zip(places, made, strict=True)}
