// The matmul of cuBLASLt and hipBLASLt in the spelling that SIMT_LT, SIMT_LTU (upper case), SIMT_B,
// SIMT_BU, SIMT_BLAS_STREAM and SIMT_BLAS_DATA give: column-major layouts, batches, the epilogues
// named below.
typedef ::simt::blas::Handle* SIMT_LT(Handle_t);

typedef enum {
    SIMT_LTU(EPILOGUE_DEFAULT) = 1,
    SIMT_LTU(EPILOGUE_RELU) = 2,
    SIMT_LTU(EPILOGUE_BIAS) = 4,
    SIMT_LTU(EPILOGUE_RELU_BIAS) = 6,
    SIMT_LTU(EPILOGUE_GELU) = 32,
    SIMT_LTU(EPILOGUE_GELU_BIAS) = 36,
    SIMT_LTU(EPILOGUE_GELU_AUX) = 160,
    SIMT_LTU(EPILOGUE_GELU_AUX_BIAS) = 164,
    SIMT_LTU(EPILOGUE_DGELU) = 192,
    SIMT_LTU(EPILOGUE_BGRADA) = 256,  // this and the next: refused by SIMT_LT(Matmul)
    SIMT_LTU(EPILOGUE_BGRADB) = 512,
} SIMT_LT(Epilogue_t);

typedef enum {
    SIMT_LTU(MATMUL_DESC_COMPUTE_TYPE) = 0,
    SIMT_LTU(MATMUL_DESC_SCALE_TYPE) = 1,
    SIMT_LTU(MATMUL_DESC_POINTER_MODE) = 2,
    SIMT_LTU(MATMUL_DESC_TRANSA) = 3,
    SIMT_LTU(MATMUL_DESC_TRANSB) = 4,
    SIMT_LTU(MATMUL_DESC_EPILOGUE) = 7,
    SIMT_LTU(MATMUL_DESC_BIAS_POINTER) = 8,
    SIMT_LTU(MATMUL_DESC_EPILOGUE_AUX_POINTER) = 11,
    SIMT_LTU(MATMUL_DESC_EPILOGUE_AUX_LD) = 12,
    SIMT_LTU(MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE) = 13,
    SIMT_LTU(MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE) = 22,
    SIMT_LTU(MATMUL_DESC_BIAS_DATA_TYPE) = 26,
} SIMT_LT(MatmulDescAttributes_t);

typedef enum {
    SIMT_LTU(MATRIX_LAYOUT_TYPE) = 0,
    SIMT_LTU(MATRIX_LAYOUT_ORDER) = 1,
    SIMT_LTU(MATRIX_LAYOUT_ROWS) = 2,
    SIMT_LTU(MATRIX_LAYOUT_COLS) = 3,
    SIMT_LTU(MATRIX_LAYOUT_LD) = 4,
    SIMT_LTU(MATRIX_LAYOUT_BATCH_COUNT) = 5,
    SIMT_LTU(MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) = 6,
} SIMT_LT(MatrixLayoutAttribute_t);
typedef enum { SIMT_LTU(ORDER_COL) = 0, SIMT_LTU(ORDER_ROW) = 1 } SIMT_LT(Order_t);

typedef enum {
    SIMT_LTU(MATMUL_PREF_SEARCH_MODE) = 0,
    SIMT_LTU(MATMUL_PREF_MAX_WORKSPACE_BYTES) = 1,
} SIMT_LT(MatmulPreferenceAttributes_t);

typedef struct SIMT_LT(MatmulDescOpaque) {
    SIMT_B(ComputeType_t) compute;
    SIMT_BLAS_DATA scale;
    SIMT_B(Operation_t) transposed[2];
    SIMT_LT(Epilogue_t) epilogue;
    const void* bias;
    int bias_type;  // -1: D's
    void* aux;
    int64_t aux_ld, aux_stride;
    int aux_type;  // -1: D's
} SIMT_LT(MatmulDescOpaque_t);
typedef SIMT_LT(MatmulDescOpaque_t)* SIMT_LT(MatmulDesc_t);

typedef struct SIMT_LT(MatrixLayoutOpaque) {
    SIMT_BLAS_DATA type;
    SIMT_LT(Order_t) order;
    uint64_t rows, columns;
    int64_t ld, stride;
    int batch;
} SIMT_LT(MatrixLayoutOpaque_t);
typedef SIMT_LT(MatrixLayoutOpaque_t)* SIMT_LT(MatrixLayout_t);

