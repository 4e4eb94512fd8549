"""Whether a kernel's outputs are right, decided in the judge's process.

The reference runs at float64; a kernel may err as much as the framework's own kernel at that
dtype does, within a stated factor, per element and in norm.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from portkern.op import ITEMSIZE, Op, Precision, Scalar, Workload

#: A kernel may err this many times as much as the framework's own kernel …
OWN_FACTOR = 4.0
#: … plus this many units of roundoff of the dtype: the framework may round luckily.
ROUNDOFFS = {"float64": 8.0, "float32": 8.0, "float16": 2.0, "bfloat16": 2.0}
ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
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
    "offset": lambda shape, g: _normal(shape, g) * 0.25 + 4.0,
    "tiny": lambda shape, g: _normal(shape, g) * 1e-3,
    "ties": lambda shape, g: (_uniform(shape, g) * 4).round() * 0.5,
}


@dataclass(frozen=True)
class Case:
    """Inputs that a kernel will see, and what only the judge knows: the answer at float64
    (``exact``) and the framework's own at the cell's dtype (``own``). Host tensors of torch."""

    distribution: str
    inputs: tuple[Any, ...]
    exact: tuple[Any, ...]
    own: tuple[Any, ...]


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
    scalars = op.signature.scalar_values(workload.scalars)
    inputs = tuple(
        draw(spec.sizes(workload.dims), generator).to(getattr(torch, spec.resolve(dtype)))
        for spec in op.signature.inputs
    )
    return Case(
        distribution, inputs,
        exact=_reference(op, [tensor.double() for tensor in inputs], scalars),
        own=_reference(op, inputs, scalars),
    )  # fmt: skip


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
    raw = torch.randint(0, 256, (count,), dtype=torch.uint8)
    return raw.view(getattr(torch, dtype)).reshape(shape)


def compare(*, actual: Sequence[Any], case: Case, precision: Precision = "strict") -> Comparison:
    """Judge all outputs of one call; the worst of them is reported."""
    worst = Comparison("")
    for index, output in enumerate(actual):
        one = _compare_one(output, case.exact[index], case.own[index], precision)
        if one.problem:
            which = f"output {index}: " if len(actual) > 1 else ""
            return Comparison(
                f"{which}{one.problem} ({case.distribution} inputs)", one.max_abs, one.max_rel,
                one.vs_fp64, one.reference_vs_fp64,
            )  # fmt: skip
        worst = max(worst, one, key=lambda c: c.vs_fp64)
    return worst


def _compare_one(actual: Any, exact: Any, own: Any, precision: Precision) -> Comparison:
    import torch

    if actual.numel() == 0:
        return Comparison("")
    dtype = str(own.dtype).removeprefix("torch.")
    if dtype not in ROUNDOFF:
        different = int((actual != own).sum())
        return Comparison(f"{different} of {own.numel()} elements differ" if different else "")
    rounded = exact.to(own.dtype)
    finite = torch.isfinite(rounded) & torch.isfinite(own)
    odd = ~finite & ~_same(actual, rounded) & ~_same(actual, own)
    if bool(odd.any()) or not bool(torch.isfinite(actual[finite]).all()):
        return Comparison("NaN or infinity where the reference has none, or the other way round")
    got, want, framework = (t[finite].double() for t in (actual, exact, own))
    if want.numel() == 0:
        return Comparison("")
    return _measure(got, want, framework, _roundoff(dtype, precision))


def _same(a: Any, b: Any) -> Any:
    return (a == b) | (a.isnan() & b.isnan())


def _roundoff(dtype: str, precision: Precision) -> float:
    return ROUNDOFFS[dtype] * max(ROUNDOFF[dtype], _POLICY_ROUNDOFF[precision])


def _measure(got: Any, want: Any, framework: Any, roundoff: float) -> Comparison:
    """The element rule: |got - want| <= 4 max|framework - want| + roundoff (|want| + rms(want)).
    The norm rule: the same in the 2-norm, relative to want's."""
    error, own_error = (got - want).abs(), (framework - want).abs()
    size = want.abs()
    rms = float(want.square().mean().sqrt())
    allowed = OWN_FACTOR * own_error.max() + roundoff * (size + rms)
    norm = float(want.norm()) or 1.0
    vs_fp64, own_vs_fp64 = float(error.norm()) / norm, float(own_error.norm()) / norm
    excess = error - allowed
    worst = int(excess.argmax())
    problem = ""
    if not bool((excess <= 0).all()):  # written so that a NaN fails
        wrong = int((excess > 0).sum())
        problem = (
            f"{wrong} of {want.numel()} elements are off; the worst is "
            f"{float(got[worst]):.6g}, expected {float(want[worst]):.6g} "
            f"± {float(allowed[worst]):.2g}"
        )
    elif not vs_fp64 <= OWN_FACTOR * own_vs_fp64 + roundoff:
        problem = (
            f"the relative error is {vs_fp64:.2g} in norm, the framework's own is {own_vs_fp64:.2g}"
        )
    relative = float((error / (size + rms).clamp_min(1e-300)).max())
    return Comparison(problem, float(error.max()), relative, vs_fp64, own_vs_fp64)
