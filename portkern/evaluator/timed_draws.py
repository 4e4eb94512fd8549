"""Inputs of timed calls: drawn anew for each, or, where that cannot be, other values of the same
ones.

Values follow from a seed, a tensor and a call's number alone, so that those of a call whose output
is looked at can be made once more. Inputs that an operator's own file makes are drawn by it.

Of every second call one element in four to eight is its own: the rest it shares with the call
before, so that a few elements do not tell one call from another. No row or matrix of sixteen
elements stays as it was, and own elements lie in no pattern, so that nobody who keeps results of
the call before, or adds to them what has changed, has less to do.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from portkern.evaluator import inputs
from portkern.spec.op import Op, TensorSpec, Workload
from portkern.worker import counter_values, timed_inputs

if TYPE_CHECKING:
    import torch

#: Seconds that a file's own draws may take in one round, and the fewest of them. Beyond these,
#: which only rounds of many calls have, calls are given any of them.
DRAWING_S, FEWEST = 0.25, 9
#: One of so many elements, at least and at most, is a call's own: of sixteen in a row there always
#: is one.
OWN = 4, 8


@dataclass(frozen=True)
class TimedInputs:
    """The origin of a round's inputs: seeds, a base by its number, and whether its values go to
    other places; ``structured``: whether they stay what they are to one another, see
    :func:`portkern.worker.timed_inputs.inputs`. ``fresh``: the inputs of each call are drawn,
    not made from a base."""

    seeds: tuple[int, ...]
    base: int = 0
    rolled: bool = True
    structured: bool = False
    fresh: bool = False

    @classmethod
    def after(
        cls, last: TimedInputs | None, chosen: random.Random, *, structured: bool = False
    ) -> TimedInputs:
        """New values and nearly equal ones in turns; new ones where they are structured."""
        seed = chosen.getrandbits(62)
        near = last is not None and len(last.seeds) == 1 and not structured
        return cls((*last.seeds, seed) if near and last else (seed,), structured=structured)

    @classmethod
    def drawn(cls, chosen: random.Random, *, structured: bool) -> TimedInputs:
        """New values."""
        return cls((chosen.getrandbits(62),), structured=structured, fresh=True)

    def near(self, chosen: random.Random) -> TimedInputs:
        """The same values but for a few elements."""
        return replace(self, seeds=(*self.seeds, chosen.getrandbits(62)))


@dataclass
class TimedDraws:
    """Draws the inputs of one workload's timed calls. ``bases`` are distributions and inputs:
    those of calls that are not fresh, and what tensors that a workload comes with are made from."""

    op: Op
    workload: Workload
    dtype: str
    bases: Sequence[tuple[str, Sequence[torch.Tensor]]]
    #: Seconds that making a call's inputs took in the last round.
    call_s: float = 0.0
    _round: tuple[TimedInputs, list[torch.Tensor]] | None = None
    _of_file: dict[tuple[TimedInputs, int], list[torch.Tensor]] = field(default_factory=dict)
    _kept: dict[tuple[TimedInputs, int], list[torch.Tensor]] = field(default_factory=dict)

    @property
    def fresh(self) -> bool:
        """Whether timed calls are given new draws: where they come from the distribution that is
        drawn here, and there is something to draw."""
        stored = len(self.workload.stored) == len(self.op.signature.inputs)
        return bool(self.bases) and self.bases[0][0] == inputs.BASE and not stored

    def of_round(self, made: TimedInputs, calls: int) -> list[torch.Tensor]:
        """A block for each input, with a row for the call that warms up, and one for each of so
        many calls at least. Blocks that are drawn are made once for all kernels which are timed
        in a round, with rows for the one with most calls, which is to be asked for first."""
        import torch

        if not made.fresh or len(made.seeds) > 1:
            return self._made(made, calls + 1)
        if self._round is None or self._round[0] != made:
            start = time.perf_counter()
            self._round = None  # its memory first
            self._round = made, self._made(made, calls + 1)
            if self._device.type != "cpu":
                torch.cuda.synchronize(self._device)
            self.call_s = (time.perf_counter() - start) / (calls + 1)
        return self._round[1]

    def release(self) -> None:
        """Give back the memory of the last round."""
        import torch

        self._round = None
        if self._device.type != "cpu":
            torch.cuda.empty_cache()

    def keep(self, made: TimedInputs, calls: Sequence[int]) -> None:
        """Have the inputs of these calls later."""
        for call in calls:
            if (made, call) in self._of_file:
                self._kept[made, call] = self._of_file[made, call]

    def changed(self, made: TimedInputs, call: int) -> list[tuple[float, float]]:
        """Where the inputs of a nearly equal call differ, as shares of each input's elements."""
        places = []
        for seed in made.seeds[1:] if made.fresh and not made.structured else ():
            for number, spec in enumerate(self.op.signature.inputs):
                size = spec.nelements(self.workload.dims)
                start, count = _nudged(f"{seed} {number}", call, size)
                places += [(start / size, (start + count) / size)] if size else []
        return places

    def of_call(self, made: TimedInputs, call: int) -> list[torch.Tensor]:
        """The inputs of one call that was kept, made once more."""
        shapes = [spec.sizes(self.workload.dims) for spec in self.op.signature.inputs]
        if not made.fresh:
            _, base = self.bases[made.base]
            return timed_inputs.inputs(
                base, made.seeds, call, rolled=made.rolled, structured=made.structured
            )
        rows = self._fresh(made, call, 1, self._kept.get((made, call), []))
        return [row.reshape(s).to(self._device) for row, s in zip(rows, shapes, strict=True)]

    @property
    def _device(self) -> torch.device:
        """Where bases are: the host, or a kernel's own GPU."""
        import torch

        first = [tensor for _, base in self.bases[:1] for tensor in base[:1]]
        return first[0].device if first else torch.device("cpu")

    def _made(self, made: TimedInputs, rows: int) -> list[torch.Tensor]:
        import torch

        if made.fresh:
            self._of_file = self._drawn_by_file(made, rows) if self.op.own_inputs else {}
            return self._fresh(made, -1, rows, self._of_file.get((made, -1), []))
        _, base = self.bases[made.base]
        blocks = [
            torch.empty((rows, one.numel()), dtype=one.dtype, device=one.device) for one in base
        ]
        for row in range(rows):
            one = timed_inputs.inputs(
                base, made.seeds, row - 1, rolled=made.rolled, structured=made.structured
            )
            for block, tensor in zip(blocks, one, strict=True):
                block[row].copy_(tensor.reshape(-1))
        return blocks

    def _drawn_by_file(
        self, made: TimedInputs, rows: int
    ) -> dict[tuple[TimedInputs, int], list[torch.Tensor]]:
        """The inputs of each call as :func:`portkern.evaluator.inputs.draw` has them."""
        start = time.perf_counter()
        draws: list[list[torch.Tensor]] = []
        while len(draws) < rows:
            if len(draws) >= FEWEST and time.perf_counter() - start > DRAWING_S:
                break
            draws.append(list(inputs.draw(self.op, self.workload, self.dtype, inputs.BASE)))
        chosen = random.Random(made.seeds[0])
        more = [chosen.choice(draws) for _ in range(rows - len(draws))]
        return {(made, row - 1): one for row, one in enumerate([*draws, *more])}

    def _fresh(
        self, made: TimedInputs, first: int, rows: int, of_file: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """Blocks of the calls from ``first`` on, where bases are; ``of_file``: one call's, where
        there are such."""
        import torch

        blocks = []
        for number, spec in enumerate(self.op.signature.inputs):
            if of_file and rows == 1:
                block = of_file[number].flatten()[None]
            elif of_file:
                calls = [self._of_file[made, first + row] for row in range(rows)]
                block = torch.stack([call[number].reshape(-1) for call in calls])
            elif spec.name in self.workload.stored:
                block = self._of_stored(made, number, first, rows)
            else:
                block = self._drawn(made, number, spec, first, rows)
                for seed in () if made.structured else made.seeds[1:]:
                    _nudge(block, f"{seed} {number}", first)
            blocks.append(block)
        return blocks

    def _drawn(
        self, made: TimedInputs, number: int, spec: TensorSpec, first: int, rows: int
    ) -> torch.Tensor:
        import torch

        shape = spec.sizes(self.workload.dims)
        size = spec.nelements(self.workload.dims)
        kind: torch.dtype = getattr(torch, spec.resolve(self.dtype))
        bounds = () if kind.is_floating_point else spec.bounds(self.workload.dims)
        seed = f"{made.seeds[0]} {number}"
        block = self._values(seed, first, rows, size, bounds)
        for row, call in enumerate(range(first, first + rows)):
            if call % 2 == 0:  # the one that warms up is -1
                before = block[row - 1] if row else self._values(seed, call - 1, 1, size, bounds)[0]
                places = _own(seed, call, size, self._device)
                own = block[row].index_select(0, places)
                block[row].copy_(before).index_copy_(0, places, own)
        transform = inputs.DRAWS.get(self.op.draws.get(spec.name, ""))
        if transform is not None:
            block = torch.stack([transform(row.view(shape)).reshape(-1) for row in block])
        return block.to(kind)

    def _values(
        self, seed: str, first: int, rows: int, size: int, bounds: tuple[()] | tuple[int, int]
    ) -> torch.Tensor:
        """Rows of normal values, or of integers within ``bounds``, which depend on the seed and on
        a row's number alone. A GPU has a generator by counters of its own, which passes over its
        memory once."""
        import torch

        kind = torch.int64 if bounds else torch.float32
        block = torch.empty((rows, size), dtype=kind, device=self._device)
        flat, start = block.view(-1), (first + 1) * size
        if self._device.type == "cpu" and bounds:
            counter_values.integers(flat, *bounds, seed, start)
        elif self._device.type == "cpu":
            counter_values.normal(flat, seed, start)
        else:
            generator = torch.Generator(self._device)
            for row, call in zip(block, range(first, first + rows), strict=True):
                generator.manual_seed(random.Random(f"{seed} {call}").getrandbits(62))
                if bounds:
                    row.random_(bounds[0], max(bounds[1], bounds[0] + 1), generator=generator)
                else:
                    row.normal_(generator=generator)
        return block

    def _of_stored(self, made: TimedInputs, number: int, first: int, rows: int) -> torch.Tensor:
        """A block of an input that the workload comes with, which nobody can draw: its values as
        small as they are or smaller."""
        import torch

        base = [self.bases[0][1][number].cpu()]
        calls = range(first, first + rows)
        varied = [
            timed_inputs.inputs(base, made.seeds[:1], call, structured=True) for call in calls
        ]
        return torch.stack([one.reshape(-1) for (one,) in varied])


def _nudge(block: torch.Tensor, seed: str, first: int) -> None:
    """Changes one element in 64 of each row, at least one and not too many: they get the other
    sign, or, where they are integers, each other's place."""
    import torch

    rows, size = block.shape
    ranges = [_nudged(seed, call, size) for call in range(first, first + rows)]
    places = torch.stack([start + torch.arange(count) for start, count in ranges]).to(block.device)
    few = block.gather(1, places)
    block.scatter_(1, places, -few if block.is_floating_point() else few.roll(1, dims=1))


def _nudged(seed: str, call: int, size: int) -> tuple[int, int]:
    """The first of the elements that change, and how many do."""
    count = min(size, min(size // 64, 15) + 1)
    return random.Random(f"{seed} {call}").randrange(size - count + 1), count


def _own(seed: str, call: int, size: int, device: torch.device) -> torch.Tensor:
    """The places of elements that a call does not share: one by chance in each piece of as many
    elements as a number by chance says."""
    import torch

    drawn = random.Random(f"{seed} own {call}")
    step = drawn.randint(*OWN)
    generator = torch.Generator(device).manual_seed(drawn.getrandbits(62))
    pieces, rest = divmod(size, step)
    places = torch.randint(0, step, (pieces,), generator=generator, device=device)
    places += torch.arange(0, pieces * step, step, device=device)
    if rest and (not pieces or drawn.random() < rest / step):
        last = torch.tensor([pieces * step + drawn.randrange(rest)], device=device)
        places = torch.cat((places, last))
    return places
