"""Whether a process has changed the code of its libraries: the clock's, the framework's, Python's.

Code is mapped from its file and shared until it is written to; a page that was written, in whatever
way and if only for a moment, is the process's own from then on, and the system tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from portkern.evaluator.processor_time import family

#: "7f0c…-7f0d… r-xp 00026000 fe:00 4242   /usr/lib/libc.so.6", then lines of "Name: 12 kB".
_MAPPING = re.compile(r"^[0-9a-f]+-[0-9a-f]+ (\S{4}) \S+ \S+ \S+\s*(.*)$")
#: Pages that are no longer the file's. Dirty ones may still be: of a file that was just installed.
_OWN = "Anonymous:"


def written(pid: int) -> Mapping[str, bool]:
    """The files whose code a process, or one that it started, has mapped, and whether it wrote to
    it. Empty where the system does not let us look."""
    seen: dict[str, bool] = {}
    for member in family(pid):
        try:
            with Path(f"/proc/{member}/smaps").open(encoding="utf-8", errors="replace") as lines:
                _read(lines, seen)
        except OSError:
            continue
    return seen


def _read(lines: Iterable[str], seen: dict[str, bool]) -> None:
    name = ""
    for line in lines:
        mapping = _MAPPING.match(line)
        if mapping is not None:
            access, path = mapping.groups()
            code = access[2] == "x" and access[3] == "p" and path.startswith(("/", "[vdso]"))
            name = path if code else ""
            if name:
                seen.setdefault(name, False)
        elif name and line.startswith(_OWN):
            seen[name] = seen[name] or int(line.split()[1]) > 0


def changed(before: Mapping[str, bool], after: Mapping[str, bool]) -> list[str]:
    """The files whose code was as in its file before, and is not any more."""
    return sorted(name for name, own in before.items() if not own and after.get(name))
