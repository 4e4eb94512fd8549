"""Sizes that a model called operators with, as lines of JSON: ``portkern.apply`` writes them, and
``portkern matrix shapes=FILE`` makes cells of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, ValidationError

from portkern import ops
from portkern.errors import ConfigError
from portkern.records import atomic_write
from portkern.spec import foreign_text
from portkern.spec.op import FLOATS, Op, Workload

#: The name of the set of workloads in records.
SET = "shapes"
_MOST_LINES = 10_000


class Shape(BaseModel):
    """One operator at one size; ``calls`` says how often a run of the model calls it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    op: str
    dtype: str
    dims: Mapping[str, StrictInt]
    scalars: Mapping[str, StrictBool | StrictInt | float] = Field(default_factory=dict)
    calls: Annotated[int, Field(strict=True, ge=1)] = 1

    @property
    def workload(self) -> Workload:
        name = "x".join(str(length) for length in self.dims.values()) or "scalar"
        marks = [f"{name}{value}" for name, value in sorted(self.scalars.items())]
        return Workload("-".join([name, *marks]), dict(self.dims), dict(self.scalars))


def write(path: Path, shapes: Iterable[Shape]) -> None:
    """One line each. Raises StorageError."""
    atomic_write.write(path, "".join(f"{one.model_dump_json()}\n" for one in shapes))


def read(path: Path) -> list[Shape]:
    """Raises ConfigError for a line which is not a shape of an operator that ships."""
    lines = foreign_text.read_text(path).split("\n")
    if len(lines) > _MOST_LINES:
        raise ConfigError(f"shapes={path} has {len(lines)} lines, expected at most {_MOST_LINES}")
    found = [_line(path, place, text) for place, text in enumerate(lines, 1) if text.strip()]
    if not found:
        raise ConfigError(
            f"shapes={path} has no shapes; portkern.apply(…, record=FILE) writes them"
        )
    return found


def _line(path: Path, place: int, text: str) -> Shape:
    try:
        shape = Shape.model_validate(foreign_text.json_value(text))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{path}:{place}: {where}: {first['msg']}") from error
    except foreign_text.Malformed as error:
        raise ConfigError(f"{path}:{place}: not a line of JSON, expected one shape") from error
    try:
        check(shape)
    except ConfigError as error:
        raise ConfigError(f"{path}:{place}: {error}") from error
    # In the operator's order, by which workloads are named.
    dims = {axis: shape.dims[axis] for axis in ops.load(shape.op).signature.axes}
    return shape.model_copy(update={"dims": dims})


def check(shape: Shape) -> None:
    """Raises ConfigError where the dtype, lengths and scalars are not those of the operator."""
    op = ops.load(shape.op)
    if shape.dtype not in FLOATS:
        raise ConfigError(f"Got dtype {shape.dtype!r}, expected one of {', '.join(FLOATS)}")
    op.check(shape.workload)


def op_names(shapes: Sequence[Shape]) -> list[str]:
    return list(dict.fromkeys(one.op for one in shapes))


def dtypes(shapes: Sequence[Shape]) -> list[str]:
    return list(dict.fromkeys(one.dtype for one in shapes))


def workloads(shapes: Sequence[Shape], op: Op, dtype: str) -> list[Workload]:
    """Returns those of one operator and dtype, each once."""
    own = [one.workload for one in shapes if (one.op, one.dtype) == (op.name, dtype)]
    return list({one.name: one for one in own}.values())
