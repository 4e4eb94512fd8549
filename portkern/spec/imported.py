"""References that came from outside: code of others, which no process of ours runs unconfined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from portkern.spec.op import Reference, Scalar

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ImportedInputs:
    """A file whose operator has inputs that only the file can make: ``names`` of what it returns,
    in order, empty where a distribution stands for it, and buffers of its module by input
    (``state``). ``shapes`` of all inputs, over axes, of which ``lengths`` has the file's lengths;
    its top-level integers are axes as well."""

    name: str
    source: str
    operator: str
    names: tuple[str, ...]
    state: Mapping[str, str]
    lengths: Mapping[str, int] = field(default_factory=dict)
    shapes: tuple[tuple[int | str, ...], ...] = ()


@dataclass(frozen=True)
class ImportedReference:
    """Somebody else's ``run``. Its source is executed at the first call, which is for a confined
    worker to make: see :mod:`portkern.evaluator.imported`.

    ``arguments`` is the order in which ``run`` takes tensors and scalars, ``outputs`` that of the
    outputs where it returns them by name.
    """

    name: str
    source: str
    arguments: tuple[str, ...]
    outputs: tuple[str, ...]

    @cached_property
    def run(self) -> Reference:
        namespace: dict[str, Any] = {"__name__": f"definition {self.name}"}
        exec(compile(self.source, f"<definition {self.name}>", "exec"), namespace)
        run: Reference = namespace["run"]
        return run

    def __call__(self, *tensors: torch.Tensor, **scalars: Scalar) -> Any:
        queue = iter(tensors)
        given = [scalars[name] if name in scalars else next(queue) for name in self.arguments]
        result = self.run(*given)
        if not isinstance(result, dict):
            return result
        values = tuple(result[name] for name in self.outputs)
        return values if len(values) > 1 else values[0]
