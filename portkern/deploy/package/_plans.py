"""Kernels without host code: their launches are read from a file of the library, and their binaries
are beside it."""

from __future__ import annotations

import ctypes
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

#: The kinds in the order of their numbers in plans.h.
_KINDS = ("given", "temporary", "scalar", "value")


def open_plan(library: Any, file: Path, binaries: Mapping[str, bytes]) -> ctypes.c_void_p:
    """Hands a plan to the library's C++. ``binaries`` are by their names in the plan. Raises
    ValueError for a plan that is not one."""
    names = list(binaries)
    try:
        words, functions = _words(json.loads(file.read_text(encoding="utf-8"))["cells"], names)
        numbers = (ctypes.c_int64 * len(words))(*words)
        texts = [name.encode() for _, name in functions]
    except (KeyError, TypeError, ValueError, AttributeError, struct.error) as error:
        raise ValueError(f"{file.name} is not a plan: {type(error).__name__}: {error}") from error
    library.pk_plan.restype = ctypes.c_void_p
    contents = [binaries[name] for name in names]
    made = library.pk_plan(
        numbers,
        (ctypes.c_char_p * len(contents))(*contents),
        (ctypes.c_int64 * len(contents))(*map(len, contents)),
        len(contents),
        (ctypes.c_char_p * len(texts))(*texts),
    )
    if not made:
        raise ValueError(f"{file.name} is not a plan: a launch names what is not there")
    return ctypes.c_void_p(made)


def _words(
    cells: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> tuple[list[int], list[tuple[int, str]]]:
    """The plan as numbers, and the functions that it launches."""
    functions: dict[tuple[int, str], int] = {}

    def function(step: Mapping[str, Any]) -> int:
        return functions.setdefault((names.index(step["binary"]), step["name"]), len(functions))

    body = [len(cells)]
    for cell in cells:
        body += [len(cell["key"]), *cell["key"], len(cell["temporaries"]), *cell["temporaries"]]
        body.append(len(cell["steps"]))
        for step in cell["steps"]:
            body += _step(step, function)
        body.append(len(cell["fixed"]))
        for number, value in cell["fixed"]:
            body += [number, *struct.unpack("<q", struct.pack("<d", value))]
    binary_of = [binary for binary, _ in functions]
    return [len(functions), *binary_of, *body], list(functions)


def _step(step: Mapping[str, Any], function: Callable[[Mapping[str, Any]], int]) -> list[int]:
    if "zero" in step:
        return [-1, 0, 0, 0, 0, 0, step["bytes"], 1, *_argument(step["zero"])]
    made = [function(step), *step["grid"], step["threads"], step["shared"], 0]
    arguments = [word for one in step["arguments"] for word in _argument(one)]
    return [*made, len(step["arguments"]), *arguments]


def _argument(argument: Sequence[Any]) -> list[int]:
    kind, what, offset = argument
    if kind == "value":
        bits = int.from_bytes(bytes.fromhex(what), "little")
        what = bits - (1 << 64) if bits >> 63 else bits
    return [_KINDS.index(kind), what, offset]
