"""Headers that a compiler does not find: whose they are, and what would bring them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from portkern.spec.target import Target

#: The missing header as clang says it, and as nvcc's host compiler does.
_NOT_FOUND = re.compile(r"'([^']+)' file not found|(\S+): No such file or directory")
_ROCM = "install ROCm, whose hipcc is used where it is found"
#: Path's beginning → what it belongs to and how it is had.
_OF_ROCM = {
    "hipcub/": "hipCUB",
    "rocprim/": "rocPRIM",
    "thrust/": "rocThrust",
    "hiprand": "hipRAND",
    "rocrand": "rocRAND",
    "hipblas": "hipBLAS",
    "rocblas": "rocBLAS",
    "hipfft": "hipFFT",
    "rocfft": "rocFFT",
    "hipsparse": "hipSPARSE",
    "rocsparse": "rocSPARSE",
    "hipsolver": "hipSOLVER",
    "rocsolver": "rocSOLVER",
    "hiptensor": "hipTensor",
    "miopen": "MIOpen",
    "rccl": "RCCL",
    "rocwmma": "rocWMMA",
    "ck/": "Composable Kernel",
    "ck_tile/": "Composable Kernel",
    "roctracer": "ROCTracer",
    "roctx": "ROCTX",
    "rocm": "ROCm",
    "hip/": "HIP",
    "hsa/": "ROCr",
}
_OF_OTHERS = {
    "torch/": ("PyTorch's C++ headers", "give their folder with include="),
    "ATen/": ("PyTorch's C++ headers", "give their folder with include="),
    "c10/": ("PyTorch's C++ headers", "give their folder with include="),
    "THC/": ("PyTorch before 1.11", "give the folder of its headers with include="),
    "pybind11/": ("pybind11", "give its folder with include="),
    "Python.h": ("Python's C headers", "give their folder with include="),
    "mpi.h": ("MPI", "install an MPI, and give its folder with include="),
    "boost/": ("Boost", "install it, and give its folder with include="),
    "gtest/": ("GoogleTest", "install it, and give its folder with include="),
    "Eigen/": ("Eigen", "install it, and give its folder with include="),
    "gsl/": ("GSL", "install it, and give its folder with include="),
}
_OF_CUDA = re.compile(
    r"^(cuda|cu[A-Z]|cub/|cublas|cufft|curand|cusparse|cusolver|cudnn|cutlass|cute/|nvToolsExt|"
    r"nvtx|nccl|mma\.h|cooperative_groups|device_launch_parameters|crt/|helper_cuda|nv/|nvrtc|"
    r"thrust/system/cuda|sm_\d)"
)


@dataclass(frozen=True)
class AbsentHeader:
    """``code``: a HIP file has no business with the header; ``machine``: it has."""

    reason: str
    cause: Literal["machine", "code"]


def named(message: str) -> str:
    """The header that a compiler's error says is absent; '' when it says something else."""
    match = _NOT_FOUND.search(message)
    return match[1] or match[2] if match else ""


def reason(header: str, target: Target) -> AbsentHeader:
    amd, foreign = target.vendor == "amd", f"{target.name} has none: it is to be translated"
    if _OF_CUDA.match(header):
        if amd:
            return AbsentHeader(f"{header} is CUDA's, and {foreign}", "code")
        return AbsentHeader(f"this machine lacks {header}", "machine")
    library = next((name for start, name in _OF_ROCM.items() if header.startswith(start)), "")
    if library:
        if amd:
            return AbsentHeader(f"this machine lacks {header} of {library}: {_ROCM}", "machine")
        return AbsentHeader(f"{header} is of {library}, and {foreign}", "code")
    for start, (name, remedy) in _OF_OTHERS.items():
        if header.startswith(start):
            return AbsentHeader(f"this machine lacks {header} of {name}: {remedy}", "machine")
    return AbsentHeader(
        f"{header} is not found: give its folder with include=, or install what has it", "machine"
    )
