"""FlashInfer-Bench's trace sets: ``definitions/**.json``, ``workloads/**.jsonl`` and the tensors
that workloads name, which come with them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from portkern.errors import ConfigError
from portkern.formats import rows
from portkern.formats.problem import TENSORS, Item, Problem, UnreadableProblem
from portkern.spec import flashinfer, stored_tensors
from portkern.spec.foreign_text import Malformed, json_value, read_text
from portkern.spec.op import Op
from portkern.spec.safe_name import SafeName, real_path, short


def read(path: Path) -> list[Item]:
    """A problem for each definition, by type and name; a workload that cannot be read, or is of no
    definition, is an item of its own. Raises ConfigError where there are no definitions."""
    files = sorted((path / "definitions").rglob("*.json"))
    if not files:
        raise ConfigError(
            f"No definition in {path}; expected a folder with definitions/TYPE/NAME.json and "
            "workloads/TYPE/NAME.jsonl"
        )
    items: list[Item] = []
    named: dict[str, Problem] = {}
    for file in files:
        item = _definition(file)
        if item.name in named:
            reason = f"is called {item.name!r}, as {named[item.name].place} is; names are unique"
            item = UnreadableProblem(file.stem, item.group, str(file), reason)
        elif isinstance(item, Problem):
            named[item.name] = item
        items.append(item)
    lines, bad = _workloads(path, named)
    return [_with_workloads(item, lines) for item in items] + bad


def _definition(file: Path) -> Item:
    group = file.parent.name
    try:
        text = read_text(file)
        data = json_value(text)
    except ConfigError as error:
        return UnreadableProblem(file.stem, group, str(file), str(error))
    except Malformed as error:
        return UnreadableProblem(file.stem, group, str(file), f"is not JSON: {error}")
    name = data.get("name") if isinstance(data, dict) else None
    if not isinstance(name, str):
        got = "nothing" if name is None else repr(name)[:60]
        return UnreadableProblem(file.stem, group, str(file), f"has {got} as name, expected a text")
    kind = data.get("op_type")
    try:
        group = SafeName(kind, "op_type") if isinstance(kind, str) and kind else group
    except ConfigError as error:
        return UnreadableProblem(file.stem, group, str(file), str(error))
    return Problem(name, group, str(file), text.encode(), suffix=".json")


@dataclass
class Workloads:
    """The workloads of one definition: its lines, and the files of tensors that they name, by
    their new names."""

    op: Op | ConfigError
    lines: list[str] = field(default_factory=list)
    tensors: dict[str, Path] = field(default_factory=dict)

    @classmethod
    def of(cls, problem: Problem) -> Workloads:
        try:
            return cls(flashinfer.read_definition(problem.data.decode()))
        except ConfigError as error:
            return cls(error)  # which is said when it is loaded

    def take(self, values: Mapping[str, object], root: Path) -> None:
        """Raises ConfigError for a line that cannot be one, or names a file elsewhere."""
        line = json.dumps(values)
        if isinstance(self.op, Op):
            (workload,) = flashinfer.read_workloads(line, self.op, root)
            for stored in workload.stored.values():
                if stored.path.exists():
                    stored_tensors.check(stored.path)
            places = {name: _name(stored.path) for name, stored in workload.stored.items()}
            self.tensors |= {places[name]: one.path for name, one in workload.stored.items()}
            line = flashinfer.with_tensors(line, {n: f"{TENSORS}/{p}" for n, p in places.items()})
        self.lines.append(line)

    def beside(self, problem: Problem) -> Problem:
        """The problem with its workloads and their tensors."""
        text = "".join(f"{line}\n" for line in self.lines)
        return replace(problem, beside={".jsonl": text.encode()}, tensors=self.tensors)


def _name(path: Path) -> SafeName:
    """One name per file: those of a data set are in folders, and may be called alike."""
    digest = hashlib.sha256(str(real_path(path)).encode("utf-8", "surrogateescape")).hexdigest()
    return SafeName.like(f"{digest[:8]}-{path.name}")


def _workloads(path: Path, named: dict[str, Problem]) -> tuple[dict[str, Workloads], list[Item]]:
    """The workloads by definition, and the lines that are not workloads."""
    several: dict[str, Workloads] = {}
    bad: list[Item] = []
    for file in sorted((path / "workloads").rglob("*.jsonl")):
        try:
            found = list(rows.of(file))
        except ConfigError as error:
            bad.append(UnreadableProblem(file.stem, "workloads", str(file), str(error)))
            continue
        for row in found:
            try:
                name = _of_definition(row, named)
                several.setdefault(name, Workloads.of(named[name])).take(row.values, path)
            except ConfigError as error:
                label = Path(row.place).name
                bad.append(UnreadableProblem(label, "workloads", row.place, str(error)))
    return several, bad


def _of_definition(row: rows.TableRow, named: dict[str, Problem]) -> str:
    """Raises ConfigError."""
    if row.problem:
        raise ConfigError(row.problem)
    name = row.field("definition", str)
    if name not in named:
        raise ConfigError(f"is of the definition {short(name)}, which the trace set does not have")
    return name


def _with_workloads(item: Item, several: dict[str, Workloads]) -> Item:
    if isinstance(item, UnreadableProblem) or item.name not in several:
        return item
    return several[item.name].beside(item)
