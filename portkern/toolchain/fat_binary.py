"""NVIDIA's fat binaries within a program: for which architectures it has machine code."""

from __future__ import annotations

import struct
from collections.abc import Iterator

#: How one begins: a magic number, a version, and the sizes of its head and of all its entries.
_MAGIC = b"\x50\xed\x55\xba"
_HEAD = struct.Struct("<4sHHQ")
#: An entry: its kind, the sizes of its head and content, and at the end of these the architecture.
_ENTRY = struct.Struct("<HHIQ12xI")
#: The other kind is PTX, which a driver compiles when it is first run.
_MACHINE_CODE = 2


def architectures(program: bytes) -> frozenset[str]:
    """``sm_90`` and such; empty where there is none, or none that can be read."""
    return frozenset(f"sm_{arch}" for kind, arch in _entries(program) if kind == _MACHINE_CODE)


def _entries(program: bytes) -> Iterator[tuple[int, int]]:
    start = program.find(_MAGIC)
    while 0 <= start <= len(program) - _HEAD.size:
        _, _, head, size = _HEAD.unpack_from(program, start)
        place, end = start + head, min(start + head + size, len(program))
        while place + _ENTRY.size <= end:
            kind, _, own, content, arch = _ENTRY.unpack_from(program, place)
            yield kind, arch
            place += max(own, _ENTRY.size) + content
        start = program.find(_MAGIC, start + _HEAD.size)


_CUDA, _FLAGS_AT, _VERSION_AT = 190, 48, 8


def of_cubin(program: bytes) -> str:
    """The architecture of one file of machine code; '' where it is another kind of file."""
    if program[:5] != b"\x7fELF\x02" or len(program) < _FLAGS_AT + 4:
        return ""
    if struct.unpack_from("<H", program, 18)[0] != _CUDA:
        return ""
    flags = struct.unpack_from("<I", program, _FLAGS_AT)[0]
    # From this version of the interface on another byte is the architecture's.
    return f"sm_{flags >> 8 & 0xFF if program[_VERSION_AT] >= 8 else flags & 0xFF}"
