"""Where references are made and outputs compared: on the kernel's own GPU where that has room, as
a host's processor takes seconds for what a GPU does in milliseconds.

A GPU is believed once it has given the host's answers to the op's smallest workload.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, TypeVar

from portkern.evaluator import host_memory, inputs, reference
from portkern.spec.imported import ImportedReference
from portkern.spec.op import Op, Workload

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

HOST = "cpu"
#: Workloads of fewer elements are done on the host before a GPU has been asked.
FEW_ELEMENTS = 1 << 18
#: How far the answers of host and GPU at float64 may lie apart, relative to |answer| + its rms.
AGREEMENT = 2.0**-36


class ReferenceDevice:
    """Chooses for one op and dtype. Not thread-safe."""

    def __init__(self, op: Op, dtype: str) -> None:
        self.op, self.dtype = op, dtype
        self._believed: dict[str, bool] = {}
        self.failed = False

    def choose(self, workload: Workload, devices: Collection[str]) -> str:
        """The torch device for ``workload``, whose kernels run on ``devices``."""
        gpus = {device for device in devices if device.startswith("cuda")}
        confined = isinstance(self.op.reference, ImportedReference)
        if (
            confined
            or self.failed
            or len(gpus) != 1
            or self.op.signature.nelements(workload.dims) < FEW_ELEMENTS
        ):
            return HOST
        device = gpus.pop()
        if device not in self._believed:
            self._believed[device] = self._agrees(device)
        return device if self._believed[device] and self._has_room(workload, device) else HOST

    def give_up(self) -> None:
        """Choose the host from now on: the GPU has failed in the evaluator's own process."""
        self.failed = True

    def _has_room(self, workload: Workload, device: str) -> bool:
        """Whether the GPU has room for the reference beside what the workers take."""
        import torch

        free_bytes, _ = torch.cuda.mem_get_info(device)
        needed = host_memory.needed_bytes(self.op, workload, self.dtype, at_once=2)
        return needed <= free_bytes

    def _agrees(self, device: str) -> bool:
        import torch

        if not torch.cuda.is_available():
            return False
        torch.backends.cudnn.allow_tf32 = False  # matmul's is off unless asked for
        shown = [work for works in self.op.workloads.values() for work in works]
        filled = [work for work in shown if self.op.signature.nelements(work.dims)]
        if not filled:
            return False
        least = min(filled, key=lambda work: self.op.signature.nelements(work.dims))
        drawn = inputs.draw(self.op, least, self.dtype, inputs.BASE)
        try:
            placed = [tensor.to(device) for tensor in drawn]
            there = reference.answer(self.op, least, inputs.BASE, placed).exact
        except RuntimeError:  # torch lacks the operator there, or the GPU is out of order
            return False
        here = reference.answer(self.op, least, inputs.BASE, drawn).exact
        return all(is_close(a, b.cpu()) for a, b in zip(here, there, strict=True))


def with_host_in_reserve(device: str, work: Callable[[str], T]) -> T:
    """``work`` on the device, or on the host when the device has no memory left for it."""
    if device == HOST:
        return work(HOST)
    import torch

    try:
        return work(device)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return work(HOST)


def release(device: str) -> None:
    """Give the memory that torch keeps for later back to the kernels that are timed next."""
    if device != HOST:
        import torch

        torch.cuda.empty_cache()


def is_device_failure(error: BaseException) -> bool:
    """Whether the evaluator's own work on a GPU failed: no kernel's fault, nor the host's."""
    import torch

    return isinstance(error, torch.AcceleratorError | torch.OutOfMemoryError)


def is_close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two float64 answers are one but for the order of their additions; integers and
    whatever is not finite must be equal."""
    if not a.is_floating_point():
        return bool((a == b).all())
    finite = a.isfinite()
    sizes = a[finite].abs()
    scale = sizes + (sizes.square().mean().sqrt() if len(sizes) else 0.0)
    near = (a[finite] - b[finite]).abs() <= AGREEMENT * scale
    odd = (a == b) | (a.isnan() & b.isnan())
    return bool(near.all() and odd[~finite].all())