typedef struct SIMT_LT(MatmulPreferenceOpaque) {
    uint64_t workspace_bytes;
} SIMT_LT(MatmulPreferenceOpaque_t);
typedef SIMT_LT(MatmulPreferenceOpaque_t)* SIMT_LT(MatmulPreference_t);

typedef struct {
    uint64_t data[8];
} SIMT_LT(MatmulAlgo_t);
typedef struct {
    SIMT_LT(MatmulAlgo_t) algo;
    size_t workspaceSize;
    SIMT_B(Status_t) state;
    float wavesCount;
} SIMT_LT(MatmulHeuristicResult_t);

static inline SIMT_B(Status_t) SIMT_LT(Create)(SIMT_LT(Handle_t)* handle) {
    return SIMT_B(Create)(handle);
}
static inline SIMT_B(Status_t) SIMT_LT(Destroy)(SIMT_LT(Handle_t) handle) {
    return SIMT_B(Destroy)(handle);
}

// ---- descriptors

static inline SIMT_B(Status_t) SIMT_LT(MatmulDescInit)(SIMT_LT(MatmulDesc_t) desc,
                                                    SIMT_B(ComputeType_t) compute,
                                                    SIMT_BLAS_DATA scale) {
    *desc = {compute, scale, {SIMT_BU(OP_N), SIMT_BU(OP_N)}, SIMT_LTU(EPILOGUE_DEFAULT),
             nullptr, -1, nullptr, 0, 0, -1};
    return SIMT_BU(STATUS_SUCCESS);
}
static inline SIMT_B(Status_t) SIMT_LT(MatmulDescCreate)(SIMT_LT(MatmulDesc_t)* desc,
                                                      SIMT_B(ComputeType_t) compute,
                                                      SIMT_BLAS_DATA scale) {
    *desc = new SIMT_LT(MatmulDescOpaque_t);
    return SIMT_LT(MatmulDescInit)(*desc, compute, scale);
}
static inline SIMT_B(Status_t) SIMT_LT(MatmulDescDestroy)(SIMT_LT(MatmulDesc_t) desc) {
    delete desc;
    return SIMT_BU(STATUS_SUCCESS);
}

namespace simt::detail {
// Sets `to` from an attribute's value of `bytes` bytes, if that is its size.
template <class T>
static inline SIMT_B(Status_t) set_attribute(T& to, const void* value, size_t bytes) {
    if (!value || bytes != sizeof(T)) return SIMT_BU(STATUS_INVALID_VALUE);
    memcpy((void*)&to, value, bytes);
    return SIMT_BU(STATUS_SUCCESS);
}
}  // namespace simt::detail

static inline SIMT_B(Status_t) SIMT_LT(MatmulDescSetAttribute)(
    SIMT_LT(MatmulDesc_t) desc, SIMT_LT(MatmulDescAttributes_t) attribute, const void* value,
    size_t bytes) {
    using ::simt::detail::set_attribute;
    int pointer_mode;
    switch (attribute) {
        case SIMT_LTU(MATMUL_DESC_COMPUTE_TYPE): return set_attribute(desc->compute, value, bytes);
        case SIMT_LTU(MATMUL_DESC_SCALE_TYPE): return set_attribute(desc->scale, value, bytes);
        case SIMT_LTU(MATMUL_DESC_POINTER_MODE): return set_attribute(pointer_mode, value, bytes);
        case SIMT_LTU(MATMUL_DESC_TRANSA): return set_attribute(desc->transposed[0], value, bytes);
        case SIMT_LTU(MATMUL_DESC_TRANSB): return set_attribute(desc->transposed[1], value, bytes);
        case SIMT_LTU(MATMUL_DESC_EPILOGUE): return set_attribute(desc->epilogue, value, bytes);
        case SIMT_LTU(MATMUL_DESC_BIAS_POINTER): return set_attribute(desc->bias, value, bytes);
        case SIMT_LTU(MATMUL_DESC_BIAS_DATA_TYPE):
            return set_attribute(desc->bias_type, value, bytes);
        case SIMT_LTU(MATMUL_DESC_EPILOGUE_AUX_POINTER):
            return set_attribute(desc->aux, value, bytes);
        case SIMT_LTU(MATMUL_DESC_EPILOGUE_AUX_LD): return set_attribute(desc->aux_ld, value, bytes);
        case SIMT_LTU(MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE):
            return set_attribute(desc->aux_stride, value, bytes);
        case SIMT_LTU(MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE):
            return set_attribute(desc->aux_type, value, bytes);
    }
    return SIMT_BU(STATUS_NOT_SUPPORTED);
}

