// Complex numbers as a pair of components: cuCaddf or hipCaddf, by SIMT_C. No #pragma once.
#include <math.h>

#include "vectors.h"

#define SIMT_COMPLEX(Z, F, f, R)                                                                   \
    typedef F##2 SIMT_C(Z);                                                                        \
    static inline SIMT_C(Z) SIMT_MAKE_C(Z)(R re, R im) { return {re, im}; }                        \
    static inline R SIMT_C(Creal##f)(SIMT_C(Z) z) { return z.x; }                                  \
    static inline R SIMT_C(Cimag##f)(SIMT_C(Z) z) { return z.y; }                                  \
    static inline SIMT_C(Z) SIMT_C(Conj##f)(SIMT_C(Z) z) { return {z.x, -z.y}; }                   \
    static inline SIMT_C(Z) SIMT_C(Cadd##f)(SIMT_C(Z) a, SIMT_C(Z) b) {                            \
        return {a.x + b.x, a.y + b.y};                                                             \
    }                                                                                              \
    static inline SIMT_C(Z) SIMT_C(Csub##f)(SIMT_C(Z) a, SIMT_C(Z) b) {                            \
        return {a.x - b.x, a.y - b.y};                                                             \
    }                                                                                              \
    static inline SIMT_C(Z) SIMT_C(Cmul##f)(SIMT_C(Z) a, SIMT_C(Z) b) {                            \
        return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x};                                     \
    }                                                                                              \
    static inline SIMT_C(Z) SIMT_C(Cfma##f)(SIMT_C(Z) a, SIMT_C(Z) b, SIMT_C(Z) c) {               \
        return SIMT_C(Cadd##f)(SIMT_C(Cmul##f)(a, b), c);                                          \
    }                                                                                              \
    static inline SIMT_C(Z) SIMT_C(Cdiv##f)(SIMT_C(Z) a, SIMT_C(Z) b) {                            \
        const R by = (R)1 / (fabs##f(b.x) + fabs##f(b.y)); /* against overflow */                  \
        const R x = b.x * by, y = b.y * by, p = a.x * by, q = a.y * by, d = x * x + y * y;         \
        return {(p * x + q * y) / d, (q * x - p * y) / d};                                         \
    }                                                                                              \
    static inline R SIMT_C(Cabs##f)(SIMT_C(Z) z) { return hypot##f(z.x, z.y); }
SIMT_COMPLEX(FloatComplex, float, f, float)
SIMT_COMPLEX(DoubleComplex, double, , double)
#undef SIMT_COMPLEX
typedef SIMT_C(FloatComplex) SIMT_C(Complex);
static inline SIMT_C(Complex) SIMT_MAKE_C(Complex)(float re, float im) { return {re, im}; }
static inline SIMT_C(FloatComplex) SIMT_C(ComplexDoubleToFloat)(SIMT_C(DoubleComplex) z) {
    return {(float)z.x, (float)z.y};
}
static inline SIMT_C(DoubleComplex) SIMT_C(ComplexFloatToDouble)(SIMT_C(FloatComplex) z) { return {z.x, z.y}; }
