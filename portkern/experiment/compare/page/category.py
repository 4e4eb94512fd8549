"""Tables of a sweep by backend, and by category of operators, in the form in which MultiKernelBench
publishes its own: what is built, correct, and correct and faster than the baseline, in percent."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from portkern.errors import ConfigError
from portkern.experiment.compare.page.tidy import HEAD
from portkern.experiment.section import DASH
from portkern.spec.foreign_text import read_text

#: The file in a sweep's folder.
FILE: Final = "compare.csv"
ALL: Final = "all"
#: The numbers of each model and backend: metric, p, and what the column is called at k.
_NUMBERS: Final = (
    ("build", "", "Comp@{k}"),
    ("pass", "", "Pass@{k}"),
    ("fast", "1.0", "SU1@{k}"),
)
_Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class _Number:
    """``value`` is of 1, over so many ``tasks``."""

    value: float
    tasks: int

    def __str__(self) -> str:
        return f"{100 * self.value:.1f}"


def table(folder: Path, k: int = 1) -> str:
    """The tables in Markdown, by what ``compare.csv`` says: of all models and backends, and of each
    backend by category. Raises ConfigError."""
    found = _numbers(folder / FILE, k)
    backends = list(dict.fromkeys(key[2] for key in found))
    parts = ["\n".join(_overall(found, backends, k))]
    for backend in backends:
        parts.append(f"{backend}, by category:\n\n" + "\n".join(_by_category(found, backend, k)))
    return "\n\n".join(parts)


def _overall(found: Mapping[_Key, _Number], backends: Sequence[str], k: int) -> Iterator[str]:
    """A row for each model; the last column counts correct kernels on all backends."""
    yield from _head("Models", backends, "Total Pass (#)", k)
    for model in dict.fromkeys(key[0] for key in found):
        rows = [(model, "", backend) for backend in backends]
        right = [found.get((*row, "pass")) for row in rows]
        total = round(sum(number.value * number.tasks for number in right if number))
        yield _row(model, rows, found, str(total))


def _by_category(found: Mapping[_Key, _Number], backend: str, k: int) -> Iterator[str]:
    """A row for each category, with the mean of its models in the last column. Those in which no
    model has a correct kernel are one row."""
    models = list(dict.fromkeys(key[0] for key in found if key[2] == backend))
    yield from _head("Categories", models, f"Avg Pass@{k} (%)", k)
    suites = {key[1] for key in found if key[2] == backend}
    nobody = 0
    for suite in sorted(suites - {""}) or [""]:
        rows = [(model, suite, backend) for model in models]
        right = [number for row in rows if (number := found.get((*row, "pass")))]
        mean = sum(number.value for number in right) / len(right) if right else 0.0
        if not mean:
            nobody += 1
            continue
        yield _row(suite.rpartition("/")[2] or ALL, rows, found, f"{100 * mean:.1f}")
    if nobody:
        left = [""] * (len(models) * len(_NUMBERS) - 1)
        yield _line("Others", f"All Pass@{k} = 0.0", *left, "0.0")


def _head(first: str, groups: Sequence[str], last: str, k: int) -> Iterator[str]:
    """A row of groups, and below it a row of what each has."""
    numbers = [title.format(k=k) for *_, title in _NUMBERS]
    named = [text for name in groups for text in (f"{_cell(name)} (%)", "", "")]
    yield _line(first, *named, last)
    yield f"|---|{'---:|' * (len(named) + 1)}"
    yield _line("", *(numbers * len(groups)), "")


def _row(
    name: str, rows: Sequence[tuple[str, str, str]], found: Mapping[_Key, _Number], last: str
) -> str:
    cells = [found.get((*row, metric)) for row in rows for metric, *_ in _NUMBERS]
    return _line(_cell(name), *(DASH if one is None else str(one) for one in cells), last)


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _numbers(path: Path, k: int) -> dict[_Key, _Number]:
    """The numbers by model, suite, backend and metric; what was measured goes before what was
    emulated."""
    rows = _rows(path)
    metrics = {(metric, p): metric for metric, p, _ in _NUMBERS}
    found: dict[_Key, _Number] = {}
    evidence: dict[_Key, str] = {}
    for row in rows:
        metric = metrics.get((row["metric"], row["p"]))
        if metric is None or row["k"] != str(k) or not row["backend"] or row["target"]:
            continue
        key = row["model"], row["suite"], row["backend"], metric
        if evidence.get(key) == "measured" or not row["value"]:
            continue
        evidence[key], found[key] = row["evidence"], _number(row, path)
    if not found:
        told = {row["k"] for row in rows if row["metric"] == "pass"} - {""}
        known = sorted(told, key=lambda text: (len(text), text))
        raise ConfigError(f"{path} has no numbers at k={k}; it has k={', '.join(known) or 'none'}")
    return found


def _rows(path: Path) -> Sequence[Mapping[str, str]]:
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""))
    try:
        missing = set(HEAD) - set(reader.fieldnames or ())
        if missing:
            raise ConfigError(f"{path} has no column {min(missing)!r}; portkern compare writes it")
        return [{name: row[name] or "" for name in HEAD} for row in reader]
    except csv.Error as error:
        raise ConfigError(f"{path}:{reader.line_num} is not CSV: {error}") from error


def _number(row: Mapping[str, str], path: Path) -> _Number:
    for name in ("value", "tasks"):
        try:
            if not 0 <= float(row[name]) < float("inf"):
                raise ValueError
        except ValueError:
            raise ConfigError(f"{path}: {row[name][:40]!r} is not a number") from None
    return _Number(float(row["value"]), round(float(row["tasks"])))


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|")
