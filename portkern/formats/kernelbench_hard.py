"""KernelBench-Hard's and -Mega's problems: folders with ``problem.yaml`` and ``reference.py``, a
file in KernelBench's convention."""

from __future__ import annotations

import re
from pathlib import Path

from portkern.errors import ConfigError
from portkern.formats.problem import Item, Problem, UnreadableProblem
from portkern.spec.foreign_text import content

_SHEET, _REFERENCE = "problem.yaml", "reference.py"
_NUMBER = re.compile(r"([0-9]{1,6})_")


def read(path: Path) -> list[Item]:
    """The problems below a folder, such as a checkout, its folder of problems, or one of several
    suites. Raises ConfigError where there is none."""
    sheets = sorted(path.rglob(_SHEET))
    if not sheets:
        raise ConfigError(f"No {_SHEET} in {path}; expected folders with {_SHEET} and {_REFERENCE}")
    return [_read(sheet.parent) for sheet in sheets]


def _read(folder: Path) -> Item:
    """The suite is the folder above, unless that is only called ``problems``."""
    above, file = folder.parent.name, folder / _REFERENCE
    group = "" if above == "problems" else above.removeprefix("problems-")
    number = int(found[1]) if (found := _NUMBER.match(folder.name)) else None
    try:
        data = content(file)
    except OSError as error:
        why = f"has no {_REFERENCE} that can be read: {error.strerror}"
        return UnreadableProblem(folder.name, group, str(folder), why, number)
    return Problem(folder.name, group, str(file), data, number)
