"""The devices that torch opens: the host's CPU and a CUDA or ROCm GPU. Used inside the worker."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

#: Twice the largest L2 or last-level cache in targets/, in bytes. Four times a small L2 would flush
#: as well, and be read before a slow launch is enqueued, which then was timed as the kernel's.
FLUSH_BYTES = 512 * 2**20
#: Times that this is read before a call: one of three launches from Python takes the host longer
#: than one read takes a fast GPU, which then stood still between them.
FLUSHES = 2


class TorchDevice:
    """Buffers are torch tensors on ``device`` (``cpu`` or ``cuda:0``; ROCm is also ``cuda``)."""

    def __init__(self, device: str) -> None:
        import torch

        self.device = torch.device(device)
        self.gpu = self.device.type == "cuda"
        self.method = "cuda events, L2 flushed clean" if self.gpu else "host clock, caches warm"
        self._flush: torch.Tensor | None = None
        self._read: torch.Tensor | None = None
        # Taken before the candidate is there: neither a class that it changes nor attributes of a
        # tensor that it returns are asked.
        self._detach, self._copy, self._like, self._sum = (
            torch.Tensor.detach,
            torch.Tensor.copy_,
            torch.empty_like,
            torch.sum,
        )
        self._plain, self._pointer, self._dense = (
            torch.Tensor,
            torch.Tensor.data_ptr,
            torch.Tensor.is_contiguous,
        )

    @property
    def stream(self) -> int:
        """The raw handle that native code enqueues on; 0 on a CPU."""
        import torch

        return torch.cuda.current_stream(self.device).cuda_stream if self.gpu else 0

    def upload(self, host: torch.Tensor) -> torch.Tensor:
        return copied(host, self.device)

    def refill(self, buffer: torch.Tensor, host: torch.Tensor) -> torch.Tensor:
        buffer.data.copy_(host)  # by way of .data: the version, which a cache may go by, stays
        return buffer

    def download(self, buffer: torch.Tensor) -> torch.Tensor:
        plain = self._detach(buffer)
        if plain.device.type == "cpu":
            return plain
        return self._copy(self._like(plain, device="cpu", pin_memory=True), plain)

    def leave(self, buffer: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        """A buffer as a plain tensor, whose elements go to a place of the same form on this device,
        if they do not lie there."""
        plain = self._detach(buffer)
        if self._form(plain) == self._form(place) and self._pointer(plain) != self._pointer(place):
            self._copy(place, plain)
        return plain

    @property
    def hosts(self) -> bool:
        return not self.gpu

    def place(self, host: torch.Tensor) -> torch.Tensor:
        """The buffer that a host's kernel is given of memory that is there."""
        return host

    @staticmethod
    def _form(tensor: torch.Tensor) -> tuple[torch.Size, torch.dtype]:
        return tensor.shape, tensor.dtype

    def address(self, buffer: torch.Tensor) -> int:
        """The address of a host's tensor; 0 for what is not one, or not dense."""
        if type(buffer) is not self._plain or not self._dense(buffer):
            return 0
        return int(self._pointer(buffer))

    def synchronize(self) -> None:
        import torch

        if self.gpu:
            torch.cuda.synchronize(self.device)

    def keep(self, host: torch.Tensor) -> torch.Tensor:
        return self.upload(host)

    def view(self, buffer: torch.Tensor) -> torch.Tensor:
        return buffer

    def release(self) -> None:
        import torch

        if self.gpu:
            torch.cuda.empty_cache()

    def read(self, tensors: Iterable[torch.Tensor]) -> None:
        """Reads tensors, each whole and in order: what fits is in the caches of this processor
        then, wherever it was made."""
        for tensor in tensors:
            self._sum(tensor)

    def time(
        self, calls: Sequence[Callable[[], object]], before: Sequence[Callable[[], object]] = ()
    ) -> list[float]:
        """The microseconds of each call; what is done ``before`` it on a GPU is not in them."""
        return self._time_gpu(calls, before) if self.gpu else self._time_cpu(calls)

    def idle_call(self) -> None:
        """Does nothing."""

    def _time_cpu(self, calls: Sequence[Callable[[], object]]) -> list[float]:
        samples = []
        for call in calls:
            start = time.perf_counter_ns()
            call()
            samples.append((time.perf_counter_ns() - start) / 1e3)
        return samples

    def _time_gpu(
        self, calls: Sequence[Callable[[], object]], before: Sequence[Callable[[], object]]
    ) -> list[float]:
        import torch

        if self._flush is None:
            self._flush = torch.zeros(FLUSH_BYTES // 4, device=self.device)
            self._read = torch.zeros((), device=self.device)
        event: Any = torch.cuda.Event  # torch leaves it untyped
        marks = [[event(enable_timing=True) for _ in range(2)] for _ in calls]
        for number, (call, (start, end)) in enumerate(zip(calls, marks, strict=True)):
            if before:
                before[number]()
            # Read, not written: the timed call would pay for writing back what a fill leaves there.
            for _ in range(FLUSHES):
                self._sum(self._flush, dim=0, out=self._read)
            _release_persisting_lines()
            start.record()
            call()
            end.record()
        torch.cuda.synchronize(self.device)
        return [start.elapsed_time(end) * 1e3 for start, end in marks]


def copied(tensor: torch.Tensor, device: torch.device | str) -> torch.Tensor:
    """A copy on this device, between host and GPU by way of pinned memory, which torch keeps: three
    times as fast with the copy to it. What comes to the host stays in pinned memory."""
    import torch

    where = torch.device(device)
    if tensor.is_cuda and where.type == "cpu":
        return torch.empty_like(tensor, device=where, pin_memory=True).copy_(tensor)
    if where.type == "cuda" and not tensor.is_cuda and tensor.numel():
        return tensor.pin_memory().to(where)
    return tensor.to(where, copy=True)


@cache
def _driver() -> ctypes.CDLL | None:
    """CUDA's, where it is NVIDIA's."""
    import torch

    return ctypes.CDLL("libcuda.so.1") if torch.version.cuda else None


def _release_persisting_lines() -> None:
    """Lines of L2 that a kernel made persist outlive a flush."""
    driver = _driver()
    if driver is not None:
        driver.cuCtxResetPersistingL2Cache()
