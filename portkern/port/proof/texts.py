"""The text of a source and of what it includes of its own project."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path

from portkern.port.proof.element import aliases
from portkern.port.proof.findings import Text
from portkern.port.proof.outcome import ProofSource
from portkern.port.syntax import Syntax, parse

#: Headers are read until there are so many characters: more is no project's own.
_MOST_TEXT = 4_000_000
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]', re.MULTILINE)


class SourceTexts:
    """``syntax`` is of the file itself; ``whole`` has the headers before it."""

    def __init__(self, source: ProofSource) -> None:
        self.source = source
        text = read(source.path)
        self.syntax: Syntax = parse(text)
        self.own = Text(source.path, text, self.syntax.kernels, self.syntax.launches)

    @cached_property
    def whole(self) -> str:
        headers: dict[Path, str] = {}
        self._collect(self.own.text, self.source.path.parent, headers)
        return "\n".join([*headers.values(), self.own.text])

    @cached_property
    def aliases(self) -> dict[str, str]:
        """What names of types stand for, with the source's macros."""
        return aliases(self.whole, self.source.defines)

    def _collect(self, text: str, beside: Path, headers: dict[Path, str]) -> None:
        for name in _INCLUDE.findall(text):
            if sum(map(len, headers.values())) > _MOST_TEXT:
                return
            for folder in (beside, *self.source.include):
                path = (folder / name).resolve()
                if path in headers or not path.is_file():
                    continue
                inner = read(path)
                headers[path] = ""
                self._collect(inner, path.parent, headers)
                headers[path] = inner
                break


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")
