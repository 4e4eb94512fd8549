"""The machine's processors, as jobs share them: some at once, or one alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from portkern.sandbox import threads


class Machine:
    """``slots`` jobs at once, or a single one that has the machine for itself, such as one that is
    timed. Whoever wants it alone comes next: others wait behind, or it would never be alone.
    ``tell`` is called with the number of jobs when one begins."""

    def __init__(self, slots: int, tell: Callable[[int], None] = threads.share) -> None:
        self.slots = slots
        self._tell = tell
        self._busy = 0
        self._alone = False
        self._waiting_alone = 0
        self._changed = threading.Condition()

    @contextmanager
    def shared(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(
                lambda: self._busy < self.slots and not self._alone and not self._waiting_alone
            )
            self._busy += 1
            self._tell(self._busy)
        try:
            yield
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._waiting_alone += 1
            try:
                self._changed.wait_for(lambda: not self._busy and not self._alone)
                self._alone = True
                self._tell(1)
            finally:
                self._waiting_alone -= 1
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()
