"""Whether a kernel's outputs are right: compared with the answers in the evaluator's process, per
element and in norm.

Outputs of an op that declares nothing of its sums are held to the tight budgets first, and where
they are not within those, to what :mod:`derived_budget` grants.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from portkern.evaluator.arithmetic import alone
from portkern.evaluator.reference import (
    OWN_FACTOR,
    Case,
    ErrorBudget,
    ReferenceBlock,
    all_finite,
    allowance,
    as_numbers,
)
from portkern.records.record import Tolerance
from portkern.rounding.derived_budget import DerivedBudget
from portkern.spec.op import Precision

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Comparison:
    """``problem`` is empty when the outputs are right; errors and ``tolerance`` as in
    :class:`record.Errors`. ``finite``: whether NaN and infinity are where they should be.
    ``caveat`` is what the derived budget does not know, '' where it knows all or was not needed."""

    problem: str
    max_abs: float = 0.0
    max_rel: float = 0.0
    vs_fp64: float = 0.0
    reference_vs_fp64: float = 0.0
    tolerance: Tolerance = "tight"
    finite: bool = True
    caveat: str = ""


def compare(
    *, actual: Sequence[torch.Tensor], case: Case, precision: Precision = "strict"
) -> Comparison:
    """Compare all outputs of one call; the worst of them is reported."""
    first = replace(
        _compare_all(actual, case, case.budgets, precision=precision), tolerance=case.tolerance
    )
    if not first.problem or not first.finite or case.derived is None:
        return first
    source = case.derived.source
    if source.problem:
        return replace(first, caveat=f"nothing could be derived: {source.problem}")
    again = _compare_all(actual, case, case.derived.budgets, source.integers, precision)
    return replace(again, tolerance="derived", caveat=_caveat(source))


def _caveat(source: DerivedBudget) -> str:
    if not source.unruled:
        return ""
    names = ", ".join(source.unruled)
    return f"no rule knows what float32 costs in {names}; it is taken for that of a mean square"


def _compare_all(
    actual: Sequence[torch.Tensor],
    case: Case,
    budgets: Sequence[ErrorBudget | None],
    integers: Sequence[Sequence[torch.Tensor]] = (),
    precision: Precision = "strict",
) -> Comparison:
    worst = Comparison("")
    for index, output in enumerate(actual):
        others = integers[index] if integers else ()
        compare_output = partial(_compare_output, output, case.own[index], budgets[index], others)
        comparison = alone(partial(compare_output, precision))
        if comparison.problem:
            which = f"output {index}: " if len(actual) > 1 else ""
            return replace(
                comparison, problem=f"{which}{comparison.problem} ({case.distribution} inputs)"
            )
        worst = max(worst, comparison, key=lambda c: c.vs_fp64)
    return worst


def _compare_output(
    actual: torch.Tensor,
    own: torch.Tensor,
    budget: ErrorBudget | None,
    others: Sequence[torch.Tensor],
    precision: Precision,
) -> Comparison:
    """``others`` are integers that are as right as the framework's ``own``."""
    if actual.numel() == 0:
        return Comparison("")
    if budget is None:
        actual = actual.to(own.device)
        wrong = actual != own
        for other in others:
            wrong &= actual != other
        different = int(wrong.sum())
        return Comparison(f"{different} of {own.numel()} elements differ" if different else "")
    return _measure(actual, budget, precision)


_NONFINITE = "NaN or infinity where the reference has none, or the other way round"


@dataclass
class _Sums:
    """The sums and extremes of an output's errors over the blocks compared so far."""

    count: int = 0
    off: int = 0
    largest: float = 0.0
    relative: float = 0.0
    squares: float = 0.0
    slack_squares: float = 0.0
    excess: float = -math.inf
    worst: str = ""

    def add(self, block: ReferenceBlock, budget: ErrorBudget, precision: Precision) -> bool:
        """Whether what is there is finite, or infinite by no more than it may err."""
        got = block.outputs[0].double()
        error = (got - block.want).abs_()
        largest, infinite = float(error.max()), None
        if not math.isfinite(largest) and not all_finite(got):
            infinite = got.isinf()
            got = as_numbers(got, block.want, budget.answer.dtype)
            error = (got - block.want).abs_()
            largest = float(error.max())
        scale = block.want.abs() + (budget.rms or 1e-300)
        slack, own = allowance(block, budget, scale, precision)
        allowed = own.add_(slack)
        excess = error - allowed
        if infinite is not None and (got.isnan().any() or (excess[infinite] > 0).any()):
            return False
        place = int(excess.argmax())  # a NaN is the largest
        self.count += len(got)
        self.largest = max(self.largest, largest)
        self.squares += float(error.dot(error))
        self.slack_squares += float(slack.dot(slack))
        self.relative = max(self.relative, float((error / scale).max()))
        most = float(excess[place])
        if not most <= 0:
            self.off += int((excess > 0).sum())
        if not most <= self.excess:
            self.excess = most
            self.worst = (
                f"the worst is {float(got[place]):.6g}, expected "
                f"{float(block.want[place]):.6g} ± {float(allowed[place]):.2g}"
            )
        return True


