// One loop over inputs for each intrinsic. The tests compile it as C++ with our headers; nvcc
// compiles it too, which is how what a GPU answers was recorded (device.npz).
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __CUDACC__
#define DEVICE __device__ __forceinline__
#else
#include "simt/math.h"
#define DEVICE inline
#endif

using u64 = unsigned long long;

// What an input's low bits mean. The letters are also the signature of an operation.
template <class T>
DEVICE T as(u64 bits) {
    T value;
    memcpy((void*)&value, &bits, sizeof(value));
    return value;
}
#define f(x) as<float>(x)
#define d(x) as<double>(x)
#define h(x) as<__half>(x)
#define H(x) as<__half2>(x)
#define b(x) as<__nv_bfloat16>(x)
#define B(x) as<__nv_bfloat162>(x)
#define i(x) ((int)(x))
#define u(x) ((unsigned)(x))
#define s(x) ((short)(x))
#define w(x) ((unsigned short)(x))
#define l(x) ((long long)(x))
#define m(x) (x)
#define c(x) ((unsigned char)(x))

template <class T>
DEVICE u64 bits(T value) {
    u64 result = 0;
    memcpy(&result, &value, sizeof(value));
    return result;
}

#ifdef __CUDACC__
template <class Op>
__global__ void kernel(const u64* in, u64* out, size_t n) {
    const size_t k = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (k < n) out[k] = Op::run(in[k], in[n + k], in[2 * n + k]);
}
template <class Op>
void loop(const u64* in, u64* out, size_t n) {
    kernel<Op><<<(unsigned)((n + 127) / 128), 128>>>(in, out, n);
}
#else
template <class Op>
void loop(const u64* in, u64* out, size_t n) {
    for (size_t k = 0; k < n; ++k) out[k] = Op::run(in[k], in[n + k], in[2 * n + k]);
}
#endif

struct Operation {
    const char *name, *signature;
    void (*run)(const u64* in, u64* out, size_t n);
};
// Plain: clang's objects meet g++'s C++ library in the tests.
static Operation operations[1000];
static int count;

