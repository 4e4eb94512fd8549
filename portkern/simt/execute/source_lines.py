"""Source lines of code addresses: what a checked access knows is where its instruction lies."""

from __future__ import annotations

import bisect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from portkern.simt.diagnostics import Diagnostic, merge
from portkern.simt.execute.runtime_library import INCLUDE
from portkern.toolchain import elf

if TYPE_CHECKING:
    from elftools.dwarf.compileunit import CompileUnit
    from elftools.dwarf.die import DIE
    from elftools.dwarf.dwarfinfo import DWARFInfo
    from elftools.dwarf.lineprogram import LineProgram


@dataclass(frozen=True)
class Row:
    """A row of the line table: from ``address`` on, code comes from this line; ``line`` 0 ends a
    sequence."""

    address: int
    file: str
    line: int
    column: int


@dataclass(frozen=True)
class Inlined:
    """Code of a function that was inlined into the call at ``row``."""

    low: int
    high: int
    row: Row


def read(file: Path) -> tuple[list[Diagnostic], list[dict[str, object]]]:
    """The findings of a run, each place once, and its counters, one entry per launch."""
    return parsed(file.read_bytes()) if file.exists() else ([], [])


def parsed(content: bytes) -> tuple[list[Diagnostic], list[dict[str, object]]]:
    """The same of what is in the file. A line torn by a crash is the last one and is left out, as
    is what follows a line that the executor cannot have written."""
    diagnostics, counters = [], []
    for line in content.decode(errors="replace").splitlines():
        try:
            data = _object(json.loads(line))
            if "counters" in data:
                counters.append(data)
            else:
                diagnostics.append(diagnostic(data))
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            break
    return merge(diagnostics), counters


def _object(data: object) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise TypeError(f"{data!r:.100} is not an object")
    return data


def _number(value: object) -> int:
    """The whole number of a place or a count. Raises ValueError beyond 63 bits."""
    number = int(str(value))
    if not 0 <= number < 1 << 63:
        raise ValueError(f"{number} is not a number of lines")
    return number


def diagnostic(data: Mapping[str, Any]) -> Diagnostic:
    """One line of a findings file, its addresses turned into places."""
    place = _place(data, "")
    other = _place(data, "other_")
    return Diagnostic(
        str(data["code"]),
        str(data["message"]),
        place.file if place else "",
        place.line if place else 0,
        place.column if place else 0,
        str(data.get("kernel", "")),
        str(data.get("function", "")),
        _index(data, "block"),
        _index(data, "thread"),
        _number(data.get("count", 1)),
        f"{other.file}:{other.line}" if other and place and other != place else "",
    )


def _index(data: Mapping[str, Any], key: str) -> tuple[int, int, int] | None:
    x = data.get(key)
    return (_number(x[0]), _number(x[1]), _number(x[2])) if x else None


def _place(data: Mapping[str, Any], prefix: str) -> Row | None:
    if f"{prefix}line" in data:
        line, column = (_number(data[f"{prefix}{name}"]) for name in ("line", "column"))
        return Row(0, str(data[f"{prefix}file"]), line, column)
    if f"{prefix}module" not in data:
        return None
    # A return address is that of the instruction after the call.
    return locate(Path(data[f"{prefix}module"]), _number(data[f"{prefix}pc"]) - 1)


@lru_cache(maxsize=4096)
def _ours(file: str) -> bool:
    """Whether a file is a header of the executor's, in this checkout or in the one that made the
    runtime, which is found by its content."""
    return f"/{'/'.join(INCLUDE.parts[-3:])}/" in file


def locate(module: Path, pc: int, passed: Callable[[str], bool] = _ours) -> Row | None:
    """The line of the author's code that ``pc`` (an offset into the module) belongs to.

    What the compiler inlined from files that are ``passed`` over belongs to the author's call.
    """
    rows, inlined = _tables(module)
    at = bisect.bisect_right(rows, pc, key=lambda row: row.address) - 1
    while 0 <= at < len(rows) - 1 and not rows[at].line and rows[at].file:  # the compiler added it
        at += 1
        pc = rows[at].address
    if at < 0 or not rows[at].line:
        return None
    if not passed(rows[at].file):
        return rows[at]
    calls = [call for call in inlined if call.low <= pc < call.high and not passed(call.row.file)]
    # Of two that cover the same addresses, the later one was inlined into the earlier.
    inner = min(reversed(calls), key=lambda call: call.high - call.low, default=None)
    return inner.row if inner else rows[at]


@lru_cache(maxsize=64)
def _tables(module: Path) -> tuple[list[Row], list[Inlined]]:
    """The rows of a module's line tables by address, and the calls that were inlined."""
    rows: list[Row] = []
    inlined: list[Inlined] = []
    if not module.is_file():
        return rows, inlined
    with elf.opened(module) as file:
        if not file.has_dwarf_info():
            return rows, inlined
        dwarf = file.get_dwarf_info()
        for unit in dwarf.iter_CUs():
            program = dwarf.line_program_for_CU(unit)
            if program is not None:
                rows += _rows(program)
                inlined += _inlined(dwarf, unit, program)
    return sorted(rows, key=lambda row: (row.address, row.line != 0)), inlined


def _inlined(dwarf: DWARFInfo, unit: CompileUnit, program: LineProgram) -> Iterable[Inlined]:
    version = program["version"]
    names = [_file_name(program, entry, version) for entry in program["file_entry"]]
    first = 0 if version >= 5 else 1
    for die in unit.iter_DIEs():
        if die.tag != "DW_TAG_inlined_subroutine" or "DW_AT_call_line" not in die.attributes:
            continue
        file = die.attributes["DW_AT_call_file"].value - first
        line = die.attributes["DW_AT_call_line"].value
        for low, high in _ranges(dwarf, unit, die):
            if 0 <= file < len(names):
                yield Inlined(low, high, Row(low, names[file], line, 0))


def _ranges(dwarf: DWARFInfo, unit: CompileUnit, die: DIE) -> Iterable[tuple[int, int]]:
    attributes = die.attributes
    if "DW_AT_low_pc" in attributes and "DW_AT_high_pc" in attributes:
        low, high = attributes["DW_AT_low_pc"].value, attributes["DW_AT_high_pc"]
        yield low, high.value if high.form == "DW_FORM_addr" else low + high.value
    elif "DW_AT_ranges" in attributes:
        base = unit.get_top_DIE().attributes.get("DW_AT_low_pc")
        origin = base.value if base else 0
        lists: Any = dwarf.range_lists()  # not None: the attribute points into them
        for part in lists.get_range_list_at_offset(attributes["DW_AT_ranges"].value, unit):
            if hasattr(part, "base_address"):
                origin = part.base_address
            else:
                start = 0 if getattr(part, "is_absolute", False) else origin
                yield start + part.begin_offset, start + part.end_offset


def _rows(program: LineProgram) -> Iterable[Row]:
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


def _file_name(program: LineProgram, entry: Any, version: int) -> str:
    folders = program["include_directory"]
    name = Path(entry.name.decode(errors="replace"))
    number = entry.dir_index - (0 if version >= 5 else 1)
    if name.is_absolute() or not 0 <= number < len(folders) or (version >= 5 and number == 0):
        return str(name)
    return str(Path(folders[number].decode(errors="replace")) / name)
