"""Whether a kernel's outputs are right, decided in the judge's process.

The reference runs at float64; a kernel may err as much as the framework's own kernel at that
dtype does, within a stated factor, per element and in norm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeVar

from portkern.inputs import draw
from portkern.op import ITEMSIZE, Op, Precision, Scalar, Workload

T = TypeVar("T")

#: A kernel may err this many times as much as the framework's own kernel …
OWN_FACTOR = 4.0
#: … plus this many units of roundoff of the dtype: the framework may round luckily.
ROUNDOFFS = {"float64": 8.0, "float32": 8.0, "float16": 2.0, "bfloat16": 2.0}
ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
#: The smallest subnormal, which half of all roundoffs below the normal range come to.
LEAST = {"float64": 2.0**-1074, "float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}
#: Poison repeats after this many bytes: a prime, so that no row or tile of a kernel meets it twice.
POISON_PERIOD = 65_537
#: A sum may err as one chain of float32 additions does, whose partial sums are rounded one by one
#: (Higham, Accuracy and Stability of Numerical Algorithms, 4.2): by this many roundoffs of the
#: output times the square root of the number of terms …
CHAIN_ROUNDOFFS = 2.0
#: … or this many times their number, where all are equal and round to the same side, or vanish
#: beside a large one …
REPEATED_ROUNDOFFS = 0.5
SWAMPED = ("one-hot", "heavy")
#: … and, where they cancel, by this many of the sum of their sizes.
TERM_ROUNDOFFS = 4.0
#: Does the arithmetic on whole tensors, which uses all processors: a second thread would bring a
#: team of its own that waits for the first, and memory of its own to be asked of the system.
_WORKER = ThreadPoolExecutor(1, "portkern-check")
#: So many elements are compared at a time.
BLOCK = 1 << 19
#: TF32 and bfloat16 keep 10 and 7 bits of the mantissa.
_POLICY_ROUNDOFF = {"strict": 0.0, "allow_tf32": 2.0**-11, "allow_reduced": 2.0**-8}


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
        return _alone(lambda: tuple(map(_budget, self.exact, self.own, chain)))


@dataclass(frozen=True)
class _Answer:
    """One output's answer: at float64, by the framework and what adding its terms may cost each
    element, None when nothing is summed. All flat."""

    dtype: str
    exact: Any
    own: Any
    chain: Any

    @cached_property
    def _whole(self) -> list[bool]:
        """Of each block, whether all of it is finite."""
        starts = range(0, len(self.exact), BLOCK)
        return [
            _all_finite(self.exact[start : start + BLOCK].to(self.own.dtype))
            and _all_finite(self.own[start : start + BLOCK])
            for start in starts
        ]

    def blocks(self, *outputs: Any) -> Iterator[_Block]:
        """In turn, with the same part of each of ``outputs``. Temporaries of this size stay in a
        cache."""
        flat = [output.reshape(-1) for output in outputs]
        for number, whole in enumerate(self._whole):
            part = slice(number * BLOCK, (number + 1) * BLOCK)
            chain = None if self.chain is None else self.chain[part]
            given = self.exact[part], self.own[part], chain, [one[part] for one in flat]
            yield _Block(*given) if whole else _Block.of(*given)


@dataclass(frozen=True)
class _Block:
    """The finite elements of a part of an output. ``odd``: one of the others is not what the
    reference has there. What ``outputs`` have at finite ones need not be finite."""

    want: Any
    own: Any
    chain: Any
    outputs: Sequence[Any]
    odd: bool = False

    @classmethod
    def of(cls, exact: Any, own: Any, chain: Any, outputs: Sequence[Any]) -> _Block:
        import torch

        rounded = exact.to(own.dtype)
        finite = torch.isfinite(rounded).logical_and_(torch.isfinite(own))
        odd = False
        for output in outputs:
            strange = ~finite & ~_same(output, rounded) & ~_same(output, own)
            odd = odd or bool(strange.any())
        chain = None if chain is None else chain[finite]
        return cls(exact[finite], own[finite], chain, [one[finite] for one in outputs], odd)


@dataclass(frozen=True)
class _Budget:
    """One output's answer and the framework's distance from it, over the finite elements."""

    answer: _Answer
    rms: float
    norm: float
    own_worst: float
    own_share: float  # the largest error relative to |want| + rms(want)
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
    return answer(op, workload, distribution, draw(op, workload, dtype, distribution))


def answer(op: Op, workload: Workload, distribution: str, inputs: Sequence[Any]) -> Case:
    """The answer for given inputs, host tensors of the op's dtypes."""
    scalars = op.signature.scalar_values(workload.scalars)

    def case() -> Case:
        wide = [tensor.double() for tensor in inputs]
        exact = _reference(op, wide, scalars)
        own = _reference(op, inputs, scalars)
        chain = _chain(op, workload, wide, exact, repeats=distribution in SWAMPED)
        return Case(distribution, tuple(inputs), exact, own, chain)

    return _alone(case)


