// The BLAS under one vendor's names: SIMT_B(Sgemm) is cublasSgemm or hipblasSgemm. Included by
// cublas_v2.h and hipblas/hipblas.h, which define SIMT_B, SIMT_BU (upper case), SIMT_BLAS_STREAM,
// SIMT_BLAS_DATA and the functions of simt::detail for their enumerations. No #pragma once.
#include "blas.h"

#define SIMT_CALL(name) static inline SIMT_B(Status_t) SIMT_B(name)
#define SIMT_DO(call) ::simt::detail::SIMT_B(_status)(::simt::blas::call)

typedef ::simt::blas::Handle* SIMT_B(Handle_t);

namespace simt::detail {

static inline bool SIMT_B(_transposed)(SIMT_B(Operation_t) op) { return op != SIMT_BU(OP_N); }

// A GEMM of one element type; pointers, leading dimensions and strides as the vendors order them.
static inline blas::Gemm SIMT_B(_gemm)(SIMT_B(Operation_t) ta, SIMT_B(Operation_t) tb, int64_t m,
                                       int64_t n, int64_t k, double alpha, blas::Matrix a,
                                       blas::Matrix b, double beta, blas::Matrix c) {
    a.transposed = SIMT_B(_transposed)(ta);
    b.transposed = SIMT_B(_transposed)(tb);
    blas::Gemm call{m, n, k, alpha, beta, a, b, c, c};
    if (a.type == blas::Type::f64) call.sum = blas::Sum::f64;
    return call;
}

}  // namespace simt::detail

// ---- handles

SIMT_CALL(Create)(SIMT_B(Handle_t)* handle) { return SIMT_DO(create(handle)); }
SIMT_CALL(Destroy)(SIMT_B(Handle_t) handle) { return SIMT_DO(destroy(handle)); }
SIMT_CALL(SetStream)(SIMT_B(Handle_t) handle, SIMT_BLAS_STREAM stream) {
    if (const int bad = ::simt::blas::check(handle)) return ::simt::detail::SIMT_B(_status)(bad);
    handle->stream = (void*)stream;
    return SIMT_DO(ok);
}
SIMT_CALL(GetStream)(SIMT_B(Handle_t) handle, SIMT_BLAS_STREAM* stream) {
    if (const int bad = ::simt::blas::check(handle)) return ::simt::detail::SIMT_B(_status)(bad);
    *stream = (SIMT_BLAS_STREAM)handle->stream;
    return SIMT_DO(ok);
}
SIMT_CALL(SetPointerMode)(SIMT_B(Handle_t) handle, SIMT_B(PointerMode_t) mode) {
    if (const int bad = ::simt::blas::check(handle)) return ::simt::detail::SIMT_B(_status)(bad);
    handle->device_scalars = mode;
    return SIMT_DO(ok);
}
SIMT_CALL(GetPointerMode)(SIMT_B(Handle_t) handle, SIMT_B(PointerMode_t)* mode) {
    if (const int bad = ::simt::blas::check(handle)) return ::simt::detail::SIMT_B(_status)(bad);
    *mode = (SIMT_B(PointerMode_t))handle->device_scalars;
    return SIMT_DO(ok);
}
SIMT_CALL(SetAtomicsMode)(SIMT_B(Handle_t) handle, SIMT_B(AtomicsMode_t) mode) {
    if (const int bad = ::simt::blas::check(handle)) return ::simt::detail::SIMT_B(_status)(bad);
    handle->atomics = mode;
    return SIMT_DO(ok);
}

// ---- what exists for float and double: S and D

