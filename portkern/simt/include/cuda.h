// The driver API's types, which runtime code names; of its functions those that say what a code means,
// and that which describes a tensor to the copies of simt/ptx_async.h.
#pragma once
#include "cuda_runtime_api.h"
#include "simt/tensor_map.h"

#define __cuda_cuda_h__
#define CUDA_VERSION CUDART_VERSION

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUstream_st* CUstream;
typedef struct CUevent_st* CUevent;
typedef enum cudaError_enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
    CUDA_ERROR_LAUNCH_TIMEOUT = 702,
    CUDA_ERROR_ASSERT = 710,
    CUDA_ERROR_LAUNCH_FAILED = 719,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_UNKNOWN = 999,
} CUresult;

// The driver's codes are the runtime's; their names have another prefix.
static inline CUresult cuGetErrorName(CUresult error, const char** name) {
    switch ((int)error) {
#define SIMT_DRIVER_NAME(code) case (int)code: *name = #code; return CUDA_SUCCESS;
        SIMT_DRIVER_NAME(CUDA_SUCCESS)
        SIMT_DRIVER_NAME(CUDA_ERROR_INVALID_VALUE)
        SIMT_DRIVER_NAME(CUDA_ERROR_OUT_OF_MEMORY)
        SIMT_DRIVER_NAME(CUDA_ERROR_NOT_INITIALIZED)
        SIMT_DRIVER_NAME(CUDA_ERROR_NO_DEVICE)
        SIMT_DRIVER_NAME(CUDA_ERROR_INVALID_DEVICE)
        SIMT_DRIVER_NAME(CUDA_ERROR_INVALID_HANDLE)
        SIMT_DRIVER_NAME(CUDA_ERROR_ILLEGAL_ADDRESS)
        SIMT_DRIVER_NAME(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)
        SIMT_DRIVER_NAME(CUDA_ERROR_LAUNCH_TIMEOUT)
        SIMT_DRIVER_NAME(CUDA_ERROR_ASSERT)
        SIMT_DRIVER_NAME(CUDA_ERROR_LAUNCH_FAILED)
        SIMT_DRIVER_NAME(CUDA_ERROR_NOT_SUPPORTED)
        SIMT_DRIVER_NAME(CUDA_ERROR_UNKNOWN)
#undef SIMT_DRIVER_NAME
    }
    *name = nullptr;
    return CUDA_ERROR_INVALID_VALUE;
}
static inline CUresult cuGetErrorString(CUresult error, const char** text) {
    const CUresult known = cuGetErrorName(error, text);
    if (known == CUDA_SUCCESS) *text = cudaGetErrorString((cudaError_t)error);
    return known;
}
static inline CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
static inline CUresult cuDriverGetVersion(int* version) {
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

static inline CUresult cuTensorMapEncodeTiled(
    CUtensorMap* map, CUtensorMapDataType kind, cuuint32_t rank, void* base, const cuuint64_t* sizes,
    const cuuint64_t* pitch, const cuuint32_t* box, const cuuint32_t* step,
    CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
    CUtensorMapFloatOOBfill fill) {
    if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE)
        return (CUresult)simt::api::unsupported("cuTensorMapEncodeTiled of an interleaved layout", SIMT_HERE);
    simt::TensorMap made = {};
    made.magic = simt::TensorMap::known;
    made.base = (uint64_t)base;
    made.rank = (uint8_t)rank;
    made.element_bytes = (uint8_t)simt::bytes_of(kind);
    made.swizzle_bytes = swizzle == CU_TENSOR_MAP_SWIZZLE_NONE ? 0 : (uint8_t)(16 << swizzle);
    if (!map || (uintptr_t)map % 64 || !base || (uintptr_t)base % 16 || rank < 1 || rank > 5 ||
        !made.element_bytes || !simt::fits(made, sizes, pitch, box, step))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned d = 0; d < rank; ++d) {
        made.last[d] = (uint32_t)(sizes[d] - 1);
        made.box[d] = (uint16_t)box[d];
        made.step[d] = d ? (uint8_t)step[d] : 1;  // of dimension 0 it is not looked at
        if (d) made.pitch[d - 1] = pitch[d - 1];
    }
    if (fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) {
        const bool floats = kind >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
        if (!floats) return CUDA_ERROR_INVALID_VALUE;
        return (CUresult)simt::api::unsupported("cuTensorMapEncodeTiled that fills with NaN", SIMT_HERE);
    }
    *map = {};
    memcpy((void*)map, (const void*)&made, sizeof made);
    return CUDA_SUCCESS;
}

// How runtime code finds a function of the driver.
enum cudaDriverEntryPointQueryResult {
    cudaDriverEntryPointSuccess = 0,
    cudaDriverEntryPointSymbolNotFound = 1,
    cudaDriverEntryPointVersionNotSufficent = 2,
};
enum { cudaEnableDefault = 0, cudaEnableLegacyStream = 1, cudaEnablePerThreadDefaultStream = 2 };
static inline cudaError_t cudaGetDriverEntryPoint(const char* name, void** function,
                                                  unsigned long long,
                                                  cudaDriverEntryPointQueryResult* told = nullptr) {
    const bool known = !strcmp(name, "cuTensorMapEncodeTiled");
    *function = known ? (void*)&cuTensorMapEncodeTiled : nullptr;
    if (told) *told = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
static inline cudaError_t cudaGetDriverEntryPointByVersion(
    const char* name, void** function, unsigned, unsigned long long flags,
    cudaDriverEntryPointQueryResult* told = nullptr) {
    return cudaGetDriverEntryPoint(name, function, flags, told);
}
