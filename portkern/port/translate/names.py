"""The table of names: CUDA's, and what HIP calls them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType


@dataclass(frozen=True)
class Name:
    """``hip`` is empty where HIP has nothing; ``kind`` is "header" or what sort of name it is."""

    cuda: str
    hip: str
    kind: str


@dataclass(frozen=True)
class NameTable:
    names: Mapping[str, Name]
    headers: Mapping[str, Name]
    back: Mapping[str, str]  # HIP's names, and the CUDA name that each comes from
    headers_back: Mapping[str, str]


#: The name that is written on the way back where several CUDA names have one HIP name.
_PRIMARY = frozenset(
    "cuda_runtime.h cuda_runtime_api.h cublas_v2.h curand.h curand_kernel.h cusparse.h cufft.h "
    "cusolverDn.h cub/cub.cuh cuda_fp16.h cuda_bf16.h cuda_fp8.h nvToolsExt.h nvrtc.h "
    "cooperative_groups.h cudaError_t cudaMalloc cudaMemcpy cudaMemcpyAsync cudaMemset cudaFree "
    "cudaMallocHost cudaFreeHost cudaDeviceSynchronize cudaDeviceReset cudaStream_t cudaEvent_t "
    "cudaSuccess cudaDeviceProp cudaFuncAttributes cudaArray_t cudaGraph_t cudaGraphExec_t "
    "cudaHostAlloc cudaMemcpyKind __nv_bfloat16 __nv_bfloat162 __CUDACC__ CUdevice CUcontext "
    "CUmodule CUfunction CUstream CUevent CUdeviceptr cublasHandle_t cublasStatus_t nvtxMarkA "
    "CUBLAS_GEMM_DEFAULT cudaDataType_t cudaPointerAttributes cudaTextureObject_t "
    "cudaChannelFormatDesc cudaResourceDesc cudaErrorInvalidValue cudaErrorMemoryAllocation "
    "cudaDeviceAttr cudaLimit cudaMemcpyToSymbol cudaMemcpyFromSymbol "
    "cudaErrorNotReady cudaErrorInvalidDevice cudaErrorLaunchFailure".split()
)


@cache
def table() -> NameTable:
    names: dict[str, Name] = {}
    headers: dict[str, Name] = {}
    for name in _rows():
        (headers if name.kind == "header" else names).setdefault(name.cuda, name)
    return NameTable(
        MappingProxyType(names),
        MappingProxyType(headers),
        MappingProxyType(_back(names)),
        MappingProxyType(_back(headers)),
    )


def _rows() -> Iterator[Name]:
    """The rows of both tables of names, those added by hand first."""
    folder = resources.files("portkern.port.translate")
    for file in ("more_names.tsv", "names.tsv"):
        for line in (folder / file).read_text("utf-8").splitlines():
            if line and not line.startswith("#"):
                cuda, hip, kind, *_ = line.split("\t")
                yield Name(cuda, hip, kind)


def _back(names: Mapping[str, Name]) -> dict[str, str]:
    """One CUDA name for each of HIP's: the primary one, of the runtime rather than the driver,
    the shortest, the first in the alphabet."""
    back: dict[str, str] = {}
    for name in sorted(names.values(), key=_rank):
        if name.hip != name.cuda and _OF_HIP.search(name.hip):
            back.setdefault(name.hip, name.cuda)
    return back


def _rank(name: Name) -> tuple[bool, bool, bool, int, str]:
    driver = name.kind == "driver" or re.match(r"cu[A-Z]|CU[A-Z_a-z]", name.cuda) is not None
    alike = name.cuda.lower().removeprefix("cuda") == name.hip.lower().removeprefix("hip")
    return name.cuda not in _PRIMARY, not alike, driver, len(name.cuda), name.cuda


#: The marks of HIP's names: some of CUDA's types are plain words of C in HIP.
_OF_HIP = re.compile(r"(?i)hip|roc|rccl|/")
#: Folders and files of HIP's libraries as ``#include`` names them.
_HIP_HEADER = re.compile(
    r"(?:hip|hipcub|hipblas|hipblaslt|hiprand|hipfft|hipsparse|hipsparselt|hipsolver|rocprim|"
    r"rocblas|rocrand|rocwmma|rccl|miopen|roctracer|rocm_smi)/"
)


def is_hip_header(path: str) -> bool:
    return _HIP_HEADER.match(path) is not None
