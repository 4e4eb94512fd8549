"""Types of the values that JSON can hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
#: A document that is being made.
JsonObject: TypeAlias = "dict[str, Json]"
