"""A table of a sweep by category of operators and backend, in the form in which MultiKernelBench
publishes its own: what is built, correct, and correct and faster than the baseline, in percent."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from portkern.errors import ConfigError
from portkern.experiment.compare.page.tidy import HEAD
from portkern.experiment.section import DASH
from portkern.spec.foreign_text import read_text

#: In a sweep's folder.
FILE: Final = "compare.csv"
ALL: Final = "all"
#: Of each backend: metric, p, and what the column is called at k.
_NUMBERS: Final = (
    ("build", "", "Comp@{k}"),
    ("pass", "", "Pass@{k}"),
    ("fast", "1.0", "SU1@{k}"),
)
_Key = tuple[str, str, str, str]


def table(folder: Path, k: int = 1) -> str:
    """The table in Markdown, by what ``compare.csv`` says. Raises ConfigError."""
    found = _numbers(folder / FILE, k)
    backends = list(dict.fromkeys(key[2] for key in found))
    heads = [f"{backend} {title.format(k=k)}" for backend in backends for *_, title in _NUMBERS]
    lines = [f"| model | category | {' | '.join(heads)} |", f"|---|---|{'---:|' * len(heads)}"]
    for model, suite in dict.fromkeys(key[:2] for key in found):
        cells = [
            found.get((model, suite, backend, metric), DASH)
            for backend in backends
            for metric, *_ in _NUMBERS
        ]
        category = suite.rpartition("/")[2] or ALL
        lines.append(f"| {_cell(model)} | {_cell(category)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _numbers(path: Path, k: int) -> dict[_Key, str]:
    """The numbers by model, suite, backend and metric; what was measured goes before what was
    emulated."""
    rows = _rows(path)
    metrics = {(metric, p): metric for metric, p, _ in _NUMBERS}
    found: dict[_Key, str] = {}
    evidence: dict[_Key, str] = {}
    for row in rows:
        metric = metrics.get((row["metric"], row["p"]))
        if metric is None or row["k"] != str(k) or not row["backend"] or row["target"]:
            continue
        key = row["model"], row["suite"], row["backend"], metric
        if evidence.get(key) == "measured" or not row["value"]:
            continue
        evidence[key], found[key] = row["evidence"], _percent(row["value"], path)
    if not found:
        told = {row["k"] for row in rows if row["metric"] == "pass"} - {""}
        known = sorted(told, key=lambda text: (len(text), text))
        raise ConfigError(f"{path} has no numbers at k={k}; it has k={', '.join(known) or 'none'}")
    categories = {key[1] for key in found}
    order = sorted(found, key=lambda key: (key[0], key[1] == "" and len(categories) > 1, key[1]))
    return {key: found[key] for key in order}


def _rows(path: Path) -> Sequence[Mapping[str, str]]:
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""))
    try:
        missing = set(HEAD) - set(reader.fieldnames or ())
        if missing:
            raise ConfigError(f"{path} has no column {min(missing)!r}; portkern compare writes it")
        return [{name: row[name] or "" for name in HEAD} for row in reader]
    except csv.Error as error:
        raise ConfigError(f"{path}:{reader.line_num} is not CSV: {error}") from error


def _percent(value: str, path: Path) -> str:
    try:
        return f"{100 * float(value):.1f}"
    except ValueError:
        raise ConfigError(f"{path}: {value[:40]!r} is not a number") from None


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")
