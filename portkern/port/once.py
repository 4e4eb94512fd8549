"""Values that several threads need, each made by the first that asks for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Once(Generic[K, V]):
    """Makes the value of each key once: threads that ask meanwhile wait for it, and an error in
    making it is raised in all of them."""

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
