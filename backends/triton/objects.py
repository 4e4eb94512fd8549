"""Runs the code objects that Triton makes for AMD in the executor of AMD instructions.

Triton's own JIT compiles and launches, with a driver whose device is the executor: the same
specialisations, options and arguments as on a GPU, on tensors that lie in this process.
"""

from __future__ import annotations

import contextlib
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch  # noqa: TID253 - imported by TritonBackend.load alone

from portkern.errors import LaunchError
from portkern.isa.executor import Buffer, Program
from portkern.isa.finding import Finding, Ran
from portkern.spec.target import Target

from . import standin

if TYPE_CHECKING:
    from portkern.spec.backend import Call

#: How the values of a signature's types lie in the argument segment.
_LAYOUTS = {
    "i1": "<b",
    "i8": "<b",
    "i16": "<h",
    "i32": "<i",
    "i64": "<q",
    "u1": "<B",
    "u8": "<B",
    "u16": "<H",
    "u32": "<I",
    "u64": "<Q",
    "fp16": "<e",
    "f16": "<e",
    "fp32": "<f",
    "f32": "<f",
    "fp64": "<d",
    "f64": "<d",
}
_POINTER = "<Q"


@dataclass
class Objects:
    """The launches of one kernel's calls, on tensors of which ``read_only`` may not be written."""

    target: Target
    #: Of the last call.
    launched: list[tuple[str, Ran]] = field(default_factory=list)
    _programs: dict[bytes, Program] = field(default_factory=dict)
    _read_only: frozenset[int] = frozenset()
    _folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="isa-")))

    @property
    def findings(self) -> list[Finding]:
        """The findings of all launches of the last call."""
        return [finding for _, ran in self.launched for finding in ran.findings]

    @contextlib.contextmanager
    def call(self, call: Call) -> Iterator[None]:
        """Within it, launches run here."""
        self.launched.clear()
        self._read_only = frozenset(tensor.data_ptr() for tensor in call.inputs)
        with standin.driver(self.target, self._launch), standin.first_configuration():
            yield

    def _launch(self, launch: standin.Launch) -> None:
        program = self._program(launch.binary)
        kernel = program.object.kernel(launch.name)
        values: list[bytes] = []
        buffers: list[Buffer] = []
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
        )
        self.launched.append((launch.name, ran))
        if not ran.complete:
            raise LaunchError(f"{launch.name} was stopped: {ran.findings[-1]}")

    def _program(self, binary: bytes) -> Program:
        if binary not in self._programs:
            path = self._folder / f"{len(self._programs)}.hsaco"
            path.write_bytes(binary)
            self._programs[binary] = Program(path)
        return self._programs[binary]

    def _buffer(self, tensor: torch.Tensor) -> Buffer:
        """The whole of what the tensor is a view of: a kernel reaches its neighbours by strides."""
        storage = tensor.untyped_storage()
        written = storage.data_ptr() not in self._read_only
        return Buffer(storage.data_ptr(), storage.nbytes(), written)


def _packed(value: Any, kind: str) -> bytes:
    if isinstance(value, torch.Tensor):
        return struct.pack(_POINTER, value.data_ptr())
    if kind.startswith("*"):
        return struct.pack(_POINTER, int(value or 0))
    if kind not in _LAYOUTS:
        raise LaunchError(f"An argument of type {kind!r} is not known to the executor")
    return struct.pack(_LAYOUTS[kind], value)


def launcher(
    objects: Objects, entry: Callable[..., object], returns: bool
) -> Callable[[Call], object]:
    """``entry`` with its launches in the executor; what it returns."""

    def launch(call: Call) -> object:
        given: Sequence[torch.Tensor] = call.inputs if returns else (*call.inputs, *call.outputs)
        with objects.call(call):
            return entry(*given, **call.scalars)

    return launch
