"""The operators that are asked for: by name, in files, and all that a folder holds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from portkern import ops
from portkern.errors import ConfigError
from portkern.evaluator import from_torch
from portkern.formats.table import ImportRow
from portkern.records.jsonl import LineFile
from portkern.spec.safe_name import file_of, real_path

#: What ``portkern import`` leaves beside the operators.
_IMPORTED: Final = "rows.jsonl"
#: A Definition of FlashInfer-Bench lies between its workloads and other tables.
_NO_OPERATOR: Final = {"table.json"}


@dataclass(frozen=True)
class SuiteOp:
    """``source`` is what ``op=`` takes. ``named``: somebody asked for it and not for a folder."""

    source: str
    suite: str = ""
    named: bool = True

    @property
    def stem(self) -> str:
        return from_torch.split(self.source)[0].stem


def expand(asked: Sequence[str]) -> list[SuiteOp]:
    """The tasks, each once and in order; folders by number and name. Raises ConfigError."""
    found: dict[str, SuiteOp] = {}
    for text in asked:
        for one in _expanded(text):
            found.setdefault(one.source, one)
    if not found:
        raise ConfigError("An empty list selects nothing; name operators, a set or a folder")
    return list(found.values())


def _expanded(text: str) -> list[SuiteOp]:
    if text in ops.SETS:
        return [SuiteOp(name) for name in ops.SETS[text]]
    if "*" in text:
        return _several(text, _matching(text))
    if Path(text).is_dir():
        return _several(text, _inside(Path(text)))
    return [SuiteOp(text)]


def _several(text: str, paths: Sequence[Path]) -> list[SuiteOp]:
    if not paths:
        raise ConfigError(
            f"No operator in {text}; expected files of PyTorch code or Definitions, such as what "
            "'portkern import kernelbench DIR' writes"
        )
    return [SuiteOp(str(path), _suite(path.parent), named=False) for path in paths]


def _matching(pattern: str) -> list[Path]:
    folder = Path(re.split(r"[^/]*\*", pattern, maxsplit=1)[0] or ".")
    paths = folder.glob(pattern.removeprefix(f"{folder}/")) if folder.is_dir() else iter(())
    return sorted(filter(_is_operator, paths), key=_numbered)


def _inside(folder: Path) -> list[Path]:
    imported = sorted(folder.rglob(_IMPORTED))
    if imported:
        return sorted((path for rows in imported for path in _good(rows)), key=_numbered)
    return sorted(filter(_is_operator, folder.rglob("*")), key=_numbered)


def _good(rows: Path) -> Iterator[Path]:
    """The files of imported operators whose reference gave an answer."""
    known = {row.title: row for row in LineFile(rows, ImportRow.from_json).read()[0]}
    return (file_of(rows.parent, row.file) for row in known.values() if row.good)


def _is_operator(path: Path) -> bool:
    if path.name in _NO_OPERATOR or path.name.startswith((".", "_")):
        return False
    return path.suffix in (".py", ".json") and path.is_file()


def _numbered(path: Path) -> tuple[str, int, str]:
    """``2_b.py`` comes before ``10_a.py``."""
    number = re.match(r"\d+", path.name)
    return str(path.parent), int(number[0]) if number else -1, path.name


def _suite(folder: Path) -> str:
    """``operators/kernelbench/level1`` is ``kernelbench/level1``."""
    return "/".join(real_path(folder).parts[-2:])
