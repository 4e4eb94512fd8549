"""Files of lines that are kept for good: compressed in parts, one for each operator, so that a new
measurement of one operator changes kilobytes of the file."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from portkern.errors import RecordError
from portkern.records import atomic_write
from portkern.spec import foreign_text

#: What the name of a compressed file ends in, after the name that it would have else.
SUFFIX = ".gz"
#: The most bytes of a compressed file when it is unpacked: a small one may hold a line that fills
#: the memory.
MOST_BYTES = 2 << 30
#: The most bytes of one line, which is held as a whole.
MOST_LINE = foreign_text.MOST_BYTES


def standing(path: Path) -> Path:
    """The file, or the compressed one that stands in its place."""
    packed = path.with_name(path.name + SUFFIX)
    return packed if not path.exists() and packed.exists() else path


@contextmanager
def opened(path: Path) -> Iterator[Iterable[bytes]]:
    """The lines of a file, compressed or not. Raises RecordError for what cannot be unpacked or has
    no end, while they are read, and OSError."""
    with foreign_text.opened(path) as file:
        if path.suffix != SUFFIX:
            yield _lines(file, path)
            return
        with gzip.open(file) as unpacked:
            yield _lines(cast(BinaryIO, unpacked), path, MOST_BYTES)


def _lines(file: BinaryIO, path: Path, most: float = math.inf) -> Iterator[bytes]:
    """``most``: the bytes of all lines together."""
    left = most
    try:
        while line := file.readline(int(min(left, MOST_LINE)) + 1):
            left -= len(line)
            if left < 0:
                raise RecordError(f"{path} unpacks to more than {MOST_BYTES >> 30} GiB")
            if len(line) > MOST_LINE:
                raise RecordError(f"{path} has a line of more than {MOST_LINE >> 20} MiB")
            yield line
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise RecordError(f"{path} is not a whole gzip file: {error}") from error


def write(path: Path, lines: Iterable[str], part_of: Callable[[str], str]) -> None:
    """Write the lines, without ends, compressed: those of one part together, the parts in the order
    in which they first appear. Equal lines give equal bytes. Raises StorageError."""
    parts: dict[str, list[str]] = {}
    for line in lines:
        parts.setdefault(part_of(line), []).append(line)
    packed = (
        gzip.compress("".join(f"{line}\n" for line in part).encode(), mtime=0)
        for part in parts.values()
    )
    atomic_write.write(path, b"".join(packed))
