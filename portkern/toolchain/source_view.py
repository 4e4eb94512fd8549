"""The files of a machine that a stranger's source may name: its own tree, and no more.

A compiler prints, embeds or assembles whatever file it is told to. So one that is given the text of
a stranger sees the folders here, and what follows the includes of one asks here before it reads.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from portkern.spec.companions import SUFFIXES, included
from portkern.spec.safe_name import real_path

#: Folders in which a compiler finds itself, and nothing is a user's own.
SYSTEM = tuple(map(Path, ("/usr", "/opt", "/nix", "/gnu")))
#: The marks of a folder of which all is one project.
_CHECKOUTS = (".git", ".hg", ".svn", ".jj")
#: More is not a project's own, and no source is that long.
_MOST_FILES, _MOST_BYTES = 500, 4 << 20


@dataclass(frozen=True)
class SourceView:
    """Folders. Of ``whole`` all that is in them can be seen; of ``projects`` the files that sources
    include, which are known by their suffix and not hidden."""

    whole: tuple[Path, ...]
    projects: tuple[Path, ...] = ()

    @classmethod
    def of(
        cls,
        files: Iterable[Path],
        folders: Iterable[Path] = (),
        projects: Iterable[Path] = (),
    ) -> SourceView:
        """The view for these files: their folders with all that is in them, the sources of their
        checkouts, ``folders``, which a user has named, and the sources in ``projects``, which a
        build file has."""
        files = [Path(os.path.abspath(file)) for file in files]  # noqa: PTH100 - links stay
        named = [Path(os.path.abspath(folder)) for folder in folders]  # noqa: PTH100
        places = dict.fromkeys([*(file.parent for file in files), *named])
        whole = [place for place in places if not is_shared(place)]
        others = [place for place in places if is_shared(place)]
        checkouts = (project(file.parent) for file in files)
        projects = dict.fromkeys([*others, *checkouts, *projects])
        return cls(tuple(whole), tuple(place for place in projects if place not in whole))

    def joined(self, other: SourceView) -> SourceView:
        whole = dict.fromkeys((*self.whole, *other.whole))
        return SourceView(tuple(whole), tuple(dict.fromkeys((*self.projects, *other.projects))))

    def sees(self, path: Path) -> bool:
        """Whether the file that ``path`` leads to is in view. System folders are, too."""
        real = real_path(path)
        if any(real.is_relative_to(folder) for folder in self._real[0]) or is_system(real):
            return True
        return any(_is_source_of(folder, real) for folder in self._real[1])

    def included(self, files: Iterable[Path], search: Sequence[Path] = ()) -> tuple[Path, ...]:
        """The files themselves and what they include, directly or not, where it is seen and in none
        of the ``whole`` folders: by the names by which a compiler looks for it, and where links
        lead to."""
        seen = self.reached(files, search)
        places = dict.fromkeys(place for file in seen for place in (file, real_path(file)))
        return tuple(place for place in places if not self._is_in_whole(place))

    def reached(self, files: Iterable[Path], search: Sequence[Path] = ()) -> tuple[Path, ...]:
        """The same, those of the ``whole`` folders too, by the names by which they are found."""
        queue = [Path(os.path.abspath(file)) for file in files]  # noqa: PTH100
        seen: dict[Path, None] = {}
        while queue and len(seen) < _MOST_FILES:
            file = queue.pop()
            if file in seen or not _is_text(file) or not self.sees(file):
                continue
            seen[file] = None
            text = file.read_text(encoding="utf-8", errors="replace")
            queue += _named(text, file.parent, search)
        return tuple(seen)

    @cached_property
    def _real(self) -> tuple[list[Path], list[Path]]:
        return [real_path(place) for place in self.whole], [real_path(p) for p in self.projects]

    def _is_in_whole(self, file: Path) -> bool:
        return is_system(file) or any(file.is_relative_to(folder) for folder in self.whole)


def is_system(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in SYSTEM)


def project(folder: Path) -> Path:
    """The checkout that a folder is in; itself, where it is in none, or in one that is a home."""
    for place in (folder, *folder.parents):
        if is_shared(place):
            break
        if any((place / name).exists() for name in _CHECKOUTS):
            return place
    return folder


def neighbours(folder: Path) -> Path:
    """The folder in which a build file may name folders and sources: the checkout that it is in,
    or else the parent of its folder; its folder alone, where that parent is somebody's home or
    everybody's."""
    whole = project(folder)
    if whole != folder or is_shared(folder.parent):
        return whole
    return folder.parent


def is_shared(folder: Path) -> bool:
    """Whether a folder holds more than one person's one project: it holds the home folder, or
    everybody writes to it."""
    real = real_path(folder)
    if real_path(Path.home()).is_relative_to(real):
        return True
    try:
        mode = real.stat().st_mode
    except OSError:
        return False
    return bool(mode & stat.S_ISVTX and mode & stat.S_IWOTH)


def _is_source_of(folder: Path, real: Path) -> bool:
    if not real.is_relative_to(folder) or real.suffix not in SUFFIXES:
        return False
    return not any(part.startswith(".") for part in real.relative_to(folder).parts)


def _is_text(file: Path) -> bool:
    """Whether a file can be read as text: not a pipe or a device, which would never end."""
    try:
        return file.is_file() and file.stat().st_size <= _MOST_BYTES
    except (OSError, ValueError):
        return False


def _named(text: str, beside: Path, search: Sequence[Path]) -> Iterator[Path]:
    for quoted, target in included(text):
        for folder in (*([beside] if quoted else []), *search):
            file = Path(os.path.normpath(folder / target))
            if _is_text(file):
                yield file
                break
