"""A file's operator traced again with other numbers: those of the file that its constructor takes,
and those that it is called with. Torch traces both as they are."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import sympy
import torch  # noqa: TID253 - imported where a file is traced, in a worker
from torch.export import ExportedProgram  # noqa: TID253

from portkern.spec.from_torch.traced import How, Scalar
from portkern.worker.tracing import symbols
from portkern.worker.tracing.calling import FakeCall
from portkern.worker.tracing.constants import step, with_numbers
from portkern.worker.tracing.exporting import Exported, exported
from portkern.worker.tracing.loading import state_of

#: Other values of each number: two fix a slope, what is left checks it.
ENOUGH = 4
_MOST_TRIED = 12
#: Small enough for what only short lengths do, and large enough to be no length of one.
_SMALL = 3


def is_table(model: torch.nn.Module | None, key: str) -> bool:
    """Whether it is a buffer whose values mean something, such as a mask: no running statistic."""
    if model is None or key not in dict(model.named_buffers()):
        return False
    return key.rpartition(".")[2] not in ("running_mean", "running_var")


def program_of(call: FakeCall) -> Exported | Exception:
    """The program that torch exports, at the sizes of the file; the exception if it does not."""
    loaded = call.loaded
    with loaded.fake:
        given = state_of(loaded).items()
        fixed = {key: torch.empty_like(one) for key, one in given if key not in call.lifted}
    tables = {key for key in call.lifted if is_table(loaded.model, key)}
    return exported(loaded.call, loaded.model, fixed, *call.given(None, None), tables)


@dataclass(frozen=True)
class Retracing:
    """``constants``: numbers of the file; ``scalars``: by name, which argument of ``call`` each is.
    ``how`` it was traced at first."""

    call: FakeCall
    constants: Mapping[str, int]
    scalars: Mapping[str, int]
    how: How

    @property
    def numbers(self) -> dict[str, Scalar]:
        """The numbers as they are in the file."""
        inputs = self.call.loaded.inputs
        given = {name: inputs[n] for name, n in self.scalars.items()}
        return {**self.constants, **cast("dict[str, Scalar]", given)}

    @property
    def symbols(self) -> dict[str, sympy.Symbol]:
        """The symbols of the numbers, by name."""
        return {
            name: symbols.file_number(name)
            if name in self.constants
            else sympy.Symbol(name, real=True, integer=isinstance(value, int) or None)
            for name, value in self.numbers.items()
        }

    def others(self) -> list[tuple[Mapping[str, Scalar], ExportedProgram]]:
        """Traces with other numbers; at least :data:`ENOUGH` of each where the operator takes as
        many."""
        traced: list[tuple[Mapping[str, Scalar], ExportedProgram]] = []
        for numbers in self._proposed():
            if self._is_enough([known for known, _ in traced]):
                break
            program = self._with(numbers)
            if program is not None:
                traced.append((numbers, program))
        return traced

    def _is_enough(self, several: Sequence[Mapping[str, Scalar]]) -> bool:
        return all(
            len({known[name] for known in several} - {value})
            >= (1 if isinstance(value, bool) else ENOUGH)
            for name, value in self.numbers.items()
        )

    def _proposed(self) -> Iterator[dict[str, Scalar]]:
        """Proposed numbers: all changed at once, each by another amount, so that what follows one
        of them follows no other; then one by one, where they do not go together."""
        own = self.numbers
        rng = random.Random(0)
        steps = {name: step(self.call, name, value) for name, value in self.constants.items()}
        for attempt in range(_MOST_TRIED):
            yield {
                name: _other(value, steps.get(name, 1), attempt, number, rng)
                for number, (name, value) in enumerate(own.items())
            }
        for attempt in range(ENOUGH):
            for number, (name, value) in enumerate(own.items()):
                other = _other(value, steps.get(name, 1), attempt, number, rng)
                yield {**own, name: other}

    def _with(self, numbers: Mapping[str, Scalar]) -> ExportedProgram | None:
        try:
            file = {name: int(numbers[name]) for name in self.constants}
            call = with_numbers(self.call, file) if file else self.call
            given = list(call.loaded.inputs)
            for name, place in self.scalars.items():
                given[place] = numbers[name]
            result = program_of(FakeCall(replace(call.loaded, inputs=given), call.lifted))
        except Exception:  # noqa: BLE001 - of the file's own code, with a number it was not written for
            return None
        if not isinstance(result, Exported) or result.how != self.how:
            return None
        return result.program


def _other(value: Scalar, by: int, attempt: int, number: int, rng: random.Random) -> Scalar:
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        size = abs(value) or 1.0
        near = value + size * (0.25 + number / 64)
        return (near, -near / 2)[attempt] if attempt < 2 else size * rng.uniform(0.25, 2)
    least = -(-_SMALL // by) + number
    if attempt == 0:
        return value + by * (1 + number)
    if attempt == 1 and by * least < value:
        return by * least
    most = max(value // by, least) + 8 + number
    return by * rng.randint(least, most)
