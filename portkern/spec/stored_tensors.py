"""Files of tensors that a document refers to: whether one is a safetensors file at all, by its
header alone, before it is read or carried anywhere."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from portkern.errors import ConfigError
from portkern.spec.foreign_text import Malformed, json_value

#: Bounds on the header, which says where each tensor lies: one of the format's own 100 MB, with a
#: million tensors in it, takes a minute to read.
MOST_HEADER: Final = 16 << 20
MOST_TENSORS: Final = 50_000
#: What its length is written in.
_LENGTH: Final = 8
_FIELDS: Final = {"dtype", "shape", "data_offsets"}


def check(path: Path) -> None:
    """Raises ConfigError for what is not a safetensors file, or not all of one."""
    if reason := _reason(path):
        raise ConfigError(f"{path} is not a safetensors file: {reason}")


def _reason(path: Path) -> str:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            what = os.fstat(handle)
            if not stat.S_ISREG(what.st_mode):
                return "it is not a file"
            length = int.from_bytes(file.read(_LENGTH), "little")
            if not 2 <= length <= min(MOST_HEADER, what.st_size - _LENGTH):
                return f"its header is longer than it, or than {MOST_HEADER >> 20} MiB"
            header = json_value(file.read(length))
    except OSError as error:
        return error.strerror or str(error)
    except Malformed:
        return "its header is not JSON"
    return _header_reason(header, what.st_size - _LENGTH - length)


def _header_reason(header: object, size: int) -> str:
    """``size``: the bytes behind the header, all of which are some tensor's."""
    if not isinstance(header, dict):
        return "its header is not a JSON object"
    if len(header) > MOST_TENSORS:
        return f"it has {len(header)} tensors, expected at most {MOST_TENSORS}"
    ranges: list[tuple[int, int]] = []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
        if not isinstance(offsets, list) or set(entry) != _FIELDS:
            return f"its header does not say where {name[:60]!r} lies"
        if len(offsets) != 2 or not all(type(offset) is int for offset in offsets):
            return f"its header does not say where {name[:60]!r} lies"
        ranges.append((offsets[0], offsets[1]))
    end = 0
    for first, behind in sorted(ranges):
        if first != end or behind < first:
            return "its tensors do not follow each other"
        end = behind
    return "" if end == size else f"its tensors have {end} bytes, {size} follow its header"
