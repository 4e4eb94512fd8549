"""Numba: Python functions, compiled for the target in the process that runs them."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from portkern.errors import BackendUnavailable, BuildError
from portkern.spec.backend import Artifact, Build, Call, Device, Kernel, Missing
from portkern.spec.target import Target
from portkern.toolchain.compilers import machine
from portkern.toolchain.run_tool import package_version
from portkern.toolchain.torch_device import TorchDevice

from .functions import import_function

if TYPE_CHECKING:
    import torch


def environment(target: Target) -> dict[str, str]:
    """The variables that make Numba compile for ``target`` rather than for the whole of this CPU.

    Numba reads both when it is imported. Empty features are those that the name implies.
    """
    return {"NUMBA_CPU_NAME": str(target.march), "NUMBA_CPU_FEATURES": ""}


def builds(target: Target) -> bool | Missing:
    """Whether Numba compiles for ``target`` here."""
    if package_version("numba") is None:
        return Missing("Numba is not installed", "pip install 'portkern[numba]'")
    here = platform.machine().replace("arm64", "aarch64")
    if machine(target) != here:
        return Missing(f"Numba compiles for the machine it runs on, {here}")
    return True


def _import_numba(target: Target) -> None:
    able = builds(target)
    if isinstance(able, Missing):
        raise BackendUnavailable(str(able))
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
    """The source. Where it is to be loaded it is compiled there, once: code that is made here would
    not be kept, as what a build leaves beside the source may be the candidate's own."""
    path = workdir / f"{request.candidate.entry}.py"
    path.write_text(request.candidate.source, encoding="utf-8")
    _import(path, request, compiled=not request.runnable)
    return Artifact(path, "numba")


def _import(path: Path, request: Build, *, compiled: bool) -> Callable[..., object]:
    """The kernel's function. Raises BuildError with Numba's words."""
    _import_numba(request.target)
    from numba.core.errors import NumbaError

    try:
        function = import_function(path, request)
        if compiled:
            _compile(function, request)
    except NumbaError as error:
        raise BuildError(f"Numba rejected {request.candidate.entry!r}", log=str(error)) from error
    return function


def _compile(function: Callable[..., object], request: Build) -> None:
    """Compile for the request's types now, and not in a call."""
    import numba

    if not isinstance(function, numba.core.dispatcher.Dispatcher):
        return  # a plain function that calls jitted ones: they compile when it runs
    if not getattr(function, "_can_compile"):  # noqa: B009 - the stubs lack it
        return  # its decorator states the types, for which it was compiled when it was imported
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

    function = _import(artifact.path, request, compiled=True)
    # A Python float is a float64 to Numba and would pull the kernel's arithmetic with it.
    kinds = {
        s.name: getattr(numpy, s.dtype.replace("bool", "bool_")) for s in request.signature.scalars
    }

    def launch(call: Call) -> Sequence[torch.Tensor]:
        arrays = [tensor.numpy() for tensor in (*call.inputs, *call.outputs)]
        function(*arrays, *(kind(call.scalars[name]) for name, kind in kinds.items()))
        return call.outputs

    opened: Device = device
    return Kernel(opened, launch, code=lambda: _object(function))


def _object(function: Callable[..., object]) -> bytes:
    """The object file of the one function that was compiled; empty where it is not Numba's, or
    this Numba keeps its modules elsewhere."""
    compiled: Any = list(getattr(function, "overloads", {}).values())
    if len(compiled) != 1:
        return b""
    library = compiled[0].library
    try:
        return bytes(library._codegen._tm.emit_object(library._final_module))
    except (AttributeError, RuntimeError):
        return b""
