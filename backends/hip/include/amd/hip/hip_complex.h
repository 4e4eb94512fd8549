// Complex numbers for HIP where ROCm's header is absent (PyPI has none).
#pragma once
#include <hip/hip_runtime.h>

typedef float2 hipFloatComplex;
typedef double2 hipDoubleComplex;
typedef hipFloatComplex hipComplex;

#define PORTKERN_COMPLEX(KIND, PART, MAKE, REAL, IMAG, CONJ, ABS2, ABS, ADD, SUB, MUL, DIV, FMA, SQRT) \
    __host__ __device__ inline KIND MAKE(PART a, PART b) { KIND z; z.x = a; z.y = b; return z; }      \
    __host__ __device__ inline PART REAL(KIND z) { return z.x; }                                      \
    __host__ __device__ inline PART IMAG(KIND z) { return z.y; }                                      \
    __host__ __device__ inline KIND CONJ(KIND z) { return MAKE(z.x, -z.y); }                          \
    __host__ __device__ inline PART ABS2(KIND z) { return z.x * z.x + z.y * z.y; }                    \
    __host__ __device__ inline PART ABS(KIND z) { return SQRT(ABS2(z)); }                             \
    __host__ __device__ inline KIND ADD(KIND p, KIND q) { return MAKE(p.x + q.x, p.y + q.y); }        \
    __host__ __device__ inline KIND SUB(KIND p, KIND q) { return MAKE(p.x - q.x, p.y - q.y); }        \
    __host__ __device__ inline KIND MUL(KIND p, KIND q) {                                             \
        return MAKE(p.x * q.x - p.y * q.y, p.y * q.x + p.x * q.y);                                    \
    }                                                                                                 \
    __host__ __device__ inline KIND DIV(KIND p, KIND q) {                                             \
        const PART s = ABS2(q);                                                                       \
        return MAKE((p.x * q.x + p.y * q.y) / s, (p.y * q.x - p.x * q.y) / s);                        \
    }                                                                                                 \
    __host__ __device__ inline KIND FMA(KIND p, KIND q, KIND r) { return ADD(MUL(p, q), r); }

PORTKERN_COMPLEX(hipFloatComplex, float, make_hipFloatComplex, hipCrealf, hipCimagf, hipConjf, hipCsqabsf,
                 hipCabsf, hipCaddf, hipCsubf, hipCmulf, hipCdivf, hipCfmaf, __builtin_sqrtf)
PORTKERN_COMPLEX(hipDoubleComplex, double, make_hipDoubleComplex, hipCreal, hipCimag, hipConj, hipCsqabs,
                 hipCabs, hipCadd, hipCsub, hipCmul, hipCdiv, hipCfma, __builtin_sqrt)
#undef PORTKERN_COMPLEX
__host__ __device__ inline hipComplex make_hipComplex(float a, float b) { return make_hipFloatComplex(a, b); }
__host__ __device__ inline hipFloatComplex hipComplexDoubleToFloat(hipDoubleComplex z) {
    return make_hipFloatComplex(static_cast<float>(z.x), static_cast<float>(z.y));
}
__host__ __device__ inline hipDoubleComplex hipComplexFloatToDouble(hipFloatComplex z) {
    return make_hipDoubleComplex(z.x, z.y);
}
