// Checks of CUDA calls, which throw c10::Error.
#pragma once
#include "../../cuda_runtime_api.h"
#include "../util/Exception.h"

#define C10_CUDA_CHECK(call)                                                                      \
    do {                                                                                          \
        const cudaError_t simt_error = call;                                                      \
        if (simt_error != cudaSuccess)                                                            \
            ::c10::detail::fail("", "CUDA error: ", cudaGetErrorString(simt_error));              \
    } while (0)
#define C10_CUDA_CHECK_WARN(call) C10_CUDA_CHECK(call)
#define C10_CUDA_IGNORE_ERROR(call) ((void)(call))
#define C10_CUDA_CLEAR_ERROR() ((void)cudaGetLastError())
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define AT_CUDA_CHECK(call) C10_CUDA_CHECK(call)
