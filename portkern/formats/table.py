"""The outcome of each problem of a collection: one row each, kept as it is found, and the table
of all of them as JSON and Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from portkern.printable import printable
from portkern.records.jsonl import JsonLine, JsonPart

if TYPE_CHECKING:
    from portkern.spec.json_types import Json, JsonObject

Traced = Literal["", "all sizes", "sizes of inputs", "no size"]


class ReferenceCall(JsonPart):
    """One call of the reference: the axes' lengths, in float64 as the right answer is made, and
    whether all of what came out was finite."""

    dims: dict[str, int]
    elements: int
    finite: bool
    seconds: float


class ImportRow(JsonLine):
    """``traced``: which sizes may vary, empty where nothing was loaded. ``elements``: of all inputs
    and outputs at the problem's own sizes, which ``axes`` has. ``answered``: the calls of the
    reference that gave what was traced; ``reason``: why there is no operator, or no answer of it,
    with the line of the file. ``sha256`` is of the problem's text."""

    SCHEMA: ClassVar[int] = 1

    schema_: int = 1
    name: str
    group: str
    place: str
    file: str = ""
    operator: str = ""
    traced: Traced = ""
    tensors: int = 0
    axes: dict[str, int] = {}
    elements: int = 0
    dtypes: list[str] = []
    answered: list[ReferenceCall] = []
    notes: list[str] = []
    reason: str = ""
    sha256: str = ""
    seconds: float = 0.0

    @property
    def title(self) -> str:
        return f"{self.group}/{self.name}" if self.group else self.name

    @property
    def loaded(self) -> bool:
        return bool(self.traced)

    @property
    def good(self) -> bool:
        """Loaded, and its reference answers."""
        return self.loaded and bool(self.answered)


def summary(rows: Sequence[ImportRow]) -> dict[str, dict[str, int]]:
    """Counts by group, and of all."""
    groups: dict[str, list[ImportRow]] = {}
    for row in rows:
        groups.setdefault(row.group or "-", []).append(row)
    counts = {group: _counts(several) for group, several in groups.items()}
    return counts if len(counts) == 1 else {**counts, "all": _counts(rows)}


def _counts(rows: Sequence[ImportRow]) -> dict[str, int]:
    return {
        "problems": len(rows),
        "loaded": sum(row.loaded for row in rows),
        "all_sizes": sum(row.traced == "all sizes" for row in rows),
        "sizes_of_inputs": sum(row.traced == "sizes of inputs" for row in rows),
        "no_size": sum(row.traced == "no size" for row in rows),
        "answered": sum(row.good for row in rows),
    }


def document(rows: Sequence[ImportRow], **said: str) -> JsonObject:
    """``said``: what the table is of."""
    kept = {"schema_", "sha256"}
    return {
        **said,
        "summary": {name: dict(counts) for name, counts in summary(rows).items()},
        "rows": [row.model_dump(mode="json", exclude=kept, exclude_defaults=True) for row in rows],
    }


def as_json(rows: Sequence[ImportRow], **said: str) -> str:
    """A line for each row."""
    data = document(rows, **said)
    head = {key: value for key, value in data.items() if key != "rows"}
    lines = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in _rows(data))
    text = json.dumps(head, indent=1, ensure_ascii=False)
    return f'{text[:-2]},\n "rows": [\n  {lines}\n ]\n}}\n'


def _rows(data: JsonObject) -> list[Json]:
    rows = data["rows"]
    assert isinstance(rows, list)
    return rows


def markdown(rows: Sequence[ImportRow], title: str) -> str:
    counts = summary(rows)
    head = ["", "problems", "loaded", "all sizes", "sizes of inputs", "no size", "answered"]
    lines = [f"# {title}", "", *_table(head, ([name, *c.values()] for name, c in counts.items()))]
    failed = [row for row in rows if not row.good]
    if failed:
        lines += ["", "## Not loaded, or without an answer", ""]
        lines += _table(["problem", "why"], ([row.title, row.reason] for row in failed))
    lines += ["", "## Problems", ""]
    head = ["problem", "operator", "traced", "own sizes", "answered at", "notes"]
    lines += _table(head, map(_row, rows))
    return "\n".join(lines) + "\n"


def _row(row: ImportRow) -> list[object]:
    at = "; ".join(_dims(one.dims) or "its own size" for one in row.answered)
    said = [*row.notes, row.reason] if row.reason else row.notes
    return [row.title, row.operator, row.traced, _dims(row.axes), at, "; ".join(said)]


def _dims(dims: Mapping[str, int]) -> str:
    return " ".join(f"{axis}={length}" for axis, length in dims.items())


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(_cell(one) for one in line)} |" for line in lines]


def _cell(value: object) -> str:
    return printable(" ".join(str(value).split())).replace("|", "\\|")
