"""Whether a kernel's outputs are right, decided in the judge's process.

The reference runs at float64; a kernel may err as much as the framework's own kernel at that
dtype does, within a stated factor, per element and in norm.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from portkern.op import ITEMSIZE, Op, Precision, Scalar, Workload

#: A kernel may err this many times as much as the framework's own kernel …
OWN_FACTOR = 4.0
#: … plus this many units of roundoff of the dtype: the framework may round luckily.
ROUNDOFFS = {"float64": 8.0, "float32": 8.0, "float16": 2.0, "bfloat16": 2.0}
ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
#: Poison repeats after this many bytes: a prime, so that no row or tile of a kernel meets it twice.
POISON_PERIOD = 65_537
#: A sum may err as one chain of float32 additions does, whose partial sums are rounded one by one
#: (Higham, Accuracy and Stability of Numerical Algorithms, 4.2): by this many roundoffs of the
#: output times the square root of the number of terms …
CHAIN_ROUNDOFFS = 2.0
#: … and, where they cancel, by this many of the sum of their sizes.
TERM_ROUNDOFFS = 4.0
#: TF32 and bfloat16 keep 10 and 7 bits of the mantissa.
_POLICY_ROUNDOFF = {"strict": 0.0, "allow_tf32": 2.0**-11, "allow_reduced": 2.0**-8}


def _normal(shape: tuple[int, ...], generator: Any) -> Any:
    import torch

    return torch.randn(shape, generator=generator)


def _uniform(shape: tuple[int, ...], generator: Any) -> Any:
    import torch

    return torch.rand(shape, generator=generator) * 2 - 1


#: Inputs are drawn from each of these. A mean far from 0 breaks one-pass variances, a tiny scale
#: breaks absolute tolerances, ties and signed zeros break comparisons.
DISTRIBUTIONS: Mapping[str, Callable[[tuple[int, ...], Any], Any]] = {
    "normal": _normal,
    "offset": lambda shape, g: _normal(shape, g) * 0.25 + 2.0,
    "tiny": lambda shape, g: _normal(shape, g) * 1e-3,
    "ties": lambda shape, g: (_uniform(shape, g) * 4).round() * 0.5,
}


@dataclass(frozen=True)
class Case:
    """Inputs that a kernel will see, and what only the judge knows: the answer at float64
    (``exact``), the framework's own at the cell's dtype (``own``) and, where outputs are made of
    sums, what adding their terms one by one may cost (``chain``). Host tensors of torch."""

    distribution: str
    inputs: tuple[Any, ...]
    exact: tuple[Any, ...]
    own: tuple[Any, ...]
    chain: tuple[Any, ...] = ()

    @cached_property
    def budgets(self) -> tuple[_Budget | None, ...]:
        """What each output may err by; None for an output of integers, which must be equal."""
        chain = self.chain or (None,) * len(self.exact)
        return tuple(map(_budget, self.exact, self.own, chain))


@dataclass(frozen=True)
class _Budget:
    """One output's answer and the framework's distance from it, over the finite elements."""

    dtype: str
    finite: Any  # None when every element is
    rounded: Any
    want: Any
    size: Any
    chain: Any  # of each element; None when nothing is summed
    rms: float
    norm: float
    own_worst: float
    own_norm: float


@dataclass(frozen=True)
class Comparison:
    """``problem`` is empty when the outputs are right; errors as in :class:`record.Errors`."""

    problem: str
    max_abs: float = 0.0
    max_rel: float = 0.0
    vs_fp64: float = 0.0
    reference_vs_fp64: float = 0.0


def make_case(op: Op, workload: Workload, dtype: str, distribution: str) -> Case:
    """Fresh inputs from a secret seed, with the answer."""
    import torch

    generator = torch.Generator().manual_seed(secrets.randbits(62))
    draw = DISTRIBUTIONS[distribution]
    inputs = [
        draw(spec.sizes(workload.dims), generator).to(getattr(torch, spec.resolve(dtype)))
        for spec in op.signature.inputs
    ]
    return answer(op, workload, distribution, inputs)


def answer(op: Op, workload: Workload, distribution: str, inputs: Sequence[Any]) -> Case:
    """The answer for given inputs, host tensors of the op's dtypes."""
    scalars = op.signature.scalar_values(workload.scalars)
    wide = [tensor.double() for tensor in inputs]
    exact = _reference(op, wide, scalars)
    return Case(
        distribution, tuple(inputs), exact, own=_reference(op, inputs, scalars),
        chain=_chain(op, workload, wide, exact),
    )  # fmt: skip


def _chain(
    op: Op, workload: Workload, wide: Sequence[Any], exact: Sequence[Any]
) -> tuple[Any, ...]:
    """What one chain of float32 additions may cost each element."""
    terms = op.terms(workload.dims)
    if terms <= 1:
        return ()
    factor = CHAIN_ROUNDOFFS * terms**0.5 * ROUNDOFF["float32"]
    chain = tuple(want.abs() * factor for want in exact)
    if not op.cancels:
        return chain
    scalars = op.signature.scalar_values(workload.scalars)
    sizes = _reference(op, [tensor.abs() for tensor in wide], scalars)
    factor = TERM_ROUNDOFFS * ROUNDOFF["float32"]
    return tuple(c + size * factor for c, size in zip(chain, sizes, strict=True))


