"""Text files of others: which encoding and ends of lines they have, and back again."""

from __future__ import annotations

import codecs
import errno
import re
from dataclasses import dataclass
from pathlib import Path

from portkern.spec.foreign_text import content

#: A line that includes a file, and its name.
INCLUDE = re.compile(r'(?m)^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">]')
#: One that includes a file of the same project, as quotes say.
QUOTED = re.compile(r'(?m)^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"')
#: Larger ones are data, or generated.
MOST_BYTES = 4 << 20
#: No compiler takes such a number, nor does Python's int().
_LONG_NUMBER = re.compile(r"(?<![0-9])[0-9]{1000}")
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True)
class SourceText:
    """``text`` has lines that end in ``\\n``, and no byte order mark; ``newline`` is what most of
    the file's lines ended in."""

    text: str
    encoding: str
    newline: str


@dataclass(frozen=True)
class UnreadableSource:
    reason: str


def read(path: Path) -> SourceText | UnreadableSource:
    """The text of a regular file; a stranger's tree may have pipes and devices by such names."""
    try:
        return decode(content(path, MOST_BYTES))
    except OSError as error:
        more = "; split it, or leave it out" if error.errno == errno.EFBIG else ""
        return UnreadableSource(f"cannot be read: {error.strerror or error}{more}")


def decode(data: bytes) -> SourceText | UnreadableSource:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            try:
                text = data.removeprefix(mark).decode(encoding.removesuffix("-sig"))
            except UnicodeDecodeError as error:
                return UnreadableSource(f"begins as {encoding}, and is not: {error.reason}")
            return _lines(text, encoding)
    if b"\0" in data:
        return UnreadableSource("a binary file, expected source code as text")
    try:
        return _lines(data.decode(), "utf-8")
    except UnicodeDecodeError:
        return _lines(data.decode("latin-1"), "latin-1")


def encode(text: str, like: SourceText) -> bytes:
    """``text`` as the file that ``like`` was read from would have it.

    What its encoding cannot express is written as UTF-8, by a whole file at a time.
    """
    text = text.replace("\r\n", "\n").replace("\n", like.newline)
    mark = next((mark for mark, name in _MARKS if name == like.encoding), b"")
    try:
        return mark + text.encode(like.encoding.removesuffix("-sig"))
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")


def _lines(text: str, encoding: str) -> SourceText | UnreadableSource:
    if number := _LONG_NUMBER.search(text):
        line = text.count("\n", 0, number.start()) + 1
        return UnreadableSource(
            f"has a number of 1,000 digits or more in line {line}; leave it out"
        )
    windows = text.count("\r\n")
    newline = "\r\n" if windows * 2 > text.count("\n") else "\n"
    return SourceText(text.replace("\r\n", "\n"), encoding, newline)
