"""Calls a native kernel's C entry point on torch tensors, with no PyTorch header in the build."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

from portkern.errors import LaunchError
from portkern.spec import abi
from portkern.spec.backend import Artifact, Build, Call, Device, Kernel
from portkern.toolchain.torch_device import TorchDevice

if TYPE_CHECKING:
    import torch


def load_library(artifact: Artifact, request: Build, device: TorchDevice) -> Kernel:
    """Open a shared library built from ``request`` and bind its entry to ``device``'s stream.

    Raises LaunchError, when called, with the code that the entry returned.
    """
    signature, entry = request.signature, request.candidate.entry
    library = ctypes.CDLL(str(artifact.path))
    function = abi.bind(library, signature, entry, stream=device.gpu)
    arguments, gpu = abi.Arguments(signature), device.gpu

    def launch(call: Call) -> Sequence[torch.Tensor]:
        pointers = [tensor.data_ptr() for tensor in (*call.inputs, *call.outputs)]
        given = arguments.of(pointers, call.dims, call.scalars)
        code = function(*given, device.stream) if gpu else function(*given)
        if code != 0:
            raise LaunchError(f"{entry} returned {code}, expected 0 (the launch was accepted)")
        return call.outputs

    opened: Device = device
    return Kernel(opened, launch)
