"""Companions of a native source, which it is built with beside its own text: headers, further
sources and macros.

All of it is read when the candidate is made and travels with it, so that what was read is what is
built, in a jail that sees none of the user's files.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from posixpath import normpath

from portkern.cuda_source.comments import without_comments
from portkern.errors import ConfigError
from portkern.spec import foreign_text
from portkern.spec.safe_name import real_path

#: Files that a source may include; whatever else lies in a folder is nobody's code.
SUFFIXES = frozenset(
    ".h .hh .hpp .hxx .h++ .cuh .inc .inl .ipp .tpp .def .c .cc .cpp .cxx .cu .hip .cl .clh".split()
)
#: What one kernel may bring: a request is one message to a worker.
MOST_BYTES, MOST_FILES = 8 << 20, 2_000
#: Files that an error names.
_FEW = 4

#: An include, or a macro for one; in Python the program begins after quotation marks.
_INCLUDE = re.compile(
    r"(?:^|(?<=[\"']))[ \t]*(?:\#|%:)[ \t]*(?:include|include_next|import|define[ \t]+\w+)[ \t]*"
    r"(?P<mark>[\"<])(?P<target>[^\">\n]+)[\">]",
    re.MULTILINE,
)
_DEFINE = re.compile(r"[A-Za-z_]\w*(?:\([\w, .]*\))?(?:=[^\n]*)?")
_PATH = re.compile(r"[^\"\\\n]+")


@dataclass(frozen=True)
class Companions:
    """Paths are relative to the project's folder, with ``/``. ``path`` is the source's own place,
    ``files`` are paths and texts, ``include`` folders that are searched after the includer's own,
    ``defines`` macros (``NAME`` or ``NAME=VALUE``). ``sources`` are those of the files that follow
    the source in its translation unit, in this order.

    Raises ValueError for a path that leads out of the folder.
    """

    path: str = ""
    files: tuple[tuple[str, str], ...] = ()
    include: tuple[str, ...] = ()
    defines: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for path in (*self.texts, *self.include, *filter(None, [self.path])):
            parts = PurePosixPath(path).parts
            if PurePosixPath(path).is_absolute() or ".." in parts or not _PATH.fullmatch(path):
                raise ValueError(f"{path[:100]!r} is not a path within a project's folder")
        if not set(self.sources) <= set(self.texts):
            raise ValueError("a further source is not among the files")
        for define in self.defines:
            if not _DEFINE.fullmatch(define):
                raise ValueError(f"{define[:100]!r} is not a macro; expected NAME or NAME=VALUE")

    def __bool__(self) -> bool:
        return bool(self.files or self.defines)

    @cached_property
    def texts(self) -> Mapping[str, str]:
        return dict(self.files)

    @property
    def parts(self) -> Iterator[str]:
        """The parts that decide what is built, for a digest."""
        yield from (self.path, *(part for file in self.files for part in file))
        for several in (self.include, self.defines, self.sources):
            yield from (str(len(several)), *several)

    def resolves(self, includer: str, target: str) -> bool:
        """Whether ``"x.h"`` or ``<x.h>`` is one of the files, included by the file ``includer``."""
        return bool(self.place(includer, target))

    def place(self, includer: str, target: str) -> str:
        """The path of that file; empty where it is none of them."""
        beside = [str(PurePosixPath(includer).parent)] if target.startswith('"') else []
        path = target.strip('<>"')
        places = (normpath(f"{folder}/{path}") for folder in (*beside, *self.include))
        return next((place for place in places if place in self.texts), "")

    @property
    def macros(self) -> str:
        """The ``defines`` as they would stand in a source, one per line."""
        pairs = (define.partition("=") for define in self.defines)
        return "\n".join(f"#define {name} {value if mark else 1}" for name, mark, value in pairs)


def gather(
    file: Path,
    text: str,
    *,
    root: Path,
    include: Sequence[Path] = (),
    defines: Sequence[str] = (),
    sources: Sequence[Path] = (),
    strict: bool = True,
) -> Companions:
    """Gathers the files that ``text``, read from ``file``, and ``sources`` include, directly or
    not, from below ``root``; what is included from elsewhere is the toolchain's own, if anything
    is.

    Raises ConfigError for a file that cannot be read or is not UTF-8, and, if ``strict``, for an
    include that leads out of ``root``.
    """
    reader = _Reader(real_path(root), tuple(real_path(folder) for folder in include), strict)
    own = real_path(file)
    for folder in reader.include:
        reader.named(folder, str(folder))
    reader.follow(own, text)
    for source in sources:
        reader.take(real_path(source), str(source))
    reader.files.pop(own, None)
    try:
        made = Companions(
            reader.named(own, str(file)),
            tuple(sorted((reader.named(f, str(f)), text) for f, text in reader.files.items())),
            tuple(reader.named(folder, "") for folder in reader.include),
            tuple(defines),
            tuple(reader.named(real_path(source), str(source)) for source in sources),
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return made if made else Companions()


def included(text: str) -> Iterator[tuple[bool, str]]:
    """The files that a source includes, and whether in quotation marks, also by a macro of its
    own."""
    plain = without_comments(text.replace("\\\n", ""))
    for match in _INCLUDE.finditer(plain):
        yield match["mark"] == '"', match["target"].strip()


class _Reader:
    """Files by their resolved paths, found by following includes."""

    def __init__(self, root: Path, include: tuple[Path, ...], strict: bool) -> None:
        self.root, self.include, self.strict = root, include, strict
        self.files: dict[Path, str] = {}
        self.bytes = 0

    def named(self, path: Path, shown: str) -> str:
        """Relative to the project's folder."""
        if not path.is_relative_to(self.root):
            raise outside(shown, self.root)
        return path.relative_to(self.root).as_posix()

    def take(self, file: Path, shown: str) -> None:
        if file in self.files:
            return
        self.named(file, shown)
        text = read_text(file, shown)
        self.files[file] = text
        self.bytes += len(text)
        if len(self.files) > MOST_FILES or self.bytes > MOST_BYTES:
            raise ConfigError(
                f"{shown}: one kernel includes more than {MOST_FILES} files or "
                f"{MOST_BYTES >> 20} MiB; name fewer include folders"
            )
        self.follow(file, text)

    def follow(self, file: Path, text: str) -> None:
        for quoted, target in included(text):
            beside = [file.parent] if quoted else []
            self._resolve([*beside, *self.include], target, file)

    def _resolve(self, folders: Sequence[Path], target: str, includer: Path) -> None:
        """The first that is there, as compilers do it."""
        if Path(target).is_absolute() or Path(target).suffix not in SUFFIXES:
            return
        for folder in folders:
            file = folder / target
            if not file.is_file():
                continue
            if real_path(file).is_relative_to(self.root):
                self._take_as(file, includer)
            elif self.strict:
                raise outside(f'{includer.name}: #include "{target}"', self.root)
            return

    def _take_as(self, file: Path, includer: Path) -> None:
        """Takes a file under the name by which it is included, which a symbolic link may give
        it."""
        place = Path(normpath(file))
        if place.is_relative_to(self.root):
            self.take(place, f"{place.relative_to(self.root)} (included by {includer.name})")
        else:
            self.take(real_path(file), str(file))


