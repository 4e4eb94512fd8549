"""Checks of the value that a Python function returned in the place of its outputs. Used inside
the worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from portkern.errors import LaunchError
from portkern.spec.backend import Build

Array = TypeVar("Array")
#: The most elements of a tuple in a message.
_MOST = 8


def outputs(
    result: object,
    request: Build,
    dims: Mapping[str, int],
    *,
    kind: type[Array],
    called: str,
    exactly: bool = False,
) -> Sequence[Array]:
    """The arrays that ``result`` is or holds, as many as they are.

    Raises LaunchError, which says what is expected, where one is no ``kind`` (``exactly``: nor
    of a subclass); ``called`` is what that class is called where users meet it.
    """
    found = result if isinstance(result, tuple | list) else (result,)
    if all(type(one) is kind if exactly else isinstance(one, kind) for one in found):
        return found
    raise LaunchError(
        f"{request.candidate.entry} returned {_said(result)}, "
        f"expected {_expected(request, dims, called)}"
    )


def _said(result: object) -> str:
    if not isinstance(result, tuple | list):
        return "None" if result is None else f"an object of type {type(result).__name__}"
    # Types alone: the text of an object is its own code.
    names = ["None" if one is None else type(one).__name__ for one in result]
    shown = names if len(names) <= _MOST else [*names[:_MOST], "…"]
    return f"a {type(result).__name__} of {', '.join(shown)}"


def _expected(request: Build, dims: Mapping[str, int], called: str) -> str:
    wanted = [
        f"{spec.name} {spec.resolve(request.dtype)}{list(spec.sizes(dims))}"
        for spec in request.signature.outputs
    ]
    if len(wanted) == 1:
        return f"a {called}: {wanted[0]}"
    return f"a tuple of {len(wanted)} of {called}: {', '.join(wanted)}"
