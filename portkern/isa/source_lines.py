"""Finds the line of a source that an instruction comes from: the line table of an object built with
``-g``."""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from pathlib import Path

from portkern.errors import BuildError
from portkern.toolchain import elf


def at(path: Path, address: int) -> str:
    """``kernel.hip:12``, or nothing where the object does not say."""
    addresses, lines = _table(path)
    found = bisect_right(addresses, address) - 1
    return lines[found] if found >= 0 else ""


@lru_cache(maxsize=32)
def _table(path: Path) -> tuple[list[int], list[str]]:
    rows: dict[int, str] = {}
    # A stranger's debug information may be anything; without it there is just no line.
    try:
        with elf.opened(path) as file:
            if not file.has_dwarf_info():
                return [], []
            dwarf = file.get_dwarf_info()
            for unit in dwarf.iter_CUs():
                program = dwarf.line_program_for_CU(unit)
                if program is None:
                    continue
                files = program["file_entry"]
                first = 0 if program["version"] >= 5 else 1
                for entry in program.get_entries():
                    state = entry.state
                    if state is None:
                        continue
                    known = not state.end_sequence and 0 <= state.file - first < len(files)
                    name = files[state.file - first].name.decode() if known else ""
                    rows[state.address] = f"{Path(name).name}:{state.line}" if known else ""
    except (BuildError, Exception):  # noqa: BLE001 - pyelftools raises whatever it stumbles over
        return [], []
    addresses = sorted(rows)
    return addresses, [rows[address] for address in addresses]
