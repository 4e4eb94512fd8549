"""Runs the code objects that Triton makes for AMD in the executor of AMD instructions.

Triton's own JIT compiles and launches, with a driver whose device is the executor: the same
specialisations, options and arguments as on a GPU, on tensors that lie in this process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import struct
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch  # noqa: TID253 - imported by TritonBackend.load alone

from portkern.errors import LaunchError
from portkern.isa import venue
from portkern.isa.executor import LaunchBuffer, ObjectProgram
from portkern.spec.backend import Kernel
from portkern.spec.target import Target

from . import standin
from .layouts import POINTER, layout

if TYPE_CHECKING:
    from portkern.spec.backend import Call


@dataclass
class Objects:
    """The launches of one kernel's calls, on tensors of which ``read_only`` may not be written."""

    target: Target
    #: The launches of the last call.
    launched: venue.Launched
    _programs: dict[bytes, ObjectProgram] = field(default_factory=dict)
    #: Where the tensors of the call lie, by their storages' addresses.
    _given: dict[int, LaunchBuffer] = field(default_factory=dict)
    _folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="isa-")))

    @contextlib.contextmanager
    def call(self, call: Call) -> Iterator[None]:
        """A context within which launches run here."""
        self.launched.begin(counted=call.counted)
        # Not all of their storages: around an output lie the evaluator's margins.
        self._given = {_storage(x): _exactly(x, writable=True) for x in call.outputs}
        self._given |= {_storage(x): _exactly(x, writable=False) for x in call.inputs}
        with self.launching():
            yield

    @contextlib.contextmanager
    def launching(self) -> Iterator[None]:
        """A context within which launches run here, on whatever tensors they are given."""
        cpu = torch.device("cpu")
        with standin.driver(self.target, self._launch, cpu), standin.first_configuration():
            yield

    def _launch(self, launch: standin.StandinLaunch) -> None:
        program = self._program(launch.binary)
        kernel = program.object.kernel(launch.name)
        values: list[bytes] = []
        buffers: list[LaunchBuffer] = []
        for value, kind in zip(launch.arguments, launch.kinds, strict=True):
            if kind == "constexpr":
                continue
            values.append(_packed(value, kind))
            if isinstance(value, torch.Tensor):
                buffers.append(self._buffer(value))
        # Behind them stand the addresses of memory that this kernel did not ask for.
        values += [bytes(a.size) for a in kernel.explicit[len(values) :]]
        ran = program.run(
            launch.name,
            values,
            launch.grid,
            (launch.warps * kernel.wave_size, 1, 1),
            buffers=buffers,
            dynamic_lds_bytes=launch.shared_bytes,
            checks=self.launched.looking,
        )
        self.launched.accept(launch.name, ran)

    def _program(self, binary: bytes) -> ObjectProgram:
        if binary not in self._programs:
            path = self._folder / f"{len(self._programs)}.hsaco"
            path.write_bytes(binary)
            self._programs[binary] = ObjectProgram(path)
        return self._programs[binary]

    def _buffer(self, tensor: torch.Tensor) -> LaunchBuffer:
        """The call's own tensor where this is a view of one, else all of what it is a view of: a
        kernel reaches its neighbours by strides."""
        storage = tensor.untyped_storage()
        whole = LaunchBuffer(storage.data_ptr(), storage.nbytes())
        return self._given.get(storage.data_ptr(), whole)


class _OnGpu(torch.Tensor):
    """A tensor of this process that says it lies on a GPU: host functions choose what to launch by
    that, as they did when it was compiled. What torch makes of it is a plain tensor."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True


def _on_gpu(call: Call) -> Call:
    inputs, outputs = (
        [x.as_subclass(_OnGpu) for x in side] for side in (call.inputs, call.outputs)
    )
    return dataclasses.replace(call, inputs=inputs, outputs=outputs)


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _exactly(tensor: torch.Tensor, *, writable: bool) -> LaunchBuffer:
    return LaunchBuffer(tensor.data_ptr(), tensor.numel() * tensor.element_size(), writable)


def _packed(value: Any, kind: str) -> bytes:
    if isinstance(value, torch.Tensor):
        return struct.pack(POINTER, value.data_ptr())
    if kind.startswith("*"):
        return struct.pack(POINTER, int(value or 0))
    form = layout(kind)
    if form is None:
        raise LaunchError(f"An argument of type {kind!r} is not known to the executor")
    return struct.pack(form, value)


def executed(kernel: Kernel, target: Target, checks: Sequence[str] = ()) -> Kernel:
    """``kernel``, whose launches are Triton's, with these in the executor and ``checks`` looking
    on."""
    launched = venue.Launched(tuple(checks))
    objects = Objects(target, launched)

    def launch(call: Call) -> Sequence[torch.Tensor]:
        with objects.call(call):
            returned = kernel.launch(_on_gpu(call))
        return [x.as_subclass(torch.Tensor) for x in returned]

    take = launched.take_findings, launched.take_launches, launched.take_counts
    return Kernel(kernel.device, launch, *take)
