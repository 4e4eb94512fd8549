// The current stream and device, as at::cuda has them.
#pragma once
#include "../../c10/cuda/CUDAGuard.h"
#include "../../cublas_v2.h"

namespace at::cuda {
using namespace c10::cuda;

inline cudaDeviceProp* getDeviceProperties(c10::DeviceIndex device) {
    static cudaDeviceProp properties;
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
    return &properties;
}
inline cudaDeviceProp* getCurrentDeviceProperties() { return getDeviceProperties(0); }
inline int warp_size() { return warpSize; }
inline cublasHandle_t getCurrentCUDABlasHandle() {
    static cublasHandle_t handle;
    if (!handle) cublasCreate(&handle);
    return handle;
}

}  // namespace at::cuda
