"""ROCm's hipcc: libraries that run on this machine's AMD GPU."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from portkern.errors import ToolError
from portkern.spec.backend import Artifact, Build, Missing
from portkern.toolchain.run_tool import run_tool

from ..gpu import INCLUDE as PORTABLE
from . import codeobject
from .precompiled import BUILD_S


@dataclass(frozen=True)
class Hipcc:
    path: Path
    version: str


def find() -> Hipcc | Missing:
    """hipcc of PATH, ``$ROCM_PATH`` or /opt/rocm; asked once per setting of these."""
    return _find(os.environ.get("PATH", ""), os.environ.get("ROCM_PATH", "/opt/rocm"))


def build(
    hipcc: Hipcc, request: Build, source: Path, workdir: Path, flags: Sequence[str] = ()
) -> Artifact:
    """Compile to a shared library when it is to run here, to a code object otherwise."""
    arch = f"--offload-arch={request.target.arch}"
    output = source.with_suffix(".so" if request.runnable else ".hsaco")
    device = ["--offload-device-only", "--no-gpu-bundle-output"]
    library = ["-shared", "-fPIC", "--save-temps=obj"]  # the code object is kept beside it
    log = run_tool(
        [
            hipcc.path,
            "-x",
            "hip",
            arch,
            "-O3",
            "-std=c++17",
            *flags,
            "-I",
            PORTABLE,
            *(library if request.runnable else device),
            source,
            "-o",
            output,
        ],
        whose="foreign",
        timeout_s=BUILD_S,
        cwd=workdir,
        env={"TMPDIR": str(workdir)},
    )
    if not request.runnable:
        return Artifact(output, "hsaco", codeobject.resources(output), log)
    objects = sorted(workdir.glob(f"*{request.target.arch}*.out"))
    used = codeobject.resources(objects[0]) if objects else ()
    return Artifact(output, "shared library", used, log)


@lru_cache
def _find(path: str, rocm: str) -> Hipcc | Missing:
    hipcc = shutil.which("hipcc", path=path) or shutil.which("hipcc", path=f"{rocm}/bin")
    if hipcc is None:
        return Missing("no hipcc on PATH or in $ROCM_PATH", "install ROCm")
    try:
        answer = run_tool([hipcc, "--version"], whose="own", timeout_s=60, error=ToolError)
    except ToolError as error:
        return Missing(f"hipcc does not start: {error}", "reinstall ROCm")
    version = re.search(r"HIP version: (\S+)", answer)
    return Hipcc(Path(hipcc), version[1] if version else "unknown")
