"""Values that are computed once for each object."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):
    """A value that is computed when it is first asked for, as :func:`functools.cached_property`,
    whose lock in Python 3.11 is one for all objects, so that who computes for minutes keeps others
    waiting. Here two threads wait for each other only where they ask the same object."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type[object]) -> cached_property[T]: ...
    @overload
    def __get__(self, instance: object, owner: type[object]) -> T: ...
    def __get__(self, instance: object | None, owner: type[object]) -> cached_property[T] | T:
        if instance is None:
            return self
        known = vars(instance)  # an entry there comes before this descriptor
        with known.setdefault(f"{self._name} lock", threading.RLock()):
            if self._name not in known:
                known[self._name] = self._compute(instance)
        known.pop(f"{self._name} lock", None)
        value: T = known[self._name]
        return value
