"""A recording of what launches did to a device's memory, made where the device is, in the form of
portkern/simt/runtime/record.cpp."""

from __future__ import annotations

import ctypes
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from portkern.worker.object_link import OF_HOST, LinkedMemory, Size

_BEYOND_BOUND, _AS_BEFORE = -1, -2


class _Numbered(ctypes.Structure):
    _fields_ = (
        ("begin", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("number", ctypes.c_uint),
    )


class Recording:
    """``runtime`` is the SIMT executor's library, whose digest it is."""

    def __init__(self, file: BinaryIO, most_bytes: int, runtime: Path) -> None:
        self._file, self._left = file, most_bytes
        self._digest_of = ctypes.CDLL(str(runtime)).simt_digest
        self._digest_of.restype = ctypes.c_uint64
        self._known: dict[int, str] = {}
        self._stored: dict[int, bytes] = {}  # at the digest above a kernel can aim
        self._launches = 0
        self._before: list[tuple[int, int, str]] = []

    def begin(self, buffers: Sequence[LinkedMemory]) -> None:
        self._before = []
        table = _table(buffers)
        for one in buffers:
            if one.kind == OF_HOST or not one.changed:
                continue
            digest, _ = self._digest(one, table)
            if digest != self._known.get(one.number):
                self._known[one.number] = digest
                self._before.append((one.number, one.size, digest))

    def end(
        self,
        head: Mapping[str, object],
        arguments: Sequence[bytes],
        buffers: Sequence[LinkedMemory],
        changed: Iterable[LinkedMemory],
        *,
        failed: bool,
    ) -> None:
        table = _table(buffers)
        after, blobs = [], []
        for one in sorted(changed, key=lambda memory: memory.number):
            if one.kind == OF_HOST:
                continue
            digest, portable = self._digest(one, table)
            self._known[one.number] = digest
            stored, content = _AS_BEFORE, hashlib.sha256(portable).digest()
            if self._stored.get(one.number) != content:
                stored = one.size if one.size <= self._left else _BEYOND_BOUND
            if stored >= 0:
                blobs.append(portable)
                self._left -= stored
                self._stored[one.number] = content
            after.append((one.number, one.size, digest, stored, one.dtype))
        line = {
            "launch": self._launches,
            **head,
            "arguments": list(_pointers(arguments, buffers)),
            "before": self._before,
            "failed": failed,
            "after": after,
            "blob": sum(map(len, blobs)),
        }
        self._write(line, blobs)

    def refused(self, head: Mapping[str, object]) -> None:
        self._write({"launch": self._launches, **head, "refused": True, "blob": 0}, ())

    def _write(self, line: Mapping[str, object], blobs: Sequence[bytes]) -> None:
        self._launches += 1
        self._file.write(b"".join([json.dumps(line).encode(), b"\n", *blobs]))
        self._file.flush()

    def _digest(self, one: LinkedMemory, table: ctypes.Array[_Numbered]) -> tuple[str, bytes]:
        portable = ctypes.create_string_buffer(max(one.size, 1))
        hash_ = self._digest_of(
            ctypes.c_void_p(one.address),
            ctypes.c_size_t(one.size),
            table,
            ctypes.c_size_t(len(table)),
            portable,
        )
        return f"{hash_:016x}", portable.raw[: one.size]


def head(kernel: str, grid: Size, block: Size, shared: int) -> Mapping[str, object]:
    return {"kernel": kernel, "grid": grid, "block": block, "shared": shared}


def changed(buffers: Sequence[LinkedMemory], before: Mapping[int, bytes]) -> list[LinkedMemory]:
    """The buffers whose contents are others than ``before``, by their numbers."""
    return [one for one in buffers if ctypes.string_at(one.address, one.size) != before[one.number]]


def _table(buffers: Sequence[LinkedMemory]) -> ctypes.Array[_Numbered]:
    rows = sorted((one.address, one.size, one.number) for one in buffers)
    return (_Numbered * len(rows))(*(_Numbered(*row) for row in rows))


def _pointers(
    arguments: Sequence[bytes], buffers: Sequence[LinkedMemory]
) -> Iterable[tuple[int, int]]:
    """The buffers that words of the arguments point into."""
    for value in arguments:
        for at in range(0, len(value) - 7, 8):
            word = int.from_bytes(value[at : at + 8], "little")
            for one in buffers:
                if one.address <= word < one.address + one.size:
                    yield one.number, word - one.address
