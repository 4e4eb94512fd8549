"""Numba-CUDA as a backend of portkern: on an NVIDIA GPU, or in Numba's simulator of one."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from portkern.errors import BuildError
from portkern.spec.backend import (
    Artifact,
    Backend,
    Build,
    Call,
    Device,
    Kernel,
    Missing,
    Ready,
    Venue,
    Venues,
)
from portkern.spec.target import Target
from portkern.toolchain import host
from portkern.toolchain.run_tool import package_version
from portkern.toolchain.torch_device import TorchDevice

if TYPE_CHECKING:
    import torch

SIMULATED = {"NUMBA_ENABLE_CUDASIM": "1"}


class NumbaCudaBackend(Backend):
    name = "numba_cuda"
    languages: ClassVar[Mapping[str, str]] = {".py": "numba-cuda"}
    marks = ("numba.cuda",)
    preload = ("torch",)  # and not Numba, which reads at its import whether to simulate

    def supports(self, target: Target) -> bool:
        return target.vendor == "nvidia"

    def probe(self, target: Target) -> Ready | Missing:
        version = package_version("numba")
        if version is None:
            return Missing("Numba is not installed", "pip install numba")
        return Ready({"numba": version})

    def venues(self, target: Target) -> Venues:
        gpu = host.gpu_for(target)
        absent = Missing(f"no {target.title} here", "run on a machine which has one")
        hardware = Venue("hardware", gpu.name, device="cuda") if gpu else absent
        return Venues(hardware, Venue("emulator", "Numba's CUDA simulator", environment=SIMULATED))

    def environment(self, target: Target) -> Mapping[str, str]:
        """Where there is no GPU, the file is imported for the simulator, as it will run there."""
        return {} if host.gpu_for(target) else SIMULATED

    def build(self, request: Build, workdir: Path) -> Artifact:
        """The module itself: Numba compiles a kernel at its first call."""
        path = workdir / f"{request.candidate.entry}.py"
        path.write_text(request.candidate.source, encoding="utf-8")
        _entry(path, request.candidate.entry)
        return Artifact(path, "python")

    def load(self, artifact: Artifact, request: Build, venue: Venue) -> Kernel:
        entry = _entry(artifact.path, request.candidate.entry)
        device = TorchDevice(venue.device)

        def launch(call: Call) -> Sequence[torch.Tensor]:
            tensors = (*call.inputs, *call.outputs)
            entry(*map(_array, tensors), *call.scalars.values())
            return call.outputs

        opened: Device = device
        return Kernel(opened, launch)

    def accepts(self, candidate: object, dtype: str) -> bool | Missing:
        return dtype != "bfloat16" or Missing("arrays of NumPy have no bfloat16")


def _array(tensor: torch.Tensor) -> object:
    """The same memory as an array of Numba's: of the GPU, or of the host for the simulator."""
    if not tensor.is_cuda:
        return tensor.numpy()
    from numba import cuda

    return cuda.as_cuda_array(tensor)


def _entry(path: Path, name: str) -> Callable[..., object]:
    """The function of that name in the file. Raises BuildError where there is none."""
    spec = importlib.util.spec_from_file_location(f"candidate_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever an author's file raises is told to the author
        raise BuildError(f"{path.name} cannot be imported: {error}") from error
    entry = getattr(module, name, None)
    if not callable(entry):
        raise BuildError(f"The source defines no function {name!r}; expected def {name}(...)")
    return entry
