"""KernelBench's problems: ``level{N}/{number}_{Name}.py`` of a checkout, or the rows of its data
set, whose columns are ``code``, ``level``, ``name`` and ``problem_id``.

A problem is a module with ``Model``, ``get_inputs()`` and ``get_init_inputs()``, which portkern
reads as it is.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from portkern.errors import ConfigError
from portkern.formats import rows
from portkern.formats.problem import Item, Problem, UnreadableProblem
from portkern.spec.foreign_text import content

_LEVEL = re.compile(r"level[_-]?([0-9]{1,9})")
_NUMBERED = re.compile(r"([0-9]{1,9})_")


def read(path: Path, levels: Collection[int]) -> list[Item]:
    """The problems of these levels, by level and number. Raises ConfigError where there are none
    at all."""
    if not path.exists():
        raise ConfigError(f"Cannot read {path}: it does not exist")
    folders = _folders(path) if path.is_dir() else {}
    items = _of_checkout(folders, levels) if folders else _of_rows(path, levels)
    if not items:
        known = ", ".join(map(str, sorted(folders))) or "none"
        raise ConfigError(
            f"No problem of the levels {', '.join(map(str, sorted(levels)))} in {path}, which has "
            f"the levels {known}; expected level1/1_Name.py, or rows with code, level, name and "
            "problem_id"
        )
    return sorted(items, key=lambda item: (item.group, item.number is None, item.number or 0))


def _folders(path: Path) -> dict[int, Path]:
    """The folders by level: the folder itself, those in it, or those in its folder
    ``KernelBench``."""
    for candidates in ([path], [*_inside(path)], [*_inside(path / "KernelBench")]):
        named = ((_LEVEL.fullmatch(folder.name), folder) for folder in candidates)
        levels = {int(match[1]): folder for match, folder in named if match and folder.is_dir()}
        if levels:
            return levels
    return {}


def _inside(path: Path) -> list[Path]:
    return sorted(path.iterdir()) if path.is_dir() else []


def _of_checkout(folders: dict[int, Path], levels: Collection[int]) -> list[Item]:
    items: list[Item] = []
    for level, folder in folders.items():
        if level not in levels:
            continue
        for file in sorted(folder.glob("*.py")):
            number = _number(file.stem)
            group, place = f"level{level}", str(file)
            try:
                items.append(Problem(file.stem, group, place, content(file), number))
            except OSError as error:
                reason = f"cannot be read: {error.strerror}"
                items.append(UnreadableProblem(file.stem, group, place, reason, number))
    return items


def _of_rows(path: Path, levels: Collection[int]) -> list[Item]:
    """A row that says no level is kept: somebody has to hear of it."""
    items = map(_of_row, rows.of(path))
    wanted = {f"level{level}" for level in levels}
    return [item for item in items if not item.group or item.group in wanted]


def _of_row(row: rows.TableRow) -> Item:
    number, group = row.values.get("problem_id"), _group(row.values.get("level"))
    known = number if type(number) is int else None
    try:
        if row.problem:
            raise ConfigError(row.problem)
        name = row.field("name", str).removesuffix(".py")
        if not group:
            row.field("level", int)
        code = row.field("code", str)
        known = row.field("problem_id", int)
    except ConfigError as error:
        name = str(row.values.get("name") or Path(row.place).name)
        return UnreadableProblem(name, group, row.place, str(error), known)
    if _number(name) != known:
        name = f"{known}_{name}"
    return Problem(name, group, row.place, code.encode("utf-8", "surrogatepass"), known)


def _group(level: object) -> str:
    return f"level{level}" if type(level) is int else ""


def _number(stem: str) -> int | None:
    match = _NUMBERED.match(stem)
    return int(match[1]) if match else None
