"""The ported tree: every file of the library, those that were translated in their own encoding and
with their own ends of lines; and the patch from the one to the other."""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from portkern.errors import ConfigError, StorageError
from portkern.port import patch
from portkern.port.library import SourceFile
from portkern.records import atomic_write
from portkern.spec.foreign_text import json_object
from portkern.spec.safe_name import inside, is_text, real_path

#: Files beyond these are data more often than source; they are named, and not copied.
_MOST_FILE, _MOST_TREE = 1 << 20, 64 << 20
#: Folders of tools, not of the library.
_LEFT_OUT = frozenset({".git", ".hg", ".svn", "__pycache__", ".venv", "node_modules"})
MANIFEST = "tree.json"
#: The folder of the tree for headers from elsewhere.
OUTSIDE = "portkern_outside"
_ENDS = re.compile(rb"\r?\n")


@dataclass(frozen=True)
class PortedFile:
    """``before`` and ``after`` are the bytes of the file; ``path`` is from the library's root."""

    path: PurePosixPath
    before: bytes
    after: bytes

    @property
    def changed(self) -> bool:
        return self.before != self.after

    def diff(self) -> bytes:
        return patch.of_file(self.path.as_posix(), self.before, self.after)


@dataclass(frozen=True)
class Tree:
    """``left_out`` are files that were not copied."""

    folder: Path
    left_out: tuple[str, ...] = ()


def encoded(text: str, before: bytes, file: SourceFile) -> bytes:
    """A translation as its file has it: a mark of the encoding stays, each line keeps its own end
    where as many lines came out as went in."""
    if file.encoding.startswith("utf-16"):
        return file.encoded(text)
    lines = text.replace("\r\n", "\n").split("\n")
    ends = [match[0] for match in _ENDS.finditer(before)]
    try:
        data = [line.encode(file.encoding.removesuffix("-sig")) for line in lines]
    except UnicodeEncodeError:
        return file.encoded(text)
    if len(ends) != len(lines) - 1:
        return file.encoded(text)
    mark = codecs.BOM_UTF8 if before.startswith(codecs.BOM_UTF8) else b""
    return mark + b"".join(line + end for line, end in zip(data, [*ends, b""], strict=True))


def write(
    root: Path,
    files: Iterable[PortedFile],
    folder: Path,
    *,
    notes: Path,
    avoid: Sequence[Path],
    whole: bool = True,
    fresh: bool = False,
) -> Tree:
    """The ported files, and, of a ``whole`` library, all others below ``root``. What an earlier run
    wrote, as its manifest in ``notes`` says, and this one does not is removed; what is as it should
    be stays untouched. Raises ConfigError for a folder with files of someone else's."""
    manifest = notes / MANIFEST
    earlier = _manifest(manifest, folder)
    if folder.is_dir() and any(folder.iterdir()) and not earlier and not fresh:
        raise ConfigError(
            f"{folder} has files that this run did not write; choose another out=, or fresh=true"
        )
    ported = {file.path.as_posix(): file.after for file in files}
    left_out: list[str] = []
    names = set(ported)
    for name, data in ported.items():
        _put(inside(folder, name), data)
    if whole:
        avoided = [real_path(place) for place in (*avoid, folder)]
        room = _MOST_TREE
        for name in _others(root, avoided):
            if name in ported:
                continue
            size = (root / name).lstat().st_size
            if size > min(_MOST_FILE, room):
                left_out.append(name)
                continue
            room -= size
            if _copy(root, name, inside(folder, name)):
                names.add(name)
    for name in sorted(earlier - names):
        inside(folder, name).unlink(missing_ok=True)
    written = {"folder": str(real_path(folder)), "files": sorted(names)}
    atomic_write.write(manifest, json.dumps(written, indent=1) + "\n")
    return Tree(folder, tuple(left_out))


def write_in_place(root: Path, files: Iterable[PortedFile]) -> Tree:
    for file in files:
        if file.changed:
            _put(inside(root, file.path), file.after)
    return Tree(root)


def _manifest(path: Path, folder: Path) -> set[str]:
    """Files that a run with these notes wrote to this folder."""
    try:
        known = json_object(path)
        own = known["folder"] == str(real_path(folder))
        return {str(name) for name in known["files"] if inside(folder, str(name))} if own else set()
    except (ConfigError, ValueError, KeyError, TypeError):
        return set()


def _put(path: Path, data: bytes) -> None:
    try:
        if path.is_file() and not path.is_symlink() and path.read_bytes() == data:
            return
        mode = path.stat().st_mode & 0o777 if path.is_file() else None
    except OSError as error:
        raise StorageError.of(error, path) from error
    atomic_write.write(path, data)
    if mode is not None:
        path.chmod(mode)


def _copy(root: Path, name: str, copy: Path) -> bool:
    """A file, or a link that stays inside the tree, through whatever other links it leads; whether
    it is there now."""
    source = root / name
    try:
        if source.is_symlink():
            target = source.readlink()
            real = real_path(source.parent / target)
            if target.is_absolute() or not real.is_relative_to(real_path(root)):
                return False
            copy.parent.mkdir(parents=True, exist_ok=True)
            if not copy.is_symlink():
                copy.unlink(missing_ok=True)
                copy.symlink_to(target)
            return True
        _put(copy, source.read_bytes())
        shutil.copymode(source, copy)
    except OSError:
        return False
    return True


def _others(root: Path, avoid: Sequence[Path]) -> Iterator[str]:
    """The files and links below ``root``, links not followed, in an order that stays."""
    for place, folders, names in os.walk(root, followlinks=False):
        here = Path(place)
        links = [name for name in folders if (here / name).is_symlink()]
        folders[:] = sorted(
            name
            for name in folders
            if name not in _LEFT_OUT and name not in links and real_path(here / name) not in avoid
            if is_text(name)
        )
        for name in sorted([*names, *links]):
            path = here / name
            if is_text(name) and (path.is_symlink() or path.is_file()):
                yield path.relative_to(root).as_posix()


def moved(folders: Iterable[Path], *, root: Path, folder: Path, complete: bool) -> tuple[Path, ...]:
    """Folders of headers as the ported tree has them: those inside it, from there, and those
    elsewhere with what the tree has of them first. The tree of one file has the headers alone that
    are ported; others are where they were."""
    whole = real_path(root)
    places: list[Path] = []
    for place in (real_path(place) for place in folders):
        if not place.is_relative_to(whole):
            copy = real_path(folder) / place_of(place)
            places += [copy, place] if copy.is_dir() else [place]
            continue
        copy = real_path(folder) / place.relative_to(whole)
        places += [copy] if copy.is_dir() else []
        places += [] if complete else [place]
    return tuple(dict.fromkeys(places))


def place_of(folder: Path) -> PurePosixPath:
    """The place at which the tree has the headers of a folder elsewhere."""
    digest = hashlib.sha256(str(real_path(folder)).encode()).hexdigest()[:6]
    return PurePosixPath(OUTSIDE, f"{folder.name}-{digest}")
