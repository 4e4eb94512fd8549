"""Runs a reference or a file that came from outside, in a worker that holds no candidate."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from portkern.sandbox.session import pieces
from portkern.sandbox.shared_memory import SharedMemoryView
from portkern.spec.from_torch.traced import PlainKernel, Tracing
from portkern.spec.imported import ImportedReference
from portkern.spec.op import Scalar
from portkern.worker.protocol import (
    BudgetForms,
    Compute,
    Computed,
    Derive,
    Describe,
    Draw,
    OutputForm,
    WritePlain,
)

if TYPE_CHECKING:
    import torch


def compute(asked: Compute, memory: SharedMemoryView) -> Computed:
    inputs = [memory.tensor(slot).clone() for slot in asked.inputs]
    outputs = _outputs(asked.reference, inputs, asked.scalars)
    return Computed(_put(memory, outputs))


def derive(asked: Derive, memory: SharedMemoryView) -> BudgetForms:
    from portkern.rounding.derived_budget import Derivation

    def run(inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        return _outputs(asked.reference, inputs, asked.scalars)

    inputs, exact, own = (
        [memory.tensor(slot).clone() for slot in slots]
        for slots in (asked.inputs, asked.exact, asked.own)
    )
    budget = Derivation(run, inputs, exact, own, asked.seed).budget
    allowed = [tensor for tensor in budget.allowed if tensor is not None]
    flat = [tensor for tensors in budget.integers for tensor in tensors]
    forms = iter(_put(memory, [*allowed, *flat]))
    return BudgetForms(
        tuple(None if tensor is None else next(forms) for tensor in budget.allowed),
        tuple(tuple(next(forms) for _ in tensors) for tensors in budget.integers),
        budget.unruled,
        budget.problem,
    )


def draw(asked: Draw, memory: SharedMemoryView) -> Computed:
    from portkern.worker.tracing.loading import drawn

    return Computed(_put(memory, drawn(asked.inputs, asked.dims, asked.seed)))


def describe(asked: Describe) -> Tracing:
    from portkern.worker.tracing.trace import trace

    return trace(
        asked.source,
        asked.filename,
        asked.wanted,
        asked.name,
        lift=asked.lift,
        as_in_file=asked.as_in_file,
    )


def write_plain(asked: WritePlain) -> PlainKernel:
    from portkern.worker.lowering import plain
    from portkern.worker.tracing.trace import TracedGraph, graph

    known = graph(asked.source, asked.filename, asked.wanted, asked.name, lift=asked.lift)
    if not isinstance(known, TracedGraph):
        return PlainKernel(problem=known.problem)
    try:
        sources = plain.written(known, asked.signature, asked.backend, asked.language)
        return PlainKernel(tuple(map(pieces, sources)))
    except plain.Unwritable as error:
        return PlainKernel(problem=str(error))


def _outputs(
    reference: ImportedReference, inputs: Sequence[torch.Tensor], scalars: Mapping[str, Scalar]
) -> tuple[torch.Tensor, ...]:
    import torch

    reference = _kept(reference)
    reference.run  # noqa: B018 - its source is executed as it is
    wide = any(tensor.dtype is torch.float64 for tensor in inputs)
    with torch.no_grad(), _widened() if wide else nullcontext():
        outputs = reference(*inputs, **scalars)
    return outputs if isinstance(outputs, tuple) else (outputs,)


_KEPT: list[ImportedReference] = []


def _kept(reference: ImportedReference) -> ImportedReference:
    """The one of the request before if it is equal: its source has been executed, which may have
    constructed a module of gigabytes."""
    if _KEPT != [reference]:
        _KEPT[:] = [reference]
        gc.collect()  # a module's functions and its namespace hold each other
    return _KEPT[0]


@contextmanager
def _widened() -> Iterator[None]:
    """The right answer is made in float64, also by code that says float32 where it wants more than
    the 16 bits of its inputs: what it converts and makes is float64 there."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Widened(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self,
            function: Callable[..., object],
            types: object,
            args: tuple[object, ...] = (),
            kwargs: Mapping[str, object] | None = None,
        ) -> object:
            given = kwargs or {}
            if given.get("dtype") is torch.float32:
                given = {**given, "dtype": torch.float64}
            return function(*args, **given)

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with Widened():  # type: ignore[no-untyped-call]
            yield
    finally:
        torch.set_default_dtype(before)


def _put(memory: SharedMemoryView, tensors: Iterable[torch.Tensor]) -> tuple[OutputForm, ...]:
    import torch

    plain = [tensor.detach().cpu().contiguous() for tensor in tensors]
    memory.write_bytes(
        b"".join(bytes(tensor.reshape(-1).view(torch.uint8).numpy()) for tensor in plain)
    )
    return tuple(
        OutputForm(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        for tensor in plain
    )