def _alone(work: Callable[[], T]) -> T:
    return _WORKER.submit(work).result()


def _chain(
    op: Op, workload: Workload, wide: Sequence[Any], exact: Sequence[Any], *, repeats: bool = False
) -> tuple[Any, ...]:
    """What one chain of float32 additions may cost each element."""
    terms = op.terms(workload.dims)
    if terms <= 1:
        return ()
    scalars = op.signature.scalar_values(workload.scalars)
    roundoffs = CHAIN_ROUNDOFFS * terms**0.5
    if repeats:
        roundoffs = max(roundoffs, REPEATED_ROUNDOFFS * terms)
    chain = [want.abs() * (roundoffs * ROUNDOFF["float32"]) for want in exact]
    if op.cancels:
        sizes = _reference(op, [tensor.abs() for tensor in wide], scalars)
        for total, size in zip(chain, sizes, strict=True):
            total += size * (TERM_ROUNDOFFS * ROUNDOFF["float32"])
    if op.shifts:
        for index, tensor in enumerate(wide):  # one by one: together they may cancel
            nudged = [*wide[:index], _nudged(tensor), *wide[index + 1 :]]
            moved = _reference(op, nudged, scalars)
            for total, other, want in zip(chain, moved, exact, strict=True):
                total += (other - want).abs_() * roundoffs
    return tuple(chain)


def _nudged(wide: Any) -> Any:
    """Each element up or down by a roundoff of float32, of its own size and of its row's: an
    error of the mean moves the small ones as far as the large."""
    import torch

    sign = torch.randint(0, 2, wide.shape, dtype=torch.int8) * 2 - 1
    size = wide.abs()
    size += size.mean(-1, keepdim=True)
    return wide + sign * size * ROUNDOFF["float32"]


def _reference(op: Op, inputs: Sequence[Any], scalars: Mapping[str, Scalar]) -> tuple[Any, ...]:
    import torch

    with torch.no_grad():
        outputs = op.reference(*inputs, **scalars)
    return outputs if isinstance(outputs, tuple) else (outputs,)


#: Bytes before and behind an output that a kernel must leave alone; a multiple of a page, so that
#: the output begins at one.
MARGIN = 4096


def fenced(shape: tuple[int, ...], dtype: str) -> Any:
    """Random bytes for an output buffer and its margins on both sides."""
    return poison((math.prod(shape) * ITEMSIZE[dtype] + 2 * MARGIN,), "uint8")


def margins(block: Any) -> Any:
    import torch

    return torch.cat([block[:MARGIN], block[-MARGIN:]])


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
        own, budget = case.own[index], case.budgets[index]
        one = _alone(partial(_compare_one, output, own, budget, precision))
        if one.problem:
            which = f"output {index}: " if len(actual) > 1 else ""
            return replace(one, problem=f"{which}{one.problem} ({case.distribution} inputs)")
        worst = max(worst, one, key=lambda c: c.vs_fp64)
    return worst


def _budget(exact: Any, own: Any, chain: Any) -> _Budget | None:
    dtype = str(own.dtype).removeprefix("torch.")
    if dtype not in ROUNDOFF:
        return None
    flat = [None if one is None else one.reshape(-1) for one in (exact, own, chain)]
    answer = _Answer(dtype, *flat)
    squares, count = 0.0, 0
    for block in answer.blocks():
        squares += float(block.want.dot(block.want))
        count += len(block.want)
    rms = math.sqrt(squares / count) if count else 0.0
    own_worst = own_share = own_squares = 0.0
    for block in answer.blocks():
        if not len(block.want):
            continue
        error = block.own.double().sub_(block.want).abs_()
        own_worst = max(own_worst, float(error.max()))
        own_squares += float(error.dot(error))
        own_share = max(own_share, float(error.div_(block.want.abs() + (rms or 1.0)).max()))
    norm = math.sqrt(squares) or 1.0
    return _Budget(answer, rms, norm, own_worst, own_share, math.sqrt(own_squares))


