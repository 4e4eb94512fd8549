"""A library as it is ported: a file brings the headers that it includes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from portkern.port import library
from portkern.port.library import Library, SourceFile
from portkern.port.source_text import INCLUDE
from portkern.toolchain.source_view import SourceView


def read(path: Path, *, avoid: Sequence[Path], include: Sequence[Path]) -> Library:
    """Raises ConfigError for a path that is none."""
    whole = library.read(path, avoid=avoid)
    return _with_headers(whole, include) if path.is_file() else whole


def _with_headers(file: Library, include: Sequence[Path]) -> Library:
    """The library of a single file, with the headers that it includes below its folder; others
    are not the author's, or not for us to change."""
    view = SourceView.of([file.root / source.path for source in (*file.sources, *file.headers)])
    known: dict[PurePosixPath, SourceFile] = {}
    queue = [*file.sources, *file.headers]
    kernels = {source.path for source in queue}
    while queue:
        source = queue.pop()
        own = [_header(file, source, name, include, view) for name in INCLUDE.findall(source.text)]
        headers = {header.path: header for header in own if header is not None}
        known[source.path] = replace(source, includes=tuple(headers))
        queue += [header for name, header in headers.items() if name not in known]
    sources = tuple(s for s in known.values() if s.path in kernels or s.kernels)
    others = tuple(s for s in known.values() if s not in sources)
    return replace(file, sources=sources, headers=others)


def _header(
    file: Library, source: SourceFile, name: str, include: Sequence[Path], view: SourceView
) -> SourceFile | None:
    here = (file.root / source.path).parent
    for place in (here, *include, *file.include):
        path = Path(os.path.normpath(place / name))
        if path.is_relative_to(file.root) and path.is_file() and view.sees(path):
            alone = library.read(path)
            for header in (*alone.sources, *alone.headers):
                return replace(header, path=PurePosixPath(path.relative_to(file.root)))
    return None
