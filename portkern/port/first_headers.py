"""The headers of PyTorch that a file includes before anything else, so that they can be
precompiled: to read them is nine tenths of what a compiler does for a small extension.

What comes before them has to leave them as they are: other headers of the standard library or of
HIP, and macros that they do not ask for. A file that begins otherwise is compiled as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from portkern.cuda_source import comments
from portkern.port import source_text
from portkern.port.source_text import Unreadable
from portkern.port.torch_headers import TorchHeaders
from portkern.spec.file_build import FirstHeaders

#: They are precompiled outside of the jail: no name leads elsewhere.
_OF_TORCH = re.compile(r"(?:torch|ATen|c10)(?:/\w+)+\.(?:h|cuh)")
#: Each of these brings most of the others: what a file includes after it is read as it stands.
_UMBRELLAS = frozenset(
    """ATen/ATen.h torch/all.h torch/extension.h torch/library.h torch/python.h torch/script.h
    torch/torch.h torch/types.h""".split()
)
#: A header of the standard library, or of HIP: its place among others changes none of them.
_NEUTRAL = re.compile(r"[a-z_0-9]+(?:\.h)?|hip/\w+\.h")
_DIRECTIVE = re.compile(r"#\s*(\w+)\s*(.*)")
_INCLUDED = re.compile(r'(?:"([^"]+)"|<([^>]+)>)\s*')
_MOST_FILES = 64


def of(file: Path, include: Sequence[Path], torch: TorchHeaders) -> FirstHeaders | None:
    """The first headers of a file that is compiled with these folders, of which the last are
    PyTorch's, and with its macros; None for one that begins with something else."""
    own = [folder for folder in include if folder not in torch.include]
    walk = _Walk(own)
    walk.goes_on(file)
    if not walk.names:
        return None
    return FirstHeaders(tuple(walk.names), torch.include, torch.defines, tuple(sorted(walk.macros)))


@dataclass
class _Walk:
    """``names`` are PyTorch's headers in their order, ``macros`` what is defined before them."""

    folders: Sequence[Path]
    names: list[str] = field(default_factory=list)
    macros: set[str] = field(default_factory=set)
    seen: set[Path] = field(default_factory=set)

    def goes_on(self, file: Path) -> bool:
        """Whether nothing was found in the file that ends the walk."""
        if file in self.seen:
            return True
        self.seen.add(file)
        known = source_text.read(file)
        if isinstance(known, Unreadable) or len(self.seen) > _MOST_FILES:
            return False
        text = comments.without_comments(known.text)
        return all(self._passes(*directive, file) for directive in _directives(text))

    def _passes(self, kind: str, rest: str, depth: int, file: Path) -> bool:
        if kind in ("define", "undef"):
            self.macros.update(re.findall(r"^\w+", rest))
        elif kind == "include":
            found = _INCLUDED.fullmatch(rest)
            return found is not None and depth == 0 and self._includes(found, file)
        return kind in _PLAIN or (kind == "pragma" and rest.strip() == "once")

    def _includes(self, found: re.Match[str], file: Path) -> bool:
        quoted, name = found[1], found[1] or found[2]
        if name.startswith("/"):
            return False
        places = [*([file.parent] if quoted else []), *self.folders]
        own = next((folder / name for folder in places if (folder / name).is_file()), None)
        if own is not None:
            return self.goes_on(own.resolve())
        if _OF_TORCH.fullmatch(name):
            self.names.append(name)
            return name not in _UMBRELLAS
        return _NEUTRAL.fullmatch(name) is not None and not (quoted and "/" not in name)


_PLAIN = frozenset(["define", "undef", "include", "if", "ifdef", "ifndef", "else", "elif", "endif"])


def _directives(text: str) -> Iterator[tuple[str, str, int]]:
    """Yields each directive with how deep in conditions it stands, its header's own guard not
    counted, up to the first line that is none, which is ``("", line, 0)``."""
    lines = [line.strip() for line in text.replace("\\\n", " ").splitlines()]
    lines = [line for line in lines if line]
    guard = [_DIRECTIVE.fullmatch(line) for line in lines[:2]]
    first, second = guard if len(guard) == 2 else (None, None)
    depth = 0
    if first and second and (first[1], second[1]) == ("ifndef", "define"):
        depth = -1 if second[2].split()[:1] == [first[2].strip()] else 0
    for line in lines:
        found = _DIRECTIVE.fullmatch(line)
        if found is None:
            yield "", line, 0
            return
        kind = found[1]
        depth += kind.startswith("if")
        depth -= kind == "endif"
        yield kind, found[2], depth
