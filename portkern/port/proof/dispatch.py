"""The types that PyTorch's macros choose from: what ``scalar_t`` is in their last argument."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_FLOATING = ("double", "float")
_INTEGRAL = ("uint8_t", "int8_t", "int", "int64_t", "int16_t")
#: What the name of a macro begins with, the longest first, and the types that it has.
_MACROS: Mapping[str, tuple[str, ...]] = {
    "FLOATING_TYPES_AND_HALF": (*_FLOATING, "at::Half"),
    "FLOATING_TYPES": _FLOATING,
    "INTEGRAL_TYPES": _INTEGRAL,
    "ALL_TYPES": (*_INTEGRAL, *_FLOATING),
    "REDUCED_FLOATING_TYPES": ("at::Half", "at::BFloat16"),
}
#: The types by the last word of a ``ScalarType``, or of its short name behind a ``k``.
_NAMES = {
    "Byte": "uint8_t",
    "Char": "int8_t",
    "Short": "int16_t",
    "Int": "int",
    "Long": "int64_t",
    "Half": "at::Half",
    "Float": "float",
    "Double": "double",
    "BFloat16": "at::BFloat16",
    "Bool": "bool",
}
_NAME = re.compile(r"AT_DISPATCH_(?:CASE_)?(\w+?)(?:_AND(\d?))?")
_INDEX = ("int", "int64_t")


def is_dispatch(macro: str) -> bool:
    return macro.startswith("AT_DISPATCH_")


def types_of(macro: str, arguments: Sequence[str]) -> dict[str, list[str]]:
    """The types that a macro chooses from, by the name that it gives them. Empty for a macro
    that is not PyTorch's, and for one some of whose types are not known."""
    if macro == "AT_DISPATCH_INDEX_TYPES":
        return {"index_t": list(_INDEX)}
    match = _NAME.fullmatch(macro)
    if match is None:
        return {}
    name, further = match[1], int(match[2] or 1) if match[2] is not None else 0
    if macro.endswith("_AND_HALF"):
        name, further = "FLOATING_TYPES_AND_HALF", 0
    if macro == "AT_DISPATCH_CASE":
        name, further = "", 1
    types: Sequence[str] | None = () if macro == "AT_DISPATCH_CASE" else _MACROS.get(name)
    named = [_NAMES.get(re.split(r"::k?|^k", text)[-1], "") for text in arguments[:further]]
    if types is None or len(named) < further or "" in named:
        return {}
    return {"scalar_t": [*types, *named]}
