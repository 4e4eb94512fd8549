// hipBLAS on the executor: real matrices. What is not here does not compile.
#pragma once
#include "../hip/hip_runtime_api.h"
#include "../simt/blas.h"

typedef enum {
    HIPBLAS_STATUS_SUCCESS = 0,
    HIPBLAS_STATUS_NOT_INITIALIZED = 1,
    HIPBLAS_STATUS_ALLOC_FAILED = 2,
    HIPBLAS_STATUS_INVALID_VALUE = 3,
    HIPBLAS_STATUS_MAPPING_ERROR = 4,
    HIPBLAS_STATUS_EXECUTION_FAILED = 5,
    HIPBLAS_STATUS_INTERNAL_ERROR = 6,
    HIPBLAS_STATUS_NOT_SUPPORTED = 7,
    HIPBLAS_STATUS_ARCH_MISMATCH = 8,
    HIPBLAS_STATUS_HANDLE_IS_NULLPTR = 9,
    HIPBLAS_STATUS_UNKNOWN = 11,
} hipblasStatus_t;
typedef enum { HIPBLAS_OP_N = 111, HIPBLAS_OP_T = 112, HIPBLAS_OP_C = 113 } hipblasOperation_t;
typedef enum {
    HIPBLAS_POINTER_MODE_HOST = 0,
    HIPBLAS_POINTER_MODE_DEVICE = 1,
} hipblasPointerMode_t;
typedef enum { HIPBLAS_ATOMICS_NOT_ALLOWED = 0, HIPBLAS_ATOMICS_ALLOWED = 1 } hipblasAtomicsMode_t;
typedef enum {
    HIPBLAS_DEFAULT_MATH = 0,
    HIPBLAS_XF32_XDL_MATH = 1,
    HIPBLAS_PEDANTIC_MATH = 2,
    HIPBLAS_TF32_TENSOR_OP_MATH = 3,
    HIPBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 4,
    HIPBLAS_TENSOR_OP_MATH = 5,
} hipblasMath_t;
typedef enum { HIPBLAS_GEMM_DEFAULT = 160 } hipblasGemmAlgo_t;
typedef enum {
    HIPBLAS_COMPUTE_16F = 0,
    HIPBLAS_COMPUTE_16F_PEDANTIC = 1,
    HIPBLAS_COMPUTE_32F = 2,
    HIPBLAS_COMPUTE_32F_PEDANTIC = 3,
    HIPBLAS_COMPUTE_32F_FAST_16F = 4,
    HIPBLAS_COMPUTE_32F_FAST_16BF = 5,
    HIPBLAS_COMPUTE_32F_FAST_TF32 = 6,
    HIPBLAS_COMPUTE_64F = 7,
    HIPBLAS_COMPUTE_64F_PEDANTIC = 8,
    HIPBLAS_COMPUTE_32I = 9,
    HIPBLAS_COMPUTE_32I_PEDANTIC = 10,
} hipblasComputeType_t;
typedef enum hipDataType {
    HIP_R_32F = 0,
    HIP_R_64F = 1,
    HIP_R_16F = 2,
    HIP_R_8I = 3,
    HIP_R_32I = 10,
    HIP_R_16BF = 14,
    HIP_R_8F_E4M3 = 28,
    HIP_R_8F_E5M2 = 29,
} hipDataType;
// The names from before hipDataType.
#define HIPBLAS_R_16F HIP_R_16F
#define HIPBLAS_R_32F HIP_R_32F
#define HIPBLAS_R_64F HIP_R_64F
#define HIPBLAS_R_16B HIP_R_16BF
#define HIPBLAS_R_8I HIP_R_8I
#define HIPBLAS_R_32I HIP_R_32I
typedef hipDataType hipblasDatatype_t;

