"""OpenCL through pyopencl: any vendor's GPU, and CPUs through PoCL."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar, Literal

from portkern.errors import BackendUnavailable, BuildError
from portkern.spec.backend import (
    Artifact,
    Backend,
    Build,
    Call,
    Kernel,
    Missing,
    Ready,
    Venue,
    Venues,
)
from portkern.spec.op import Scalar, Signature
from portkern.spec.target import Target
from portkern.toolchain import source_tree
from portkern.toolchain.run_tool import package_version

from . import platforms
from .checked import CHECKERS, CheckedRun
from .device import ClDevice, ClTensor, OpenCLProgram
from .platforms import ClDescription, choose

if TYPE_CHECKING:
    import numpy


class OpenClBackend(Backend):
    name = "opencl"
    languages: ClassVar[Mapping[str, str]] = {".py": "opencl"}
    usual_target = "opencl_generic"
    host_memory = True
    thread_knobs = ("WG",)
    turns: ClassVar[Mapping[str, str]] = {"block": "work-items per work-group"}
    marks: ClassVar[tuple[str, ...]] = ("SOURCE",)
    companions: ClassVar[tuple[str, ...]] = ("opencl",)
    preload = ("torch",)
    checkers: ClassVar[Mapping[str, str]] = CHECKERS
    hardware_checkers: ClassVar[Mapping[str, str]] = CHECKERS

    def supports(self, target: Target) -> bool:
        # The driver compiles for the CPU as it is, so there is nothing to say about avx2 or avx512.
        generic_cpu = target.vendor == "cpu" and target.name in ("x86_64", "aarch64")
        return generic_cpu or target.is_gpu or target.vendor == "opencl"

    def probe(self, target: Target) -> Ready | Missing:
        devices = platforms.devices()
        if isinstance(devices, Missing):
            return devices
        parts = {"pyopencl": str(package_version("pyopencl"))}
        return Ready(parts | {d.name: d.driver for d in devices})

    def venues(self, target: Target) -> Venues:
        devices = platforms.devices()
        if isinstance(devices, Missing):
            return Venues(devices, devices)
        device = choose(target, devices)
        hardware = device if isinstance(device, Missing) else _venue("hardware", device)
        if not target.is_gpu:
            return Venues(hardware, Missing("no emulator: whatever runs OpenCL is the hardware"))
        return Venues(hardware, _emulator(devices))

    def builds_for(self, target: Target) -> str:
        venue = self.venues(target).best
        return venue.device if isinstance(venue, Venue) else target.name

    def builds(self, request: Build) -> bool | Missing:
        venue = self.venues(request.target).best
        if isinstance(venue, Missing):
            return Missing(f"OpenCL compiles on the device that runs it: {venue}")
        return True

    def environment(self, target: Target) -> Mapping[str, str]:
        return platforms.environment()

    def build(self, request: Build, workdir: Path) -> Artifact:
        """Compile for the device that will run it: OpenCL's drivers know no other."""
        path = workdir / f"{request.candidate.entry}.py"
        path.write_text(request.candidate.source, encoding="utf-8")
        _compile(_module(path, request), _open_for(request.target), request)
        return Artifact(path, "opencl")

    def declaration(self, signature: Signature, language: str) -> str:
        tensors = [t.name for t in (*signature.inputs, *signature.outputs)]
        named = [*signature.axes, *(s.name for s in signature.scalars)]
        return f"def {signature.name}(queue, program, {', '.join([*tensors, '*', *named])}):"

    def load(self, artifact: Artifact, request: Build, venue: Venue) -> Kernel:
        device = ClDevice(venue.device, emulated=venue.kind == "emulator")
        program, enqueue = _opened(artifact, device, request)
        arguments = _by_value(request.signature)
        last: list[Call] = []

        def launch(call: Call) -> Sequence[ClTensor]:
            buffers = [tensor.buffer for tensor in (*call.inputs, *call.outputs)]
            enqueue(device.queue, program, *buffers, **arguments(call))
            last[:] = [call]
            return call.outputs

        def again(address: str) -> tuple[ClDevice, OpenCLProgram, Callable[..., object]]:
            other = ClDevice(address, emulated=not device.cpu)
            return other, *_opened(artifact, other, request)

        emulated = venue.kind == "emulator"
        checked = CheckedRun(again, arguments, venue.sanitize, told=emulated)
        return Kernel(
            device,
            launch,
            lambda: checked.findings(last[0], device.download),
            code=bytes if emulated else program.portkern_code,
        )


