"""Numba: Python functions compiled for the target and kept beside their source."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from portkern.errors import BackendUnavailable, BuildError
from portkern.spec.backend import Artifact, Build, Call, Device, Kernel
from portkern.spec.target import Target
from portkern.toolchain.compilers import machine
from portkern.toolchain.run_tool import package_version
from portkern.toolchain.torch_device import TorchDevice

from .functions import import_function

if TYPE_CHECKING:
    import torch

#: Modules that kernels may import: ``portkern.backends.cpu.include``.
INCLUDE = Path(__file__).parent / "include"
#: The times of sources, which every file system can keep: from then on for so many seconds.
_FROM, _SECONDS = 1_000_000_000, 1 << 30


def environment(target: Target) -> dict[str, str]:
    """What makes Numba compile for ``target`` rather than for the whole of this CPU.

    Numba reads both when it is imported. Empty features are those that the name implies.
    """
    return {"NUMBA_CPU_NAME": str(target.march), "NUMBA_CPU_FEATURES": ""}


def _import_numba(target: Target) -> None:
    if package_version("numba") is None:
        raise BackendUnavailable("Numba is not installed; pip install 'portkern[numba]'")
    here = platform.machine().replace("arm64", "aarch64")
    if machine(target) != here:
        raise BackendUnavailable(f"Numba compiles for the machine it runs on, {here}")
    if "numba" not in sys.modules:
        os.environ.update(environment(target))
    import numba

    compiled_for = getattr(numba.core.config, "CPU_NAME")  # noqa: B009 - set at import
    if compiled_for != target.march:
        raise BackendUnavailable(
            f"Numba was imported for {compiled_for or 'this CPU'}, expected {target.march}; "
            f"set NUMBA_CPU_NAME={target.march} NUMBA_CPU_FEATURES= before it is imported"
        )


def build(request: Build, workdir: Path) -> Artifact:
    _import_numba(request.target)
    path = workdir / f"{request.candidate.entry}.py"
    _write(path, request)
    from numba.core.errors import NumbaError

    try:
        _compile(import_function(path, request), request)
    except NumbaError as error:
        raise BuildError(f"Numba rejected {request.candidate.entry!r}", log=str(error)) from error
    return Artifact(path, "numba")


def _write(path: Path, request: Build) -> None:
    """The source, and a time, that follow from all that is compiled. Numba's cache compares either
    the file's text or its time and size, and knows nothing of the modules that a kernel imports."""
    digest = hashlib.sha256(request.candidate.source.encode())
    for file in sorted(INCLUDE.glob("*.py")):
        digest.update(file.read_bytes())
    made_of = f"\n# compiled from {digest.hexdigest()}\n"
    path.write_text(request.candidate.source + made_of, encoding="utf-8")
    time = _FROM + int.from_bytes(digest.digest()[:4]) % _SECONDS
    os.utime(path, (time, time))


def _compile(function: Callable[..., object], request: Build) -> None:
    """Compile for the request's types now, and keep the code in __pycache__ beside the source."""
    import numba

    if not isinstance(function, numba.core.dispatcher.Dispatcher):
        return  # a plain function that calls jitted ones: they compile when it runs
    function.enable_caching()
    tensors = (*request.signature.inputs, *request.signature.outputs)
    arrays = [
        numba.types.Array(getattr(numba.types, t.resolve(request.dtype)), len(t.shape), "C")
        for t in tensors
    ]
    scalars = [
        getattr(numba.types, s.dtype.replace("bool", "boolean")) for s in request.signature.scalars
    ]
    function.compile((*arrays, *scalars))


def load(artifact: Artifact, request: Build, device: TorchDevice) -> Kernel:
    import numpy

    _import_numba(request.target)
    _write(artifact.path, request)
    function = import_function(artifact.path, request)
    _compile(function, request)
    # A Python float is a float64 to Numba and would pull the kernel's arithmetic with it.
    kinds = {
        s.name: getattr(numpy, s.dtype.replace("bool", "bool_")) for s in request.signature.scalars
    }

    def launch(call: Call) -> Sequence[torch.Tensor]:
        arrays = [tensor.numpy() for tensor in (*call.inputs, *call.outputs)]
        function(*arrays, *(kind(call.scalars[name]) for name, kind in kinds.items()))
        return call.outputs

    opened: Device = device
    return Kernel(opened, launch)
