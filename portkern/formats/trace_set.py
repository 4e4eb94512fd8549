"""FlashInfer-Bench's trace sets: ``definitions/**.json``, ``workloads/**.jsonl`` and the tensors
that workloads name, which stay where they are."""

from __future__ import annotations

import json
from pathlib import Path

from portkern.errors import ConfigError
from portkern.formats import rows
from portkern.formats.problem import Item, Problem, Unreadable


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
            item = Unreadable(file.stem, item.group, str(file), reason)
        elif isinstance(item, Problem):
            named[item.name] = item
        items.append(item)
    lines, bad = _workloads(path, named)
    return [_with_workloads(item, lines) for item in items] + bad


def _definition(file: Path) -> Item:
    group = file.parent.name
    try:
        text = rows.read_text(file)
        data = json.loads(text)
    except ConfigError as error:
        return Unreadable(file.stem, group, str(file), str(error))
    except (ValueError, RecursionError) as error:
        return Unreadable(file.stem, group, str(file), f"is no JSON: {error}")
    name = data.get("name") if isinstance(data, dict) else None
    if not isinstance(name, str):
        got = "nothing" if name is None else repr(name)[:60]
        return Unreadable(file.stem, group, str(file), f"has {got} as name, expected a text")
    kind = data.get("op_type")
    group = kind if isinstance(kind, str) and kind else group
    return Problem(name, group, str(file), text.encode(), suffix=".json")


def _workloads(path: Path, named: dict[str, Problem]) -> tuple[dict[str, list[str]], list[Item]]:
    """Lines by definition, whose files of tensors are absolute; and what is none."""
    lines: dict[str, list[str]] = {}
    bad: list[Item] = []
    for file in sorted((path / "workloads").rglob("*.jsonl")):
        try:
            found = list(rows.of(file))
        except ConfigError as error:
            bad.append(Unreadable(file.stem, "workloads", str(file), str(error)))
            continue
        for row in found:
            try:
                name = _of_definition(row, named)
            except ConfigError as error:
                label = Path(row.place).name
                bad.append(Unreadable(label, "workloads", row.place, str(error)))
                continue
            lines.setdefault(name, []).append(json.dumps(_absolute(row.values, path)))
    return lines, bad


def _of_definition(row: rows.Row, named: dict[str, Problem]) -> str:
    """Raises ConfigError."""
    if row.problem:
        raise ConfigError(row.problem)
    name = row.field("definition", str)
    if name not in named:
        raise ConfigError(f"is of the definition {name!r}, which the trace set does not have")
    return name


def _absolute(values: object, root: Path) -> object:
    """With absolute paths of files of tensors."""
    if isinstance(values, dict):
        changed = {key: _absolute(value, root) for key, value in values.items()}
        path = changed.get("path")
        if changed.get("type") == "safetensors" and isinstance(path, str):
            changed["path"] = str((root / path).absolute())
        return changed
    return [_absolute(one, root) for one in values] if isinstance(values, list) else values


def _with_workloads(item: Item, lines: dict[str, list[str]]) -> Item:
    if isinstance(item, Unreadable) or item.name not in lines:
        return item
    text = "".join(f"{line}\n" for line in lines[item.name])
    return Problem(
        item.name,
        item.group,
        item.place,
        item.data,
        suffix=".json",
        beside={".jsonl": text.encode()},
    )
