"""A backend's guide as one author reads it: what is about another language, or about a place where
this author's kernels do not run, is left out.

A mark at the end of a heading is about its section, one in an item's first line about that item;
``people`` are those who read the guide itself:

    ## Numba <!-- for: numba -->
    ### Shared functions <!-- with: library -->
    - Where it is timed the L2 is flushed. <!-- where: hardware -->
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_MARK = re.compile(r"[ \t]*<!-- (?P<kind>for|where|with): (?P<names>[^>]*?) -->")
_HEADING, _FENCE = re.compile(r"(#{1,6}) "), re.compile(r"`{3,}|~{3,}")


def chosen(guide: str, *, language: str, ends: str, library: bool = True) -> str:
    """``ends`` is where kernels end: ``hardware``, ``object``, ``emulator`` or ``build``.
    ``library``: whether they may take portkern's own headers."""
    read_by = {"for": language, "where": ends, "with": "library" if library else ""}
    reader, kept, gap = _Reader(read_by), [""], False
    for line in guide.splitlines():
        if not reader.keeps(line):
            gap = True
        elif line or kept[-1] or not gap:  # no second blank line around what is left out
            kept.append(_MARK.sub("", line))
            gap = False
    return "\n".join(kept[1:])


@dataclass
class _Reader:
    """``_section`` is the level of a heading whose section is left out, 0: none."""

    read_by: dict[str, str]
    _section: int = 0
    _item: bool = False
    _fence: str = field(default="")

    def keeps(self, line: str) -> bool:
        mark = _FENCE.match(line)
        if mark and self._fence in ("", mark[0]):
            self._fence = "" if self._fence else mark[0]
        heading = None if self._fence else _HEADING.match(line)
        if heading:
            self._item = False
            level = len(heading[1])
            if not self._section or level <= self._section:
                self._section = level if self._is_for_others(line) else 0
        elif line[:1] not in ("", " "):  # neither blank nor a continuation
            self._item = self._is_for_others(line)
        return not self._section and not self._item

    def _is_for_others(self, line: str) -> bool:
        return any(
            self.read_by[mark["kind"]] not in re.split(r",\s*", mark["names"])
            for mark in _MARK.finditer(line)
        )
