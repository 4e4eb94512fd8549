// cuBLASLt's matmul on the executor: column-major layouts, batches, the epilogues named below.
#pragma once
#include "cublas_v2.h"

typedef ::simt::blas::Handle* cublasLtHandle_t;

typedef enum {
    CUBLASLT_EPILOGUE_DEFAULT = 1,
    CUBLASLT_EPILOGUE_RELU = 2,
    CUBLASLT_EPILOGUE_BIAS = 4,
    CUBLASLT_EPILOGUE_RELU_BIAS = 6,
    CUBLASLT_EPILOGUE_GELU = 32,
    CUBLASLT_EPILOGUE_GELU_BIAS = 36,
    CUBLASLT_EPILOGUE_GELU_AUX = 160,
    CUBLASLT_EPILOGUE_GELU_AUX_BIAS = 164,
    CUBLASLT_EPILOGUE_DGELU = 192,
    CUBLASLT_EPILOGUE_BGRADA = 256,  // this and the next: refused by cublasLtMatmul
    CUBLASLT_EPILOGUE_BGRADB = 512,
} cublasLtEpilogue_t;

typedef enum {
    CUBLASLT_MATMUL_DESC_COMPUTE_TYPE = 0,
    CUBLASLT_MATMUL_DESC_SCALE_TYPE = 1,
    CUBLASLT_MATMUL_DESC_POINTER_MODE = 2,
    CUBLASLT_MATMUL_DESC_TRANSA = 3,
    CUBLASLT_MATMUL_DESC_TRANSB = 4,
    CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
    CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER = 11,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD = 12,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE = 13,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE = 22,
    CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE = 26,
} cublasLtMatmulDescAttributes_t;

typedef enum {
    CUBLASLT_MATRIX_LAYOUT_TYPE = 0,
    CUBLASLT_MATRIX_LAYOUT_ORDER = 1,
    CUBLASLT_MATRIX_LAYOUT_ROWS = 2,
    CUBLASLT_MATRIX_LAYOUT_COLS = 3,
    CUBLASLT_MATRIX_LAYOUT_LD = 4,
    CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,
    CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6,
} cublasLtMatrixLayoutAttribute_t;
typedef enum { CUBLASLT_ORDER_COL = 0, CUBLASLT_ORDER_ROW = 1 } cublasLtOrder_t;

typedef enum {
    CUBLASLT_MATMUL_PREF_SEARCH_MODE = 0,
    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
} cublasLtMatmulPreferenceAttributes_t;

typedef struct cublasLtMatmulDescOpaque {
    cublasComputeType_t compute;
    cudaDataType scale;
    cublasOperation_t transposed[2];
    cublasLtEpilogue_t epilogue;
    const void* bias;
    int bias_type;  // -1: D's
    void* aux;
    int64_t aux_ld, aux_stride;
    int aux_type;  // -1: D's
} cublasLtMatmulDescOpaque_t;
typedef cublasLtMatmulDescOpaque_t* cublasLtMatmulDesc_t;

typedef struct cublasLtMatrixLayoutOpaque {
    cudaDataType type;
    cublasLtOrder_t order;
    uint64_t rows, columns;
    int64_t ld, stride;
    int batch;
} cublasLtMatrixLayoutOpaque_t;
typedef cublasLtMatrixLayoutOpaque_t* cublasLtMatrixLayout_t;

typedef struct cublasLtMatmulPreferenceOpaque {
    uint64_t workspace_bytes;
} cublasLtMatmulPreferenceOpaque_t;
typedef cublasLtMatmulPreferenceOpaque_t* cublasLtMatmulPreference_t;

typedef struct {
    uint64_t data[8];
} cublasLtMatmulAlgo_t;
typedef struct {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
} cublasLtMatmulHeuristicResult_t;

static inline cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    return cublasCreate(handle);
}
static inline cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    return cublasDestroy(handle);
}

// ---- descriptors

