"""The devices that JAX opens. Used inside the worker."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

#: A batch of asynchronous calls lasts about this long, so that the wait at its end is small.
_BATCH_US = 10_000.0
_MOST_CALLS = 256


class JaxDevice:
    """Buffers are jax arrays. JAX tells no time of its own: the host's clock is read."""

    def __init__(self, device: str) -> None:
        import jax

        kind, _, index = device.partition(":")
        self.gpu = kind != "cpu"
        self.device = jax.devices("gpu" if self.gpu else "cpu")[int(index or 0)]
        self._last: Any = ()

    @property
    def method(self) -> str:
        if not self.gpu:
            return "host clock, caches warm"
        return "host clock over batches of asynchronous calls, caches warm"

    def upload(self, host: Any) -> Any:
        import jax
        import ml_dtypes
        import torch

        if host.dtype == torch.bfloat16:  # numpy has no such type, ml_dtypes brings it
            array = host.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        else:
            array = host.contiguous().numpy()
        # A copy: on a CPU the array would otherwise share the host tensor's memory.
        return jax.device_put(array.copy(), self.device).block_until_ready()

    def download(self, buffer: Any) -> Any:
        import numpy as np
        import torch

        array = np.array(buffer)
        if array.dtype.name == "bfloat16":
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)

    def enqueued(self, results: Any) -> None:
        """Remember what :meth:`synchronize` has to wait for."""
        self._last = results

    def synchronize(self) -> None:
        import jax

        jax.block_until_ready(self._last)  # type: ignore[no-untyped-call]

    def time(self, call: Callable[[], object], *, repeats: int) -> list[float]:
        """Each sample is the mean of a batch: waiting for one call costs more than many kernels."""
        calls = 1
        if self.gpu:
            once = self._batch(call, 1)
            calls = max(1, min(_MOST_CALLS, math.ceil(_BATCH_US / max(once, 1.0))))
        return [self._batch(call, calls) for _ in range(repeats)]

    def _batch(self, call: Callable[[], object], calls: int) -> float:
        self.synchronize()
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        self.synchronize()
        return (time.perf_counter_ns() - start) / 1e3 / calls
