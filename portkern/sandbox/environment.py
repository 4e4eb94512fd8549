"""The environment that a worker sees of the evaluator's: an exact list of names.

A prefix would not do: ``TRITON_API_KEY`` or ``NVIDIA_API_KEY`` is a key for somebody's service.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from portkern.toolchain import host
from portkern.toolchain.run_tool import CREDENTIAL

#: The variables by what reads them. A setting of a tool that is not here does not reach a kernel.
_NAMES = {
    "the system": "PATH LANG LANGUAGE LC_ALL LC_CTYPE LD_LIBRARY_PATH TZ DO_NOT_TRACK",
    "Python": (
        "VIRTUAL_ENV PYTHONPATH PYTHONHOME PYTHONHASHSEED PYTHONUTF8 PYTHONIOENCODING "
        "PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX PYTHONNOUSERSITE PYTHONUSERBASE "
        "PYTHONWARNINGS PYTHONFAULTHANDLER PYTHONOPTIMIZE"
    ),
    "portkern": "PORTKERN_CACHE_DIR PORTKERN_TARGETS_DIR PORTKERN_CONTAINMENT",
    "CUDA": (
        "CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDA_HOME CUDA_PATH CUDA_ROOT CUDA_CACHE_PATH "
        "CUDA_CACHE_DISABLE CUDA_CACHE_MAXSIZE CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING "
        "CUDA_DEVICE_MAX_CONNECTIONS CUDA_MPS_PIPE_DIRECTORY CUDA_FORCE_PTX_JIT "
        "NVIDIA_VISIBLE_DEVICES NVIDIA_DRIVER_CAPABILITIES NVIDIA_TF32_OVERRIDE"
    ),
    "ROCm": (
        "ROCM_PATH ROCM_HOME HIP_PATH HIP_PLATFORM HIP_DEVICE_LIB_PATH HIP_VISIBLE_DEVICES "
        "HIP_LAUNCH_BLOCKING ROCR_VISIBLE_DEVICES GPU_DEVICE_ORDINAL AMD_SERIALIZE_KERNEL "
        "HSA_OVERRIDE_GFX_VERSION HSA_ENABLE_SDMA HSA_XNACK"
    ),
    "OpenCL": (
        "OCL_ICD_VENDORS OCL_ICD_FILENAMES OPENCL_VENDOR_PATH PYOPENCL_CTX PYOPENCL_NO_CACHE "
        "POCL_CACHE_DIR POCL_DEVICES POCL_DEBUG POCL_KERNEL_CACHE POCL_MAX_PTHREAD_COUNT "
        "POCL_CPU_MAX_CU_COUNT POCL_AFFINITY POCL_WORK_GROUP_METHOD"
    ),
    "threads": (
        "OMP_NUM_THREADS OMP_PROC_BIND OMP_PLACES OMP_WAIT_POLICY OMP_DYNAMIC OMP_SCHEDULE "
        "OMP_STACKSIZE OMP_THREAD_LIMIT OMP_MAX_ACTIVE_LEVELS OMP_NESTED OMP_DISPLAY_ENV "
        "GOMP_SPINCOUNT GOMP_CPU_AFFINITY GOMP_STACKSIZE KMP_BLOCKTIME KMP_AFFINITY "
        "KMP_DUPLICATE_LIB_OK KMP_HW_SUBSET KMP_STACKSIZE MKL_NUM_THREADS MKL_DYNAMIC "
        "MKL_THREADING_LAYER MKL_ENABLE_INSTRUCTIONS MKL_CBWR OPENBLAS_NUM_THREADS "
        "OPENBLAS_CORETYPE OPENBLAS_THREAD_TIMEOUT"
    ),
    "Numba": (
        "NUMBA_NUM_THREADS NUMBA_THREADING_LAYER NUMBA_CPU_NAME NUMBA_CPU_FEATURES "
        "NUMBA_CACHE_DIR NUMBA_OPT NUMBA_DISABLE_JIT"
    ),
    "Triton, JAX and torch": (
        "TRITON_CACHE_DIR TRITON_INTERPRET TRITON_PTXAS_PATH TRITON_LIBDEVICE_PATH "
        "TRITON_DEFAULT_FP_FUSION JAX_PLATFORMS JAX_ENABLE_X64 XLA_FLAGS "
        "XLA_PYTHON_CLIENT_PREALLOCATE XLA_PYTHON_CLIENT_MEM_FRACTION TORCH_CUDA_ARCH_LIST "
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"
    ),
}
ALLOWED = frozenset(name for names in _NAMES.values() for name in names.split())


def inherited() -> dict[str, str]:
    """The variables of the evaluator's environment that a worker, or a profiler around one,
    gets."""
    allowed = {name: value for name, value in os.environ.items() if may_pass(name)}
    return {**allowed, **_threads(allowed), **host.GPU_NUMBERING}


def _threads(allowed: Mapping[str, str]) -> dict[str, str]:
    """Numba's are OpenMP's. It would start one for each CPU, or as many as it is told, by OpenMP's
    own setting: torch's number of threads would change with the first kernel."""
    given = allowed.get("OMP_NUM_THREADS") or allowed.get("NUMBA_NUM_THREADS", "")
    number = given.partition(",")[0].strip()  # of OpenMP's nested regions the outermost
    if not number.isdecimal() or not int(number):
        return {}
    return {"OMP_NUM_THREADS": given, "NUMBA_NUM_THREADS": number}


def may_pass(name: str) -> bool:
    """Whether a variable may pass: never a credential, even if one should be listed above."""
    return name in ALLOWED and not CREDENTIAL.search(name)
