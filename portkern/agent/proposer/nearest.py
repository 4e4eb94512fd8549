"""Shipped kernels that may do the work of an operator of one's own: which they are, decides the
evaluator."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

from portkern import ops
from portkern.agent.task import Task
from portkern.spec import catalogue
from portkern.spec.candidate import Candidate
from portkern.spec.op import Op, Signature

#: More are guesses.
MOST = 4
_WORD = re.compile(r"[A-Za-z_]\w*")


def nearest(task: Task) -> list[Candidate]:
    """Shipped kernels that are called alike, under the operator's name, those first whose
    reference has the most words in common with this one. Kernels in C must have the same axes;
    one in Python asks its tensors."""
    native = ".py" not in task.suffix
    alike = [
        op
        for op in map(ops.load, ops.names())
        if _form(op.signature, native) == _form(task.op.signature, native)
    ]
    alike.sort(key=lambda op: -_common(op, task.op))
    kernels = [
        _renamed(kernel, task.op.name)
        for op in alike
        if _common(op, task.op)
        for kernel in catalogue.candidates(op.name, task.backend, task.target)
        if kernel.language == task.language
    ]
    return kernels[:MOST]


def _form(signature: Signature, native: bool) -> object:
    """The form in which a kernel is called, without names: kernels of equal form take the same
    arguments."""
    order = {axis: f"axis {n}" for n, axis in enumerate(signature.axes)}
    tensors = [
        [(tensor.dtype, tuple(order.get(str(one), one) for one in tensor.shape)) for tensor in side]
        for side in (signature.inputs, signature.outputs)
    ]
    if not native:
        return [[dtype for dtype, _ in side] for side in tensors], len(signature.scalars)
    scalars = [scalar.dtype for scalar in signature.scalars]
    return tensors, len(signature.axes), scalars


def _common(first: Op, other: Op) -> int:
    """How many words both references have, beyond those that every one has."""
    ours, theirs = (Counter(_words(op.reference_source)) for op in (first, other))
    return sum((ours & theirs).values())


def _words(source: str) -> list[str]:
    return [word for word in _WORD.findall(source) if word not in _EVERYWHERE]


_EVERYWHERE = frozenset(
    "def return torch Tensor nn Module class self forward super init import from x y a b n f F "
    "functional annotations __future__ __init__ inputs input float int".split()
)


def _renamed(kernel: Candidate, name: str) -> Candidate:
    source = re.sub(rf"\b{re.escape(kernel.op)}\b", name, kernel.source)
    return replace(
        kernel,
        op=name,
        entry=name,
        source=source,
        author=f"catalogue: {kernel.op}",
        variant=f"the catalogue's {kernel.op}",
    )
