"""Accessors of PyTorch's tensors among a kernel's parameters: what they show, and extents for them.

An accessor brings its extents and strides along, so that a kernel that takes one asks it for them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from portkern.port.proof.commas import of_template
from portkern.port.proof.element import element_of, plain_type

_ACCESSOR = re.compile(
    r"(?:::)?(?:(?:torch|at|c10)::)?(?:Generic)?PackedTensorAccessor(?:32|64)?\s*<(.*)>"
)
#: ``x.packed_accessor32<float, 3>()``, of which the tensor is asked for.
_OF_TENSOR = re.compile(
    r"\s*([A-Za-z_]\w*)\s*(?:\.|->)\s*(?:template\s+)?(?:generic_)?packed_accessor(?:32|64)?\s*"
    r"<(.*)>\s*\(\s*\)\s*",
    re.DOTALL,
)
_SIZE = r"\b{}\s*(?:\.|->)\s*(?:size\s*\(\s*(-?\d+)\s*\)|sizes\s*\(\s*\)\s*\[\s*(\d+)\s*\])"
#: How often one name of a type may stand for another.
_DEPTH = 4


@dataclass(frozen=True)
class Accessor:
    """The ``element`` is spelled as in the accessor's type."""

    element: str
    rank: int


def accessor_of(type_: str, bound: Mapping[str, str]) -> Accessor | None:
    """``bound`` says what names of a template or of ``typedef`` stand for. None for a type that is
    not an accessor, or of whose element nothing is known."""
    name = plain_type(type_).rstrip("&")
    for _ in range(_DEPTH):
        if name not in bound or bound[name] == name:
            break
        name = plain_type(bound[name])
    match = _ACCESSOR.fullmatch(name)
    if match is None:
        return None
    element, rank, *_ = [*of_template(match[1]), "", ""]
    rank = bound.get(rank, rank)
    if element_of(element, bound) is None or not re.fullmatch(r"[1-9]", rank):
        return None
    return Accessor(plain_type(element), int(rank))


def pointee(type_: str, bound: Mapping[str, str]) -> str:
    """The element that a parameter leads to, as it is spelled; '' for one that leads to none."""
    plain = plain_type(type_)
    if plain.endswith(("*", "]")):
        return plain.rstrip("*[]")
    accessor = accessor_of(type_, bound)
    return accessor.element if accessor is not None else ""


def tensor_of(argument: str) -> str:
    """The name of the tensor whose accessor a launch hands over; '' where that is not said."""
    match = _OF_TENSOR.fullmatch(argument)
    return match[1] if match else ""


def element_name(type_: str) -> str:
    """The element in the type of an accessor, as it is spelled; '' for another type."""
    match = _ACCESSOR.fullmatch(plain_type(type_).rstrip("&"))
    return of_template(match[1])[0] if match else ""


def shown_element(argument: str) -> str:
    """The element of the accessor that a launch makes for an argument; '' where it makes none."""
    match = _OF_TENSOR.fullmatch(argument)
    return of_template(match[2])[0] if match else ""


def with_sizes(text: str, tensors: Mapping[str, Sequence[int]]) -> str:
    """The same text, all of it at its place, with numbers where it asks tensors for sizes."""
    for name, extents in tensors.items():

        def number(match: re.Match[str], extents: Sequence[int] = extents) -> str:
            axis = int(match[1] or match[2])
            known = -len(extents) <= axis < len(extents)
            return str(extents[axis]).ljust(len(match[0])) if known else match[0]

        text = re.sub(_SIZE.format(re.escape(name)), number, text)
    return text
