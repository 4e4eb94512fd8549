"""Replaces what a model's modules compute by a library's operators, where they are equal and pay.

A model is run on sample inputs. Of each call in it that is one of the operators, both ways are
held against the same in float64 and raced in turns; then the model with all that pays is held
against what it was, and raced as well. What does not pay is not kept.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from . import _modules
from ._modules import FUSED
from ._proof import JudgedCalls, difference, judge, perturbed
from ._race import LEAST_GAIN, race
from ._report import Kept, Report, Whole
from ._running import ModelState, copied, run_model
from ._sites import sites
from ._work import Change, Work, in_place

_MODEL_ROUNDS, _MODEL_BUDGET_S = 15, 3.0


def apply(
    model: nn.Module,
    inputs: Any,
    *,
    library: str,
    operators: Sequence[str],
    mode: str = "auto",
    compiled: bool = False,
    every: bool = False,
) -> Report:
    """Replaces in ``model`` what ``inputs`` (a tensor, a tuple of arguments or a dict of named
    ones) show to be equal to an operator of the library and faster by it.

    ``mode``: ``training`` counts a backward pass too; ``auto`` is what the model is in.
    ``compiled``: the model is compiled by ``torch.compile``, and replaced there too where that
    pays; otherwise a compiled model keeps its own forwards. ``every``: also what does not pay, as a
    test wants it. Raises ValueError.
    """
    training = _training(model, mode)
    given, named = arguments(inputs)
    report = Report(library, "training" if training else "inference")
    called = _modules.calls(library, operators)
    work = Work(report, called, training, every)
    state = ModelState(model)
    try:
        for one in sites(model, given, named):
            if isinstance(one, Kept):
                report.kept.append(one)
            else:
                work.take(one)
        if work.changed:
            _whole(model, given, named, work, state)
        if compiled and report._classes:
            _compiled(model, given, named, work, state)
    finally:
        state.restore()
    if state.changed:
        report.undo()
        report.notes.append(
            f"its forward changes its parameters ({state.changed[0]}): nothing replaced"
        )
    return report


def _training(model: nn.Module, mode: str) -> bool:
    if mode not in ("auto", "inference", "training"):
        raise ValueError(f"got mode={mode!r}, expected 'auto', 'inference' or 'training'")
    if hasattr(model, "_orig_mod"):
        raise ValueError(
            "got a model that torch.compile made; apply the library before, and compile then"
        )
    return mode == "training" or (mode == "auto" and model.training)


def arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Raises ValueError."""
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    if isinstance(inputs, tuple | list):
        return tuple(inputs), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    raise ValueError(
        f"got inputs of {type(inputs).__name__}, expected a tensor, a tuple of a call's arguments, "
        "or a dict of named ones"
    )


def _whole(model: nn.Module, given: Any, named: Any, work: Work, state: ModelState) -> None:
    """Keeps what was replaced where the model gives what it gave, and is faster."""

    def run() -> list[torch.Tensor]:
        state.restore()
        return run_model(model, given, named, training=work.training)

    own = run()
    moved = [difference(run(), own)]
    for seed in range(3):
        with perturbed([one.module for one in work.changed], seed):
            moved.append(difference(run(), own))
    kinds = [one.dtype for one in own if one.is_floating_point()]

    def judged(changed: Sequence[Change]) -> JudgedCalls:
        with in_place(changed):
            return judge(difference(run(), own), moved, kinds)

    verdict = judged(work.changed)
    if verdict.reason:
        for operators in dict.fromkeys(one.plan.operators for one in work.changed):
            alone = [one for one in work.changed if one.plan.operators == operators]
            work.drop(alone, judged(alone).reason)
        verdict = judged(work.changed)
        work.drop([*work.changed], verdict.reason)
    if not work.changed:
        return
    times = _model_race(model, given, named, work, state)
    whole = Whole(times[0] * 1e3, times[1] * 1e3, verdict.difference, verdict.tolerance)
    if whole.ratio < 1 and not work.every:
        work.drop([*work.changed], f"the model is not faster by it ({whole.ratio:.2f}x)")
        return
    work.report.model = whole
    work.report._classes = [(one.module, one.own) for one in work.changed]
    for one in work.changed:
        one.module.__class__ = one.made


def _devices(model: nn.Module, inputs: Any) -> set[str]:
    tensors = [one for one in pytree.tree_leaves(inputs) if isinstance(one, torch.Tensor)]
    return {one.device.type for one in (*model.parameters(), *tensors)}


def _model_race(
    model: nn.Module, given: Any, named: Any, work: Work, state: ModelState
) -> tuple[float, float]:
    """Median seconds of the model as it was and with what was replaced."""
    inputs = copied(tuple(given)), copied(dict(named))
    wanted = [p for p in model.parameters() if p.requires_grad]

    def step() -> None:
        made = model(*inputs[0], **inputs[1])
        if work.training:
            floats = [
                t
                for t in pytree.tree_leaves(made)
                if isinstance(t, torch.Tensor) and t.requires_grad
            ]
            if floats and wanted:
                torch.autograd.grad(
                    floats, wanted, [torch.ones_like(t) for t in floats], allow_unused=True
                )

    def applied() -> None:
        with in_place(work.changed):
            step()

    devices = _devices(model, inputs)
    with torch.random.fork_rng([]), torch.set_grad_enabled(work.training):
        rounds = 1 if work.every else _MODEL_ROUNDS
        times = race([step, applied], devices, rounds=rounds, budget_s=_MODEL_BUDGET_S)
    state.restore()
    return statistics.median(times[0]), statistics.median(times[1])


def _compiled(model: nn.Module, given: Any, named: Any, work: Work, state: ModelState) -> None:
    """Leaves in the compiled model what a compiler does not fuse, where it is faster by that."""
    report, inputs = work.report, (copied(tuple(given)), copied(dict(named)))
    pairs: list[tuple[nn.Module, tuple[Any, Any]]] = []
    for module, own in report._classes:
        kind: Any = type(module)
        plan = replace(kind.portkern_plan, compiled=True)
        if not FUSED & {*plan.operators}:
            module.__class__ = own
            _modules.again(module, plan)
            pairs.append((module, (kind, type(module))))
            module.__class__ = kind
    if not pairs:
        report.notes.append("compiled: what was replaced is left to the compiler, which fuses it")
        return
    fast: Any = torch.compile(model)

    def of(place: int) -> Callable[[], Any]:
        def run() -> None:
            for module, kinds in pairs:
                module.__class__ = kinds[place]
            fast(*inputs[0], **inputs[1])

        return run

    with torch.random.fork_rng([]), torch.set_grad_enabled(work.training):
        devices = _devices(model, inputs)
        times = race([of(0), of(1)], devices, rounds=_MODEL_ROUNDS, budget_s=_MODEL_BUDGET_S)
    own_s, applied_s = map(statistics.median, times)
    pays = own_s >= LEAST_GAIN * applied_s
    for module, kinds in pairs:
        module.__class__ = kinds[pays]
    said = f"{own_s * 1e3:.3f} ms by itself, {applied_s * 1e3:.3f} ms with operators"
    report.notes.append(f"compiled: {said}: {'replaced' if pays else 'left to the compiler'}")
    state.restore()
