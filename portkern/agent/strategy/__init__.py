"""Strategies by name: what is expanded next, how far, and when it ends.

None is imported until it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic import BaseModel, ValidationError

from portkern.agent import choice
from portkern.agent.slot import Arm
from portkern.errors import ConfigError, no_such

if TYPE_CHECKING:
    from portkern.agent.strategy.search import Search

_KINDS = {
    "bandit": "bandit:Bandit",
    "beam": "beam:Beam",
    "best_of_n": "sampling:BestOfN",
    "branching": "branching:Branching",
    "evolutionary": "evolutionary:Evolutionary",
    "mcts_graph": "graph:MctsGraph",
    "parallel_refine": "refine:ParallelRefine",
    "refine": "refine:Refine",
    "single": "sampling:Single",
    "staged": "staged:Staged",
    "tree_eps": "tree:TreeEps",
}


def names() -> list[str]:
    return sorted(_KINDS)


def load(
    options: Mapping[str, object], *, arms: Sequence[Arm], seed: int, given: bool = False
) -> Search:
    """The strategy ``kind`` with the other options. Raises ConfigError for what is not among them
    or does not go together with them or with ``arms``, the actions that the proposer knows.
    ``given``: the run starts from a kernel, which comes of its first slot."""
    cls: type[Search] = choice.find("strategy", options, _KINDS, __name__)
    rest = {str(key): value for key, value in options.items() if key != "kind"}
    try:
        checked = cls.Options.model_validate(rest)
    except ValidationError as error:
        raise _explain(error, cls.Options) from error
    return cls(checked, arms=arms, seed=seed, given=given)


_EXPECTED = {
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than_equal": "{le} or less",
    "tuple_type": "a list",
    "value_error": "{error}",
}


def _explain(error: ValidationError, options: type[BaseModel]) -> ConfigError:
    """The first thing that is wrong, in one line."""
    first = error.errors()[0]
    path = [str(part) for part in first["loc"] if part != "[key]"]
    field = ".".join(["strategy", *path])
    if first["type"] == "extra_forbidden":
        return no_such("option", field, _fields(options, "strategy"))
    plain = first["msg"].removeprefix("Input should be ")
    expected = _EXPECTED.get(first["type"], plain).format(**first.get("ctx", {}))
    return ConfigError(f"Got {field}={first['input']!r}, expected {expected}")


def _fields(options: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in options.model_fields.items():
        inner = field.annotation
        yield f"{prefix}.{name}"
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _fields(inner, f"{prefix}.{name}")
