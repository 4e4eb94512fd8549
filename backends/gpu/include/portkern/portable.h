// One source for CUDA and HIP. It calls the runtime and names types as in CUDA, which HIP's names
// are put under here; for what works on warps it has the names below, because a warp has 32 lanes on
// NVIDIA's GPUs and on RDNA, 64 on CDNA. Where the two need different code, PORTKERN_HIP is 1 or 0, and where
// the GPUs do, PORTKERN_AMD: HIP on NVIDIA has CUDA's instructions.
//
// Headers of CUDA's own cannot be included: the runtime's is here, and the prelude brings those of
// the half types that arguments have.
#pragma once

#if defined(__HIP__) || defined(__HIP_PLATFORM_AMD__) || defined(__HIP_PLATFORM_NVIDIA__)
#define PORTKERN_HIP 1
#include <hip/hip_runtime.h>
#else
#define PORTKERN_HIP 0
#include <cuda_runtime.h>
#endif
#if PORTKERN_HIP && !defined(__HIP_PLATFORM_NVIDIA__)
#define PORTKERN_AMD 1
#else
#define PORTKERN_AMD 0
#endif

// ---- Warps -------------------------------------------------------------------------------------
// WARP_SIZE is for device code, where AMD's is no constant expression. Shared arrays of a value per warp have
// BLOCK / WARP_SIZE_MIN elements; the host makes blocks of multiples of WARP_SIZE_MAX.
//
// All lanes of a warp take part in the others, which are macros so that what is found wrong with a
// call has its line. warp_mask_t has a bit per lane; warp_first is the place of its lowest.
#define WARP_SIZE_MIN 32
#if PORTKERN_AMD
#define WARP_SIZE warpSize
#define WARP_SIZE_MAX 64
#else
#define WARP_SIZE 32
#define WARP_SIZE_MAX 32
#endif
#if PORTKERN_HIP
typedef unsigned long long warp_mask_t;
#define warp_shuffle(...) __shfl(__VA_ARGS__)
#define warp_shuffle_xor(...) __shfl_xor(__VA_ARGS__)
#define warp_shuffle_up(...) __shfl_up(__VA_ARGS__)
#define warp_shuffle_down(...) __shfl_down(__VA_ARGS__)
#define warp_ballot(...) __ballot(__VA_ARGS__)
#define warp_any(...) __any(__VA_ARGS__)
#define warp_all(...) __all(__VA_ARGS__)
#define warp_count(mask) __popcll(mask)
#define warp_first(mask) (__ffsll(mask) - 1)
#else
typedef unsigned warp_mask_t;
#define warp_shuffle(...) __shfl_sync(~0u, __VA_ARGS__)
#define warp_shuffle_xor(...) __shfl_xor_sync(~0u, __VA_ARGS__)
#define warp_shuffle_up(...) __shfl_up_sync(~0u, __VA_ARGS__)
#define warp_shuffle_down(...) __shfl_down_sync(~0u, __VA_ARGS__)
#define warp_ballot(...) __ballot_sync(~0u, __VA_ARGS__)
#define warp_any(...) __any_sync(~0u, __VA_ARGS__)
#define warp_all(...) __all_sync(~0u, __VA_ARGS__)
#define warp_count(mask) __popc(mask)
#define warp_first(mask) (__ffs(mask) - 1)
#endif

// ---- Kernels -----------------------------------------------------------------------------------
// __launch_bounds__ with blocks per multiprocessor, which HIP takes for waves per SIMD on AMD's GPUs. 0: the
// compiler chooses, which with 1 would take all registers.
#if PORTKERN_AMD
#define PORTABLE_LAUNCH_BOUNDS(threads, blocks) __launch_bounds__(threads)
#else
#define PORTABLE_LAUNCH_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#endif

// Of a kernel's argument that device code has references to; HIP knows no such word, but nvcc does.
#if PORTKERN_HIP && !defined(__NVCC__)
#define PORTABLE_GRID_CONSTANT
#else
#define PORTABLE_GRID_CONSTANT __grid_constant__
#endif

// The larger of two, a NaN being larger than all. CUDA has an instruction of halves for that.
template <class T>
__device__ __forceinline__ T max_nan(T a, T b) {
    if constexpr (sizeof(T) > 2)
        return b > a || b != b ? b : a;
    else if constexpr (PORTKERN_HIP)
        return float(b) > float(a) || float(b) != float(b) ? b : a;
    else
        return __hmax_nan(a, b);
}

// ---- CUDA's names ------------------------------------------------------------------------------
// __half and the conversions between halves and float are spelled alike in both.
#if PORTKERN_HIP
#define __nv_bfloat16 __hip_bfloat16
#define __nv_bfloat162 __hip_bfloat162
#endif

#ifdef __HIP_PLATFORM_AMD__  // HIP on NVIDIA has CUDA's runtime
#define cudaStream_t hipStream_t
#define cudaError_t hipError_t
#define cudaSuccess hipSuccess
#define cudaErrorInvalidValue hipErrorInvalidValue
#define cudaGetLastError hipGetLastError
#define cudaGetErrorString hipGetErrorString
#define cudaMallocAsync hipMallocAsync
#define cudaMemPool_t hipMemPool_t
#define cudaDeviceGetDefaultMemPool hipDeviceGetDefaultMemPool
#define cudaMemPoolSetAttribute hipMemPoolSetAttribute
#define cudaMemPoolAttrReleaseThreshold hipMemPoolAttrReleaseThreshold
#define cudaFreeAsync hipFreeAsync
#define cudaMemsetAsync hipMemsetAsync
#define cudaMemcpyAsync hipMemcpyAsync
#define cudaMemcpyDeviceToDevice hipMemcpyDeviceToDevice
#define cudaGetDevice hipGetDevice
#define cudaDeviceGetAttribute hipDeviceGetAttribute
#define cudaDevAttrMultiProcessorCount hipDeviceAttributeMultiprocessorCount
#define cudaFuncAttributeMaxDynamicSharedMemorySize hipFuncAttributeMaxDynamicSharedMemorySize
#define cudaOccupancyMaxActiveBlocksPerMultiprocessor hipOccupancyMaxActiveBlocksPerMultiprocessor
template <class Kernel>
inline hipError_t cudaFuncSetAttribute(Kernel* kernel, hipFuncAttribute attribute, int value) {
#ifdef SIMT_HIP  // the executor looks at the kernel's type
    return hipFuncSetAttribute(kernel, attribute, value);
#else
    return hipFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
#endif
}
#endif