def is_folder(path: Path) -> bool:
    """Whether a path is a folder; false for a path that no file system takes."""
    try:
        return path.is_dir()
    except OSError:
        return False


def read_text(file: Path, shown: str = "") -> str:
    """Raises ConfigError."""
    shown = shown or str(file)
    try:
        return _with_plain_ends(foreign_text.content(file).decode())
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"Cannot read {shown}: byte {error.start} is not UTF-8; save the file as UTF-8"
        ) from error
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        there = _alike(file) if isinstance(error, FileNotFoundError) else ""
        raise ConfigError(f"Cannot read {shown}: {why}{there}") from error


def _with_plain_ends(text: str) -> str:
    """The text as Python reads one, whatever the system that its lines were ended by."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _alike(file: Path) -> str:
    """A hint: the file of the same kind in that folder that is called most like it, or all if they
    are few."""
    names = sorted(path.name for path in file.parent.glob(f"*{file.suffix}") if path.is_file())
    close = difflib.get_close_matches(file.name, names, n=1)
    if close:
        return f"; did you mean {file.with_name(close[0])}?"
    few = 0 < len(names) <= _FEW
    return f"; there: {', '.join(str(file.with_name(name)) for name in names)}" if few else ""


def outside(shown: str, root: Path) -> ConfigError:
    return ConfigError(
        f"{shown} is outside of the project's folder {root}; move it there, or put portkern.yaml "
        "into a folder that holds both"
    )
