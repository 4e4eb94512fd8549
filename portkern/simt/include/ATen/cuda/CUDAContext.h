// The current stream and device, as at::cuda has them.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "../../c10/cuda/CUDAGuard.h"
#if SIMT_HIP
#include "../../hipblas/hipblas.h"
#else
#include "../../cublas_v2.h"
#endif

namespace at::cuda {
using namespace c10::cuda;

inline cudaDeviceProp* getDeviceProperties(c10::DeviceIndex device) {
    static cudaDeviceProp properties;
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
    return &properties;
}
inline cudaDeviceProp* getCurrentDeviceProperties() { return getDeviceProperties(0); }
inline int warp_size() { return warpSize; }
#if SIMT_HIP
inline hipblasHandle_t getCurrentCUDABlasHandle() {
    static hipblasHandle_t handle;
    if (!handle) hipblasCreate(&handle);
    return handle;
}
#else
inline cublasHandle_t getCurrentCUDABlasHandle() {
    static cublasHandle_t handle;
    if (!handle) cublasCreate(&handle);
    return handle;
}
#endif

}  // namespace at::cuda
