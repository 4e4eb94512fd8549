"""NVIDIA's run-time compiler, for machines with no host compiler: device code only."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from portkern.errors import BuildError
from portkern.spec.backend import Artifact, Build, Missing
from portkern.toolchain import source_tree

from . import nvcc, ptxas, source

# NVRTC has no C library. These are the names that kernels use of it.
_STDINT = """
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long int64_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t;
typedef unsigned long uint64_t; typedef long intptr_t; typedef unsigned long uintptr_t;
"""
# NVRTC refuses host functions, so launchers are compiled as device functions that launch kernels
# (dynamic parallelism): every kernel they name is instantiated and the prototype is checked. Calls
# of the host's API that have no device twin are accepted here and mean nothing.
_HOST_API = """
#include <cuda_device_runtime_api.h>
template <class... A> __device__ cudaError_t cudaFuncSetAttribute(A...) { return cudaSuccess; }
template <class... A> __device__ cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    int* blocks, A...) { *blocks = 1; return cudaSuccess; }
template <class... A> __device__ cudaError_t cudaDeviceGetDefaultMemPool(A...) {
    return cudaSuccess; }
template <class... A> __device__ cudaError_t cudaMemPoolSetAttribute(A...) { return cudaSuccess; }
template <class... A> __device__ cudaError_t cudaMallocAsync(A...) { return cudaSuccess; }
template <class... A> __device__ cudaError_t cudaFreeAsync(A...) { return cudaSuccess; }
"""
_FLAGS = ("-std=c++17", "-lineinfo", "-default-device", "-rdc=true", "--ptxas-options=-v")


@dataclass(frozen=True)
class Nvrtc:
    """The library, and the folder of CUDA's headers beside it."""

    library: Path
    include: Path
    version: str


@lru_cache
def find() -> Nvrtc | Missing:
    for root in nvcc.pypi_roots():
        libraries = sorted((root / "lib").glob("libnvrtc.so.*"))
        if not libraries or not (root / "include" / "cuda_runtime.h").exists():
            continue
        major, minor = ctypes.c_int(), ctypes.c_int()
        ctypes.CDLL(str(libraries[0])).nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        return Nvrtc(libraries[0], root / "include", f"{major.value}.{minor.value}")
    return Missing("no NVRTC: nvidia-cuda-nvrtc or nvidia-cuda-runtime is absent", nvcc.REMEDY)


def build(nvrtc: Nvrtc, request: Build, workdir: Path) -> Artifact:
    """Compile the device code to a cubin. Raises BuildError, also for a build that is to run."""
    if request.runnable:
        raise BuildError("NVRTC makes device code only; install nvcc and g++ to run it here")
    tree = source_tree.write(request.candidate, workdir)
    text = source.numbered(request, _HOST_API + source.prelude(request), ".cu", tree)
    source.write(request, text, workdir, ".cu")
    number = nvcc.arch(request.target)
    folders = (*tree.search, nvrtc.include, nvrtc.include / "cccl", *nvcc.INCLUDES)
    options = [f"-arch=sm_{number}", *_FLAGS, *(f"-I{folder}" for folder in folders)]
    options += [f"-D{define}" for define in tree.defines]
    with _Program(nvrtc, text) as program:
        log = program.compile(options)
        output = workdir / f"{request.signature.name}.cubin"
        output.write_bytes(program.read("CUBIN"))
        ptx = program.read("PTX").decode(errors="replace")
    return Artifact(output, "cubin", ptxas.resources(log, ptx, linked=False), log)


class _Program:
    """An nvrtcProgram, destroyed on leaving."""

    def __init__(self, nvrtc: Nvrtc, text: str) -> None:
        self._library = ctypes.CDLL(str(nvrtc.library))
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        self._handle = ctypes.c_void_p()
        headers = (ctypes.c_char_p * 1)(_STDINT.encode())
        names = (ctypes.c_char_p * 1)(b"stdint.h")
        self._check(
            self._library.nvrtcCreateProgram(
                ctypes.byref(self._handle), text.encode(), b"prelude.cu", 1, headers, names
            )
        )

    def __enter__(self) -> _Program:
        return self

    def __exit__(self, *_: object) -> None:
        self._library.nvrtcDestroyProgram(ctypes.byref(self._handle))

    def compile(self, options: list[str]) -> str:
        encoded = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        status = self._library.nvrtcCompileProgram(self._handle, len(options), encoded)
        log = self.read("ProgramLog").rstrip(b"\0").decode(errors="replace")
        self._check(status, log)
        return log

    def read(self, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._library, f"nvrtcGet{what}Size")(self._handle, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._library, f"nvrtcGet{what}")(self._handle, buffer))
        return buffer.raw

    def _check(self, status: int, log: str = "") -> None:
        if status != 0:
            reason = self._library.nvrtcGetErrorString(status).decode()
            raise BuildError(f"NVRTC failed: {reason}", log=log)
