"""Reads what AMD code objects say of their kernels: a msgpack note in an ELF file."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from portkern.errors import BuildError
from portkern.toolchain import elf

_METADATA = 32  # NT_AMDGPU_METADATA
_FIXED = {0xC0: None, 0xC2: False, 0xC3: True}
# msgpack's sized types: how the number (or the length) behind the first byte is packed.
_NUMBERS = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}
_STRINGS = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I"}
_ARRAYS = {0xDC: ">H", 0xDD: ">I"}
_MAPS = {0xDE: ">H", 0xDF: ">I"}


def kernels(path: Path) -> list[dict[str, Any]]:
    """One mapping per kernel, under the names of AMD's code object format, in the file's order.

    Raises BuildError for a file without metadata, and for one whose metadata is not whole.
    """
    metadata = elf.note(path, _METADATA)
    if metadata is None:
        raise BuildError(f"{path.name} has no AMDGPU metadata, expected an AMD code object")
    try:
        listed: list[dict[str, Any]] = _Reader(metadata).value().get("amdhsa.kernels", [])
    except (struct.error, IndexError, AttributeError, TypeError, RecursionError, ValueError) as bad:
        raise BuildError(f"{path.name} has AMDGPU metadata that is not whole: {bad}") from bad
    return listed


class _Reader:
    """A cursor over msgpack, in the types that LLVM writes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def value(self) -> Any:
        first = self._take(">B")
        if first < 0x80 or first >= 0xE0:
            return first if first < 0x80 else first - 0x100
        if first < 0x90 or first in _MAPS:
            return self._map(self._take(_MAPS[first]) if first in _MAPS else first & 0x0F)
        if first < 0xA0 or first in _ARRAYS:
            count = self._take(_ARRAYS[first]) if first in _ARRAYS else first & 0x0F
            return [self.value() for _ in range(count)]
        if first < 0xC0 or first in _STRINGS:
            return self._text(self._take(_STRINGS[first]) if first in _STRINGS else first & 0x1F)
        if first in _FIXED:
            return _FIXED[first]
        if first in _NUMBERS:
            return self._take(_NUMBERS[first])
        raise BuildError(f"The code object's metadata has the msgpack type {first:#x}")

    def _take(self, layout: str) -> Any:
        (value,) = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        return value

    def _map(self, count: int) -> dict[object, object]:
        return {self.value(): self.value() for _ in range(count)}

    def _text(self, length: int) -> str:
        self._at += length
        return self._data[self._at - length : self._at].decode()
