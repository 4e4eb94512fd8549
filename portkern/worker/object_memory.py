"""Memory of a device at the addresses that another process has it at."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from portkern.sandbox.message import FormError

_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # without a reserve of memory
_FIXED, _UNUSED_ALONE = 0x10, 0x100000
_NOTHING, _ALL = 0, mmap.PROT_READ | mmap.PROT_WRITE
#: Addresses for 4,096 buffers, between which the runtime leaves 8 GiB; a quarter where there is not
#: so much.
_SIZES: Final = (1 << 45, 1 << 43, 1 << 41)
_PAGE = mmap.PAGESIZE


def _map(address: int, size: int, protection: int, flags: int) -> int | None:
    call = ctypes.CDLL(None, use_errno=True).mmap
    call.restype = ctypes.c_void_p
    call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    found: int | None = call(address or None, size, protection, _PRIVATE | flags, -1, 0)
    return None if found in (None, ctypes.c_size_t(-1).value) else found


class Arena:
    """Addresses that are free in two processes: reserved before the one is forked off, which gives
    them up and has no others to map memory at. Here they hold what :meth:`keep` is told."""

    def __init__(self) -> None:
        for size in _SIZES:
            if begin := _map(0, size, _NOTHING, 0):
                break
        else:
            raise MemoryError("there are no addresses for a device's memory")
        self._begin, self._end = begin, begin + size
        self._fill_gaps()
        self._kept: dict[object, tuple[int, int]] = {}

    def _fill_gaps(self) -> None:
        """Above, so that what is mapped next is mapped in here."""
        before = self._end
        for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
            begin, end = (int(part, 16) for part in line.split()[0].split("-"))
            if begin > before >= self._end and not line.endswith("[stack]"):
                _map(before, begin - before, _NOTHING, _UNUSED_ALONE)
            before = max(before, end)

    def give_up(self) -> None:
        """Gives the place up, in the process that is to map its memory here."""
        call = ctypes.CDLL(None).munmap
        call.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        call(self._begin, self._end - self._begin)

    def keep(self, spans: Iterable[tuple[object, int, int]]) -> None:
        """Have memory at just these addresses, each for a key; what was there for the same one
        stays. Raises FormError for those that cannot be, MemoryError where there is none."""
        wanted: dict[object, tuple[int, int]] = {}
        for key, address, size in spans:
            begin, end = address // _PAGE * _PAGE, -(-(address + size) // _PAGE) * _PAGE
            if size < 0 or not self._begin <= begin <= end <= self._end:
                raise FormError(f"{size} bytes at {address:#x} cannot be a device's")
            wanted[key] = begin, end
        last = self._begin
        for begin, end in sorted(wanted.values()):
            if begin < last:
                raise FormError(f"two buffers share the page at {begin:#x}")
            last = max(last, end)
        for key, (begin, end) in list(self._kept.items()):
            if wanted.get(key) != (begin, end):
                del self._kept[key]
                _map(begin, end - begin, _NOTHING, _FIXED)
        for key, (begin, end) in wanted.items():
            if key in self._kept or begin == end:
                continue
            if _map(begin, end - begin, _ALL, _FIXED) is None:
                raise MemoryError(f"no memory for {end - begin} bytes of a device")
            self._kept[key] = begin, end
