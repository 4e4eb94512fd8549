"""Sizes that host code asks tensors for and computes with: ``x.numel()`` is a number of its own
there, called ``x.numel``. A variable that is no more than such a call keeps its name."""

from __future__ import annotations

import re
from collections.abc import Mapping

_ASKED = re.compile(r"\b(\w+)\s*(?:\.|->)\s*(numel|size|stride|dim|nnz|_nnz)\s*\(\s*(-?\d*)\s*\)")
_STATEMENT = re.compile(r"(?:=(?!=)|\bdim3\b)\s*[^;{}]{1,500};")
_ALONE = re.compile(
    r"=\s*(?:\(\s*[\w: ]+\)|[\w:]*\s*(?:<[\w: ]+>)?\s*\()?\s*[\w.>-]+\([\s\d-]*\)\s*\)?\s*;"
)


def as_member(text: str) -> str:
    """The text, all of it at its place, with a member in the place of each such call."""

    def member(call: re.Match[str]) -> str:
        axis = f"_{call[3].replace('-', 'm')}" if call[3] else ""
        word = f"{call[1]}.{call[2]}{axis}"
        return word + " " * (len(call[0]) - len(word))

    return _ASKED.sub(member, text)


def in_statements(text: str) -> str:
    """The same for what a source computes with such calls."""

    def told(statement: re.Match[str]) -> str:
        return statement[0] if _ALONE.fullmatch(statement[0]) else as_member(statement[0])

    return _STATEMENT.sub(told, text)


#: ``x.data_ptr<T>()``
_DATA = re.compile(r"(\w+)\s*\.\s*(?:mutable_|const_)?data_ptr\s*<[\w:]+>\s*\(\s*\)")
_ELEMENT = re.compile(r"\b(\w+)\s*\.\s*(?:element_size|itemsize)\s*\(\s*\)")


def data_of(argument: str) -> str:
    """The name of the tensor whose data a launch hands over; '' where that is not said."""
    match = _DATA.fullmatch(argument.strip())
    return match[1] if match else ""


def with_element_sizes(text: str, sizes: Mapping[str, int]) -> str:
    """The text, all of it at its place, with how many bytes an element of a tensor has."""

    def told(call: re.Match[str]) -> str:
        return str(sizes[call[1]]).ljust(len(call[0])) if call[1] in sizes else call[0]

    return _ELEMENT.sub(told, text)


def of_axis(name: str) -> str:
    """``size`` of ``size_0``."""
    return re.sub(r"^(size|stride)_m?\d+$", r"\1", name)
