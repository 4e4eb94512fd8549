"""The error that a kernel computing in float32 may have, derived from the reference alone, for
operators that declare nothing about their sums.

The reference runs at float64 a few times more, each time with noise after every operation (see
:mod:`replay`). How far the outputs move, as a standard deviation times :data:`FACTOR`, is
added to what the framework's own errors grant: budgets only grow, so nothing needs to be derived
while outputs are within those.

Bounds. At most ``1 + MOST_REPLAYS`` runs with noise or without for outputs of floats, as many again
for each of two further questions (outputs of integers, few elements of 16 bits); where the
reference selects, up to the most of :data:`REPLAYS_OF_CHOICES`. Above :data:`WORK` elements made by
operations, replays are fewer, but no fewer than the least of :data:`REPLAYS`. Beside what the
reference needs itself, by parts, memory holds the inputs and outputs twice (outputs three times
where it selects), one copy of the largest tensor that is summed, the last product, and
:data:`replay.SIZES_KEPT` sizes of errors; further ones are kept as one number each.

It cannot see: a less stable algorithm than the reference's (judged wrong), orders of addition made
to be bad, discontinuities that no replay meets (of two equal values, which is chosen, is one that
replays meet), references that draw random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from portkern.rounding.replay import ReplayTrace

#: The multiple of the standard deviation of an element's movements. Honest kernels needed 3, see
#: benchmarks/tolerances.py.
FACTOR = 4.0
#: Runs with noise, the least and the most: of outputs with many elements, which tell of each other,
#: and with fewer than :data:`FEW_ELEMENTS`.
REPLAYS, REPLAYS_OF_FEW = (2, 4), (8, 16)
FEW_ELEMENTS, MOST_REPLAYS = 256, 16
#: Runs of what selects, whose other choices are to be met: the least, as a rule, and the most. They
#: go on to :data:`SETTLED` times as many as the last that met a choice which was new.
REPLAYS_OF_CHOICES, SETTLED = (8, 64, 1024), 4
#: Elements made by all operations of all replays, above which there are fewer.
WORK = 1 << 28
#: A row in which an element moves by more than this part of the largest has another choice.
JUMP = 2.0**-8
#: So many times as far as it did in any replay may another choice move an element.
CHOICES = 2.0
#: An element's own movements count as its replays, all elements' together as so many more.
PRIOR = 4.0


@dataclass(frozen=True)
class DerivedBudget:
    """The error budget of each output: how much an element may differ beyond the framework's own
    errors (None for integers), and which other integers rounding can bring about. ``unruled`` are
    the operations that no rule knows; ``problem`` is why nothing could be derived."""

    allowed: tuple[torch.Tensor | None, ...]
    integers: tuple[tuple[torch.Tensor, ...], ...]
    unruled: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Derivation:
    """How the budget of one case is derived; nothing is until it is asked for.

    ``reference`` takes ``inputs`` (of the cell's dtypes, on any device) and returns a tuple of
    tensors; ``exact`` and ``own`` are what it returns at float64 and at the cell's dtype. The same
    ``seed`` gives the same budget.
    """

    reference: Callable[[Sequence[torch.Tensor]], tuple[torch.Tensor, ...]]
    inputs: Sequence[torch.Tensor]
    exact: Sequence[torch.Tensor]
    own: Sequence[torch.Tensor]
    seed: int

    @cached_property
    def budget(self) -> DerivedBudget:
        """Deterministic. A reference that cannot be replayed grants nothing, and says why."""
        try:
            return self._derive()
        except (RuntimeError, TypeError, ValueError, LookupError, AssertionError) as error:
            if "allocate memory" in str(error) or "out of memory" in str(error):
                raise
            why = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        nothing = tuple(None for _ in self.exact)
        return DerivedBudget(nothing, tuple(() for _ in self.exact), problem=why)

    def _derive(self) -> DerivedBudget:
        from portkern.rounding.replay import Noise, ReplayTrace

        wide = [one.double() if one.is_floating_point() else one for one in self.inputs]
        trace, noise = ReplayTrace(), Noise(self.seed)
        self._run(trace, None, wide)
        if trace.roundings:
            self._run(trace, noise, wide, near=False, settling=True)
        count = self._count(trace)
        most = _affordable(REPLAYS_OF_CHOICES[0], REPLAYS_OF_CHOICES[2], trace)
        allowed = self._moved(count, lambda: self._replay(trace, noise, wide), most * trace.selects)
        if any(one is not None and _is_short(one) for one in self.own):
            stored = self._stored(noise, wide, selects=trace.selects)
            allowed = [
                a if s is None or a is None else a + s for a, s in zip(allowed, stored, strict=True)
            ]
        integers = self._integers(trace, noise, wide, count)
        return DerivedBudget(tuple(allowed), integers, tuple(trace.unruled))

    def _count(self, trace: ReplayTrace) -> int:
        sizes = [one.numel() for one in self.exact if one.numel()]
        few = min(sizes, default=0) < FEW_ELEMENTS
        least, most = REPLAYS_OF_FEW if few else REPLAYS
        if trace.selects:
            least, most, _ = REPLAYS_OF_CHOICES
        return _affordable(least, most, trace)

    def _run(
        self, trace: ReplayTrace, noise: Any, inputs: Sequence[torch.Tensor], **how: Any
    ) -> Any:
        """One run; ``inputs`` are left as they are."""
        from torch.nn.attention import SDPBackend, sdpa_kernel

        from portkern.rounding.replay import ReferenceReplay

        settling = how.get("settling", False)
        replay = ReferenceReplay(trace, noise, how.get("strength", 1.0), settling=settling)
        given = replay.near(inputs) if how.get("near", True) else [one.clone() for one in inputs]
        with sdpa_kernel(SDPBackend.MATH), replay:
            return self.reference(given)

    def _replay(self, trace: ReplayTrace, noise: object, wide: Sequence[torch.Tensor]) -> Any:
        return self._run(trace, noise, wide)

    def _moved(
        self, count: int, run: Callable[[], tuple[torch.Tensor, ...]], most: int = 0
    ) -> list[torch.Tensor | None]:
        """Find what movements in ``count`` runs grant each element of the outputs. With
        ``most`` the reference selects, and runs go on while other choices move what none did."""
        movements = [
            _Movements(want, selects=bool(most and want.ndim)) if own.is_floating_point() else None
            for want, own in zip(self.exact, self.own, strict=True)
        ]
        runs = new = 0
        while runs < max(count, min(SETTLED * new, most)):
            runs += 1
            for movement, out in zip(movements, run(), strict=True):
                if movement is not None and movement.add(out):
                    new = runs
        return [
            None if movement is None else movement.granted(runs, _finer(own))
            for movement, own in zip(movements, self.own, strict=True)
        ]

    def _stored(
        self, noise: Any, wide: Sequence[torch.Tensor], *, selects: bool
    ) -> list[torch.Tensor | None]:
        """The framework's error in 16 bits at few elements, without the luck that one element's
        own error has. Nothing where it does other operations in the cell's dtype."""
        from portkern.rounding.replay import Stored, Unlike

        dtypes: list[tuple[str, torch.dtype]] = []
        with Stored(dtypes):
            self.reference([one.clone() for one in self.inputs])

        def run() -> tuple[torch.Tensor, ...]:
            given = [one.clone() for one in wide]
            with Stored(dtypes, noise):
                return self.reference(given)

        try:
            moved = self._moved(MOST_REPLAYS, run, MOST_REPLAYS if selects else 0)
        except Unlike:
            return [None for _ in self.exact]
        return [m if _is_short(one) else None for m, one in zip(moved, self.own, strict=True)]

    def _integers(
        self, trace: ReplayTrace, noise: object, wide: Sequence[torch.Tensor], count: int
    ) -> tuple[tuple[torch.Tensor, ...], ...]:
        """The values that indices, counts and comparisons take where a value is within its
        budget of another. The inputs stay as they are: what depends on them alone is exact."""
        seen: list[list[torch.Tensor]] = [
            [] if own.is_floating_point() else [want.to(own.dtype)]
            for want, own in zip(self.exact, self.own, strict=True)
        ]
        if not any(seen):
            return tuple(() for _ in seen)
        run = partial(self._run, trace, noise, wide, near=False, strength=FACTOR)
        for _ in range(max(count, REPLAYS_OF_FEW[0])):
            for values, out, own in zip(seen, run(), self.own, strict=True):
                if values and not bool((out == values[0]).all()):
                    values.append(out.to(own.dtype))
        return tuple(map(tuple, seen))


class _Movements:
    """How far replays move each element of one output. In a row (of the last axis) in which one
    moves by more than rounding does, each is remembered by the farthest that it moved itself, since
    rows may be of tokens or of what each token is given."""

    def __init__(self, want: torch.Tensor, *, selects: bool) -> None:
        import torch

        self.want = want
        self.squares = torch.zeros_like(want, dtype=torch.float64)
        self.jumps = torch.zeros_like(self.squares) if selects and want.numel() else None

    def add(self, out: torch.Tensor) -> bool:
        """Whether another choice moved an element farther than earlier replays grant it."""
        import torch

        off = (out.double() - self.want).nan_to_num_(0.0, 0.0, 0.0)
        if self.jumps is None:
            self.squares.add_(off.square_())
            return False
        off.abs_()
        scale = self.want.double().nan_to_num(0.0, 0.0, 0.0).abs().amax(-1, keepdim=True)
        jumped = off > JUMP * scale
        new = bool((jumped & (off > CHOICES * self.jumps)).any())
        chosen = jumped.any(-1, keepdim=True)
        torch.maximum(self.jumps, torch.where(chosen, off, 0.0), out=self.jumps)
        self.squares.add_(torch.where(chosen, 0.0, off).square_())
        return new

    def granted(self, runs: int, finer: float) -> torch.Tensor:
        """:data:`FACTOR` standard deviations, and :data:`CHOICES` times the jumps."""
        rounding = _pooled(self.squares / runs, self.want, runs) * (FACTOR * finer)
        return rounding if self.jumps is None else rounding + CHOICES * self.jumps


def _affordable(least: int, most: int, trace: ReplayTrace) -> int:
    return max(least, min(most, WORK // max(trace.work, 1)))


def _is_short(own: torch.Tensor) -> bool:
    """Whether an output has 16 bits and few elements."""
    return own.is_floating_point() and own.itemsize == 2 and own.numel() < FEW_ELEMENTS


def _finer(own: torch.Tensor) -> float:
    """A float64 output is computed with float64's roundoff."""
    return 2.0**-29 if own.itemsize == 8 else 1.0


def _pooled(variance: torch.Tensor, want: torch.Tensor, count: int) -> torch.Tensor:
    """Few replays know little of one element; all elements together, relative to |want| +
    rms(want), know more."""
    import torch

    finite = want.double().nan_to_num(0.0, 0.0, 0.0)
    scale = finite.abs() + finite.square().mean().sqrt()
    scale = torch.where(scale > 0, scale, 1.0)
    share = (variance / scale.square()).mean()
    return ((count * variance + PRIOR * share * scale.square()) / (count + PRIOR)).sqrt()
