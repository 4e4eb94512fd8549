// The driver API's types, which runtime code names; of its functions none is modelled.
#pragma once
#include "cuda_runtime_api.h"

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
