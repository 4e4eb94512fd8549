// cuBLAS on the executor: real matrices, as of CUDA 12. What is not here does not compile.
#pragma once
#define CUBLAS_API_H_  // by which programs tell that it is included
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_runtime_api.h"
#include "library_types.h"
#include "simt/blas.h"

#define CUBLAS_VER_MAJOR 12
#define CUBLAS_VER_MINOR 9
#define CUBLAS_VERSION 120900

typedef enum {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_NOT_INITIALIZED = 1,
    CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_ARCH_MISMATCH = 8,
    CUBLAS_STATUS_MAPPING_ERROR = 11,
    CUBLAS_STATUS_EXECUTION_FAILED = 13,
    CUBLAS_STATUS_INTERNAL_ERROR = 14,
    CUBLAS_STATUS_NOT_SUPPORTED = 15,
    CUBLAS_STATUS_LICENSE_ERROR = 16,
} cublasStatus_t;
typedef enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1, CUBLAS_OP_C = 2 } cublasOperation_t;
typedef enum {
    CUBLAS_POINTER_MODE_HOST = 0,
    CUBLAS_POINTER_MODE_DEVICE = 1,
} cublasPointerMode_t;
typedef enum { CUBLAS_ATOMICS_NOT_ALLOWED = 0, CUBLAS_ATOMICS_ALLOWED = 1 } cublasAtomicsMode_t;
typedef enum {
    CUBLAS_DEFAULT_MATH = 0,
    CUBLAS_TENSOR_OP_MATH = 1,
    CUBLAS_PEDANTIC_MATH = 2,
    CUBLAS_TF32_TENSOR_OP_MATH = 3,
    CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16,
} cublasMath_t;
typedef enum {
    CUBLAS_GEMM_DFALT = -1,
    CUBLAS_GEMM_DEFAULT = -1,
    CUBLAS_GEMM_DFALT_TENSOR_OP = 99,
    CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99,
} cublasGemmAlgo_t;
typedef enum {
    CUBLAS_COMPUTE_16F = 64,
    CUBLAS_COMPUTE_16F_PEDANTIC = 65,
    CUBLAS_COMPUTE_32F = 68,
    CUBLAS_COMPUTE_32F_PEDANTIC = 69,
    CUBLAS_COMPUTE_64F = 70,
    CUBLAS_COMPUTE_64F_PEDANTIC = 71,
    CUBLAS_COMPUTE_32I = 72,
    CUBLAS_COMPUTE_32I_PEDANTIC = 73,
    CUBLAS_COMPUTE_32F_FAST_16F = 74,
    CUBLAS_COMPUTE_32F_FAST_16BF = 75,
    CUBLAS_COMPUTE_32F_FAST_TF32 = 77,
} cublasComputeType_t;
typedef cudaDataType cublasDataType_t;

namespace simt::detail {

static inline cublasStatus_t cublas_status(int status) { return (cublasStatus_t)status; }

static inline bool cublas_compute(cublasComputeType_t compute, blas::Sum* sum, blas::Type* scale) {
    using blas::Sum;
    using blas::Type;
    *sum = Sum::f32;
    *scale = Type::f32;
    if (compute <= CUBLAS_COMPUTE_16F_PEDANTIC) *scale = Type::f16;
    if (compute == CUBLAS_COMPUTE_64F || compute == CUBLAS_COMPUTE_64F_PEDANTIC) {
        *sum = Sum::f64;
        *scale = Type::f64;
    }
    if (compute == CUBLAS_COMPUTE_32I || compute == CUBLAS_COMPUTE_32I_PEDANTIC) {
        *sum = Sum::i32;
        *scale = Type::i32;
    }
    return true;
}
// Before CUDA 11 the element type of the sums was named.
static inline bool cublas_compute(cudaDataType compute, blas::Sum* sum, blas::Type* scale) {
    *scale = (blas::Type)compute;
    *sum = compute == CUDA_R_64F ? blas::Sum::f64
           : compute == CUDA_R_32I ? blas::Sum::i32 : blas::Sum::f32;
    return compute == CUDA_R_64F || compute == CUDA_R_32I || compute == CUDA_R_32F ||
           compute == CUDA_R_16F;
}

}  // namespace simt::detail

#define SIMT_B(name) cublas##name
#define SIMT_BU(name) CUBLAS_##name
#define SIMT_BLAS_STREAM cudaStream_t
#define SIMT_BLAS_DATA cudaDataType
#include "simt/blas_spellings.h"
#undef SIMT_B
#undef SIMT_BU
#undef SIMT_BLAS_STREAM
#undef SIMT_BLAS_DATA

static inline cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
    if (const int bad = ::simt::blas::check(handle)) return (cublasStatus_t)bad;
    handle->math = mode;
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
    if (const int bad = ::simt::blas::check(handle)) return (cublasStatus_t)bad;
    *mode = (cublasMath_t)handle->math;
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace,
                                                size_t bytes) {
    if (const int bad = ::simt::blas::check(handle)) return (cublasStatus_t)bad;
    handle->workspace = workspace;
    handle->workspace_bytes = bytes;
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasGetVersion(cublasHandle_t, int* version) {
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
}

static inline const char* cublasGetStatusName(cublasStatus_t status) {
    switch (status) {
        case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
        case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
        case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
        case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
        case CUBLAS_STATUS_ARCH_MISMATCH: return "CUBLAS_STATUS_ARCH_MISMATCH";
        case CUBLAS_STATUS_MAPPING_ERROR: return "CUBLAS_STATUS_MAPPING_ERROR";
        case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
        case CUBLAS_STATUS_INTERNAL_ERROR: return "CUBLAS_STATUS_INTERNAL_ERROR";
        case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
        case CUBLAS_STATUS_LICENSE_ERROR: return "CUBLAS_STATUS_LICENSE_ERROR";
    }
    return "unknown";
}
static inline const char* cublasGetStatusString(cublasStatus_t status) {
    return cublasGetStatusName(status);
}

// Copies of vectors and matrices between host and device, elements of `size` bytes.
static inline cublasStatus_t cublasSetMatrix(int rows, int columns, int size, const void* from,
                                             int from_ld, void* to, int to_ld, SIMT_AT) {
    const int error = ::simt::api::copy_2d(to, (size_t)to_ld * size, from, (size_t)from_ld * size,
                                           (size_t)rows * size, (size_t)columns,
                                           ::simt::api::Copy::to_device, nullptr, at);
    return error ? CUBLAS_STATUS_MAPPING_ERROR : CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasGetMatrix(int rows, int columns, int size, const void* from,
                                             int from_ld, void* to, int to_ld, SIMT_AT) {
    const int error = ::simt::api::copy_2d(to, (size_t)to_ld * size, from, (size_t)from_ld * size,
                                           (size_t)rows * size, (size_t)columns,
                                           ::simt::api::Copy::to_host, nullptr, at);
    return error ? CUBLAS_STATUS_MAPPING_ERROR : CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasSetVector(int n, int size, const void* from, int from_increment,
                                             void* to, int to_increment, SIMT_AT) {
    return cublasSetMatrix(1, n, size, from, from_increment, to, to_increment, at);
}
static inline cublasStatus_t cublasGetVector(int n, int size, const void* from, int from_increment,
                                             void* to, int to_increment, SIMT_AT) {
    return cublasGetMatrix(1, n, size, from, from_increment, to, to_increment, at);
}
