"""The memory of a device that is executed here: host code cannot touch it but through copies."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from portkern.errors import LaunchError
from portkern.isa import executor
from portkern.spec.backend import Device

if TYPE_CHECKING:
    import torch

_PAGE = mmap.PAGESIZE
_CLOSED, _OPEN = 0, 3  # PROT_NONE; PROT_READ | PROT_WRITE
#: What memory that nobody wrote holds.
_UNWRITTEN = 0xCB
MOST_BYTES: Final = 1 << 36
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


@dataclass
class Block:
    """``copied``: bytes that host code put there since :meth:`Memory.begin`."""

    address: int
    size: int
    held: mmap.mmap
    writable: bool = True
    copied: int = 0


@dataclass
class Memory:
    """Blocks by address. Closed to the whole process but while it is opened here."""

    blocks: dict[int, Block] = field(default_factory=dict)
    read_back: int = 0

    def allocate(self, size: int) -> int:
        """Raises MemoryError."""
        if not 0 <= size <= MOST_BYTES:
            raise MemoryError(f"a device has no {size} bytes, expected at most {MOST_BYTES}")
        try:
            held = mmap.mmap(-1, max(size, 1) + -max(size, 1) % _PAGE)
        except OSError as error:
            raise MemoryError(f"no memory for a buffer of {size} bytes") from error
        address = ctypes.addressof(ctypes.c_char.from_buffer(held))
        ctypes.memset(address, _UNWRITTEN, size)
        self.blocks[address] = Block(address, size, held)
        self._protect(self.blocks[address], _CLOSED)
        return address

    def release(self, address: int) -> bool:
        """False for what is not the start of a block."""
        block = self.blocks.pop(address, None)
        if block is not None:
            self._protect(block, _OPEN)
        return block is not None

    def begin(self) -> None:
        """A call begins: forget what host code copied before."""
        self.read_back = 0
        for block in self.blocks.values():
            block.copied = 0

    @contextmanager
    def opened(self) -> Iterator[list[executor.LaunchBuffer]]:
        """Opens all blocks for a kernel to use."""
        blocks = list(self.blocks.values())
        with self._open(*blocks):
            yield [executor.LaunchBuffer(b.address, b.size, b.writable) for b in blocks]

    def copy(self, to: int, source: int, size: int) -> bool:
        """Copies memory for host code; either side may be the device's. False for what lies
        partly outside."""
        known, from_device = self._at(to, size), self._at(source, size)
        if known is OutsideMemory or from_device is OutsideMemory:
            return False
        with self._open(*(b for b in (known, from_device) if isinstance(b, Block))):
            ctypes.memmove(to, source, size)
        if isinstance(known, Block) and from_device is None:
            known.copied += size
        if isinstance(from_device, Block) and known is None:
            self.read_back += size
        return True

    def fill(self, to: int, value: int, size: int) -> bool:
        known = self._at(to, size)
        if not isinstance(known, Block):
            return False
        with self._open(known):
            ctypes.memset(to, value & 0xFF, size)
        return True

    def _at(self, address: int, size: int) -> Block | type[OutsideMemory] | None:
        """The block that has all of it, None for memory of the host."""
        for block in self.blocks.values():
            if block.address <= address <= block.address + max(block.size, 1) - 1:
                return block if address + size <= block.address + block.size else OutsideMemory
        return None

    @contextmanager
    def _open(self, *blocks: Block) -> Iterator[None]:
        for block in blocks:
            self._protect(block, _OPEN)
        try:
            yield
        finally:
            for block in blocks:
                self._protect(block, _CLOSED)

    @staticmethod
    def _protect(block: Block, how: int) -> None:
        if _libc.mprotect(block.address, len(block.held), how):
            raise LaunchError(f"a buffer cannot be protected: error {ctypes.get_errno()}")


class OutsideMemory:
    """Memory that begins in a block and ends beyond it."""


class DeviceBuffer:
    """A block with a tensor's shape; freed with the object."""

    def __init__(self, memory: Memory, host: torch.Tensor) -> None:
        self.memory, self.shape, self.dtype = memory, tuple(host.shape), host.dtype
        self.bytes = host.numel() * host.element_size()
        self._address = memory.allocate(self.bytes)
        self.write(host)

    def data_ptr(self) -> int:
        return self._address

    @property
    def block(self) -> Block:
        return self.memory.blocks[self._address]

    def write(self, host: torch.Tensor) -> None:
        kept = host.contiguous()
        with self.memory.opened():
            ctypes.memmove(self._address, kept.data_ptr(), self.bytes)

    def read(self) -> torch.Tensor:
        import torch

        host = torch.empty(self.shape, dtype=self.dtype)
        with self.memory.opened():
            ctypes.memmove(host.data_ptr(), self._address, self.bytes)
        return host

    def __del__(self) -> None:
        self.memory.release(self._address)


@dataclass
class ObjectDevice(Device):
    """A device that is the executor, which has no time of its own."""

    memory: Memory = field(default_factory=Memory)
    method = "executed: no timing"

    def upload(self, host: torch.Tensor) -> DeviceBuffer:
        return DeviceBuffer(self.memory, host)

    def refill(self, buffer: DeviceBuffer, host: torch.Tensor) -> DeviceBuffer:
        buffer.write(host)
        return buffer

    def download(self, buffer: DeviceBuffer) -> torch.Tensor:
        return buffer.read()

    def synchronize(self) -> None:
        """Launches return when their kernel is done."""

    def time(self, calls: Sequence[Callable[[], object]]) -> list[float]:
        raise LaunchError("compiled objects are executed here, and not timed")

    def idle_call(self) -> None:
        """Does nothing."""
