"""The devices that JAX opens. Used inside the worker."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from portkern.spec.backend import Device
from portkern.toolchain.torch_device import FLUSH_BYTES, copied

if TYPE_CHECKING:
    import jax
    import torch


class JaxDevice(Device):
    """Buffers are jax arrays. JAX tells no time of its own: torch's events do on a GPU that torch
    opens too, the host's clock elsewhere. There torch's tensors on that GPU become arrays, and are
    made of arrays, by DLPack where they lie.

    Its integers have 32 bits, unless all programs are to have 64: ``upload`` makes int64 int32,
    and with ``widens`` ``download`` does the reverse.
    """

    def __init__(self, device: str, *, widens: bool = False) -> None:
        import jax
        import numpy as np
        import torch.utils.dlpack

        kind, _, index = device.partition(":")
        self.gpu = kind != "cpu"
        self.device = jax.devices("gpu" if self.gpu else "cpu")[int(index or 0)]
        self.widens = widens
        self._last: Sequence[jax.Array] = ()
        # Made here, before the candidate is there.
        shared = self.gpu and torch.cuda.is_available()
        self._torch = f"cuda:{self.device.local_hardware_id}" if shared else "cpu"
        self._events = Events(self.device) if shared else None
        self._from_torch: Any = jax.dlpack.from_dlpack
        self._to_torch: Any = torch.utils.dlpack.from_dlpack
        self._capsule: Any = type(jax.device_put(np.zeros(1), self.device)).__dlpack__
        if not self.gpu:
            self.method = "host clock, caches warm"
        elif self._events:
            self.method = "cuda events behind JAX's stream, L2 flushed clean"
        else:
            self.method = "host clock over batches of asynchronous calls, caches warm"

    def upload(self, host: torch.Tensor) -> jax.Array:
        import jax
        import ml_dtypes
        import torch

        if host.is_cuda and host.numel():
            shared: jax.Array = self._from_torch(host.contiguous())
            return shared
        host = host.cpu()
        if host.dtype == torch.bfloat16:  # numpy has no such type, ml_dtypes brings it
            array = host.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        else:
            array = host.contiguous().numpy()
        # A copy: on a CPU the array would otherwise share the host tensor's memory.
        placed: jax.Array = jax.device_put(array.copy(), self.device)
        placed.block_until_ready()
        return placed

    def refill(self, buffer: jax.Array, host: torch.Tensor) -> jax.Array:
        return self.upload(host)  # arrays of JAX never change

    def download(self, buffer: jax.Array) -> torch.Tensor:
        import numpy as np
        import torch

        if self._events and buffer.size:
            return copied(self.view(buffer), "cpu")
        array = np.array(buffer)
        if array.dtype.name == "bfloat16":
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        if self.widens and array.dtype == np.int32:
            array = array.astype(np.int64)
        return torch.from_numpy(array)

    def keep(self, host: torch.Tensor) -> torch.Tensor:
        return copied(host, self._torch)

    def view(self, buffer: jax.Array) -> torch.Tensor:
        import torch

        if not self._events or not buffer.size:
            return self.download(buffer)
        buffer.block_until_ready()
        there: torch.Tensor = self._to_torch(self._capsule(buffer))
        return there.long() if self.widens and there.dtype == torch.int32 else there

    def release(self) -> None:
        import torch

        if self._events:
            torch.cuda.empty_cache()

    def enqueued(self, results: Sequence[jax.Array]) -> None:
        """Remember what :meth:`synchronize` has to wait for."""
        self._last = results

    def synchronize(self) -> None:
        import jax
        import torch

        jax.block_until_ready(self._last)  # type: ignore[no-untyped-call]
        if self._events:
            torch.cuda.synchronize(self._torch)  # what arrays are made from

    def time(self, calls: Sequence[Callable[[], object]]) -> list[float]:
        if not self.gpu:
            return [self._batch([call]) for call in calls]
        if self._events:
            return self._events.time(calls, lambda: self._last)
        # Each sample is the mean of all: waiting for one call costs more than many.
        return [self._batch(calls)] * len(calls)

    def idle_call(self) -> None:
        """One element on a GPU: beside each launch there, JAX's stream takes some microseconds that
        are not the kernel's."""
        if self._events:
            self.enqueued([self._events.least()])

    def _batch(self, calls: Sequence[Callable[[], object]]) -> float:
        self.synchronize()
        start = time.perf_counter_ns()
        for call in calls:
            call()
        self.synchronize()
        return (time.perf_counter_ns() - start) / 1e3 / len(calls)


class Events:
    """Times by events on a stream of torch's, which waits for arrays where JAX's own computes them:
    the dispatch of a call, which is longer than most kernels, is over while the L2 is flushed."""

    #: Reads of FLUSH_BYTES for each call: one before it, and as many as the others before the first
    #: one, as the host is then ahead from there on. One takes an H100 0.19 ms and an H200 0.13; to
    #: enqueue a call with its read and events takes the host 0.15 to 0.3, and what it has not
    #: enqueued by then is timed as the kernel's. More than the evaluator believes of an idle worker
    #: would be doubted.
    READS = 3
    #: So many calls are dispatched at once of those before the first call.
    TOGETHER = 8

    def __init__(self, device: jax.Device) -> None:
        import jax
        import jax.numpy as jnp
        import torch

        self._stream: Any = torch.cuda.Stream(device.local_hardware_id)  # type: ignore[no-untyped-call]
        self._event: Any = torch.cuda.Event  # torch leaves it untyped
        self._flush = jax.device_put(jnp.zeros(FLUSH_BYTES // 4, jnp.float32), device)
        self._wait_for: Any = type(self._flush).__dlpack__
        self._read = jax.jit(jnp.sum)
        self._reads = jax.jit(self._one_by_one)
        for compiled in (self._read, self._reads):
            compiled(self._flush).block_until_ready()
        self._little = self._read(self._flush[:1])
        self._double = jax.jit(jnp.add)
        self.least().block_until_ready()

    def _one_by_one(self, flush: jax.Array) -> jax.Array:
        """Reads of which each waits for the one before, so that none is left out."""
        import jax.numpy as jnp

        total = jnp.zeros((), jnp.float32)
        for _ in range(self.TOGETHER):
            total = jnp.sum(jnp.maximum(flush, total))
        return total

    def least(self) -> jax.Array:
        """Runs the shortest work that there is: it takes next to no time."""
        least: jax.Array = self._double(self._little, self._little)
        return least

    def time(
        self, calls: Sequence[Callable[[], object]], results: Callable[[], Sequence[jax.Array]]
    ) -> list[float]:
        """The time of each call in µs; ``results`` are what it left to be waited for."""
        marks = []
        many, few = divmod((self.READS - 1) * len(calls), self.TOGETHER)
        for read in [self._reads] * many + [self._read] * few:
            read(self._flush)
        for call in calls:
            start = self._behind([self._read(self._flush)])
            call()
            marks.append((start, self._behind(results())))
        self._stream.synchronize()
        return [start.elapsed_time(end) * 1e3 for start, end in marks]

    def _behind(self, arrays: Sequence[jax.Array]) -> Any:
        """An event that happens once the arrays are computed: whoever takes an array by DLPack
        names the stream that has to wait for it. Taken by JAX's own method: ``from_dlpack`` of
        torch takes four times as long."""
        for array in arrays:
            if array.size:
                self._wait_for(array, stream=self._stream.cuda_stream)
        event = self._event(enable_timing=True)
        event.record(self._stream)
        return event
