"""Memory of an NVIDIA GPU that the evaluator owns and a worker maps as well.

It passes between processes as a file handle, whatever namespaces they are in (CUDA's driver API,
virtual memory management), and stays the evaluator's when the worker ends.
"""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, Any

from portkern.sandbox.shared_memory import Rows, TensorPlace
from portkern.toolchain import torch_device

if TYPE_CHECKING:
    import torch

#: Rows begin at a multiple of this many bytes, as tensors of torch's own do.
LINE = 512
#: What is kept on a GPU may take one part in so many of what is free there.
PLENTY = 32
_PINNED, _FILE, _ON_DEVICE, _READ_AND_WRITE = 1, 1, 1, 3


class DeviceMemoryError(OSError):
    """The driver has no such memory, or has none left: its function and its answer."""


class _Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("place", ctypes.c_int),
        ("device", ctypes.c_int),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("place", ctypes.c_int), ("device", ctypes.c_int), ("rights", ctypes.c_int))


@cache
def _driver() -> ctypes.CDLL:
    """Raises DeviceMemoryError."""
    import torch

    if not torch.cuda.is_available() or torch.version.cuda is None:
        raise DeviceMemoryError("there is no driver of NVIDIA's")
    return ctypes.CDLL("libcuda.so.1")


def _do(name: str, *arguments: Any) -> None:
    """Call a function of the driver. Raises DeviceMemoryError."""
    if answer := getattr(_driver(), name)(*arguments):
        raise DeviceMemoryError(f"{name} answered {answer}")


class _Mapping:
    """Addresses of a piece of a GPU's memory in this process, until they are given back, and the
    handle of it with them."""

    def __init__(self, device: str, nbytes: int, handle: ctypes.c_uint64) -> None:
        import torch

        self.device, self.nbytes = torch.device(device), nbytes
        self.address = ctypes.c_uint64()
        size, none = ctypes.c_size_t(nbytes), ctypes.c_ulonglong(0)
        nothing = ctypes.c_size_t(0)
        with ExitStack() as unless_mapped:
            unless_mapped.callback(_do, "cuMemRelease", handle)
            _do(
                "cuMemAddressReserve",
                ctypes.byref(self.address),
                size,
                nothing,
                ctypes.c_uint64(0),
                none,
            )
            unless_mapped.callback(_do, "cuMemAddressFree", self.address, size)
            _do("cuMemMap", self.address, size, nothing, handle, none)
            unless_mapped.callback(_do, "cuMemUnmap", self.address, size)
            access = _Access(_ON_DEVICE, self.device.index or 0, _READ_AND_WRITE)
            _do("cuMemSetAccess", self.address, size, ctypes.byref(access), ctypes.c_size_t(1))
            self._held = unless_mapped.pop_all()

    def tensor(self, slot: TensorPlace) -> torch.Tensor:
        """A tensor on the memory, with a storage of its own."""
        import torch

        if slot.nbytes == 0:
            return torch.empty(slot.shape, dtype=slot.kind, device=self.device)
        if not 0 <= slot.offset <= self.nbytes - slot.nbytes:
            raise DeviceMemoryError(f"{slot} is not within {self.nbytes} bytes")
        raw = torch.as_tensor(
            _Array(self.address.value + slot.offset, slot.nbytes), device=self.device
        )
        return raw.view(slot.kind).reshape(slot.shape)

    def close(self) -> None:
        self._held.close()


class _Array:
    """Bytes of a GPU's, as other libraries show them to torch."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


class DeviceMemory:
    """The evaluator's side. All rows are asked for first; the memory is there from :meth:`make`
    on."""

    def __init__(self, device: str) -> None:
        self.device, self.nbytes = device, 0
        self._mapped: _Mapping | None = None

    def rows(self, shape: tuple[int, ...], dtype: str, count: int) -> Rows:
        """Room for so many tensors."""
        offset, stride = self.nbytes, (TensorPlace(0, shape, dtype).nbytes // LINE + 2) * LINE
        self.nbytes += count * stride
        return Rows(offset, stride, shape, dtype)

    def make(self, give: Callable[[int], None]) -> None:
        """Have the memory, and ``give`` its handle away, or none of it where that fails. Raises
        DeviceMemoryError."""
        import torch

        _driver()
        torch.cuda.synchronize(self.device)  # this thread works on that device from here on
        properties = _Properties(
            _PINNED, _FILE, _ON_DEVICE, torch.device(self.device).index or 0, None
        )
        least, handle, file = ctypes.c_size_t(), ctypes.c_uint64(), ctypes.c_int(-1)
        given = ctypes.byref(properties)
        _do("cuMemGetAllocationGranularity", ctypes.byref(least), given, 0)
        self.nbytes = max(1, -(-self.nbytes // least.value)) * least.value
        size, none = ctypes.c_size_t(self.nbytes), ctypes.c_ulonglong(0)
        _do("cuMemCreate", ctypes.byref(handle), size, given, none)
        self._mapped = _Mapping(self.device, self.nbytes, handle)
        with ExitStack() as unless_given:
            unless_given.callback(self.close)
            _do("cuMemExportToShareableHandle", ctypes.byref(file), handle, _FILE, none)
            try:
                give(file.value)
            finally:
                os.close(file.value)
            unless_given.pop_all()

    def look(self, slot: TensorPlace) -> torch.Tensor:
        """A tensor on the memory itself, to be read once, or written."""
        if self._mapped is None:
            raise DeviceMemoryError("it was not made, or is closed")
        return self._mapped.tensor(slot)

    def take(self, slot: TensorPlace, device: torch.device | str = "cpu") -> torch.Tensor:
        """A copy on this device, the host by default."""
        return torch_device.copied(self.look(slot), device)

    def kept_on(self, nbytes: int) -> str:
        """The device for a copy of so many bytes that is kept for a while: this one, unless that
        would leave it little room."""
        import torch

        free, _ = torch.cuda.mem_get_info(self.device)
        return self.device if nbytes * PLENTY <= free else "cpu"

    def block(self, rows: Rows, count: int) -> torch.Tensor:
        """The first ``count`` of the rows, each flat."""
        import torch

        size = math.prod(rows.shape)
        if size == 0:
            return torch.empty((count, 0), dtype=rows.row(0).kind, device=self.device)
        pitch = rows.stride // rows.row(0).kind.itemsize
        whole = self.look(TensorPlace(rows.offset, ((count - 1) * pitch + size,), rows.dtype))
        return whole.as_strided((count, size), (pitch, 1))

    def close(self) -> None:
        if self._mapped is not None:
            import torch

            torch.cuda.synchronize(self.device)
            self._mapped.close()
            self._mapped = None


class OpenedDeviceMemory:
    """The worker's side of one, opened by its handle. Raises DeviceMemoryError."""

    def __init__(self, device: str, nbytes: int, file: int) -> None:
        handle = ctypes.c_uint64()
        _do(
            "cuMemImportFromShareableHandle",
            ctypes.byref(handle),
            ctypes.c_void_p(file),
            _FILE,
        )
        self._mapped = _Mapping(device, nbytes, handle)

    def tensor(self, slot: TensorPlace) -> torch.Tensor:
        return self._mapped.tensor(slot)

    def close(self) -> None:
        self._mapped.close()
