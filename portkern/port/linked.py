"""Which files of a library make up one program: a build file lists them together, and one of them
has ``main``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from portkern.port import source_text
from portkern.port.library import Library
from portkern.port.source_text import UnreadableSource

_MAIN = re.compile(r"^\s*(?:int|auto|void)\s+main\s*\(", re.MULTILINE)

#: The other files of a program, wherever they lie, by the file that has ``main``, from the
#: library's root.
Programs = Mapping[PurePosixPath, tuple[Path, ...]]


def has_main(text: str) -> bool:
    return _MAIN.search(text) is not None


def programs(read: Library) -> Programs:
    """The programs that are made of several files; where two lists have the same main file, the
    longer one counts."""
    included = {read.root / path for source in read.sources for path in source.includes}
    found: dict[PurePosixPath, tuple[Path, ...]] = {}
    for listed in sorted(read.programs, key=len, reverse=True):
        linked = [file for file in listed if file not in included]
        mains = _mains(linked)
        if len(mains) != 1 or len(linked) < 2 or not mains[0].is_relative_to(read.root):
            continue
        main = PurePosixPath(mains[0].relative_to(read.root))
        found.setdefault(main, tuple(file for file in linked if file != mains[0]))
    return found


def _mains(files: Iterable[Path]) -> list[Path]:
    texts = ((file, source_text.read(file)) for file in files)
    return [
        f for f, text in texts if not isinstance(text, UnreadableSource) and has_main(text.text)
    ]
