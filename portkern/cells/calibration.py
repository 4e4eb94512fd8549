"""The calibration kernels of a night: one for each device that its cells are timed on. Their
sources never change, so that while their machine code is the same only the machine moves them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from portkern import ops
from portkern.cells.selection import SelectedCell, host_targets, venues
from portkern.spec import catalogue, registry, target
from portkern.spec.backend import Venue
from portkern.spec.target import Target

OP, DTYPE = "matmul", "float32"
#: The workloads of calibration by backend, of which the first that can time it counts: a set, and
#: which of it.
SIZES = {
    "cpu": ("ci", "128x128x128"),
    "cuda": ("typical", "1024x1024x1024"),
    "hip": ("typical", "1024x1024x1024"),
}


def cells(asked: Sequence[SelectedCell]) -> list[SelectedCell]:
    """The calibration of this processor, on which all else depends, and of each GPU that one of
    the cells is for; none where no cell is timed here."""
    timed = [cell for cell in asked if isinstance(cell.venues.hardware, Venue)]
    if not timed:
        return []
    processor = [name for name in host_targets() if not target.load(name).is_gpu]
    gpus = [cell.target.name for cell in timed if cell.target.is_gpu]
    names = dict.fromkeys([*processor, *gpus])
    found = [next(_of(target.load(name)), None) for name in names]
    return [cell for cell in found if cell is not None]


def _of(where: Target) -> Iterator[SelectedCell]:
    """Yields a cell for each backend that can time its calibration kernel on the target."""
    op = ops.load(OP)
    for name, (which, size) in SIZES.items():
        backend = registry.load(name)
        workload = next((one for one in op.workloads.get(which, ()) if one.name == size), None)
        kernel = catalogue.calibration(OP, backend)
        if workload and kernel and isinstance(venues(backend, where).hardware, Venue):
            cell = SelectedCell(op, which, workload, DTYPE, backend, where, kernel)
            if not cell.ruled_out:
                yield cell