#define SIMT_BLAS(S, T)                                                                           \
    SIMT_CALL(S##gemm)(SIMT_B(Handle_t) h, SIMT_B(Operation_t) ta, SIMT_B(Operation_t) tb, int m, \
                       int n, int k, const T* alpha, const T* a, int lda, const T* b, int ldb,    \
                       const T* beta, T* c, int ldc, SIMT_AT) {                                   \
        constexpr auto type = ::simt::blas::type_of<T>();                                         \
        return SIMT_DO(gemm(h, ::simt::detail::SIMT_B(_gemm)(                                     \
            ta, tb, m, n, k, *alpha, {a, type, lda}, {b, type, ldb}, *beta, {c, type, ldc}), at));\
    }                                                                                             \
    SIMT_CALL(S##gemmStridedBatched)(SIMT_B(Handle_t) h, SIMT_B(Operation_t) ta,                  \
                                     SIMT_B(Operation_t) tb, int m, int n, int k, const T* alpha, \
                                     const T* a, int lda, long long stride_a, const T* b,         \
                                     int ldb, long long stride_b, const T* beta, T* c, int ldc,   \
                                     long long stride_c, int batch, SIMT_AT) {                    \
        constexpr auto type = ::simt::blas::type_of<T>();                                         \
        auto call = ::simt::detail::SIMT_B(_gemm)(                                                \
            ta, tb, m, n, k, *alpha, {a, type, lda, stride_a}, {b, type, ldb, stride_b}, *beta,   \
            {c, type, ldc, stride_c});                                                            \
        call.batch = batch;                                                                       \
        return SIMT_DO(gemm(h, call, at));                                                        \
    }                                                                                             \
    SIMT_CALL(S##gemmBatched)(SIMT_B(Handle_t) h, SIMT_B(Operation_t) ta, SIMT_B(Operation_t) tb, \
                              int m, int n, int k, const T* alpha, const T* const a[], int lda,   \
                              const T* const b[], int ldb, const T* beta, T* const c[], int ldc,  \
                              int batch, SIMT_AT) {                                               \
        constexpr auto type = ::simt::blas::type_of<T>();                                         \
        auto call = ::simt::detail::SIMT_B(_gemm)(ta, tb, m, n, k, *alpha, {nullptr, type, lda},  \
                                                  {nullptr, type, ldb}, *beta,                    \
                                                  {nullptr, type, ldc});                          \
        call.batch = batch;                                                                       \
        return SIMT_DO(gemm_pointers(h, call, (const void* const*)a, (const void* const*)b,       \
                                     (void* const*)c, at));                                       \
    }                                                                                             \
    SIMT_CALL(S##gemv)(SIMT_B(Handle_t) h, SIMT_B(Operation_t) ta, int m, int n, const T* alpha,  \
                       const T* a, int lda, const T* x, int incx, const T* beta, T* y, int incy,  \
                       SIMT_AT) {                                                                 \
        return SIMT_DO(gemv(h, ::simt::detail::SIMT_B(_transposed)(ta), m, n, *alpha,             \
                            {a, ::simt::blas::type_of<T>(), lda}, {x, incx}, *beta, {y, incy},    \
                            at));                                                                 \
    }                                                                                             \
    SIMT_CALL(S##ger)(SIMT_B(Handle_t) h, int m, int n, const T* alpha, const T* x, int incx,     \
                      const T* y, int incy, T* a, int lda, SIMT_AT) {                             \
        return SIMT_DO(ger(h, m, n, *alpha, {x, incx}, {y, incy},                                 \
                           {a, ::simt::blas::type_of<T>(), lda}, at));                            \
    }                                                                                             \
    SIMT_CALL(S##geam)(SIMT_B(Handle_t) h, SIMT_B(Operation_t) ta, SIMT_B(Operation_t) tb, int m, \
                       int n, const T* alpha, const T* a, int lda, const T* beta, const T* b,     \
                       int ldb, T* c, int ldc, SIMT_AT) {                                         \
        constexpr auto type = ::simt::blas::type_of<T>();                                         \
        return SIMT_DO(geam(h, m, n, *alpha,                                                      \
                            {a, type, lda, 0, ::simt::detail::SIMT_B(_transposed)(ta)}, *beta,    \
                            {b, type, ldb, 0, ::simt::detail::SIMT_B(_transposed)(tb)},           \
                            {c, type, ldc}, at));                                                 \
    }                                                                                             \
    SIMT_CALL(S##axpy)(SIMT_B(Handle_t) h, int n, const T* alpha, const T* x, int incx, T* y,     \
                       int incy, SIMT_AT) {                                                       \
        return SIMT_DO(axpy(h, ::simt::blas::type_of<T>(), n, *alpha, {x, incx}, {y, incy}, at)); \
    }                                                                                             \
    SIMT_CALL(S##scal)(SIMT_B(Handle_t) h, int n, const T* alpha, T* x, int incx, SIMT_AT) {      \
        return SIMT_DO(scale(h, ::simt::blas::type_of<T>(), n, *alpha, {x, incx}, at));           \
    }                                                                                             \
    SIMT_CALL(S##copy)(SIMT_B(Handle_t) h, int n, const T* x, int incx, T* y, int incy,           \
                       SIMT_AT) {                                                                 \
        return SIMT_DO(copy(h, ::simt::blas::type_of<T>(), n, {x, incx}, {y, incy}, at));         \
    }                                                                                             \
    SIMT_CALL(S##swap)(SIMT_B(Handle_t) h, int n, T* x, int incx, T* y, int incy, SIMT_AT) {      \
        return SIMT_DO(swap(h, ::simt::blas::type_of<T>(), n, {x, incx}, {y, incy}, at));         \
    }                                                                                             \
    SIMT_CALL(S##dot)(SIMT_B(Handle_t) h, int n, const T* x, int incx, const T* y, int incy,      \
                      T* result, SIMT_AT) {                                                       \
        return SIMT_DO(reduce(h, ::simt::blas::type_of<T>(), ::simt::blas::Reduction::dot, n,     \
                              {x, incx}, {y, incy}, result, at));                                 \
    }                                                                                             \
    SIMT_CALL(S##nrm2)(SIMT_B(Handle_t) h, int n, const T* x, int incx, T* result, SIMT_AT) {     \
        return SIMT_DO(reduce(h, ::simt::blas::type_of<T>(), ::simt::blas::Reduction::norm, n,    \
                              {x, incx}, {x, incx}, result, at));                                 \
    }                                                                                             \
    SIMT_CALL(S##asum)(SIMT_B(Handle_t) h, int n, const T* x, int incx, T* result, SIMT_AT) {     \
        return SIMT_DO(reduce(h, ::simt::blas::type_of<T>(),                                      \
                              ::simt::blas::Reduction::absolute_sum, n, {x, incx}, {x, incx},     \
                              result, at));                                                       \
    }
