"""Source lines of code addresses: what a checked access knows is where its instruction lies."""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from portkern.simt.diagnostics import Diagnostic, merge
from portkern.simt.toolbox import INCLUDE


@dataclass(frozen=True)
class Row:
    """From ``address`` on, code comes from this line; ``line`` 0 ends a sequence."""

    address: int
    file: str
    line: int
    column: int


def read(file: Path) -> tuple[list[Diagnostic], list[dict[str, Any]]]:
    """The findings of a run, each place once, and its counters, one entry per launch.

    A line torn by a crash is the last one and is left out.
    """
    if not file.exists():
        return [], []
    found, counters = [], []
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            data = json.loads(line)
        except ValueError:
            break
        if "counters" in data:
            counters.append(data)
        else:
            found.append(diagnostic(data))
    return merge(found), counters


def diagnostic(data: Mapping[str, Any]) -> Diagnostic:
    """One line of a findings file, its addresses turned into places."""
    place = _place(data, "")
    other = _place(data, "other_")
    return Diagnostic(
        data["code"], data["message"], place.file if place else "", place.line if place else 0,
        place.column if place else 0, data.get("kernel", ""), data.get("function", ""),
        _index(data, "block"), _index(data, "thread"), int(data.get("count", 1)),
        f"{other.file}:{other.line}" if other and place and other != place else "",
    )  # fmt: skip


def _index(data: Mapping[str, Any], key: str) -> tuple[int, int, int] | None:
    x = data.get(key)
    return (x[0], x[1], x[2]) if x else None


def _place(data: Mapping[str, Any], prefix: str) -> Row | None:
    if f"{prefix}line" in data:
        return Row(0, data[f"{prefix}file"], data[f"{prefix}line"], data[f"{prefix}column"])
    if f"{prefix}module" not in data:
        return None
    # A return address is that of the instruction after the call.
    return locate(Path(data[f"{prefix}module"]), int(data[f"{prefix}pc"]) - 1)


def locate(module: Path, pc: int) -> Row | None:
    """The line of the author's code that ``pc`` (an offset into the module) belongs to.

    What the compiler inlined from our own headers is the author's call just before it.
    """
    rows = _table(module)
    at = bisect.bisect_right(rows, pc, key=lambda row: row.address) - 1
    while at >= 0 and rows[at].line and _ours(rows[at].file):
        at -= 1
    return rows[at] if at >= 0 and rows[at].line else None


@lru_cache(maxsize=4096)
def _ours(file: str) -> bool:
    return Path(file).is_relative_to(INCLUDE)


@lru_cache(maxsize=64)
def _table(module: Path) -> list[Row]:
    """All rows of a module's line tables by address; none where there are no tables."""
    from elftools.elf.elffile import ELFFile

    rows: list[Row] = []
    if not module.is_file():
        return rows
    with module.open("rb") as stream:
        elf = ELFFile(stream)
        if not elf.has_dwarf_info():
            return rows
        dwarf = elf.get_dwarf_info()
        for unit in dwarf.iter_CUs():
            program = dwarf.line_program_for_CU(unit)
            if program is not None:
                rows += _rows(program)
    return sorted(rows, key=lambda row: (row.address, row.line != 0))


def _rows(program: Any) -> Iterable[Row]:
    version = program["version"]
    names = [_file_name(program, entry, version) for entry in program["file_entry"]]
    first = 0 if version >= 5 else 1  # DWARF 5 counts files from 0
    for entry in program.get_entries():
        state = entry.state
        if state is None:
            continue
        if state.end_sequence:
            yield Row(state.address, "", 0, 0)
        else:
            yield Row(state.address, names[state.file - first], state.line, state.column)


def _file_name(program: Any, entry: Any, version: int) -> str:
    folders = program["include_directory"]
    name = Path(entry.name.decode(errors="replace"))
    number = entry.dir_index - (0 if version >= 5 else 1)
    if name.is_absolute() or not 0 <= number < len(folders) or (version >= 5 and number == 0):
        return str(name)
    return str(Path(folders[number].decode(errors="replace")) / name)
