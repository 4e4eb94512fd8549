"""Triton, for NVIDIA and AMD: built without a device, run on a GPU or in Triton's interpreter."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from portkern.errors import ToolError
from portkern.isa import venue as object_venue
from portkern.spec import target
from portkern.spec.backend import (
    NO_OBJECTS,
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
from portkern.toolchain import host, returned, torch_module
from portkern.toolchain.run_tool import package_dir, package_version
from portkern.toolchain.torch_device import TorchDevice
from portkern.toolchain.torch_stand_in import passing_for_gpu

from .candidate import import_entry

if TYPE_CHECKING:
    import torch

#: ROCm's and Intel's builds of torch bring the same module under a name of their own.
DISTRIBUTIONS = ("triton", "triton-rocm", "pytorch-triton-rocm", "triton-xpu", "pytorch-triton")
_CACHE = "triton-cache"
#: The target for which kernels that are interpreted for another vendor's are compiled as well.
TWIN = "gfx942"


class TritonBackend(Backend):
    name = "triton"
    languages: ClassVar = {".py": "triton"}
    usual_target = "sm_90"
    modules = "triton"
    marks: ClassVar[tuple[str, ...]] = ("triton",)
    object_checkers: ClassVar[Mapping[str, str]] = object_venue.CHECKERS
    turns: ClassVar[Mapping[str, str]] = {
        "num_warps": "num_warps of a launch",
        "num_stages": "num_stages of a launch",
        "waves_per_eu": "waves_per_eu of a launch",
        "matrix_instr_nonkdim": "matrix_instr_nonkdim of a launch",
        "kpack": "kpack of a launch",
    }
    matrix_units = "compiler"
    specialises = True
    # Not triton: what ``@triton.jit`` returns is decided by TRITON_INTERPRET when it is imported.
    preload = ("torch",)
    device_memory = True

    def supports(self, target: Target) -> bool:
        return target.vendor in ("nvidia", "amd")

    def probe(self, target: Target) -> Ready | Missing:
        versions = {name: package_version(name) for name in DISTRIBUTIONS}
        installed = {name: version for name, version in versions.items() if version}
        if not installed:
            return Missing(
                "no Triton: none of " + ", ".join(DISTRIBUTIONS[:3]) + " is installed",
                "pip install 'portkern[triton]'",
            )
        torch = package_version("torch")
        if torch is None:
            return Missing("no torch, whose tensors Triton kernels take", "pip install torch")
        return Ready(installed | {"torch": torch})

    def venues(self, target: Target) -> Venues:
        ready = self.probe(target)
        if isinstance(ready, Missing):
            return Venues(ready, ready)
        emulator = Venue("emulator", "Triton interpreter", environment={"TRITON_INTERPRET": "1"})
        return Venues(_hardware(target), emulator, _executor(target))

    def compiled_twin(self, request: Build, venue: Venue) -> tuple[Target, Venue] | Missing | None:
        """The AMD executor's, for kernels of NVIDIA GPUs too: nobody executes their code."""
        if venue.kind != "emulator":
            return None
        where = request.target if request.target.vendor == "amd" else target.load(TWIN)
        found = object_venue.venue(where)
        return found if isinstance(found, Missing) else (where, found)

    def prepare(self, request: Build) -> Sequence[Path]:
        return object_venue.prepare(request)

    def build(self, request: Build, workdir: Path) -> Artifact:
        """Compile every launch that the entry makes for ``request.dims``, with no device."""
        source = workdir / f"{request.candidate.op}.py"
        source.write_text(request.candidate.source, encoding="utf-8")
        _set_environment(workdir)
        import triton

        from .standin import compile_launches

        if triton.knobs.runtime.interpret:
            raise ToolError("Triton cannot compile: TRITON_INTERPRET is set here; unset it")
        entry = lambda: import_entry(source, request.candidate.entry)  # noqa: E731
        launches = compile_launches(entry, request, workdir / _CACHE)
        if request.ahead:
            from .launches import plan_or_error

            plan = plan_or_error(entry, request, workdir)
            return Artifact(plan, "plan", launches.resources, launches.log)
        return Artifact(source, launches.kind, launches.resources, launches.log)

    def load(self, artifact: Artifact, request: Build, venue: Venue) -> Kernel:
        _set_environment(Path(tempfile.mkdtemp(prefix="triton-")))
        device = TorchDevice(venue.device)
        if device.gpu:
            import torch

            torch.cuda.set_device(device.device)  # Triton launches on the current device
        elif venue.kind == "emulator":
            from .interpreter import repair

            repair()
        kernel = self._opened(artifact, request, device)
        if venue.kind != "object":
            return kernel
        from .objects import executed

        return executed(kernel, request.target, venue.sanitize)

    def _opened(self, artifact: Artifact, request: Build, device: TorchDevice) -> Kernel:
        import torch

        if request.candidate.style == "module":
            return _load_module(artifact, request, device)
        entry = import_entry(artifact.path, request.candidate.entry)
        returns = request.candidate.style == "return"

        def launch(call: Call) -> Sequence[torch.Tensor]:
            if not returns:
                entry(*call.inputs, *call.outputs, **call.scalars)
                return call.outputs
            result = entry(*call.inputs, **call.scalars)
            return returned.outputs(
                result, request, call.dims, kind=torch.Tensor, called="torch.Tensor"
            )

        opened: Device = device
        return Kernel(opened, launch)


def _load_module(artifact: Artifact, request: Build, device: TorchDevice) -> Kernel:
    """A class ModelNew; where there is no GPU, what it asks of its tensors passes for one."""
    where = contextlib.nullcontext if device.gpu else passing_for_gpu
    with where():
        entry = import_entry(artifact.path, request.candidate.entry)
    module = torch_module.TorchModule(entry, request, device.device)

    def launch(call: Call) -> Sequence[torch.Tensor]:
        with where():
            return module.launch(call)

    opened: Device = device
    return Kernel(opened, launch)


def _executor(target: Target) -> Venue | Missing:
    return object_venue.venue(target) if target.vendor == "amd" else NO_OBJECTS


def _hardware(target: Target) -> Venue | Missing:
    gpu = host.gpu_for(target)
    if gpu is None:
        return Missing(f"no {target.name} here")
    wanted = "cuda" if target.vendor == "nvidia" else "hip"
    if not _torch_has(wanted):
        title = "CUDA" if wanted == "cuda" else "ROCm"
        return Missing(f"torch is not a {title} build", f"install torch for {title}")
    return Venue("hardware", gpu.name, f"cuda:{gpu.index}")


def _torch_has(runtime: str) -> bool:
    """Whether torch was built for ``cuda`` or ``hip``, read from its version file unimported."""
    folder = package_dir("torch")
    file = folder / "version.py" if folder else None
    if file is None or not file.is_file():
        return False
    return bool(re.search(rf"^{runtime}\b[^=]*= *['\"]", file.read_text(), re.MULTILINE))


def _set_environment(folder: Path) -> None:
    """Keep Triton's cache in a folder of this process's own: nothing passes from one candidate to
    the next, nor from what runs while it is built."""
    os.environ["TRITON_CACHE_DIR"] = str(folder / _CACHE)
    # Unset, 3.9 warns and fuses, and 3.10 will not fuse: one answer for all versions.
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
