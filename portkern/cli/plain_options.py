"""``key=value`` into a verb's options without Hydra, for machines that have none."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from portkern.errors import ConfigError, no_such

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Options = TypeVar("Options", bound="DataclassInstance")
_FLAGS = {"true": True, "false": False}


def resolve(
    verb: str, schema: type[Options], arguments: Sequence[str], *, places: Sequence[str] = ()
) -> Options:
    """Options that are texts or flags; ``places`` names those that may stand without their name,
    in this order. Raises ConfigError."""
    fields = {field.name: field for field in dataclasses.fields(schema)}
    unnamed = iter(places)
    values: dict[str, object] = {}
    for argument in arguments:
        name, mark, text = argument.partition("=")
        if not mark or (name not in fields and "/" in name):  # a path may well have a =
            name, text = next(unnamed, ""), argument
        if not name:
            raise ConfigError(
                f"Got {argument!r}, expected key=value; 'portkern {verb} --help' lists keys"
            )
        if name not in fields:
            raise no_such("option", name, fields)
        flag = isinstance(fields[name].default, bool)
        if flag and text not in _FLAGS:
            raise ConfigError(f"Got {name}={text}, expected true or false")
        values[name] = _FLAGS[text] if flag else text
    for name, field in fields.items():
        if field.default is dataclasses.MISSING and not values.get(name):
            raise ConfigError(f"{name}= is required; 'portkern {verb} --help' says what it takes")
    return schema(**values)