def _measure(actual: torch.Tensor, budget: ErrorBudget, precision: Precision) -> Comparison:
    """The element rule: |got - want| may be 4 times what the framework errs by, at its worst
    element and in proportion to |want| + rms(want), whichever is less; plus a roundoff of
    |want| + rms(want) and what a chain of additions may cost. The norm rule: the same in the
    2-norm, relative to want's."""
    seen = _Sums()
    for block in budget.answer.blocks(actual):
        if block.odd or (len(block.want) and not seen.add(block, budget, precision)):
            return Comparison(_NONFINITE, finite=False)
    vs_fp64, own_vs_fp64 = math.sqrt(seen.squares) / budget.norm, budget.own_norm / budget.norm
    slack = math.sqrt(seen.slack_squares) / budget.norm
    problem = ""
    if not seen.excess <= 0:  # written so that a NaN fails
        problem = f"{seen.off} of {seen.count} elements are off; {seen.worst}"
    elif not vs_fp64 <= OWN_FACTOR * own_vs_fp64 + slack:
        problem = (
            f"the relative error is {vs_fp64:.2g} in norm, the framework's own is {own_vs_fp64:.2g}"
        )
    return Comparison(problem, seen.largest, seen.relative, vs_fp64, own_vs_fp64)


@dataclass(frozen=True)
class Repetition:
    """How two calls with equal inputs differ: ``spread`` is the largest difference, None when all
    bits agree; ``problem`` is empty while no element differs by more than it may err."""

    spread: float | None
    problem: str = ""


def repeated(
    *,
    first: Sequence[torch.Tensor],
    second: Sequence[torch.Tensor],
    case: Case,
    precision: Precision = "strict",
) -> Repetition:
    """A comparison of two calls' outputs, both of which passed :func:`compare`."""
    tight = _repeated(first, second, case.budgets, precision, integers=False)
    if not tight.problem or case.derived is None or case.derived.source.problem:
        return tight
    return _repeated(first, second, case.derived.budgets, precision, integers=True)


def _repeated(
    first: Sequence[torch.Tensor],
    second: Sequence[torch.Tensor],
    budgets: Sequence[ErrorBudget | None],
    precision: Precision,
    *,
    integers: bool,
) -> Repetition:
    """``integers``: whether they may differ, as rounding decides which of several is right."""
    worst = Repetition(None)
    for output, again, budget in zip(first, second, budgets, strict=True):
        if _same_bits(output, again):
            continue
        if budget is None and not integers:
            return Repetition(math.inf, "two calls with equal inputs differ")
        if budget is None:
            most = float((output.double() - again.double()).abs().max())
            worst = Repetition(max(most, worst.spread or 0.0))
            continue
        spread, too_far = 0.0, False
        for block in budget.answer.blocks(output, again):
            if len(block.want):
                pair = [as_numbers(each, block.want, budget.answer.dtype) for each in block.outputs]
                apart = (pair[0] - pair[1]).abs_()
                scale = block.want.abs() + budget.rms
                allowed = sum(allowance(block, budget, scale, precision))
                spread = max(spread, float(apart.max()))
                too_far = too_far or bool((apart > allowed).any())
        if too_far:
            problem = f"two calls with equal inputs differ by up to {spread:.2g}"
            return Repetition(spread, f"{problem}, more than an element may err by")
        worst = Repetition(max(spread, worst.spread or 0.0))
    return worst


def same(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> bool:
    """Whether all outputs agree bit for bit."""
    return all(map(_same_bits, first, second))


def _same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    import torch

    def bits(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.reshape(-1).view(torch.uint8)

    return bool(torch.equal(bits(first), bits(second)))
