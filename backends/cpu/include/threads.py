"""Jobs that threads share, unless they are over before other threads would have begun."""

import numba


def sharing(work, least):
    """A function ``share(jobs, size, *given)`` that calls ``work(first, last, *given)`` for ranges
    of the numbers below ``jobs``. Threads have one range each from a ``size`` of ``least`` on
    (elements, say): to wake them takes several microseconds.

    Ranges, because what a job does once costs it more than a short row does: counting references
    to arrays, which threads have in common, and making buffers.
    """

    @numba.njit(parallel=True)
    def by_threads(jobs, given):
        threads = min(jobs, numba.get_num_threads())
        for part in numba.prange(threads):
            work(part * jobs // threads, (part + 1) * jobs // threads, *given)

    @numba.njit
    def share(jobs, size, *given):
        if size >= least and jobs > 1:
            by_threads(jobs, given)
        else:
            work(0, jobs, *given)

    return share
