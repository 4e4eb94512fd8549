"""``portkern export harbor``: tasks for agents, of operators and targets."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from portkern import ops
from portkern.cli import json_output
from portkern.errors import ConfigError
from portkern.learn.harbor import HarborOptions, HarborTask, Unproven
from portkern.printable import printable
from portkern.spec import registry, target

FORMAT = "harbor"


@dataclass(frozen=True)
class AskedHarbor:
    """``places``: ``BACKEND@TARGET``, or targets, for which the backend that is usual is taken."""

    ops: Sequence[str]
    places: Sequence[str]
    out: Path
    options: HarborOptions
    json: bool


def write(asked: AskedHarbor) -> int:
    """0: all tasks; 1: some were not proven; 3: none was."""
    wanted = [name for text in asked.ops for name in named(text)]
    if not wanted:
        raise ConfigError("ops= is required: operators, files of operators, or a set such as basic")
    places = [_place(text) for text in asked.places]
    written: list[Path] = []
    skipped: dict[str, str] = {}
    for name in wanted:
        for backend, where in places:
            try:
                task = HarborTask.of(name, backend, where, asked.options)
                written.append(task.write(asked.out))
                print(f"portkern: proven: {printable(task.name)}", file=sys.stderr, flush=True)
            except (ConfigError, Unproven) as error:
                skipped[f"{name} {backend}@{where}"] = printable(str(error))
    code = 3 if not written else 1 if skipped else 0
    if asked.json:
        tasks = [path.name for path in written]
        said = {"folder": str(asked.out), "tasks": tasks, "skipped": skipped, "exit_code": code}
        json_output.show(said)
        return code
    for what, why in skipped.items():
        print(f"portkern: skipped: {printable(what)}: {why}", file=sys.stderr)
    print(f"{printable(str(asked.out))}: {len(written)} of {len(written) + len(skipped)} tasks")
    return code


def named(text: str) -> Sequence[str]:
    """Operators of a set, files in a folder of problems such as KernelBench's ``level1``, in the
    order of their numbers, or the one that is named. Raises ConfigError for an empty folder."""
    if text in ops.SETS or text in ops.names() or not Path(text).is_dir():
        return ops.SETS.get(text, (text,))
    files = [
        path for path in Path(text).glob("*.py") if path.is_file() and path.name[0] not in "_."
    ]
    if not files:
        raise ConfigError(f"No .py file in the folder {text}; expected a file for each operator")
    return [str(path) for path in sorted(files, key=_number)]


def _number(path: Path) -> tuple[int, str]:
    digits = re.match(r"[0-9]{1,9}", path.name)
    return int(digits[0]) if digits else 10**9, path.name


def _place(text: str) -> tuple[str, str]:
    """Raises ConfigError."""
    backend, mark, where = text.rpartition("@")
    place = target.load(where)
    if mark:
        return registry.load(backend).name, place.name
    usual = {"nvidia": "cuda", "amd": "hip", "cpu": "cpu", "opencl": "opencl"}
    return usual[place.limits.vendor], place.name