namespace simt::detail {

static inline hipblasStatus_t hipblas_status(int status) {
    switch (status) {
        case blas::ok: return HIPBLAS_STATUS_SUCCESS;
        case blas::not_initialized: return HIPBLAS_STATUS_NOT_INITIALIZED;
        case blas::invalid_value: return HIPBLAS_STATUS_INVALID_VALUE;
        case blas::execution_failed: return HIPBLAS_STATUS_EXECUTION_FAILED;
        case blas::not_supported: return HIPBLAS_STATUS_NOT_SUPPORTED;
    }
    return HIPBLAS_STATUS_UNKNOWN;
}

static inline bool hipblas_compute(hipblasComputeType_t compute, blas::Sum* sum,
                                   blas::Type* scale) {
    const bool f64 = compute == HIPBLAS_COMPUTE_64F || compute == HIPBLAS_COMPUTE_64F_PEDANTIC;
    const bool i32 = compute >= HIPBLAS_COMPUTE_32I;
    *sum = f64 ? blas::Sum::f64 : i32 ? blas::Sum::i32 : blas::Sum::f32;
    *scale = f64 ? blas::Type::f64 : i32 ? blas::Type::i32 : blas::Type::f32;
    if (compute <= HIPBLAS_COMPUTE_16F_PEDANTIC) *scale = blas::Type::f16;
    return true;
}
static inline bool hipblas_compute(hipDataType compute, blas::Sum* sum, blas::Type* scale) {
    *scale = (blas::Type)compute;
    *sum = compute == HIP_R_64F ? blas::Sum::f64
           : compute == HIP_R_32I ? blas::Sum::i32 : blas::Sum::f32;
    return compute == HIP_R_64F || compute == HIP_R_32I || compute == HIP_R_32F ||
           compute == HIP_R_16F;
}

}  // namespace simt::detail

#define SIMT_B(name) hipblas##name
#define SIMT_BU(name) HIPBLAS_##name
#define SIMT_BLAS_STREAM hipStream_t
#define SIMT_BLAS_DATA hipDataType
#include "../simt/blas_spellings.h"
#undef SIMT_B
#undef SIMT_BU
#undef SIMT_BLAS_STREAM
#undef SIMT_BLAS_DATA

typedef int64_t hipblasStride;
static inline hipblasStatus_t hipblasSetMathMode(hipblasHandle_t handle, hipblasMath_t mode) {
    if (const int bad = ::simt::blas::check(handle)) return ::simt::detail::hipblas_status(bad);
    handle->math = mode;
    return HIPBLAS_STATUS_SUCCESS;
}
static inline hipblasStatus_t hipblasGetMathMode(hipblasHandle_t handle, hipblasMath_t* mode) {
    if (const int bad = ::simt::blas::check(handle)) return ::simt::detail::hipblas_status(bad);
    *mode = (hipblasMath_t)handle->math;
    return HIPBLAS_STATUS_SUCCESS;
}
static inline hipblasStatus_t hipblasSetWorkspace(hipblasHandle_t handle, void* workspace,
                                                  size_t bytes) {
    if (const int bad = ::simt::blas::check(handle)) return ::simt::detail::hipblas_status(bad);
    handle->workspace = workspace;
    handle->workspace_bytes = bytes;
    return HIPBLAS_STATUS_SUCCESS;
}
static inline const char* hipblasStatusToString(hipblasStatus_t status) {
    switch (status) {
#define SIMT_STATUS(name) case HIPBLAS_STATUS_##name: return "HIPBLAS_STATUS_" #name;
        SIMT_STATUS(SUCCESS)
        SIMT_STATUS(NOT_INITIALIZED)
        SIMT_STATUS(ALLOC_FAILED)
        SIMT_STATUS(INVALID_VALUE)
        SIMT_STATUS(MAPPING_ERROR)
        SIMT_STATUS(EXECUTION_FAILED)
        SIMT_STATUS(INTERNAL_ERROR)
        SIMT_STATUS(NOT_SUPPORTED)
        SIMT_STATUS(ARCH_MISMATCH)
        SIMT_STATUS(HANDLE_IS_NULLPTR)
        SIMT_STATUS(UNKNOWN)
#undef SIMT_STATUS
    }
    return "invalid hipblasStatus_t";
}
