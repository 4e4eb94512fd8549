"""Whether an NVIDIA GPU of this machine can run what nvcc built."""

from __future__ import annotations

import re

from portkern.spec.backend import Missing, Venue
from portkern.spec.target import Target
from portkern.toolchain import host
from portkern.toolchain.run_tool import package_dir

from .nvcc import Nvcc


def torch_runtime(kind: str) -> str | None:
    """The ``cuda`` or ``hip`` version that the installed torch was built for, without importing
    it: its local version tag is absent from PyPI's CUDA builds, its version.py is not."""
    folder = package_dir("torch")
    file = folder / "version.py" if folder else None
    if file is None or not file.exists():
        return None
    match = re.search(rf"^{kind}\b[^=\n]*=\s*'([^']+)'", file.read_text(), re.MULTILINE)
    return match[1] if match else None


def hardware(target: Target, nvcc: Nvcc | Missing) -> Venue | Missing:
    gpu = host.gpu_for(target)
    if gpu is None:
        return Missing(f"no NVIDIA {target.name} GPU here")
    if isinstance(nvcc, Missing):
        return nvcc
    if torch_runtime("cuda") is None:
        return Missing("the installed torch is not a CUDA build", "pip install torch")
    return Venue("hardware", gpu.name, f"cuda:{gpu.index}")
