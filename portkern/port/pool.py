"""Files side by side, by threads: the work itself is other processes'."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def pool(jobs: int) -> Iterator[ThreadPoolExecutor]:
    """A pool of threads; when it is left by an error, work that has not begun is dropped."""
    threads = ThreadPoolExecutor(max(jobs, 1))
    try:
        yield threads
    except BaseException:
        threads.shutdown(cancel_futures=True)
        raise
    threads.shutdown()
