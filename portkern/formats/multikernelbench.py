"""MultiKernelBench's problems: ``reference/{category}/{name}.py`` in KernelBench's convention, some
with several groups of inputs that a JSON file beside them has."""

from __future__ import annotations

from pathlib import Path

from portkern.errors import ConfigError
from portkern.formats import embedding
from portkern.formats.problem import Item, Problem, UnreadableProblem
from portkern.spec.foreign_text import content, read_text


def read(path: Path) -> list[Item]:
    """The problems of a checkout, or of its folder ``reference``. Raises ConfigError where there
    is none."""
    root = path / "reference" if (path / "reference").is_dir() else path
    files = sorted(file for file in root.glob("*/*.py") if not file.name.startswith("_"))
    if not files:
        raise ConfigError(f"No problem in {root}; expected reference/CATEGORY/NAME.py")
    return [_read(file) for file in files]


def _read(file: Path) -> Item:
    group, place = file.parent.name, str(file)
    try:
        beside = file.with_suffix(".json")
        if not beside.exists():
            return Problem(file.stem, group, place, content(file))
        text = read_text(file)
        embedding.parse(text, file.name)
        data = embedding.with_files(text, {beside.name: read_text(beside)}).encode()
    except OSError as error:
        return UnreadableProblem(file.stem, group, place, f"cannot be read: {error.strerror}")
    except ConfigError as error:
        return UnreadableProblem(file.stem, group, place, str(error))
    return Problem(file.stem, group, place, data)