// EXPRESSION of x, y and z. A signature that ends in ~ is of an approximation.
#define OP(NAME, SIGNATURE, ...)                                                   \
    struct op_##NAME {                                                             \
        static DEVICE u64 run(u64 x, u64 y, u64 z) {                               \
            (void)x, (void)y, (void)z;                                             \
            return bits(__VA_ARGS__);                                              \
        }                                                                          \
    };                                                                             \
    static const bool listed_##NAME =                                              \
        (operations[count++] = {#NAME, SIGNATURE, loop<op_##NAME>}, true);

#define ROUNDINGS(M, ...) \
    M(rn, __VA_ARGS__) M(rz, __VA_ARGS__) M(rd, __VA_ARGS__) M(ru, __VA_ARGS__)

// ---- 16-bit floats -----------------------------------------------------------------------

template <class T>
DEVICE T incremented(T x) {
    T before = x++;
    ++x;
    x /= before;
    x -= before--;
    x *= --before;
    return x;
}

#define FROM_FLOAT(R, N) OP(float2##N##_##R, "f", __float2##N##_##R(f(x)))
#define INTEGERS(R, N, T, I, L)                                       \
    OP(N##2##I##_##R, #T, __##N##2##I##_##R(T(x)))                    \
    OP(I##2##N##_##R, #L, __##I##2##N##_##R(L(x)))
#define COMPARE(N, T, P, WORD)                                        \
    OP(N##_h##WORD, #T #T, __h##WORD(T(x), T(y)))                     \
    OP(N##_h##WORD##u, #T #T, __h##WORD##u(T(x), T(y)))               \
    OP(N##_h##WORD##2, #P #P, __h##WORD##2(P(x), P(y)))               \
    OP(N##_h##WORD##u2, #P #P, __h##WORD##u2(P(x), P(y)))             \
    OP(N##_hb##WORD##2, #P #P, __hb##WORD##2(P(x), P(y)))             \
    OP(N##_hb##WORD##u2, #P #P, __hb##WORD##u2(P(x), P(y)))           \
    OP(N##_h##WORD##2_mask, #P #P, __h##WORD##2_mask(P(x), P(y)))     \
    OP(N##_h##WORD##u2_mask, #P #P, __h##WORD##u2_mask(P(x), P(y)))
#define BINARY(N, T, P, WORD)                                         \
    OP(N##_##WORD, #T #T, __##WORD(T(x), T(y)))                       \
    OP(N##_##WORD##2, #P #P, __##WORD##2(P(x), P(y)))
#define ARITHMETIC(N, T, P, WORD)                                     \
    BINARY(N, T, P, WORD)                                             \
    OP(N##_##WORD##_rn, #T #T, __##WORD##_rn(T(x), T(y)))             \
    OP(N##_##WORD##2_rn, #P #P, __##WORD##2_rn(P(x), P(y)))           \
    OP(N##_##WORD##_sat, #T #T, __##WORD##_sat(T(x), T(y)))           \
    OP(N##_##WORD##2_sat, #P #P, __##WORD##2_sat(P(x), P(y)))
#define FUNCTION(N, T, P, WORD)                                       \
    OP(N##_h##WORD, #T "~", h##WORD(T(x)))                            \
    OP(N##_h2##WORD, #P "~", h2##WORD(P(x)))
#define EXACT(N, T, P, WORD)                                          \
    OP(N##_h##WORD, #T, h##WORD(T(x)))                                \
    OP(N##_h2##WORD, #P, h2##WORD(P(x)))

// T and P are the letters of the type and of its pair, N and N2 their names.
#define FLOAT16(N, N2, TYPE, T, P)                                    \
    ROUNDINGS(FROM_FLOAT, N)                                          \
    OP(float2##N, "f", __float2##N(f(x)))                             \
    OP(double2##N, "d", __double2##N(d(x)))                           \
    OP(N##2float, #T, __##N##2float(T(x)))                            \
    ROUNDINGS(INTEGERS, N, T, short, s)                               \
    ROUNDINGS(INTEGERS, N, T, ushort, w)                              \
    ROUNDINGS(INTEGERS, N, T, int, i)                                 \
    ROUNDINGS(INTEGERS, N, T, uint, u)                                \
    ROUNDINGS(INTEGERS, N, T, ll, l)                                  \
    ROUNDINGS(INTEGERS, N, T, ull, m)                                 \
    OP(N##2char_rz, #T, __##N##2char_rz(T(x)))                        \
    OP(N##2uchar_rz, #T, __##N##2uchar_rz(T(x)))                      \
    OP(N##_from_int, "i", TYPE(i(x)))                                 \
    OP(N##_from_uint, "u", TYPE(u(x)))                                \
    OP(N##_from_long, "l", TYPE((long)l(x)))                          \
    OP(N##_from_ulong, "m", TYPE((unsigned long)m(x)))                \
    OP(N##_from_double, "d", TYPE(d(x)))                              \
    OP(N##_to_char, #T, (char)T(x))                                   \
    OP(N##_to_long, #T, (long)T(x))                                   \
    OP(N##_to_double, #T, (double)T(x))                               \
    OP(N##_to_bool, #T, (bool)T(x))                                   \
    OP(float2##N2##_rn, "f", __float2##N2##_rn(f(x)))                 \
    OP(floats2##N2##_rn, "ff", __floats2##N2##_rn(f(x), f(y)))        \
    OP(float22##N2##_rn, "ff", __float22##N2##_rn(make_float2(f(x), f(y)))) \
    OP(N2##2float2, #P, __##N2##2float2(P(x)))                        \
    OP(N##_low2float, #P, __low2float(P(x)))                          \
    OP(N##_high2float, #P, __high2float(P(x)))                        \
    OP(low2##N2, #P, __low2##N2(P(x)))                                \
    OP(high2##N2, #P, __high2##N2(P(x)))                              \
    OP(low2##N, #P, __low2##N(P(x)))                                  \
    OP(high2##N, #P, __high2##N(P(x)))                                \
    OP(lows2##N2, #P #P, __lows2##N2(P(x), P(y)))                     \
    OP(highs2##N2, #P #P, __highs2##N2(P(x), P(y)))                   \
    OP(halves2##N2, #T #T, __halves2##N2(T(x), T(y)))                 \
    OP(N##2##N2, #T, __##N##2##N2(T(x)))                              \
    OP(N##_lowhigh2highlow, #P, __lowhigh2highlow(P(x)))              \
    OP(N##_as_short, #T, __##N##_as_short(T(x)))                      \
    OP(ushort_as_##N, "w", __ushort_as_##N(w(x)))                     \
    ARITHMETIC(N, T, P, hadd)                                         \
    ARITHMETIC(N, T, P, hsub)                                         \
    ARITHMETIC(N, T, P, hmul)                                         \
    OP(N##_hdiv, #T #T, __hdiv(T(x), T(y)))                           \
    OP(N##_h2div, #P #P, __h2div(P(x), P(y)))                         \
    OP(N##_hfma, #T #T #T, __hfma(T(x), T(y), T(z)))                  \
    OP(N##_hfma2, #P #P #P, __hfma2(P(x), P(y), P(z)))                \
    OP(N##_hfma_sat, #T #T #T, __hfma_sat(T(x), T(y), T(z)))          \
    OP(N##_hfma2_sat, #P #P #P, __hfma2_sat(P(x), P(y), P(z)))        \
    OP(N##_hfma_relu, #T #T #T, __hfma_relu(T(x), T(y), T(z)))        \
    OP(N##_hfma2_relu, #P #P #P, __hfma2_relu(P(x), P(y), P(z)))      \
    OP(N##_hcmadd, #P #P #P, __hcmadd(P(x), P(y), P(z)))              \
    OP(N##_hneg, #T, __hneg(T(x)))                                    \
    OP(N##_hneg2, #P, __hneg2(P(x)))                                  \
    OP(N##_habs, #T, __habs(T(x)))                                    \
    OP(N##_habs2, #P, __habs2(P(x)))                                  \
    BINARY(N, T, P, hmax)                                             \
    BINARY(N, T, P, hmin)                                             \
    OP(N##_hmax_nan, #T #T, __hmax_nan(T(x), T(y)))                   \
    OP(N##_hmin_nan, #T #T, __hmin_nan(T(x), T(y)))                   \
    OP(N##_hmax2_nan, #P #P, __hmax2_nan(P(x), P(y)))                 \
    OP(N##_hmin2_nan, #P #P, __hmin2_nan(P(x), P(y)))                 \
    COMPARE(N, T, P, eq)                                              \
    COMPARE(N, T, P, ne)                                              \
    COMPARE(N, T, P, lt)                                              \
    COMPARE(N, T, P, le)                                              \
    COMPARE(N, T, P, gt)                                              \
    COMPARE(N, T, P, ge)                                              \
    OP(N##_hisnan, #T, __hisnan(T(x)))                                \
    OP(N##_hisnan2, #P, __hisnan2(P(x)))                              \
    OP(N##_hisinf, #T, __hisinf(T(x)))                                \
    /* no product is added to: nvcc would fuse it */                  \
    OP(N##_operators, #T #T #T, -(T(x) * T(y)) / T(z) + T(x) - T(y))  \
    OP(N##_pair_operators, #P #P #P, -(P(x) * P(y)) / P(z) + P(x) - P(y)) \
    OP(N##_increments, #T, incremented(T(x)))                         \
    OP(N##_relations, #T #T,                                          \
       (T(x) == T(y)) | (T(x) != T(y)) << 1 | (T(x) < T(y)) << 2 |        \
           (T(x) <= T(y)) << 3 |                                      \
           (T(x) > T(y)) << 4 | (T(x) >= T(y)) << 5)                  \
    OP(N##_pair_relations, #P #P,                                     \
       (P(x) == P(y)) | (P(x) != P(y)) << 1 | (P(x) < P(y)) << 2 | (P(x) <= P(y)) << 3 | \
           (P(x) > P(y)) << 4 | (P(x) >= P(y)) << 5)                  \
    EXACT(N, T, P, sqrt)                                              \
    EXACT(N, T, P, rcp)                                               \
    EXACT(N, T, P, floor)                                             \
    EXACT(N, T, P, ceil)                                              \
    EXACT(N, T, P, rint)                                              \
    EXACT(N, T, P, trunc)                                             \
    FUNCTION(N, T, P, rsqrt)                                          \
    FUNCTION(N, T, P, exp)                                            \
    FUNCTION(N, T, P, exp2)                                           \
    FUNCTION(N, T, P, exp10)                                          \
    FUNCTION(N, T, P, log)                                            \
    FUNCTION(N, T, P, log2)                                           \
    FUNCTION(N, T, P, log10)                                          \
    FUNCTION(N, T, P, sin)                                            \
    FUNCTION(N, T, P, cos)                                            \
    FUNCTION(N, T, P, tanh)                                           \
    FUNCTION(N, T, P, tanh_approx)

FLOAT16(half, half2, __half, h, H)
FLOAT16(bfloat16, bfloat162, __nv_bfloat16, b, B)
OP(half_from_bfloat16, "b", __half(b(x)))
OP(bfloat16_from_half, "h", __nv_bfloat16(h(x)))

// ---- 8-bit floats ------------------------------------------------------------------------

#define FP8(NAME, WHICH)                                                                    \
    OP(float_to_##NAME, "f", __nv_cvt_float_to_fp8(f(x), __NV_SATFINITE, WHICH))            \
    OP(float_to_##NAME##_nosat, "f", __nv_cvt_float_to_fp8(f(x), __NV_NOSAT, WHICH))        \
    OP(double_to_##NAME, "d", __nv_cvt_double_to_fp8(d(x), __NV_SATFINITE, WHICH))          \
    OP(half_to_##NAME, "h", __nv_cvt_halfraw_to_fp8(h(x), __NV_SATFINITE, WHICH))           \
    OP(half_to_##NAME##_nosat, "h", __nv_cvt_halfraw_to_fp8(h(x), __NV_NOSAT, WHICH))       \
    OP(bfloat16_to_##NAME, "b", __nv_cvt_bfloat16raw_to_fp8(b(x), __NV_SATFINITE, WHICH))   \
    OP(half2_to_##NAME##x2, "H", __nv_cvt_halfraw2_to_fp8x2(H(x), __NV_SATFINITE, WHICH))   \
    OP(bfloat162_to_##NAME##x2, "B",                                                        \
       __nv_cvt_bfloat16raw2_to_fp8x2(B(x), __NV_SATFINITE, WHICH))                         \
    OP(float2_to_##NAME##x2, "ff",                                                          \
       __nv_cvt_float2_to_fp8x2(make_float2(f(x), f(y)), __NV_SATFINITE, WHICH))            \
    OP(NAME##_to_half, "c", __nv_cvt_fp8_to_halfraw(c(x), WHICH))                           \
    OP(NAME##x2_to_half2, "w", __nv_cvt_fp8x2_to_halfraw2(w(x), WHICH))                     \
    OP(NAME##_from_int, "i", __nv_fp8_##NAME(i(x)).__x)                                     \
    OP(NAME##_from_double, "d", __nv_fp8_##NAME(d(x)).__x)                                  \
    OP(NAME##_to_float, "c", (float)as<__nv_fp8_##NAME>(x))                                 \
    OP(NAME##_to_bfloat16, "c", (__nv_bfloat16)as<__nv_fp8_##NAME>(x))                      \
    OP(NAME##_to_int, "c", (int)as<__nv_fp8_##NAME>(x))                                     \
    OP(NAME##_to_uchar, "c", (unsigned char)as<__nv_fp8_##NAME>(x))                         \
    OP(NAME##_to_schar, "c", (signed char)as<__nv_fp8_##NAME>(x))                           \
    OP(NAME##_to_ull, "c", (unsigned long long)as<__nv_fp8_##NAME>(x))                      \
    OP(NAME##_to_bool, "c", (bool)as<__nv_fp8_##NAME>(x))                                   \
    OP(NAME##x2_to_float2, "w", (float2)as<__nv_fp8x2_##NAME>(x))                           \
    OP(NAME##x4_high, "u", make_float2(((float4)as<__nv_fp8x4_##NAME>(x)).z,                \
                                       ((float4)as<__nv_fp8x4_##NAME>(x)).w))               \
    OP(NAME##x4_from_float4, "ff", __nv_fp8x4_##NAME(make_float4(f(x), f(y), f(y), f(x))).__x) \
    OP(NAME##x4_from_half2s, "HH", __nv_fp8x4_##NAME(H(x), H(y)).__x)
FP8(e4m3, __NV_E4M3)
FP8(e5m2, __NV_E5M2)

// ---- floating point and integers ---------------------------------------------------------

#define TO_INTEGER(R, F, T, I) OP(F##2##I##_##R, #T, __##F##2##I##_##R(T(x)))
#define FROM_INTEGER(R, F, I, L) OP(I##2##F##_##R, #L, __##I##2##F##_##R(L(x)))
ROUNDINGS(TO_INTEGER, float, f, int)
ROUNDINGS(TO_INTEGER, float, f, uint)
ROUNDINGS(TO_INTEGER, float, f, ll)
ROUNDINGS(TO_INTEGER, float, f, ull)
ROUNDINGS(TO_INTEGER, double, d, int)
ROUNDINGS(TO_INTEGER, double, d, uint)
ROUNDINGS(TO_INTEGER, double, d, ll)
ROUNDINGS(TO_INTEGER, double, d, ull)
ROUNDINGS(TO_INTEGER, double, d, float)
ROUNDINGS(FROM_INTEGER, float, int, i)
ROUNDINGS(FROM_INTEGER, float, uint, u)
ROUNDINGS(FROM_INTEGER, float, ll, l)
ROUNDINGS(FROM_INTEGER, float, ull, m)
ROUNDINGS(FROM_INTEGER, double, ll, l)
ROUNDINGS(FROM_INTEGER, double, ull, m)
OP(int2double_rn, "i", __int2double_rn(i(x)))
OP(uint2double_rn, "u", __uint2double_rn(u(x)))
OP(float_as_int, "f", __float_as_int(f(x)))
OP(uint_as_float, "u", __uint_as_float(u(x)))
OP(double2hiint, "d", __double2hiint(d(x)))
OP(double2loint, "d", __double2loint(d(x)))
OP(hiloint2double, "ii", __hiloint2double(i(x), i(y)))
OP(longlong_as_double, "l", __longlong_as_double(l(x)))

#define UNARY_R(R, NAME, T) OP(NAME##_##R, #T, __##NAME##_##R(T(x)))
#define BINARY_R(R, NAME, T) OP(NAME##_##R, #T #T, __##NAME##_##R(T(x), T(y)))
#define TERNARY_R(R, NAME, T) OP(NAME##_##R, #T #T #T, __##NAME##_##R(T(x), T(y), T(z)))
ROUNDINGS(BINARY_R, fadd, f)
ROUNDINGS(BINARY_R, fsub, f)
ROUNDINGS(BINARY_R, fmul, f)
ROUNDINGS(BINARY_R, fdiv, f)
ROUNDINGS(UNARY_R, frcp, f)
ROUNDINGS(UNARY_R, fsqrt, f)
ROUNDINGS(TERNARY_R, fmaf, f)
ROUNDINGS(BINARY_R, dadd, d)
ROUNDINGS(BINARY_R, dsub, d)
ROUNDINGS(BINARY_R, dmul, d)
ROUNDINGS(BINARY_R, ddiv, d)
ROUNDINGS(UNARY_R, drcp, d)
ROUNDINGS(UNARY_R, dsqrt, d)
ROUNDINGS(TERNARY_R, fma, d)
OP(frsqrt_rn, "f", __frsqrt_rn(f(x)))

// ---- mathematics -------------------------------------------------------------------------

#define MATH1(NAME) OP(NAME, "f~", NAME(f(x)))
#define MATH1D(NAME) OP(NAME, "d~", NAME(d(x)))
MATH1(__expf)
MATH1(__exp10f)
MATH1(__logf)
MATH1(__log2f)
MATH1(__log10f)
MATH1(__sinf)
MATH1(__cosf)
MATH1(__tanf)
MATH1(__tanhf)
OP(__saturatef, "f", __saturatef(f(x)))
OP(__powf, "ff~", __powf(f(x), f(y)))
OP(__fdividef, "ff~", __fdividef(f(x), f(y)))
MATH1(rsqrtf)
MATH1(rcbrtf)
MATH1(exp10f)
MATH1(sinpif)
MATH1(cospif)
MATH1(erfinvf)
MATH1(erfcinvf)
MATH1(erfcxf)
MATH1(normcdff)
MATH1(normcdfinvf)
MATH1(cyl_bessel_i0f)
MATH1(cyl_bessel_i1f)
MATH1D(rsqrt)
MATH1D(rcbrt)
MATH1D(exp10)
MATH1D(sinpi)
MATH1D(cospi)
MATH1D(erfinv)
MATH1D(erfcinv)
MATH1D(erfcx)
MATH1D(normcdf)
MATH1D(normcdfinv)
MATH1D(cyl_bessel_i0)
MATH1D(cyl_bessel_i1)
OP(norm3df, "fff~", norm3df(f(x), f(y), f(z)))
OP(rnorm3df, "fff~", rnorm3df(f(x), f(y), f(z)))
OP(norm4df, "fff~", norm4df(f(x), f(y), f(z), 1.0f))
OP(norm3d, "ddd~", norm3d(d(x), d(y), d(z)))
OP(rnorm3d, "ddd~", rnorm3d(d(x), d(y), d(z)))
OP(rhypotf, "ff~", rhypotf(f(x), f(y)))
OP(rhypot, "dd~", rhypot(d(x), d(y)))
OP(fdividef, "ff~", fdividef(f(x), f(y)))
OP(fmaxf, "ff", max(f(x), f(y)))
OP(fminf, "ff", min(f(x), f(y)))
OP(max_int_uint, "iu", max(i(x), u(y)))
OP(min_int_uint, "iu", min(i(x), u(y)))
OP(max_ll_ull, "lm", max(l(x), m(y)))
OP(min_long_long, "ll", min((long)l(x), (long)l(y)))
OP(max_float_double, "fd", max(f(x), d(y)))

// ---- integers ----------------------------------------------------------------------------

OP(popc, "u", __popc(u(x)))
OP(popcll, "m", __popcll(m(x)))
OP(clz, "i", __clz(i(x)))
OP(clzll, "l", __clzll(l(x)))
OP(ffs, "i", __ffs(i(x)))
OP(ffsll, "l", __ffsll(l(x)))
OP(brev, "u", __brev(u(x)))
OP(brevll, "m", __brevll(m(x)))
OP(byte_perm, "uuu", __byte_perm(u(x), u(y), u(z)))
OP(funnelshift_l, "uuu", __funnelshift_l(u(x), u(y), u(z)))
OP(funnelshift_r, "uuu", __funnelshift_r(u(x), u(y), u(z)))
OP(funnelshift_lc, "uuc", __funnelshift_lc(u(x), u(y), c(z)))
OP(funnelshift_rc, "uuc", __funnelshift_rc(u(x), u(y), c(z)))
OP(fns, "uci", __fns(u(x), c(y) & 31, i(z) % 20))
OP(mulhi, "ii", __mulhi(i(x), i(y)))
OP(umulhi, "uu", __umulhi(u(x), u(y)))
OP(mul64hi, "ll", __mul64hi(l(x), l(y)))
OP(umul64hi, "mm", __umul64hi(m(x), m(y)))
OP(mul24, "ii", __mul24(i(x), i(y)))
OP(umul24, "uu", __umul24(u(x), u(y)))
OP(hadd, "ii", __hadd(i(x), i(y)))
OP(rhadd, "ii", __rhadd(i(x), i(y)))
OP(uhadd, "uu", __uhadd(u(x), u(y)))
OP(urhadd, "uu", __urhadd(u(x), u(y)))
OP(sad, "iiu", __sad(i(x), i(y), u(z)))
OP(usad, "uuu", __usad(u(x), u(y), u(z)))
OP(dp4a_s, "iii", __dp4a(i(x), i(y), i(z)))
OP(dp4a_u, "uuu", __dp4a(u(x), u(y), u(z)))
OP(dp4a_c, "uui", __dp4a(as<char4>(x), as<char4>(y), i(z)))
OP(dp2a_lo_s, "iii", __dp2a_lo(i(x), i(y), i(z)))
OP(dp2a_lo_u, "uuu", __dp2a_lo(u(x), u(y), u(z)))
OP(dp2a_hi_s, "iii", __dp2a_hi(i(x), i(y), i(z)))
OP(dp2a_hi_u, "uuu", __dp2a_hi(as<ushort2>(x), as<uchar4>(y), u(z)))

#define SIMD1(NAME) OP(NAME, "u", __##NAME(u(x)))
#define SIMD2(NAME) OP(NAME, "uu", __##NAME(u(x), u(y)))
#define SIMD_COMPARE(N, WORD) SIMD2(vcmp##WORD##N) SIMD2(vset##WORD##N)
#define SIMD(N)                                                                            \
    SIMD1(vabs##N) SIMD1(vabsss##N) SIMD1(vneg##N) SIMD1(vnegss##N)                        \
    SIMD2(vadd##N) SIMD2(vaddss##N) SIMD2(vaddus##N)                                       \
    SIMD2(vsub##N) SIMD2(vsubss##N) SIMD2(vsubus##N)                                       \
    SIMD2(vavgs##N) SIMD2(vavgu##N) SIMD2(vhaddu##N)                                       \
    SIMD2(vmaxs##N) SIMD2(vmaxu##N) SIMD2(vmins##N) SIMD2(vminu##N)                        \
    SIMD2(vabsdiffs##N) SIMD2(vabsdiffu##N) SIMD2(vsads##N) SIMD2(vsadu##N)                \
    SIMD_COMPARE(N, eq) SIMD_COMPARE(N, ne) SIMD_COMPARE(N, ges) SIMD_COMPARE(N, geu)      \
    SIMD_COMPARE(N, gts) SIMD_COMPARE(N, gtu) SIMD_COMPARE(N, les) SIMD_COMPARE(N, leu)    \
    SIMD_COMPARE(N, lts) SIMD_COMPARE(N, ltu)
SIMD(2)
SIMD(4)

#define FUNCTION_OF(NAME) [](auto... arguments) { return NAME(arguments...); }
#define DPX3(NAME) OP(NAME, "uuu", __##NAME(u(x), u(y), u(z)))
#define DPX(W)                                                                             \
    OP(vi##W##_s32_relu, "ii", __vi##W##_s32_relu(i(x), i(y)))                             \
    OP(vi##W##_s16x2_relu, "uu", __vi##W##_s16x2_relu(u(x), u(y)))                         \
    OP(vib##W##_s32, "ii", with_flag(FUNCTION_OF(__vib##W##_s32), i(x), i(y)))             \
    OP(vib##W##_u32, "uu", with_flag(FUNCTION_OF(__vib##W##_u32), u(x), u(y)))             \
    OP(vib##W##_s16x2, "uu", with_flags(FUNCTION_OF(__vib##W##_s16x2), u(x), u(y)))        \
    OP(vib##W##_u16x2, "uu", with_flags(FUNCTION_OF(__vib##W##_u16x2), u(x), u(y)))        \
    OP(vi##W##3_s32, "iii", __vi##W##3_s32(i(x), i(y), i(z)))                              \
    OP(vi##W##3_s32_relu, "iii", __vi##W##3_s32_relu(i(x), i(y), i(z)))                    \
    OP(viadd##W##_s32, "iii", __viadd##W##_s32(i(x), i(y), i(z)))                          \
    OP(viadd##W##_s32_relu, "iii", __viadd##W##_s32_relu(i(x), i(y), i(z)))                \
    DPX3(vi##W##3_u32) DPX3(viadd##W##_u32)                                                \
    DPX3(vi##W##3_s16x2) DPX3(vi##W##3_s16x2_relu) DPX3(vi##W##3_u16x2)                    \
    DPX3(viadd##W##_s16x2) DPX3(viadd##W##_s16x2_relu) DPX3(viadd##W##_u16x2)
template <class F, class T>
DEVICE u64 with_flag(F function, T p, T q) {
    bool flag;
    const T result = function(p, q, &flag);
    return (u64)(unsigned)result | (u64)flag << 32;
}
template <class F>
DEVICE u64 with_flags(F function, unsigned p, unsigned q) {
    bool high, low;
    const unsigned result = function(p, q, &high, &low);
    return (u64)result | (u64)low << 32 | (u64)high << 33;
}
DPX(max)
DPX(min)

#ifdef __CUDACC__
// Usage: intrinsics N INPUTS OUTPUTS: three columns of N inputs for each operation, in turn.
int main(int, char** arguments) {
    const size_t n = (size_t)atoi(arguments[1]);
    FILE *inputs = fopen(arguments[2], "rb"), *outputs = fopen(arguments[3], "wb");
    u64 *in, *out;
    cudaMallocManaged(&in, 3 * n * sizeof(u64));
    cudaMallocManaged(&out, n * sizeof(u64));
    for (int k = 0; k < count; ++k) {
        if (fread(in, sizeof(u64), 3 * n, inputs) != 3 * n) return 1;
        operations[k].run(in, out, n);
        const cudaError_t error = cudaDeviceSynchronize();
        if (error != cudaSuccess) {
            fprintf(stderr, "%s: %s\n", operations[k].name, cudaGetErrorString(error));
            return 1;
        }
        fwrite(out, sizeof(u64), n, outputs);
    }
    fclose(outputs);
    printf("%d operations\n", count);
}
#else
extern "C" int simt_operations() { return count; }
extern "C" const char* simt_name(int k) { return operations[k].name; }
extern "C" const char* simt_signature(int k) { return operations[k].signature; }
extern "C" void simt_run(int k, const u64* in, u64* out, size_t n) {
    operations[k].run(in, out, n);
}
#endif
