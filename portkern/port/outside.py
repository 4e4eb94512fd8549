"""Headers that a library takes from a folder elsewhere, as programs of one repository do that share
some: they are translated with it, and lie in the tree, in a folder of their own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from portkern.port import library
from portkern.port.library import Library, SourceFile
from portkern.port.request import PortRequest
from portkern.port.source_text import INCLUDE, QUOTED
from portkern.port.translate import Context, language, translate
from portkern.port.tree import PortedFile, encoded, place_of
from portkern.spec.safe_name import real_path


def headers(read: Library, request: PortRequest) -> list[PortedFile]:
    """The outside headers that have device code, and those of their folder that they include, as
    they are in the port. A source for both vendors takes them as they are: there are none."""
    if request.style != "hip":
        return []
    found: dict[Path, PortedFile] = {}
    for source in (*read.sources, *read.headers):
        hip = language(source.text) == "hip"
        for folder, name in _asked(source, read, request):
            for file in _together(folder, folder / name):
                if file not in found:
                    found[file] = _ported(file, folder, request, hip=hip)
    return [file for file in found.values() if file.after]


def _asked(source: SourceFile, read: Library, request: PortRequest) -> Iterator[tuple[Path, str]]:
    """The folder and the name of each header that a source includes from elsewhere: all from
    folders that build files name, if the source is not ported alone; from those of ``include=``,
    the CUDA headers in quotes. A header in angles there is of a library that needs no change."""
    if not request.path.is_file():
        for folder in _elsewhere(read.settings(source.path)[0], read.root):
            yield from ((folder, name) for name in INCLUDE.findall(source.text))
    for folder in _elsewhere(request.include, read.root):
        for name in QUOTED.findall(source.text):
            header = _read(folder / name) if (folder / name).is_file() else None
            if header is not None and language(header.text) == "cuda":
                yield folder, name


def _elsewhere(folders: Iterable[Path], root: Path) -> list[Path]:
    return [real_path(f) for f in folders if not real_path(f).is_relative_to(root)]


def _together(folder: Path, header: Path) -> Iterator[Path]:
    """A header with device code, and what it includes of its folder."""
    queue, seen = [header], set[Path]()
    while queue:
        path = Path(os.path.normpath(queue.pop()))
        if path in seen or not path.is_relative_to(folder) or not path.is_file():
            continue
        if not real_path(path).is_relative_to(folder):
            continue  # a link leads out
        alone = _read(path)
        if alone is None or (path == header and not library.has_device_code(alone.text)):
            continue
        seen.add(path)
        yield path
        for name in INCLUDE.findall(alone.text):
            queue += [path.parent / name, folder / name]


def _read(path: Path) -> SourceFile | None:
    alone = library.read(path)
    return next(iter((*alone.sources, *alone.headers)), None)


def _ported(path: Path, folder: Path, request: PortRequest, *, hip: bool) -> PortedFile:
    """``before`` is empty: the library's folder has no such file. ``hip``: a file that is HIP
    includes it."""
    source, before = _read(path), path.read_bytes()
    name = place_of(folder) / PurePosixPath(path.relative_to(folder))
    if source is None:
        return PortedFile(name, b"", before)
    context = Context(hip=hip)
    made = translate(source.text, path.name, to=request.to, style=request.style, context=context)
    text = made.text
    return PortedFile(name, b"", before if text == source.text else encoded(text, before, source))
