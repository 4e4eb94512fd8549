"""Python functions that take torch tensors and return their outputs: ``run(x) -> y``."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from portkern.errors import BuildError
from portkern.spec.backend import Artifact, Build, Call, Device, Kernel
from portkern.toolchain import returned
from portkern.toolchain.torch_device import TorchDevice

if TYPE_CHECKING:
    import torch


def build(request: Build, workdir: Path) -> Artifact:
    """There is nothing to compile; what the file does when it is imported fails here."""
    path = workdir / f"{request.candidate.entry}.py"
    path.write_text(request.candidate.source, encoding="utf-8")
    import_function(path, request)
    return Artifact(path, "python")


def load(artifact: Artifact, request: Build, device: TorchDevice) -> Kernel:
    import torch

    function = import_function(artifact.path, request)

    def launch(call: Call) -> Sequence[torch.Tensor]:
        result = function(*call.inputs, **call.scalars)
        # Exactly: a subclass may compute when it is looked at.
        return returned.outputs(
            result, request, call.dims, kind=torch.Tensor, called="torch.Tensor", exactly=True
        )

    opened: Device = device
    return Kernel(opened, launch)


def import_function(path: Path, request: Build) -> Callable[..., object]:
    """The function of that name in the module at ``path``; raises BuildError without one."""
    name = request.candidate.entry
    spec = importlib.util.spec_from_file_location(f"portkern_candidate_{name}", path)
    assert spec is not None and spec.loader is not None  # the suffix is .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Numba's cache finds a function's globals by their module
    try:
        spec.loader.exec_module(module)
    except (SyntaxError, NameError, ImportError, AttributeError) as error:
        raise BuildError(f"{path.name} cannot be imported: {error}") from error
    if not callable(getattr(module, name, None)):
        raise BuildError(f"The source defines no function {name!r}; expected {_call(request)}")
    function: Callable[..., object] = getattr(module, name)
    return function


def _call(request: Build) -> str:
    signature, returns = request.signature, request.candidate.style == "return"
    names = [t.name for t in (*signature.inputs, *(() if returns else signature.outputs))]
    names += [s.name for s in signature.scalars]
    result = f" -> {', '.join(t.name for t in signature.outputs)}" if returns else ""
    return f"def {request.candidate.entry}({', '.join(names)}){result}"
