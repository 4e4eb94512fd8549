"""A plan beside an artifact: the launches of one call, for a process without the toolchain."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from portkern.spec.foreign_text import json_value

#: Files of the artifact's folder.
PLAN, BINARIES = "plan.json", "binaries"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.$]{0,1000}")
_MOST, _STEPS, _ARGUMENTS = 1 << 40, 1000, 500
#: Bytes of all temporaries of a call.
_TEMPORARY = 1 << 36


class BadPlan(Exception):
    """Says in one line what is not as a plan has it."""


@dataclass(frozen=True)
class LaunchPlan:
    """``document`` has temporaries, steps, and scalars by their numbers that have to have a value;
    ``binaries`` are by their SHA-256."""

    document: dict[str, Any]
    binaries: dict[str, bytes]


def read(folder: Path, tensors: int, scalars: int) -> LaunchPlan:
    """The plan in an artifact's folder, which code of others wrote. Raises BadPlan."""
    try:
        document = json_value((folder / PLAN).read_bytes())
        temporaries, steps = document["temporaries"], document["steps"]
        sizes = {"given": tensors, "temporary": len(temporaries), "scalar": scalars}
        _number(sum(_number(one, _TEMPORARY) for one in temporaries), _TEMPORARY)
        if not 0 < len(steps) <= _STEPS:
            raise BadPlan(f"it has {len(steps)} steps, expected 1 to {_STEPS}")
        for step in steps:
            _check_step(step, sizes, temporaries)
        fixed = [_check_fixed(one, scalars) for one in document["fixed"]]
        digests = dict.fromkeys(step["binary"] for step in steps if "binary" in step)
        binaries = {one: binary(folder, one).read_bytes() for one in digests}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadPlan(f"{type(error).__name__}: {str(error)[:200]}") from error
    return LaunchPlan({"temporaries": temporaries, "steps": steps, "fixed": fixed}, binaries)


def binary(folder: Path, digest: str) -> Path:
    """The file of a binary of a plan in an artifact's folder. Raises BadPlan."""
    if not _DIGEST.fullmatch(digest):
        raise BadPlan(f"got {digest[:80]!r}, expected a digest")
    return folder / BINARIES / digest


def _check_step(step: dict[str, Any], sizes: dict[str, int], temporaries: list[int]) -> None:
    if "zero" in step:
        _check_memory(step["zero"], {k: n for k, n in sizes.items() if k != "scalar"})
        kind, number, offset = step["zero"]
        end = offset + _number(step["bytes"], _MOST)
        if kind == "temporary" and end > temporaries[number]:
            raise BadPlan(f"{end} bytes of a temporary of {temporaries[number]} become zero")
        return
    if not _DIGEST.fullmatch(step["binary"]) or not _NAME.fullmatch(step["name"]):
        raise BadPlan("a launch names no binary or no kernel")
    x, y, z = step["grid"]
    for number, most in ((x, 2**31 - 1), (y, 65535), (z, 65535), (step["threads"], 1024)):
        if not _number(number, most):
            raise BadPlan("a launch has no threads")
    _number(step["shared"], 1 << 20)
    if len(step["arguments"]) > _ARGUMENTS:
        raise BadPlan(f"a launch has {len(step['arguments'])} arguments")
    for argument in step["arguments"]:
        _check_argument(argument, sizes)


def _check_fixed(fixed: list[Any], scalars: int) -> list[Any]:
    number, value = fixed
    if type(value) is not float or _number(number, _MOST) >= scalars:
        said = f"{str(number)[:20]} of {str(value)[:20]!r}"
        raise BadPlan(f"a scalar is {said}, which the call has not")
    return fixed


def _check_argument(argument: list[Any], sizes: dict[str, int]) -> None:
    kind, what, offset = argument
    if kind in ("value", "scalar"):
        _number(offset, 0)
    if kind != "value":
        _check_memory(argument, sizes)
    elif not 1 <= len(bytes.fromhex(what)) <= 8:
        raise BadPlan(f"a value has {len(what) // 2} bytes, expected 1 to 8")


def _check_memory(argument: list[Any], sizes: dict[str, int]) -> None:
    """Memory that a step reads or writes has to be of the call: a value is not an address."""
    kind, what, offset = argument
    if kind not in sizes or _number(what, _MOST) >= sizes[kind]:
        raise BadPlan(f"an argument is {str(kind)[:20]!r} {str(what)[:20]}, which the call has not")
    _number(offset, _MOST)


def _number(value: Any, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise BadPlan(f"got {str(value)[:40]!r}, expected a whole number up to {most}")
    return value