def _reference(op: Op, inputs: Sequence[Any], scalars: Mapping[str, Scalar]) -> tuple[Any, ...]:
    import torch

    with torch.no_grad():
        outputs = op.reference(*inputs, **scalars)
    return outputs if isinstance(outputs, tuple) else (outputs,)


def poison(shape: tuple[int, ...], dtype: str) -> Any:
    """An output buffer of random bytes: what a kernel leaves unwritten differs in every call."""
    import torch

    count = ITEMSIZE[dtype]
    for size in shape:
        count *= size
    block = torch.randint(0, 256, (min(count, POISON_PERIOD),), dtype=torch.uint8)
    raw = block.repeat(-(-count // max(len(block), 1)))[:count]
    return raw.view(getattr(torch, dtype)).reshape(shape)


def compare(*, actual: Sequence[Any], case: Case, precision: Precision = "strict") -> Comparison:
    """Judge all outputs of one call; the worst of them is reported."""
    worst = Comparison("")
    for index, output in enumerate(actual):
        one = _compare_one(output, case.own[index], case.budgets[index], precision)
        if one.problem:
            which = f"output {index}: " if len(actual) > 1 else ""
            return replace(one, problem=f"{which}{one.problem} ({case.distribution} inputs)")
        worst = max(worst, one, key=lambda c: c.vs_fp64)
    return worst


def _budget(exact: Any, own: Any, chain: Any) -> _Budget | None:
    import torch

    dtype = str(own.dtype).removeprefix("torch.")
    if dtype not in ROUNDOFF:
        return None
    rounded = exact.to(own.dtype)
    both = torch.isfinite(rounded).logical_and_(torch.isfinite(own))
    finite = None if bool(both.all()) else both
    want = exact if finite is None else exact[finite]
    if chain is not None and finite is not None:
        chain = chain[finite]
    error = (own if finite is None else own[finite]).double().sub_(want).abs_()
    empty = want.numel() == 0
    return _Budget(
        dtype, finite, rounded, want, want.abs(), chain,
        rms=0.0 if empty else float(want.square().mean().sqrt()),
        norm=float(want.norm()) or 1.0,
        own_worst=0.0 if empty else float(error.max()), own_norm=float(error.norm()),
    )  # fmt: skip


def _compare_one(actual: Any, own: Any, budget: _Budget | None, precision: Precision) -> Comparison:
    import torch

    if actual.numel() == 0:
        return Comparison("")
    if budget is None:
        different = int((actual != own).sum())
        return Comparison(f"{different} of {own.numel()} elements differ" if different else "")
    got = actual
    if budget.finite is not None:
        odd = ~budget.finite & ~_same(actual, budget.rounded) & ~_same(actual, own)
        if bool(odd.any()):
            return Comparison(_NONFINITE)
        got = actual[budget.finite]
    if not bool(torch.isfinite(got).all()):
        return Comparison(_NONFINITE)
    return _measure(got.double(), budget, precision) if got.numel() else Comparison("")


_NONFINITE = "NaN or infinity where the reference has none, or the other way round"


def _same(a: Any, b: Any) -> Any:
    return (a == b) | (a.isnan() & b.isnan())


def _measure(got: Any, budget: _Budget, precision: Precision) -> Comparison:
    """The element rule: |got - want| <= 4 max|framework - want| + roundoff (|want| + rms(want)),
    plus what a chain of additions may cost. The norm rule: the same in the 2-norm, relative to
    want's."""
    kind = budget.dtype
    roundoff = ROUNDOFFS[kind] * max(ROUNDOFF[kind], _POLICY_ROUNDOFF[precision])
    error = (got - budget.want).abs_()
    scale = budget.size + budget.rms
    allowance = scale * roundoff
    if budget.chain is not None:
        allowance += budget.chain
    excess = error - allowance
    floor = OWN_FACTOR * budget.own_worst
    worst = int(excess.argmax())
    vs_fp64, own_vs_fp64 = float(error.norm()) / budget.norm, budget.own_norm / budget.norm
    problem = ""
    if not float(excess.flatten()[worst]) <= floor:  # written so that a NaN fails
        wrong = int((excess > floor).sum())
        allowed = floor + float(allowance.flatten()[worst])
        problem = (
            f"{wrong} of {error.numel()} elements are off; the worst is "
            f"{float(got.flatten()[worst]):.6g}, expected "
            f"{float(budget.want.flatten()[worst]):.6g} ± {allowed:.2g}"
        )
    elif not vs_fp64 <= OWN_FACTOR * own_vs_fp64 + float(allowance.norm()) / budget.norm:
        problem = (
            f"the relative error is {vs_fp64:.2g} in norm, the framework's own is {own_vs_fp64:.2g}"
        )
    relative = float((error / scale.clamp_min_(1e-300)).max())
    return Comparison(problem, float(error.max()), relative, vs_fp64, own_vs_fp64)