SIMT_BLAS(S, float)
SIMT_BLAS(D, double)
#undef SIMT_BLAS

#define SIMT_BLAS_EXTREME(S, T)                                                                   \
    SIMT_CALL(I##S##amax)(SIMT_B(Handle_t) h, int n, const T* x, int incx, int* at_1,             \
                          SIMT_AT) {                                                              \
        return SIMT_DO(extreme(h, ::simt::blas::type_of<T>(), true, n, {x, incx}, at_1, at));     \
    }                                                                                             \
    SIMT_CALL(I##S##amin)(SIMT_B(Handle_t) h, int n, const T* x, int incx, int* at_1,             \
                          SIMT_AT) {                                                              \
        return SIMT_DO(extreme(h, ::simt::blas::type_of<T>(), false, n, {x, incx}, at_1, at));    \
    }
SIMT_BLAS_EXTREME(s, float)
SIMT_BLAS_EXTREME(d, double)
#undef SIMT_BLAS_EXTREME

// ---- mixed element types. `compute` says what sums are kept in, and the type of alpha and beta.

template <class Compute>
SIMT_CALL(GemmStridedBatchedEx)(SIMT_B(Handle_t) h, SIMT_B(Operation_t) ta, SIMT_B(Operation_t) tb,
                                int m, int n, int k, const void* alpha, const void* a,
                                SIMT_BLAS_DATA type_a, int lda, long long stride_a, const void* b,
                                SIMT_BLAS_DATA type_b, int ldb, long long stride_b,
                                const void* beta, void* c, SIMT_BLAS_DATA type_c, int ldc,
                                long long stride_c, int batch, Compute compute,
                                SIMT_B(GemmAlgo_t), SIMT_AT) {
    using ::simt::blas::Type;
    Type scale;
    ::simt::blas::Sum sum;
    if (!::simt::detail::SIMT_B(_compute)(compute, &sum, &scale)) return SIMT_DO(not_supported);
    auto call = ::simt::detail::SIMT_B(_gemm)(
        ta, tb, m, n, k, ::simt::blas::scalar(alpha, scale), {a, (Type)type_a, lda, stride_a},
        {b, (Type)type_b, ldb, stride_b}, ::simt::blas::scalar(beta, scale),
        {c, (Type)type_c, ldc, stride_c});
    call.sum = sum;
    call.batch = batch;
    return SIMT_DO(gemm(h, call, at));
}
template <class Compute>
SIMT_CALL(GemmEx)(SIMT_B(Handle_t) h, SIMT_B(Operation_t) ta, SIMT_B(Operation_t) tb, int m, int n,
                  int k, const void* alpha, const void* a, SIMT_BLAS_DATA type_a, int lda,
                  const void* b, SIMT_BLAS_DATA type_b, int ldb, const void* beta, void* c,
                  SIMT_BLAS_DATA type_c, int ldc, Compute compute, SIMT_B(GemmAlgo_t) algorithm,
                  SIMT_AT) {
    return SIMT_B(GemmStridedBatchedEx)(h, ta, tb, m, n, k, alpha, a, type_a, lda, 0, b, type_b,
                                        ldb, 0, beta, c, type_c, ldc, 0, 1, compute, algorithm, at);
}
// A of float16, bfloat16, float32 or int8, sums in float32.
SIMT_CALL(SgemmEx)(SIMT_B(Handle_t) h, SIMT_B(Operation_t) ta, SIMT_B(Operation_t) tb, int m, int n,
                   int k, const float* alpha, const void* a, SIMT_BLAS_DATA type_a, int lda,
                   const void* b, SIMT_BLAS_DATA type_b, int ldb, const float* beta, void* c,
                   SIMT_BLAS_DATA type_c, int ldc, SIMT_AT) {
    using ::simt::blas::Type;
    return SIMT_DO(gemm(h, ::simt::detail::SIMT_B(_gemm)(
        ta, tb, m, n, k, *alpha, {a, (Type)type_a, lda}, {b, (Type)type_b, ldb}, *beta,
        {c, (Type)type_c, ldc}), at));
}
// Half is __half, by name or by its bits.
template <class Half>
SIMT_CALL(Hgemm)(SIMT_B(Handle_t) h, SIMT_B(Operation_t) ta, SIMT_B(Operation_t) tb, int m, int n,
                 int k, const Half* alpha, const Half* a, int lda, const Half* b, int ldb,
                 const Half* beta, Half* c, int ldc, SIMT_AT) {
    static_assert(sizeof(Half) == 2, "float16");
    constexpr auto type = ::simt::blas::Type::f16;
    return SIMT_DO(gemm(h, ::simt::detail::SIMT_B(_gemm)(
        ta, tb, m, n, k, ::simt::blas::scalar(alpha, type), {a, type, lda}, {b, type, ldb},
        ::simt::blas::scalar(beta, type), {c, type, ldc}), at));
}
template <class Half>
SIMT_CALL(HgemmStridedBatched)(SIMT_B(Handle_t) h, SIMT_B(Operation_t) ta, SIMT_B(Operation_t) tb,
                               int m, int n, int k, const Half* alpha, const Half* a, int lda,
                               long long stride_a, const Half* b, int ldb, long long stride_b,
                               const Half* beta, Half* c, int ldc, long long stride_c, int batch,
                               SIMT_AT) {
    static_assert(sizeof(Half) == 2, "float16");
    constexpr auto type = ::simt::blas::Type::f16;
    auto call = ::simt::detail::SIMT_B(_gemm)(
        ta, tb, m, n, k, ::simt::blas::scalar(alpha, type), {a, type, lda, stride_a},
        {b, type, ldb, stride_b}, ::simt::blas::scalar(beta, type), {c, type, ldc, stride_c});
    call.batch = batch;
    return SIMT_DO(gemm(h, call, at));
}

#undef SIMT_CALL
#undef SIMT_DO