static inline SIMT_B(Status_t) SIMT_LT(MatrixLayoutInit)(SIMT_LT(MatrixLayout_t) layout,
                                                      SIMT_BLAS_DATA type, uint64_t rows,
                                                      uint64_t columns, int64_t ld) {
    *layout = {type, SIMT_LTU(ORDER_COL), rows, columns, ld, 0, 1};
    return SIMT_BU(STATUS_SUCCESS);
}
static inline SIMT_B(Status_t) SIMT_LT(MatrixLayoutCreate)(SIMT_LT(MatrixLayout_t)* layout,
                                                        SIMT_BLAS_DATA type, uint64_t rows,
                                                        uint64_t columns, int64_t ld) {
    *layout = new SIMT_LT(MatrixLayoutOpaque_t);
    return SIMT_LT(MatrixLayoutInit)(*layout, type, rows, columns, ld);
}
static inline SIMT_B(Status_t) SIMT_LT(MatrixLayoutDestroy)(SIMT_LT(MatrixLayout_t) layout) {
    delete layout;
    return SIMT_BU(STATUS_SUCCESS);
}
static inline SIMT_B(Status_t) SIMT_LT(MatrixLayoutSetAttribute)(
    SIMT_LT(MatrixLayout_t) layout, SIMT_LT(MatrixLayoutAttribute_t) attribute, const void* value,
    size_t bytes) {
    using ::simt::detail::set_attribute;
    switch (attribute) {
        case SIMT_LTU(MATRIX_LAYOUT_TYPE): return set_attribute(layout->type, value, bytes);
        case SIMT_LTU(MATRIX_LAYOUT_ORDER): return set_attribute(layout->order, value, bytes);
        case SIMT_LTU(MATRIX_LAYOUT_ROWS): return set_attribute(layout->rows, value, bytes);
        case SIMT_LTU(MATRIX_LAYOUT_COLS): return set_attribute(layout->columns, value, bytes);
        case SIMT_LTU(MATRIX_LAYOUT_LD): return set_attribute(layout->ld, value, bytes);
        case SIMT_LTU(MATRIX_LAYOUT_BATCH_COUNT): return set_attribute(layout->batch, value, bytes);
        case SIMT_LTU(MATRIX_LAYOUT_STRIDED_BATCH_OFFSET):
            return set_attribute(layout->stride, value, bytes);
    }
    return SIMT_BU(STATUS_NOT_SUPPORTED);
}

static inline SIMT_B(Status_t) SIMT_LT(MatmulPreferenceCreate)(
    SIMT_LT(MatmulPreference_t)* preference) {
    *preference = new SIMT_LT(MatmulPreferenceOpaque_t){0};
    return SIMT_BU(STATUS_SUCCESS);
}
static inline SIMT_B(Status_t) SIMT_LT(MatmulPreferenceDestroy)(
    SIMT_LT(MatmulPreference_t) preference) {
    delete preference;
    return SIMT_BU(STATUS_SUCCESS);
}
static inline SIMT_B(Status_t) SIMT_LT(MatmulPreferenceSetAttribute)(
    SIMT_LT(MatmulPreference_t) preference, SIMT_LT(MatmulPreferenceAttributes_t) attribute,
    const void* value, size_t bytes) {
    if (attribute != SIMT_LTU(MATMUL_PREF_MAX_WORKSPACE_BYTES)) return SIMT_BU(STATUS_SUCCESS);
    return ::simt::detail::set_attribute(preference->workspace_bytes, value, bytes);
}

// ---- the product

