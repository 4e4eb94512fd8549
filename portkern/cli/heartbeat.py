"""Says on stderr what is being done while nothing else is said, so that nobody wonders."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from portkern.agent.pace import duration

#: Seconds of silence before the first line, and between two where nothing else is said.
FIRST_S, LATER_S = 10.0, 20.0


class Heartbeat:
    """A context that says what is going on when nothing was said for a while. :meth:`at` tells it
    what is begun, from any thread; :meth:`said` that something else was printed."""

    def __init__(
        self,
        what: str,
        *,
        tell: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        later_s: float = LATER_S,
    ) -> None:
        self._tell, self._clock, self._later_s = tell or _on_stderr, clock, later_s
        self._lock, self._over = threading.Lock(), threading.Event()
        self._what, self._since, self._next = what, clock(), clock() + FIRST_S

    def at(self, what: str) -> None:
        with self._lock:
            if what != self._what:
                self._what, self._since = what, self._clock()

    def said(self) -> None:
        with self._lock:
            self._next = self._clock() + FIRST_S

    def beat(self) -> float:
        """Says what is due; seconds until something may be again."""
        with self._lock:
            now = self._clock()
            if now >= self._next:
                self._tell(f"  … {self._what}, {duration(now - self._since)}")
                self._next = now + self._later_s
            return self._next - now

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        # Not longer than FIRST_S: whatever is said meanwhile may only put the next line off.
        while not self._over.wait(min(self.beat(), FIRST_S)):
            pass


def _on_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
