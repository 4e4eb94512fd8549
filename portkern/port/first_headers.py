"""The headers of PyTorch that a file includes before anything else, so that they can be
precompiled: to read them is nine tenths of what a compiler does for a small extension.

What comes before them has to leave them as they are: other headers of the standard library or of
HIP, and macros that they do not ask for. A file that begins otherwise is compiled as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

from portkern.cuda_source import comments
from portkern.port import source_text
from portkern.port.source_text import UnreadableSource
from portkern.port.torch_headers import TorchHeaders
from portkern.spec.file_build import FirstHeaders
from portkern.spec.safe_name import real_path

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


def of(
    file: Path, include: Sequence[Path], torch: TorchHeaders, defines: Sequence[str] = ()
) -> FirstHeaders | None:
    """The first headers of a file that is compiled with these folders, of which the last are
    PyTorch's, with its macros and ``defines``; None for one that begins with something else."""
    own = [folder for folder in include if folder not in torch.include]
    given = {item.partition("=")[0] for item in (*defines, *torch.defines)}
    walk = _Walk(own, frozenset(given))
    walk.goes_on(file)
    if not walk.names:
        return None
    return FirstHeaders(tuple(walk.names), torch.include, torch.defines, tuple(sorted(walk.macros)))


@dataclass
class _Walk:
    """``names`` are PyTorch's headers in their order, ``macros`` what is defined before them,
    ``given`` by the compiler's line."""

    folders: Sequence[Path]
    given: frozenset[str]
    names: list[str] = field(default_factory=list)
    macros: set[str] = field(default_factory=set)
    seen: set[Path] = field(default_factory=set)

    def goes_on(self, file: Path) -> bool:
        """Whether nothing was found in the file that ends the walk."""
        if file in self.seen:
            return True
        self.seen.add(file)
        known = source_text.read(file)
        if isinstance(known, UnreadableSource) or len(self.seen) > _MOST_FILES:
            return False
        text = comments.without_comments(known.text)
        found = _directives(text, self.macros | self.given)
        return all(self._passes(*directive, file) for directive in found)

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
        own = next((folder / name for folder in places if _is_file(folder / name)), None)
        if own is not None:
            return self.goes_on(real_path(own))
        if _OF_TORCH.fullmatch(name):
            self.names.append(name)
            return name not in _UMBRELLAS
        return _NEUTRAL.fullmatch(name) is not None and not (quoted and "/" not in name)


_PLAIN = frozenset(["define", "undef", "include", "if", "ifdef", "ifndef", "else", "elif", "endif"])


def _is_file(path: Path) -> bool:
    """A stranger's names may be longer than any file's."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _directives(text: str, defined: Set[str]) -> Iterator[tuple[str, str, int]]:
    """Yields each directive with how deep in conditions it stands, its header's own guard not
    counted, up to the first line that is none, which is ``("", line, 0)``."""
    lines = [line.strip() for line in text.replace("\\\n", " ").splitlines()]
    found = [(_DIRECTIVE.fullmatch(line), line) for line in lines if line]
    depth = -1 if _is_guarded([directive for directive, _ in found], defined) else 0
    for directive, line in found:
        if directive is None:
            yield "", line, 0
            return
        depth += _opened(directive)
        yield directive[1], directive[2], depth


def _opened(directive: re.Match[str] | None) -> int:
    kind = directive[1] if directive is not None else ""
    return kind.startswith("if") - (kind == "endif")


def _is_guarded(lines: Sequence[re.Match[str] | None], defined: Set[str]) -> bool:
    """Whether all of a header is there where a macro, which it then defines, is not defined; these
    lines with their directives are all that it has, and ``defined`` may be before it."""
    first, second = lines[:2] if len(lines) > 2 else (None, None)
    if first is None or second is None or (first[1], second[1]) != ("ifndef", "define"):
        return False
    name = first[2].strip()
    if name in defined or second[2].split()[:1] != [name]:
        return False
    depth = 1
    for line in lines[1:-1]:
        depth += _opened(line)
        if depth < 1 or (depth == 1 and line is not None and line[1].startswith("el")):
            return False
    return depth + _opened(lines[-1]) == 0