def _venue(kind: Literal["hardware", "emulator"], device: ClDescription) -> Venue:
    baseline = "cuda:0" if device.kind == "gpu" else "cpu"
    return Venue(kind, device.name, device.address, platforms.environment(), baseline)


def _emulator(devices: Sequence[ClDescription]) -> Venue | Missing:
    """A CPU device runs the kernels that a GPU would get, work-groups and barriers included."""
    for device in devices:
        if device.kind == "cpu":
            return _venue("emulator", device)
    return Missing("no OpenCL driver for this CPU", f"{platforms.PIP} brings PoCL")


def _open_for(target: Target) -> ClDevice:
    """The device of ``target``, or the one that stands in for it, in this process."""
    from .device import load_pyopencl

    load_pyopencl()
    devices = [description for description, _ in platforms.visible()]
    device = choose(target, devices)
    if isinstance(device, ClDescription):
        return ClDevice(device.address, emulated=False)
    stand_in = _emulator(devices) if target.is_gpu else device
    if isinstance(stand_in, Missing):
        raise BackendUnavailable(f"OpenCL compiles on the device that runs it: {stand_in}")
    return ClDevice(stand_in.device, emulated=True)


def _opened(
    artifact: Artifact, device: ClDevice, request: Build
) -> tuple[OpenCLProgram, Callable[..., object]]:
    """The candidate's program and function for this device, from a module of its own."""
    module = _module(artifact.path, request)
    return _compile(module, device, request), vars(module)[request.candidate.entry]


def _compile(module: ModuleType, device: ClDevice, request: Build) -> OpenCLProgram:
    """SOURCE, with the module's integer constants in capitals as its macros; what it includes is
    not the build's to keep."""
    macros = {name: n for name, n in vars(module).items() if name.isupper() and type(n) is int}
    macros |= {"PORTKERN_TENSOR_CORES": 1} if device.tensor_cores(request.target) else {}
    with tempfile.TemporaryDirectory(prefix="opencl-") as folder:
        tree = source_tree.write(request.candidate, Path(folder))
        return OpenCLProgram(device, module.SOURCE, macros, request.dtype, tree)


def _module(path: Path, request: Build) -> ModuleType:
    """A candidate's module; raises BuildError without SOURCE or the entry function."""
    name = request.candidate.entry
    spec = importlib.util.spec_from_file_location(f"portkern_candidate_{name}", path)
    assert spec is not None and spec.loader is not None  # the suffix is .py
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (SyntaxError, NameError, ImportError, AttributeError, TypeError, ValueError) as error:
        raise BuildError(f"{path.name} cannot be imported: {error}") from error
    if not callable(getattr(module, name, None)):
        wanted = _expected(request.signature, name)
        raise BuildError(f"The module has no function {name!r}; expected {wanted}")
    if not isinstance(getattr(module, "SOURCE", None), str):
        raise BuildError("The module has no string SOURCE; expected the program in OpenCL C")
    return module


def _expected(signature: Signature, entry: str) -> str:
    buffers = [t.name for t in (*signature.inputs, *signature.outputs)]
    values = [*signature.axes, *(s.name for s in signature.scalars)]
    return f"def {entry}({', '.join(['queue', 'program', *buffers, '*', *values])})"


def _by_value(signature: Signature) -> Callable[[Call], dict[str, numpy.generic]]:
    """Axes and scalars as the numpy types that OpenCL's ``long`` and ``float`` are set from."""
    import numpy

    kinds: dict[str, Callable[[Scalar], numpy.generic]] = {
        "float32": numpy.float32,
        "int64": numpy.int64,
        "bool": numpy.int8,
    }

    def arguments(call: Call) -> dict[str, numpy.generic]:
        axes: dict[str, numpy.generic] = {
            axis: numpy.int64(call.dims[axis]) for axis in signature.axes
        }
        return axes | {s.name: kinds[s.dtype](call.scalars[s.name]) for s in signature.scalars}

    return arguments