static inline cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t desc,
                                                    cublasComputeType_t compute,
                                                    cudaDataType scale) {
    *desc = {compute, scale, {CUBLAS_OP_N, CUBLAS_OP_N}, CUBLASLT_EPILOGUE_DEFAULT,
             nullptr, -1, nullptr, 0, 0, -1};
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc,
                                                      cublasComputeType_t compute,
                                                      cudaDataType scale) {
    *desc = new cublasLtMatmulDescOpaque_t;
    return cublasLtMatmulDescInit(*desc, compute, scale);
}
static inline cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
    delete desc;
    return CUBLAS_STATUS_SUCCESS;
}

namespace simt::detail {
// Sets `to` from an attribute's value of `bytes` bytes, if that is its size.
template <class T>
static inline cublasStatus_t set_attribute(T& to, const void* value, size_t bytes) {
    if (!value || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy((void*)&to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}
}  // namespace simt::detail

static inline cublasStatus_t cublasLtMatmulDescSetAttribute(
    cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const void* value,
    size_t bytes) {
    using ::simt::detail::set_attribute;
    int pointer_mode;
    switch (attribute) {
        case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE: return set_attribute(desc->compute, value, bytes);
        case CUBLASLT_MATMUL_DESC_SCALE_TYPE: return set_attribute(desc->scale, value, bytes);
        case CUBLASLT_MATMUL_DESC_POINTER_MODE: return set_attribute(pointer_mode, value, bytes);
        case CUBLASLT_MATMUL_DESC_TRANSA: return set_attribute(desc->transposed[0], value, bytes);
        case CUBLASLT_MATMUL_DESC_TRANSB: return set_attribute(desc->transposed[1], value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE: return set_attribute(desc->epilogue, value, bytes);
        case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set_attribute(desc->bias, value, bytes);
        case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
            return set_attribute(desc->bias_type, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
            return set_attribute(desc->aux, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return set_attribute(desc->aux_ld, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
            return set_attribute(desc->aux_stride, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
            return set_attribute(desc->aux_type, value, bytes);
    }
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

static inline cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t layout,
                                                      cudaDataType type, uint64_t rows,
                                                      uint64_t columns, int64_t ld) {
    *layout = {type, CUBLASLT_ORDER_COL, rows, columns, ld, 0, 1};
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout,
                                                        cudaDataType type, uint64_t rows,
                                                        uint64_t columns, int64_t ld) {
    *layout = new cublasLtMatrixLayoutOpaque_t;
    return cublasLtMatrixLayoutInit(*layout, type, rows, columns, ld);
}
static inline cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasLtMatrixLayoutSetAttribute(
    cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const void* value,
    size_t bytes) {
    using ::simt::detail::set_attribute;
    switch (attribute) {
        case CUBLASLT_MATRIX_LAYOUT_TYPE: return set_attribute(layout->type, value, bytes);
        case CUBLASLT_MATRIX_LAYOUT_ORDER: return set_attribute(layout->order, value, bytes);
        case CUBLASLT_MATRIX_LAYOUT_ROWS: return set_attribute(layout->rows, value, bytes);
        case CUBLASLT_MATRIX_LAYOUT_COLS: return set_attribute(layout->columns, value, bytes);
        case CUBLASLT_MATRIX_LAYOUT_LD: return set_attribute(layout->ld, value, bytes);
        case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return set_attribute(layout->batch, value, bytes);
        case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
            return set_attribute(layout->stride, value, bytes);
    }
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

static inline cublasStatus_t cublasLtMatmulPreferenceCreate(
    cublasLtMatmulPreference_t* preference) {
    *preference = new cublasLtMatmulPreferenceOpaque_t{0};
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasLtMatmulPreferenceDestroy(
    cublasLtMatmulPreference_t preference) {
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}
static inline cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
    const void* value, size_t bytes) {
    if (attribute != CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) return CUBLAS_STATUS_SUCCESS;
    return ::simt::detail::set_attribute(preference->workspace_bytes, value, bytes);
}

// ---- the product

namespace simt::detail {

static inline blas::Matrix lt_matrix(const void* at, cublasLtMatrixLayout_t layout,
                                     cublasOperation_t op) {
    return {at, (blas::Type)layout->type, layout->ld, layout->stride, op != CUBLAS_OP_N};
}

static inline bool lt_epilogue(const cublasLtMatmulDescOpaque_t& desc, cudaDataType type,
                               blas::Epilogue* out) {
    using blas::Activation;
    const int bits = desc.epilogue;
    if (bits & ~(CUBLASLT_EPILOGUE_DEFAULT | 2 | 4 | 32 | 64 | 128)) return false;
    out->activation = bits == CUBLASLT_EPILOGUE_DGELU ? Activation::gelu_gradient
                      : bits & 32                     ? Activation::gelu
                      : bits & 2                      ? Activation::relu
                                                      : Activation::none;
    if (bits & 4) out->bias = desc.bias;
    if (bits & 128) out->aux = desc.aux;
    out->bias_type = (blas::Type)(desc.bias_type < 0 ? type : desc.bias_type);
    out->aux_type = (blas::Type)(desc.aux_type < 0 ? type : desc.aux_type);
    out->aux_ld = desc.aux_ld;
    out->aux_stride = desc.aux_stride;
    return (!(bits & 4) || desc.bias) && (!(bits & 128) || desc.aux);
}

static inline cublasStatus_t lt_call(const cublasLtMatmulDescOpaque_t& desc,
                                     cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                     cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                     blas::Gemm* out) {
    const bool ta = desc.transposed[0] != CUBLAS_OP_N, tb = desc.transposed[1] != CUBLAS_OP_N;
    out->m = (int64_t)d->rows;
    out->n = (int64_t)d->columns;
    out->k = (int64_t)(ta ? a->rows : a->columns);
    out->batch = d->batch;
    const uint64_t rows_a = ta ? a->columns : a->rows, rows_b = tb ? b->columns : b->rows;
    const uint64_t columns_b = tb ? b->rows : b->columns;
    if (rows_a != d->rows || rows_b != (uint64_t)out->k || columns_b != d->columns ||
        c->rows != d->rows || c->columns != d->columns || a->batch != d->batch ||
        b->batch != d->batch)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (a->order || b->order || c->order || d->order) return CUBLAS_STATUS_NOT_SUPPORTED;
    blas::Type scale;
    if (!cublas_compute(desc.compute, &out->sum, &scale)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!lt_epilogue(desc, d->type, &out->epilogue)) return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

}  // namespace simt::detail

// Finds the one algorithm there is, or none for what cublasLtMatmul would refuse.
static inline cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t, int requested, cublasLtMatmulHeuristicResult_t results[],
    int* returned) {
    *returned = 0;
    if (const int bad = ::simt::blas::check(handle)) return (cublasStatus_t)bad;
    ::simt::blas::Gemm call{};
    const cublasStatus_t status = ::simt::detail::lt_call(*desc, a, b, c, d, &call);
    if (status || requested < 1) return status;
    results[0] = {{{0}}, 0, CUBLAS_STATUS_SUCCESS, 1.0f};
    *returned = 1;
    return CUBLAS_STATUS_SUCCESS;
}

// d = epilogue(alpha op(a) op(b) + beta c)
static inline cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                            const void* alpha, const void* a,
                                            cublasLtMatrixLayout_t layout_a, const void* b,
                                            cublasLtMatrixLayout_t layout_b, const void* beta,
                                            const void* c, cublasLtMatrixLayout_t layout_c, void* d,
                                            cublasLtMatrixLayout_t layout_d,
                                            const cublasLtMatmulAlgo_t*, void*, size_t,
                                            cudaStream_t, SIMT_AT) {
    using namespace ::simt;
    blas::Gemm call{};
    const cublasStatus_t status =
        detail::lt_call(*desc, layout_a, layout_b, layout_c, layout_d, &call);
    if (status) return status;
    call.alpha = blas::scalar(alpha, (blas::Type)desc->scale);
    call.beta = blas::scalar(beta, (blas::Type)desc->scale);
    call.a = detail::lt_matrix(a, layout_a, desc->transposed[0]);
    call.b = detail::lt_matrix(b, layout_b, desc->transposed[1]);
    call.c = detail::lt_matrix(c, layout_c, CUBLAS_OP_N);
    call.d = detail::lt_matrix(d, layout_d, CUBLAS_OP_N);
    return (cublasStatus_t)blas::gemm(handle, call, at);
}