namespace simt::detail {

static inline blas::Matrix lt_matrix(const void* at, SIMT_LT(MatrixLayout_t) layout,
                                     SIMT_B(Operation_t) op) {
    return {at, (blas::Type)layout->type, layout->ld, layout->stride, op != SIMT_BU(OP_N)};
}

static inline bool lt_epilogue(const SIMT_LT(MatmulDescOpaque_t)& desc, SIMT_BLAS_DATA type,
                               blas::Epilogue* out) {
    using blas::Activation;
    const int bits = desc.epilogue;
    if (bits & ~(SIMT_LTU(EPILOGUE_DEFAULT) | 2 | 4 | 32 | 64 | 128)) return false;
    out->activation = bits == SIMT_LTU(EPILOGUE_DGELU) ? Activation::gelu_gradient
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

static inline SIMT_B(Status_t) lt_call(const SIMT_LT(MatmulDescOpaque_t)& desc,
                                     SIMT_LT(MatrixLayout_t) a, SIMT_LT(MatrixLayout_t) b,
                                     SIMT_LT(MatrixLayout_t) c, SIMT_LT(MatrixLayout_t) d,
                                     blas::Gemm* out) {
    const bool ta = desc.transposed[0] != SIMT_BU(OP_N), tb = desc.transposed[1] != SIMT_BU(OP_N);
    out->m = (int64_t)d->rows;
    out->n = (int64_t)d->columns;
    out->k = (int64_t)(ta ? a->rows : a->columns);
    out->batch = d->batch;
    const uint64_t rows_a = ta ? a->columns : a->rows, rows_b = tb ? b->columns : b->rows;
    const uint64_t columns_b = tb ? b->rows : b->columns;
    if (rows_a != d->rows || rows_b != (uint64_t)out->k || columns_b != d->columns ||
        c->rows != d->rows || c->columns != d->columns || a->batch != d->batch ||
        b->batch != d->batch)
        return SIMT_BU(STATUS_INVALID_VALUE);
    if (a->order || b->order || c->order || d->order) return SIMT_BU(STATUS_NOT_SUPPORTED);
    blas::Type scale;
    if (!SIMT_B(_compute)(desc.compute, &out->sum, &scale)) return SIMT_BU(STATUS_NOT_SUPPORTED);
    if (!lt_epilogue(desc, d->type, &out->epilogue)) return SIMT_BU(STATUS_NOT_SUPPORTED);
    return SIMT_BU(STATUS_SUCCESS);
}

}  // namespace simt::detail

// Finds the one algorithm there is, or none for what SIMT_LT(Matmul) would refuse.
static inline SIMT_B(Status_t) SIMT_LT(MatmulAlgoGetHeuristic)(
    SIMT_LT(Handle_t) handle, SIMT_LT(MatmulDesc_t) desc, SIMT_LT(MatrixLayout_t) a,
    SIMT_LT(MatrixLayout_t) b, SIMT_LT(MatrixLayout_t) c, SIMT_LT(MatrixLayout_t) d,
    SIMT_LT(MatmulPreference_t), int requested, SIMT_LT(MatmulHeuristicResult_t) results[],
    int* returned) {
    *returned = 0;
    if (const int bad = ::simt::blas::check(handle)) return ::simt::detail::SIMT_B(_status)(bad);
    ::simt::blas::Gemm call{};
    const SIMT_B(Status_t) status = ::simt::detail::lt_call(*desc, a, b, c, d, &call);
    if (status || requested < 1) return status;
    results[0] = {{{0}}, 0, SIMT_BU(STATUS_SUCCESS), 1.0f};
    *returned = 1;
    return SIMT_BU(STATUS_SUCCESS);
}

// d = epilogue(alpha op(a) op(b) + beta c)
static inline SIMT_B(Status_t) SIMT_LT(Matmul)(SIMT_LT(Handle_t) handle, SIMT_LT(MatmulDesc_t) desc,
                                            const void* alpha, const void* a,
                                            SIMT_LT(MatrixLayout_t) layout_a, const void* b,
                                            SIMT_LT(MatrixLayout_t) layout_b, const void* beta,
                                            const void* c, SIMT_LT(MatrixLayout_t) layout_c, void* d,
                                            SIMT_LT(MatrixLayout_t) layout_d,
                                            const SIMT_LT(MatmulAlgo_t)*, void*, size_t,
                                            SIMT_BLAS_STREAM, SIMT_AT) {
    using namespace ::simt;
    blas::Gemm call{};
    const SIMT_B(Status_t) status =
        ::simt::detail::lt_call(*desc, layout_a, layout_b, layout_c, layout_d, &call);
    if (status) return status;
    call.alpha = blas::scalar(alpha, (blas::Type)desc->scale);
    call.beta = blas::scalar(beta, (blas::Type)desc->scale);
    call.a = ::simt::detail::lt_matrix(a, layout_a, desc->transposed[0]);
    call.b = ::simt::detail::lt_matrix(b, layout_b, desc->transposed[1]);
    call.c = ::simt::detail::lt_matrix(c, layout_c, SIMT_BU(OP_N));
    call.d = ::simt::detail::lt_matrix(d, layout_d, SIMT_BU(OP_N));
    return ::simt::detail::SIMT_B(_status)(blas::gemm(handle, call, at));
}
