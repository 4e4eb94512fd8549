"""What several threads need, made by the first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Once(Generic[K, V]):
    """Who asks while it is made waits for it; what making it raises, all of them get."""

    def __init__(self, make: Callable[[K], V]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: dict[K, Future[V]] = {}

    def __call__(self, key: K) -> V:
        with self._lock:
            first = key not in self._made
            future = self._made.setdefault(key, Future())
        if first:
            try:
                future.set_result(self._make(key))
            except BaseException as error:
                future.set_exception(error)
                raise
        return future.result()
