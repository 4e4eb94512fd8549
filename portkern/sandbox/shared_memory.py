"""Memory that evaluate and worker share for tensors: raw bytes, laid out by the evaluator alone.

It has no name that another process could open, and cannot be made shorter: reading it is safe
whatever the worker does to it.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from portkern.toolchain import torch_device

if TYPE_CHECKING:
    import torch

PAGE = 4096
#: Tensors of rows begin at a line of the caches, with one or two between them.
LINE = 64


@dataclass(frozen=True)
class TensorPlace:
    """The place that a tensor is read from: where it begins, and its form."""

    offset: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def kind(self) -> torch.dtype:
        import torch

        kind: torch.dtype = getattr(torch, self.dtype)
        return kind

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.kind.itemsize


@dataclass(frozen=True)
class Rows:
    """Tensors of one form, one for each call of a round, ``stride`` bytes from each to the next."""

    offset: int
    stride: int
    shape: tuple[int, ...]
    dtype: str

    def row(self, number: int) -> TensorPlace:
        return TensorPlace(self.offset + number * self.stride, self.shape, self.dtype)


class SharedMemory:
    """The evaluator's side. Slots are handed out one after the other until :meth:`clear`."""

    def __init__(self) -> None:
        self.handle = os.memfd_create("portkern", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        # The last seal: a worker that forbids writing or growing would stop the evaluator.
        fcntl.fcntl(self.handle, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
        self._view = SharedMemoryView(self.handle)
        self._used = 0

    def clear(self) -> None:
        self._used = 0

    def slot(self, shape: tuple[int, ...], dtype: str) -> TensorPlace:
        """Room for a tensor; what it holds is whatever was there."""
        slot = TensorPlace(self._used, shape, dtype)
        self._used += -(-slot.nbytes // PAGE) * PAGE
        if os.fstat(self.handle).st_size < self._used:
            os.ftruncate(self.handle, self._used)
        return slot

    def rows(self, shape: tuple[int, ...], dtype: str, count: int) -> Rows:
        """Room for so many tensors; what nobody writes to takes no memory."""
        stride = (TensorPlace(0, shape, dtype).nbytes // LINE + 2) * LINE
        return Rows(self.slot((count * stride,), "uint8").offset, stride, shape, dtype)

    def block(self, rows: Rows, count: int) -> torch.Tensor:
        """The first ``count`` of the rows, each flat: to be written, or to be read while the worker
        stands still."""
        import torch

        size = math.prod(rows.shape)
        if size == 0:
            return torch.empty((count, 0), dtype=rows.row(0).kind)
        pitch = rows.stride // rows.row(0).kind.itemsize
        whole = self.look(TensorPlace(rows.offset, ((count - 1) * pitch + size,), rows.dtype))
        return whole.as_strided((count, size), (pitch, 1))

    def put(self, tensor: torch.Tensor) -> TensorPlace:
        """A slot with a tensor's elements, in row-major order."""
        slot = self.slot(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        self._view.write(slot, tensor)
        return slot

    def look(self, slot: TensorPlace) -> torch.Tensor:
        """A tensor on the memory itself, which stays as long as the worker leaves it: to be read
        once, or written."""
        return self._view.tensor(slot)

    def take(self, slot: TensorPlace, device: torch.device | str = "cpu") -> torch.Tensor:
        """A copy on this device that later writes of the worker do not change."""
        return torch_device.copied(self.look(slot), device)

    def bytes(self, size: int, offset: int = 0) -> bytes | None:
        """The bytes from ``offset`` on, so many of them; None if there are fewer."""
        if not 0 <= size <= os.fstat(self.handle).st_size - offset:
            return None
        return os.pread(self.handle, size, offset)

    def release(self) -> None:
        """Give back what it takes; what is read afterwards is zero."""
        self.clear()
        self._view.release()

    def close(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1
            self._view = SharedMemoryView(self.handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SharedMemoryView:
    """Tensors on a shared memory, as the worker sees them.

    All of it is mapped once: of large tensors, mapping each page anew takes longer than copying.
    """

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self._mapped: mmap.mmap | None = None

    def tensor(self, slot: TensorPlace) -> torch.Tensor:
        import torch

        if slot.nbytes == 0:
            return torch.empty(slot.shape, dtype=slot.kind)
        if self._mapped is None or len(self._mapped) < slot.offset + slot.nbytes:
            self._mapped = mmap.mmap(self.handle, os.fstat(self.handle).st_size)
        count = math.prod(slot.shape)
        flat = torch.frombuffer(self._mapped, dtype=slot.kind, count=count, offset=slot.offset)
        return flat.reshape(slot.shape)

    def release(self) -> None:
        """Give the memory back to the system; the worker's view of it stays, and is of zeros."""
        if self._mapped is not None:
            self._mapped.madvise(mmap.MADV_REMOVE)

    def write(self, slot: TensorPlace, tensor: torch.Tensor) -> None:
        if slot.nbytes:
            self.tensor(slot).copy_(tensor)

    def write_bytes(self, data: bytes) -> None:
        """Writes the data from the beginning, making room."""
        if os.fstat(self.handle).st_size < len(data):
            os.ftruncate(self.handle, len(data))
        done = 0
        while done < len(data):
            done += os.pwrite(self.handle, data[done:], done)