def _compare_one(actual: Any, own: Any, budget: _Budget | None, precision: Precision) -> Comparison:
    if actual.numel() == 0:
        return Comparison("")
    if budget is None:
        different = int((actual != own).sum())
        return Comparison(f"{different} of {own.numel()} elements differ" if different else "")
    return _measure(actual, budget, precision)


_NONFINITE = "NaN or infinity where the reference has none, or the other way round"


def _all_finite(tensor: Any) -> bool:
    """By way of the sum, which reads once; where it overflows, one by one."""
    import torch

    return math.isfinite(float(tensor.sum(dtype=torch.float64))) or bool(
        torch.isfinite(tensor).all()
    )


def _same(a: Any, b: Any) -> Any:
    return (a == b) | (a.isnan() & b.isnan())


@dataclass
class _Sums:
    """What is known of an output's errors after some of its blocks."""

    count: int = 0
    off: int = 0
    largest: float = 0.0
    relative: float = 0.0
    squares: float = 0.0
    slack_squares: float = 0.0
    excess: float = -math.inf
    worst: str = ""

    def add(self, block: _Block, budget: _Budget, precision: Precision) -> bool:
        """Whether all that is there is finite."""
        got = block.outputs[0].double()
        error = (got - block.want).abs_()
        largest = float(error.max())
        if not math.isfinite(largest) and not _all_finite(got):
            return False
        scale = block.want.abs() + (budget.rms or 1e-300)
        slack, own = _allowance(block, budget, scale, precision)
        allowed = own.add_(slack)
        excess = error - allowed
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


def _measure(actual: Any, budget: _Budget, precision: Precision) -> Comparison:
    """The element rule: |got - want| may be 4 times what the framework errs by, at its worst
    element and in proportion to |want| + rms(want), whichever is less; plus a roundoff of
    |want| + rms(want) and what a chain of additions may cost. The norm rule: the same in the
    2-norm, relative to want's."""
    seen = _Sums()
    for block in budget.answer.blocks(actual):
        if block.odd or (len(block.want) and not seen.add(block, budget, precision)):
            return Comparison(_NONFINITE)
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


def _allowance(block: _Block, budget: _Budget, scale: Any, precision: Precision) -> tuple[Any, Any]:
    """Of each element: what rounding may cost, and what the framework's own errors grant."""
    kind = budget.answer.dtype
    roundoff = ROUNDOFFS[kind] * max(ROUNDOFF[kind], _POLICY_ROUNDOFF[precision])
    slack = (scale * roundoff).add_(LEAST[kind])
    if block.chain is not None:
        slack += block.chain
    own = (scale * (OWN_FACTOR * budget.own_share)).clamp_(max=OWN_FACTOR * budget.own_worst)
    return slack, own


@dataclass(frozen=True)
class Repetition:
    """How two calls with equal inputs differ: ``spread`` is the largest difference, None when all
    bits agree; ``problem`` is empty while no element differs by more than it may err."""

    spread: float | None
    problem: str = ""


def repeated(
    *, first: Sequence[Any], second: Sequence[Any], case: Case, precision: Precision = "strict"
) -> Repetition:
    """Of outputs that both passed :func:`compare`."""
    worst = Repetition(None)
    for one, other, budget in zip(first, second, case.budgets, strict=True):
        if _same_bits(one, other):
            continue
        if budget is None:
            return Repetition(math.inf, "two calls with equal inputs differ")
        spread, too_far = 0.0, False
        for block in budget.answer.blocks(one, other):
            if len(block.want):
                apart = (block.outputs[0].double() - block.outputs[1].double()).abs_()
                scale = block.want.abs() + budget.rms
                allowed = sum(_allowance(block, budget, scale, precision))
                spread = max(spread, float(apart.max()))
                too_far = too_far or bool((apart > allowed).any())
        if too_far:
            problem = f"two calls with equal inputs differ by up to {spread:.2g}"
            return Repetition(spread, f"{problem}, more than an element may err by")
        worst = Repetition(max(spread, worst.spread or 0.0))
    return worst


def same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether all outputs agree bit for bit."""
    return all(map(_same_bits, one, other))


def _same_bits(one: Any, other: Any) -> bool:
    import torch

    def bits(tensor: Any) -> Any:
        return tensor.reshape(-1).view(torch.uint8)

    return bool(torch.equal(bits(one), bits(other)))
