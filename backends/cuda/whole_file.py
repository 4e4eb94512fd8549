"""Builds the device side of a whole CUDA file, host code and all: what a port to CUDA is made of.

Host code is parsed and not compiled: its headers must be there.
"""

from __future__ import annotations

from pathlib import Path

from portkern.errors import BackendUnavailable
from portkern.spec.backend import Missing, Resources
from portkern.spec.file_build import FileBuild, FileObject, KernelObject
from portkern.spec.target import NvidiaLimits
from portkern.toolchain import make_rule
from portkern.toolchain.run_tool import run_tool

from . import nvcc, ptxas

_REGISTER_BYTES = 4


def build(request: FileBuild, workdir: Path) -> FileObject:
    compiler = nvcc.find()
    if isinstance(compiler, Missing):
        raise BackendUnavailable(str(compiler))
    number = nvcc.arch(request.target)
    output = workdir / f"{request.file.stem}.sm_{number}.cubin"
    listed, ptx = output.with_suffix(".d"), workdir / f"{request.file.stem}.ptx"
    log = run_tool(
        [
            compiler.path,
            *("-x", "cu", "-cubin", "-O3", f"-std={request.standard}", "-w"),
            *("-gencode", f"arch=compute_{number},code=sm_{number}"),
            *("-Xptxas", "-v", "--keep", "--keep-dir", workdir),
            *("-MD", "-MF", listed),
            *(f"-D{text}" for text in request.defines),
            *(flag for folder in request.include for flag in ("-I", folder)),
            request.file,
            *("-o", output),
        ],
        whose="foreign",
        timeout_s=request.timeout_s,
        cwd=workdir,
        env={"TMPDIR": str(workdir)},
    )
    declared = ptx.read_text() if ptx.exists() else ""
    kernels = [_kernel(used, request) for used in ptxas.resources(log, declared)]
    return FileObject(output, tuple(kernels), _headers(listed, compiler), log)


def _kernel(used: Resources, request: FileBuild) -> KernelObject:
    limits = request.target.limits
    assert isinstance(limits, NvidiaLimits)
    return KernelObject(
        name=used.kernel,
        symbol=used.kernel,
        vgprs=used.registers or 0,
        agprs=0,
        sgprs=None,
        lds_bytes=used.shared_bytes or 0,
        scratch_bytes=0,
        vgpr_spills=(used.spills or 0) // _REGISTER_BYTES,
        sgpr_spills=0,
        threads=used.threads or limits.threads_block,
        wave=request.target.warp or 32,
    )


def _headers(listed: Path, compiler: nvcc.Nvcc) -> tuple[Path, ...]:
    """The headers that a build read, without the toolkit's own."""
    toolkit = compiler.path.resolve().parents[1]
    paths = make_rule.prerequisites(listed)
    return tuple(path for path in paths if not path.resolve().is_relative_to(toolkit))
