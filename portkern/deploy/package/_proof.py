"""Whether results differ by more than roundoff explains: of one call, and of a whole model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from ._running import gradients
from ._sites import Site

#: The largest difference and value of each result.
Pairs = list[tuple[float, float]] | None


def roundoff(dtype: torch.dtype) -> float:
    return float(torch.finfo(dtype).eps) / 2


def difference(ours: Sequence[Any], theirs: Sequence[Any]) -> list[tuple[float, float]] | None:
    """The largest difference and value of each pair; None where they are not of one
    form, or not numbers in the same places."""
    if len(ours) != len(theirs):
        return None
    found = []
    for a, b in zip(ours, theirs, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype or a.device != b.device:
            return None
        if not a.is_floating_point():
            if not torch.equal(a, b):
                return None
            continue
        x, y = a.double(), b.double()
        finite = torch.isfinite(y)
        special = [torch.nan_to_num(torch.where(finite, 0.0, one), nan=1.0) for one in (x, y)]
        if not torch.equal(*special):
            return None
        gap = torch.where(finite, (x - y).abs(), 0.0)
        size = torch.where(finite, y.abs(), 0.0)
        found.append((float(gap.max()), float(size.max())) if a.numel() else (0.0, 0.0))
    return found


def _outcome(function: Any, tensors: Sequence[torch.Tensor], *, training: bool) -> list[Any]:
    if training:
        tensors = [t.detach().requires_grad_(t.is_floating_point()) for t in tensors]
    with torch.set_grad_enabled(training):
        made = [
            one for one in pytree.tree_leaves(function(*tensors)) if isinstance(one, torch.Tensor)
        ]
        wanted = [t for t in tensors if t.requires_grad]
        found = gradients(made, wanted) if training else []
    return [one.detach() for one in (*made, *found)]


def differs(site: Site, called: Any, *, training: bool) -> str:
    """Why a call of the operator is not what the module computes, or ''. Both are held against the
    module's own in float64: ours may err by four times as much as theirs, and a few roundoffs."""
    ours = _outcome(site.ours(called), site.tensors, training=training)
    theirs = _outcome(site.theirs, site.tensors, training=training)
    pairs = difference(ours, theirs)
    if pairs is None:
        return "the operator gives another form or other special values"
    wide = [t.double() if t.is_floating_point() else t for t in site.tensors]
    exact = _outcome(site.theirs, wide, training=training)
    floats = [one for one in zip(ours, theirs, exact, strict=True) if one[0].is_floating_point()]
    for (a, b, e), (gap, size) in zip(floats, pairs, strict=True):
        bound = 16 * roundoff(a.dtype) * size
        if gap <= bound:
            continue
        finite = torch.isfinite(e) & torch.isfinite(b.double())
        own, other = (
            float(torch.where(finite, (one.double() - e).abs(), 0.0).max()) for one in (a, b)
        )
        if own > 4 * other + bound:
            return f"the operator errs by {own:.2g}, the module by {other:.2g}"
    return ""


@dataclass(frozen=True)
class JudgedCalls:
    reason: str = ""
    difference: float = 0.0
    tolerance: float = 0.0


def judge(pairs: Pairs, moved: Sequence[Pairs], kinds: Sequence[torch.dtype]) -> JudgedCalls:
    """The result that is nearest to its tolerance, or beyond it."""
    moves = [one for one in moved if one is not None]
    if pairs is None or len(moves) < len(moved):
        return JudgedCalls("the model's results have another form or other special values then")
    worst = JudgedCalls()
    for number, ((gap, size), kind) in enumerate(zip(pairs, kinds, strict=True)):
        most = max(one[number][0] for one in moves)
        room = 4 * most + 16 * roundoff(kind) * size
        if gap > room:
            said = f"the model's results differ by {gap:.2g} then, a roundoff by {most:.2g}"
            return JudgedCalls(said, gap, room)
        if number == 0 or gap * worst.tolerance > worst.difference * room:
            worst = JudgedCalls("", gap, room)
    return worst


@contextmanager
def perturbed(modules: Sequence[nn.Module], seed: int) -> Iterator[None]:
    """Moves what the modules give by up to two roundoffs, each number by its own."""

    def moved(module: nn.Module, given: Any, made: Any) -> Any:
        del module, given
        return pytree.tree_map(lambda one: _moved(one, seed), made)

    hooks = [one.register_forward_hook(moved) for one in modules]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _moved(one: Any, seed: int) -> Any:
    if not isinstance(one, torch.Tensor) or not one.is_floating_point():
        return one
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randint(-2, 3, one.shape, generator=generator).to(one.device)
    return one * (1 + steps * torch.finfo(one.dtype).eps).to(one.dtype)
