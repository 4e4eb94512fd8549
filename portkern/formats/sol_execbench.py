"""SOL-ExecBench's problems: folders with ``definition.json`` and ``workload.jsonl``, which are
FlashInfer-Bench's with a few more words; and its score."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from portkern.errors import ConfigError
from portkern.formats import rows
from portkern.formats.problem import Item, Problem, UnreadableProblem
from portkern.formats.trace_set import Workloads
from portkern.spec.expression import Expression
from portkern.spec.foreign_text import Malformed, json_value, read_text
from portkern.spec.from_torch.names import identifier

_DEFINITION, _WORKLOADS = "definition.json", "workload.jsonl"


def score(kernel_us: float, baseline_us: float, limit_us: float) -> float:
    """How far a kernel has come from a baseline's time, where it is 0.5, to the time that the
    hardware's limits allow, where it is 1. A baseline that has come so far leaves nothing
    between."""
    gap = baseline_us - limit_us
    if gap <= 0:
        return 1.0 if kernel_us <= limit_us else 0.0
    return 1.0 / (1.0 + max(kernel_us - limit_us, 0.0) / gap)


def read(path: Path) -> list[Item]:
    """The problems below a folder, and workloads that cannot be read. Raises ConfigError where
    there is no definition."""
    files = sorted(path.rglob(_DEFINITION))
    if not files:
        raise ConfigError(
            f"No {_DEFINITION} in {path}; expected folders with {_DEFINITION} and {_WORKLOADS}"
        )
    return [item for file in files for item in _read(file)]


def _read(file: Path) -> list[Item]:
    group, place = file.parent.parent.name, str(file)
    try:
        data = json_value(read_text(file))
        if not isinstance(data, dict) or not isinstance(data.get("name"), str):
            raise ConfigError("is not a Definition with a name")
        data = {**data, "name": identifier(data["name"])}  # theirs have a model's full name in them
        problem = Problem(data["name"], group, place, _plain(data), suffix=".json")
        found = Workloads.of(problem)
        bad = _take(file.with_name(_WORKLOADS), data["name"], found)
    except Malformed as error:
        return [UnreadableProblem(file.parent.name, group, place, f"is not JSON: {error}")]
    except ConfigError as error:
        return [UnreadableProblem(file.parent.name, group, place, str(error))]
    return [found.beside(problem), *bad]


def _plain(data: Mapping[str, Any]) -> bytes:
    """The Definition as FlashInfer-Bench has it. Raises ConfigError for an axis that follows from
    others which vary."""
    axes = data.get("axes")
    if not isinstance(axes, dict):
        raise ConfigError("has no axes, expected an object")
    known = {
        name: axis["value"]
        for name, axis in axes.items()
        if isinstance(axis, dict) and axis.get("type") == "const" and type(axis.get("value")) is int
    }
    plain = {name: _axis(name, axis, known) for name, axis in axes.items()}
    return json.dumps({**data, "axes": plain}).encode()


def _axis(name: str, axis: object, known: Mapping[str, int]) -> object:
    if not isinstance(axis, dict) or axis.get("type") != "expr":
        return axis
    expression = Expression(str(axis.get("expression", "")))
    missing = sorted(expression.names - set(known))
    if missing:
        raise ConfigError(
            f"has the axis {name!r}, which follows from {missing[0]!r}; expected lengths that are "
            "constant, or axes of their own"
        )
    length = expression(known)
    if length != int(length):
        raise ConfigError(f"has the axis {name!r} of {length}, expected a whole number")
    return {"type": "const", "value": int(length)}


def _take(file: Path, name: str, found: Workloads) -> list[Item]:
    """Adds the workloads of the file; returns those that cannot be one."""
    bad: list[Item] = []
    for row in rows.of(file) if file.exists() else ():
        try:
            if row.problem:
                raise ConfigError(row.problem)
            if "custom" in (one.get("type") for one in _objects(row)):
                raise ConfigError("has inputs that the problem's own code draws; expected random")
            own = {key: row.values.get(key) for key in ("uuid", "axes", "inputs")}
            trace = {"definition": name, "workload": own, "solution": None, "evaluation": None}
            found.take(trace, file.parent)
        except ConfigError as error:
            bad.append(UnreadableProblem(Path(row.place).name, "workloads", row.place, str(error)))
    return bad


def _objects(row: rows.TableRow) -> list[dict[str, object]]:
    return [one for one in row.field("inputs", dict).values() if isinstance(one, dict)]
