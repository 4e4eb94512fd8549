"""Whether a process has changed the code of its libraries: the clock's, the framework's, Python's;
and whether it has put itself between a read of memory and what is read.

Code is mapped from its file and shared until it is written to; a page that was written, in whatever
way and if only for a moment, is the process's own from then on, and the system tells. So it does
where another mapping was laid over a part: less of the file is there.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from portkern.evaluator.processor_time import family

#: "7f0c…-7f0d… r-xp 00026000 fe:00 4242   /usr/lib/libc.so.6", then lines of "Name: 12 kB", of
#: which one counts the pages that are no longer the file's. Dirty ones may still be: of a file that
#: was just installed.
_CODE = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) ..xp \S+ \S+ \S+[ \t]*([^\n]*)\n")
_OWN = re.compile(rb"\nAnonymous: +([0-9]+)")
#: Signals of a bad access.
_FAULTS = (signal.SIGSEGV, signal.SIGBUS)


@dataclass(frozen=True)
class MappedCode:
    """The code of one file, as a process has it mapped: whether a page of it is the process's
    own, and how many bytes of it are there."""

    own: bool
    size: int


def written(pid: int) -> Mapping[str, MappedCode]:
    """The files whose code a process, or one that it started, has mapped. Empty where the system
    does not let us look."""
    seen: dict[str, MappedCode] = {}
    for member in family(pid):
        try:
            text = Path(f"/proc/{member}/smaps").read_bytes()
        except OSError:
            continue
        for name, code in _read(text).items():
            known = seen.get(name, code)
            seen[name] = MappedCode(known.own or code.own, min(known.size, code.size))
    return seen


def _read(text: bytes) -> dict[str, MappedCode]:
    """The code in a text of some 30,000 lines, most of which are not looked at."""
    mapped: dict[str, MappedCode] = {}
    at = 0
    while (at := text.find(b"xp ", at)) >= 0:
        code = _CODE.match(text, text.rfind(b"\n", 0, at) + 1)
        own = _OWN.search(text, code.end() - 1) if code else None
        if (
            code
            and own
            and code.start() < at < code.end()
            and code[3].startswith((b"/", b"[vdso]"))
        ):
            name = code[3].decode(errors="replace")
            known = mapped.get(name, MappedCode(own=False, size=0))
            size = int(code[2], 16) - int(code[1], 16)
            mapped[name] = MappedCode(known.own or int(own[1]) > 0, known.size + size)
        at = code.end() if code else at + 1
    return mapped


def changed(before: Mapping[str, MappedCode], after: Mapping[str, MappedCode]) -> list[str]:
    """The files whose code was as in its file before, and is not any more, or not all of it. A
    library that is gone altogether was closed, but for the system's own. A process that has ended,
    of which nothing is seen, is for others to judge."""
    if not after:
        return []
    return sorted(
        name
        for name, code in before.items()
        if not code.own and _is_altered(code, after.get(name), system=name == "[vdso]")
    )


def _is_altered(before: MappedCode, after: MappedCode | None, *, system: bool) -> bool:
    return system if after is None else after.own or after.size < before.size


def handled_faults(pid: int) -> frozenset[str]:
    """The signals of a bad access that a process, or one that it started, has a handler for. None
    where the system does not say."""
    mask = 0
    for member in family(pid):
        try:
            status = Path(f"/proc/{member}/status").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
        mask |= int(caught[1], 16) if caught else 0
    return frozenset(one.name for one in _FAULTS if mask >> (one - 1) & 1)
