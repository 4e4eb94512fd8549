"""The right answers, known to the evaluator alone: fresh inputs with their answers, and by how much
each element of a kernel's outputs may differ from them.

The reference runs at float64; a kernel may err as much as the framework's own kernel at that
dtype does, within a stated factor.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from portkern.evaluator import imported
from portkern.evaluator.arithmetic import alone
from portkern.evaluator.cached import cached_property
from portkern.evaluator.inputs import IN_PART, draw, sizes_of
from portkern.records.record import Tolerance
from portkern.rounding.derived_budget import Derivation, DerivedBudget
from portkern.spec.imported import ImportedReference
from portkern.spec.op import Op, Precision, Scalar, Workload
from portkern.toolchain.torch_device import copied

if TYPE_CHECKING:
    import torch

#: A kernel may err this many times as much as the framework's own kernel …
OWN_FACTOR = 4.0
#: … plus this many units of roundoff of the dtype: the framework may round luckily.
ROUNDOFFS = {"float64": 8.0, "float32": 8.0, "float16": 2.0, "bfloat16": 2.0}
ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
#: The smallest subnormal, which half of all roundoffs below the normal range come to.
LEAST = {"float64": 2.0**-1074, "float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}
#: A sum may err as one chain of float32 additions does, whose partial sums are rounded one by one
#: (Higham, Accuracy and Stability of Numerical Algorithms, 4.2): by this many roundoffs of the
#: output times the square root of the number of terms …
CHAIN_ROUNDOFFS = 2.0
#: … or this many times their number, where all are equal and round to the same side, or vanish
#: beside a large one …
REPEATED_ROUNDOFFS = 0.5
SWAMPED = ("one-hot", "heavy", IN_PART)
#: … and, where they cancel, by this many of the sum of their sizes.
TERM_ROUNDOFFS = 4.0
#: How far roundoffs of an input move an answer: the farthest of so many draws. Where few terms have
#: all weight, one draw may leave them as they are …
NUDGES = 4
#: … of operators that take at most so many operations; of larger ones one draw, as each takes long.
NUDGED_OFTEN = 1e7
#: So many elements are compared at a time: on a host, what stays in a cache; on a GPU, enough to
#: keep it busy.
HOST_BLOCK, DEVICE_BLOCK = 1 << 19, 1 << 24
#: TF32 and bfloat16 keep 10 and 7 bits of the mantissa.
_POLICY_ROUNDOFF = {"strict": 0.0, "allow_tf32": 2.0**-11, "allow_reduced": 2.0**-8}


@dataclass(frozen=True)
class Case:
    """Inputs that a kernel will see, and what only the evaluator knows: the answer at float64
    (``exact``), the framework's own at the cell's dtype (``own``) and, where outputs are made of
    declared sums, what adding their terms one by one may cost (``chain``); for an op that declares
    nothing, how that is derived (``derivation``). All are where the answer was made, the inputs as
    ``placed`` there."""

    distribution: str
    placed: tuple[torch.Tensor, ...]
    exact: tuple[torch.Tensor, ...]
    own: tuple[torch.Tensor, ...]
    chain: tuple[torch.Tensor, ...] = ()
    derivation: Derivation | imported.ImportedDerivation | None = None

    @property
    def tolerance(self) -> Tolerance:
        """The rule by which :attr:`budgets` are made."""
        return "declared" if self.chain else "tight"

    @cached_property
    def inputs(self) -> tuple[torch.Tensor, ...]:
        """The inputs on the host."""
        return on_host(self.placed)

    @cached_property
    def budgets(self) -> tuple[ErrorBudget | None, ...]:
        """The error that each output may have; None for an output of integers, which must be
        equal."""
        chain = self.chain or (None,) * len(self.exact)
        return alone(lambda: tuple(map(_budget, self.exact, self.own, chain)))

    @cached_property
    def derived(self) -> Derived | None:
        """The error that is granted where the outputs are not within :attr:`budgets`. It takes
        many times as long to compute as the reference."""
        derivation = self.derivation
        if derivation is None:
            return None
        if isinstance(derivation, imported.ImportedDerivation):
            _ = derivation.budget  # a worker's work, which keeps nobody here waiting
        return alone(lambda: _derived(derivation))


@dataclass(frozen=True)
class Derived:
    """The budgets of outputs of floats as derived from the reference, and whence they are."""

    budgets: tuple[ErrorBudget | None, ...]
    source: DerivedBudget


@dataclass(frozen=True)
class ReferenceOutput:
    """One output's answer: at float64, by the framework and what adding its terms may cost each
    element, None when nothing is summed. All flat."""

    dtype: str
    exact: torch.Tensor
    own: torch.Tensor
    chain: torch.Tensor | None

    @cached_property
    def _whole(self) -> list[bool]:
        """Whether all of a block is finite, for each block."""
        size = self._block
        return [
            all_finite(self.exact[start : start + size].to(self.own.dtype))
            and all_finite(self.own[start : start + size])
            for start in range(0, len(self.exact), size)
        ]

    @property
    def _block(self) -> int:
        return DEVICE_BLOCK if self.exact.is_cuda else HOST_BLOCK

    def blocks(self, *outputs: torch.Tensor) -> Iterator[ReferenceBlock]:
        """The blocks of the reference in turn, each with the same part of ``outputs``, wherever
        these are."""
        flat = [output.to(self.exact.device).reshape(-1) for output in outputs]
        for number, whole in enumerate(self._whole):
            part = slice(number * self._block, (number + 1) * self._block)
            chain = None if self.chain is None else self.chain[part]
            given = self.exact[part], self.own[part], chain, [output[part] for output in flat]
            yield ReferenceBlock(*given) if whole else ReferenceBlock.of(*given)


@dataclass(frozen=True)
class ReferenceBlock:
    """The finite elements of a part of an output, and those that are finite in an output where the
    framework's or the rounded answer is not, by float64 nevertheless. ``odd``: one of the others is
    not what the reference has there. What ``outputs`` have at finite ones need not be finite."""

    want: torch.Tensor
    own: torch.Tensor
    chain: torch.Tensor | None
    outputs: Sequence[torch.Tensor]
    odd: bool = False

    @classmethod
    def of(
        cls,
        exact: torch.Tensor,
        own: torch.Tensor,
        chain: torch.Tensor | None,
        outputs: Sequence[torch.Tensor],
    ) -> ReferenceBlock:
        import torch

        rounded = exact.to(own.dtype)
        finite = torch.isfinite(rounded).logical_and_(torch.isfinite(own))
        odd, judged = False, finite
        for output in outputs:
            strange = ~finite & ~_same(output, rounded) & ~_same(output, own)
            # Where the framework rounds between two steps, its own may be all that overflowed.
            ours = strange & torch.isfinite(output) & torch.isfinite(exact)
            odd = odd or bool((strange & ~ours).any())
            judged = judged | ours
        chain = None if chain is None else chain[judged]
        return cls(exact[judged], own[judged], chain, [output[judged] for output in outputs], odd)


@dataclass(frozen=True)
class ErrorBudget:
    """One output's answer and the framework's distance from it, over the finite elements."""

    answer: ReferenceOutput
    rms: float
    norm: float
    own_worst: float
    own_share: float  # the largest error relative to |want| + rms(want)
    own_norm: float


def make_case(
    op: Op, workload: Workload, dtype: str, distribution: str, *, device: str = "cpu"
) -> Case:
    """Fresh inputs from a secret seed, with the answer, made on ``device``."""
    drawn = draw(op, workload, dtype, distribution, device=device)
    return answer(op, workload, distribution, drawn)


def answer(op: Op, workload: Workload, distribution: str, inputs: Sequence[torch.Tensor]) -> Case:
    """The answer for given inputs of the op's dtypes, made where they are."""
    scalars = op.signature.scalar_values(workload.scalars)

    def case() -> Case:
        wide = [tensor.double() if tensor.is_floating_point() else tensor for tensor in inputs]
        exact = _reference(op, wide, scalars)
        own = _reference(op, inputs, scalars)
        if op.terms is None:
            seed = secrets.randbits(62)
            derivation: Derivation | imported.ImportedDerivation
            if isinstance(op.reference, ImportedReference):
                worker = imported.worker_of(op.reference)
                derivation = imported.ImportedDerivation(worker, inputs, scalars, exact, own, seed)
            else:
                derivation = Derivation(run, inputs, exact, own, seed)
            return Case(distribution, tuple(inputs), exact, own, derivation=derivation)
        chain = _chain(op, workload, wide, exact, repeats=distribution in SWAMPED)
        return Case(distribution, tuple(inputs), exact, own, chain)

    def run(given: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        return _reference(op, given, scalars)

    # An imported one is computed in a worker of its own, which others need not wait for.
    return case() if isinstance(op.reference, ImportedReference) else alone(case)


def on_host(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The tensors on the host: those that are there as they are, copies of others."""
    return tuple(copied(tensor, "cpu") if tensor.is_cuda else tensor for tensor in tensors)


def _chain(
    op: Op,
    workload: Workload,
    wide: Sequence[torch.Tensor],
    exact: Sequence[torch.Tensor],
    *,
    repeats: bool = False,
) -> tuple[torch.Tensor, ...]:
    """The error that one chain of float32 additions may cause in each element."""
    import torch

    terms = op.terms(workload.dims) if op.terms is not None else 1
    if terms <= 1:
        return ()
    scalars = op.signature.scalar_values(workload.scalars)
    roundoffs = CHAIN_ROUNDOFFS * terms**0.5
    if repeats:
        roundoffs = max(roundoffs, REPEATED_ROUNDOFFS * terms)
    chain = [want.abs() * (roundoffs * ROUNDOFF["float32"]) for want in exact]
    if op.cancels:
        sizes = _reference(op, sizes_of(op, wide), scalars)
        for total, size in zip(chain, sizes, strict=True):
            total += size * (TERM_ROUNDOFFS * ROUNDOFF["float32"])
    if op.shifts:
        draws = NUDGES if op.flops(workload.dims) <= NUDGED_OFTEN else 1
        for index, tensor in enumerate(wide):  # one by one: together they may cancel
            if not tensor.is_floating_point():
                continue
            farthest = [torch.zeros_like(want) for want in exact]
            for _ in range(draws):
                nudged = [*wide[:index], _nudged(tensor, largest=repeats), *wide[index + 1 :]]
                moved = _reference(op, nudged, scalars)
                for most, other, want in zip(farthest, moved, exact, strict=True):
                    torch.maximum(most, (other - want).abs_(), out=most)
            for total, most in zip(chain, farthest, strict=True):
                total += most * roundoffs
    return tuple(chain)


def _nudged(wide: torch.Tensor, *, largest: bool) -> torch.Tensor:
    """The values with each element moved up or down by a roundoff of float32, of its own size and
    of its row's: an error of the mean moves the small ones as far as the large. The row's size is
    its mean one, or its ``largest``: a kernel that subtracts some element of a row before it adds
    may have taken the one that is far larger than all others."""
    import torch

    sign = torch.randint(0, 2, wide.shape, dtype=torch.int8, device=wide.device) * 2 - 1
    size = wide.abs()
    if wide.numel():
        row = size.amax(-1, keepdim=True) if largest else size.mean(-1, keepdim=True)
        size = size + row
    return wide + sign * size * ROUNDOFF["float32"]


def _reference(
    op: Op, inputs: Sequence[torch.Tensor], scalars: Mapping[str, Scalar]
) -> tuple[torch.Tensor, ...]:
    import torch

    if isinstance(op.reference, ImportedReference):
        return imported.worker_of(op.reference).outputs(inputs, scalars)
    with torch.no_grad():
        outputs = op.reference(*inputs, **scalars)
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _budget(
    exact: torch.Tensor, own: torch.Tensor, chain: torch.Tensor | None
) -> ErrorBudget | None:
    dtype = str(own.dtype).removeprefix("torch.")
    if dtype not in ROUNDOFF:
        return None
    summed = None if chain is None else chain.reshape(-1)
    answer = ReferenceOutput(dtype, exact.reshape(-1), own.reshape(-1), summed)
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
    return ErrorBudget(answer, rms, norm, own_worst, own_share, math.sqrt(own_squares))


def _derived(derivation: Derivation | imported.ImportedDerivation) -> Derived:
    source = derivation.budget
    budgets = map(_budget, derivation.exact, derivation.own, source.allowed)
    return Derived(tuple(budgets), source)


def allowance(
    block: ReferenceBlock, budget: ErrorBudget, scale: torch.Tensor, precision: Precision
) -> tuple[torch.Tensor, torch.Tensor]:
    """The error allowed for each element: what rounding may cost, and what the framework's own
    errors grant."""
    kind = budget.answer.dtype
    roundoff = ROUNDOFFS[kind] * max(ROUNDOFF[kind], _POLICY_ROUNDOFF[precision])
    slack = (scale * roundoff).add_(LEAST[kind])
    if block.chain is not None:
        slack += block.chain
    own = (scale * (OWN_FACTOR * budget.own_share)).clamp_(max=OWN_FACTOR * budget.own_worst)
    return slack, own


def as_numbers(got: torch.Tensor, want: torch.Tensor, kind: str) -> torch.Tensor:
    """The values at float64, with infinity as the least number that ``kind`` rounds to it, or
    ``want`` where that is larger: an error that an element may have can take it over the edge."""
    import torch

    wide = got.double()
    if all_finite(wide):
        return wide
    limits = torch.finfo(getattr(torch, kind))
    edge = limits.max * ((2 - limits.eps / 2) / (2 - limits.eps))
    return torch.where(wide.isinf(), want.abs().clamp_(min=edge).copysign_(wide), wide)


def all_finite(tensor: torch.Tensor) -> bool:
    """Whether all values are finite: by their sum, which reads them once; where it overflows, one
    by one."""
    import torch

    return math.isfinite(float(tensor.sum(dtype=torch.float64))) or bool(
        torch.isfinite(tensor).all()
    )


def _same(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return (a == b) | (a.isnan() & b.isnan())
