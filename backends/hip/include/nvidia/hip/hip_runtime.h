// HIP's API on NVIDIA, as far as kernels and their launchers use it. HIP's own headers for nvcc do
// not compile with CUDA 13, whose runtime changed under them.
#pragma once
#include <cuda_runtime.h>

#define __HIP_PLATFORM_NVIDIA__ 1
#define HIP_KERNEL_NAME(...) __VA_ARGS__
#define HIP_DYNAMIC_SHARED(type, name) extern __shared__ type name[];
#define hipLaunchKernelGGL(kernel, grid, block, shared, stream, ...) \
    (kernel)<<<(grid), (block), (shared), (stream)>>>(__VA_ARGS__)

typedef cudaError_t hipError_t;
typedef cudaStream_t hipStream_t;
typedef cudaEvent_t hipEvent_t;
typedef cudaDeviceProp hipDeviceProp_t;
typedef cudaDeviceAttr hipDeviceAttribute_t;
typedef cudaFuncAttribute hipFuncAttribute;
typedef cudaMemcpyKind hipMemcpyKind;

#define hipSuccess cudaSuccess
#define hipErrorInvalidValue cudaErrorInvalidValue
#define hipErrorInvalidConfiguration cudaErrorInvalidConfiguration
#define hipErrorOutOfMemory cudaErrorMemoryAllocation
#define hipErrorNotSupported cudaErrorNotSupported
#define hipErrorUnknown cudaErrorUnknown
#define hipMemcpyHostToDevice cudaMemcpyHostToDevice
#define hipMemcpyDeviceToHost cudaMemcpyDeviceToHost
#define hipMemcpyDeviceToDevice cudaMemcpyDeviceToDevice
#define hipMemcpyDefault cudaMemcpyDefault
#define hipFuncAttributeMaxDynamicSharedMemorySize cudaFuncAttributeMaxDynamicSharedMemorySize
#define hipDeviceAttributeMultiprocessorCount cudaDevAttrMultiProcessorCount
#define hipDeviceAttributeMaxThreadsPerBlock cudaDevAttrMaxThreadsPerBlock
#define hipDeviceAttributeMaxSharedMemoryPerBlock cudaDevAttrMaxSharedMemoryPerBlock
#define hipDeviceAttributeMaxThreadsPerMultiProcessor cudaDevAttrMaxThreadsPerMultiProcessor
#define hipDeviceAttributeMaxGridDimX cudaDevAttrMaxGridDimX
#define hipDeviceAttributeWarpSize cudaDevAttrWarpSize

#define hipGetLastError cudaGetLastError
#define hipPeekAtLastError cudaPeekAtLastError
#define hipGetErrorString cudaGetErrorString
#define hipGetErrorName cudaGetErrorName
#define hipGetDevice cudaGetDevice
#define hipSetDevice cudaSetDevice
#define hipGetDeviceProperties cudaGetDeviceProperties
#define hipDeviceGetAttribute cudaDeviceGetAttribute
#define hipDeviceSynchronize cudaDeviceSynchronize
#define hipStreamSynchronize cudaStreamSynchronize
#define hipMalloc cudaMalloc
#define hipMallocAsync cudaMallocAsync
#define hipFree cudaFree
#define hipFreeAsync cudaFreeAsync
#define hipMemcpy cudaMemcpy
#define hipMemcpyAsync cudaMemcpyAsync
#define hipMemset cudaMemset
#define hipMemsetAsync cudaMemsetAsync
#define hipLaunchKernel cudaLaunchKernel
#define hipLaunchCooperativeKernel cudaLaunchCooperativeKernel
#define hipFuncSetAttribute(function, attribute, value) \
    cudaFuncSetAttribute((const void*)(function), (attribute), (value))
#define hipOccupancyMaxActiveBlocksPerMultiprocessor cudaOccupancyMaxActiveBlocksPerMultiprocessor

// HIP's warp functions take no mask: all lanes take part. Ballots are 64 bits wide on every target.
// The _sync ones take 64-bit masks of which NVIDIA has the lower half.
#define PORTKERN_FULL 0xffffffffu
template <class T>
__device__ __forceinline__ T __shfl(T value, int lane, int width = 32) {
    return __shfl_sync(PORTKERN_FULL, value, lane, width);
}
template <class T>
__device__ __forceinline__ T __shfl_xor(T value, int mask, int width = 32) {
    return __shfl_xor_sync(PORTKERN_FULL, value, mask, width);
}
template <class T>
__device__ __forceinline__ T __shfl_up(T value, unsigned delta, int width = 32) {
    return __shfl_up_sync(PORTKERN_FULL, value, delta, width);
}
template <class T>
__device__ __forceinline__ T __shfl_down(T value, unsigned delta, int width = 32) {
    return __shfl_down_sync(PORTKERN_FULL, value, delta, width);
}
// Macros, because CUDA still declares functions of these names, from before its warps had masks.
#define __ballot(predicate) ((unsigned long long)__ballot_sync(0xffffffffu, (predicate)))
#define __any(predicate) __any_sync(0xffffffffu, (predicate))
#define __all(predicate) __all_sync(0xffffffffu, (predicate))
#define __activemask() ((unsigned long long)(__activemask)())
__device__ __forceinline__ unsigned __lane_id() {
    unsigned lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}
#undef PORTKERN_FULL
