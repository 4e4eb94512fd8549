"""The devices that JAX opens. Used inside the worker."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jax
    import torch


class JaxDevice:
    """Buffers are jax arrays. JAX tells no time of its own: the host's clock is read.

    Its integers have 32 bits, unless all programs are to have 64: ``upload`` makes int64 int32,
    and with ``widens`` ``download`` does the reverse.
    """

    def __init__(self, device: str, *, widens: bool = False) -> None:
        import jax

        kind, _, index = device.partition(":")
        self.gpu = kind != "cpu"
        self.device = jax.devices("gpu" if self.gpu else "cpu")[int(index or 0)]
        self.widens = widens
        self._last: Sequence[jax.Array] = ()

    @property
    def method(self) -> str:
        if not self.gpu:
            return "host clock, caches warm"
        return "host clock over batches of asynchronous calls, caches warm"

    def upload(self, host: torch.Tensor) -> jax.Array:
        import jax
        import ml_dtypes
        import torch

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

        array = np.array(buffer)
        if array.dtype.name == "bfloat16":
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        if self.widens and array.dtype == np.int32:
            array = array.astype(np.int64)
        return torch.from_numpy(array)

    def enqueued(self, results: Sequence[jax.Array]) -> None:
        """Remember what :meth:`synchronize` has to wait for."""
        self._last = results

    def synchronize(self) -> None:
        import jax

        jax.block_until_ready(self._last)  # type: ignore[no-untyped-call]

    def time(self, calls: Sequence[Callable[[], object]]) -> list[float]:
        """On a GPU each sample is the mean of all: waiting for one call costs more than many."""
        if not self.gpu:
            return [self._batch([call]) for call in calls]
        return [self._batch(calls)] * len(calls)

    def _batch(self, calls: Sequence[Callable[[], object]]) -> float:
        self.synchronize()
        start = time.perf_counter_ns()
        for call in calls:
            call()
        self.synchronize()
        return (time.perf_counter_ns() - start) / 1e3 / len(calls)
