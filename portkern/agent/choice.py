"""How a group of configuration becomes an object: ``kind`` names a class, the rest its options."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from portkern.agent import systems
from portkern.errors import ConfigError, no_such
from portkern.spec.foreign_text import place_of

Chosen = TypeVar("Chosen", bound=BaseModel)


def find(axis: str, options: Mapping[str, object], kinds: Mapping[str, str], package: str) -> Any:
    """The class that ``options["kind"]`` names. ``kinds`` gives ``module:Class`` within
    ``package``, and :mod:`portkern.agent.systems` those that one preset needs alone; nothing is
    imported until it is asked for. Raises ConfigError."""
    kind = str(options.get("kind", ""))
    if kind in systems.PARTS[axis]:
        return systems.find(axis, kind)
    if kind not in kinds:
        raise no_such(axis, kind, kinds)
    module, _, name = kinds[kind].partition(":")
    return getattr(importlib.import_module(f"{package}.{module}"), name)


def checked(axis: str, model: type[Chosen], options: Mapping[str, object]) -> Chosen:
    """Raises ConfigError for the first thing that is wrong."""
    unknown = set(options) - set(model.model_fields)
    if unknown:
        of = f"{axis} {options['kind']}" if "kind" in options else axis
        raise no_such(f"option of {of}", min(unknown), model.model_fields)
    try:
        return model(**options)
    except ValidationError as error:
        first = error.errors()[0]
        field = place_of(first["loc"])
        reason = first["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{axis}.{field}: got {first['input']!r}; {reason}") from error
