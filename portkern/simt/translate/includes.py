"""Which headers have device code, in them or in what they include: those must be rewritten."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

_DEVICE_CODE = re.compile(rb"__(shared|global|launch_bounds)__|<<<|\basm\b")
_KERNELS = re.compile(rb"__(shared|global)__|<<<|\basm\b|__builtin_amdgcn_")
#: The most bytes of a file that are looked at.
_MOST_BYTES = 16 << 20
_INCLUDES = re.compile(rb"^[ \t]*#[ \t]*include[ \t]*([<\"])([^>\"\n]+)[>\"]", re.MULTILINE)


def normal(path: Path) -> Path:
    """Absolute and without "..", but through symbolic links, as compilers look for includes."""
    return Path(os.path.normpath(path.absolute()))


def is_device_code(file: Path, search: Sequence[Path]) -> bool:
    """Whether a header included in angle brackets must be rewritten; a library's need not."""
    return reaches(file, _DEVICE_CODE, search)


def includes_device_code(source: str, search: Sequence[Path]) -> bool:
    """Whether a header of the folders ``search`` that it names must be rewritten with it."""
    seen: set[Path] = set()
    text = source.encode("utf-8", "surrogateescape")
    return any(_reaches(file, _KERNELS, search, seen) for file in _included(text, search, None))


def reaches(file: Path, code: re.Pattern[bytes], search: Sequence[Path] = ()) -> bool:
    """Whether ``code`` is in the file or in one that it includes, by way of others or not."""
    return _reaches(file, code, search, set())


def _reaches(file: Path, code: re.Pattern[bytes], search: Sequence[Path], seen: set[Path]) -> bool:
    if file in seen:
        return False
    seen.add(file)
    try:
        with file.open("rb") as stream:
            text = stream.read(_MOST_BYTES)
    except OSError:
        return False
    if code.search(text):
        return True
    further = _included(text, search, file.parent)
    return any(_reaches(header, code, search, seen) for header in further)


def _included(text: bytes, search: Sequence[Path], beside: Path | None) -> Iterator[Path]:
    """The files that includes in ``text`` name: of ``search``, and of the includer's own folder."""
    for bracket, target in _INCLUDES.findall(text):
        own = [beside] if beside and bracket == b'"' else []
        places = (normal(folder / os.fsdecode(target)) for folder in [*own, *search])
        if file := next(filter(Path.is_file, places), None):
            yield file
