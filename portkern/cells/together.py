"""Which groups of cells, of one op and dtype each, are evaluated side by side: loaded, and on a GPU
also checked. Each is timed by itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import groupby

import psutil

from portkern.cells.selection import SelectedCell
from portkern.evaluator import host_memory

#: Groups at most: each worker has a compiler's memory.
MOST = 4
#: The share of a GPU's and the host's memory that cells may take together, as one of them is timed
#: meanwhile, and the host's processors for each, where one waits for the GPU while others compare.
SHARE, PROCESSORS = 0.7, 2
#: Bytes of a GPU's memory. Per element of a workload, the evaluator's are two cases with answers at
#: float64 and outputs that are compared, and a worker's what it is given and what it returns;
#: besides, a worker has its context and what is read to flush caches.
EVALUATOR_BYTES, WORKER_BYTES, IDLE_BYTES = 36, 8, 1 << 30
#: Workers of baselines.
BASELINES = 2


def on_gpu(group: Sequence[SelectedCell]) -> bool:
    return any(cell.target.is_gpu for cell in group)


def in_order(groups: Sequence[list[SelectedCell]]) -> Iterator[list[list[SelectedCell]]]:
    """A few at a time, in the order given."""
    for gpu, run in groupby(groups, key=on_gpu):
        same = list(run)
        size = _most_on_gpu(same) if gpu else MOST
        yield from (same[start : start + size] for start in range(0, len(same), size))


def _most_on_gpu(groups: Sequence[Sequence[SelectedCell]]) -> int:
    """The number of groups that have room on the GPU at once; one where its memory is not known, or
    a host's processor is timed too."""
    memory = min(cell.target.memory_gb or 0.0 for group in groups for cell in group) * 1e9
    on_device = max(map(_device_bytes, groups))
    on_host = max(map(_host_bytes, groups))
    room = min(memory / on_device, psutil.virtual_memory().available / on_host) * SHARE
    return max(1, min(MOST, int(room), len(os.sched_getaffinity(0)) // PROCESSORS))


def _device_bytes(group: Sequence[SelectedCell]) -> int:
    workers, most = _workers(group), max(map(elements, group))
    return most * (EVALUATOR_BYTES + workers * WORKER_BYTES) + workers * IDLE_BYTES


def _host_bytes(group: Sequence[SelectedCell]) -> int:
    largest = max(group, key=elements)
    return host_memory.shared_bytes(
        largest.op, largest.workload, largest.dtype, at_once=_workers(group)
    )


def _workers(group: Sequence[SelectedCell]) -> int:
    kernels = {cell.candidate.digest for cell in group if cell.candidate is not None}
    return len(kernels) + BASELINES


def elements(cell: SelectedCell) -> int:
    """The elements of a cell's inputs and outputs."""
    return cell.op.signature.nelements(cell.workload.dims)
