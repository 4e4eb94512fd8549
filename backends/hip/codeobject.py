"""Reads what an AMD code object says of its kernels: a msgpack note in an ELF file."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from portkern.errors import BuildError
from portkern.spec.backend import Resources
from portkern.spec.file_build import KernelObject
from portkern.toolchain import elf

from ..cuda.ptxas import readable

_METADATA = 32  # NT_AMDGPU_METADATA
# Clang's block size limit where a kernel has no __launch_bounds__.
_ANY_BLOCK = 1024
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


def resources(path: Path) -> tuple[Resources, ...]:
    """One value per kernel, in the file's order. Raises BuildError for a file without metadata."""
    return tuple(map(_kernel, _facts(path)))


def kernels(path: Path) -> tuple[KernelObject, ...]:
    """The same in full."""
    return tuple(map(_object, _facts(path)))


def _facts(path: Path) -> list[dict[str, object]]:
    metadata = elf.note(path, _METADATA)
    if metadata is None:
        raise BuildError(f"{path.name} has no AMDGPU metadata, expected an AMD code object")
    listed: list[dict[str, object]] = _Reader(metadata).value().get("amdhsa.kernels", [])
    return listed


def _object(facts: dict[str, Any]) -> KernelObject:
    agprs = facts.get(".agpr_count", 0)
    return KernelObject(
        readable(facts[".name"]),
        facts[".name"],
        facts[".vgpr_count"] - agprs,  # both kinds are in that count, from gfx90a on
        agprs,
        facts[".sgpr_count"],
        facts[".group_segment_fixed_size"],
        facts[".private_segment_fixed_size"],
        facts[".vgpr_spill_count"],
        facts[".sgpr_spill_count"],
        facts[".max_flat_workgroup_size"],
        facts[".wavefront_size"],
    )


def _kernel(facts: dict[str, Any]) -> Resources:
    threads = facts[".max_flat_workgroup_size"]
    agprs = facts.get(".agpr_count", 0)
    return Resources(
        kernel=readable(facts[".name"]),
        registers=facts[".vgpr_count"] - agprs,  # both kinds are in that count, from gfx90a on
        agprs=agprs,
        sgprs=facts[".sgpr_count"],
        # An array that is indexed at run time goes to scratch memory too, and costs the same.
        spills=max(facts[".vgpr_spill_count"], facts[".private_segment_fixed_size"] // 4),
        shared_bytes=facts[".group_segment_fixed_size"],
        threads=None if threads == _ANY_BLOCK else threads,
    )


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
