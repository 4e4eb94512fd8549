// Formats of 4 bits (e2m1) and of powers of two alone (e8m0): CUDA's __nv_fp4_* and e8m0 of fp8.
#pragma once
#include "fp8.h"

enum cudaRoundMode {
    cudaRoundNearest = 0,
    cudaRoundZero = 1,
    cudaRoundPosInf = 2,
    cudaRoundMinInf = 3,
};

namespace simt {
namespace numbers {

// Sign, two bits of exponent, one of mantissa: neither infinity nor NaN.
static inline float decode4(uint32_t code) {
    const float sizes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    return code & 8 ? -sizes[code & 7] : sizes[code & 7];
}
// To nearest, ties to even; what is too large becomes 6, and so does NaN.
static inline uint8_t encode4(double x) {
    if (x != x) return 7;
    const double size = std::fabs(x);
    unsigned code = 0;
    while (code < 7) {
        const double middle = (decode4(code) + (double)decode4(code + 1)) / 2;
        if (size < middle || (size == middle && !(code & 1))) break;
        ++code;
    }
    return (uint8_t)(code | (std::signbit(x) ? 8 : 0));
}

// 2^(code - 127); 255 is NaN. There is no sign.
static inline float decode_power(uint8_t code) {
    return code == 255 ? std::nanf("") : (float)std::ldexp(1.0, (int)code - 127);
}
static inline uint8_t encode_power(double x, bool saturate, bool up) {
    if (x != x) return 255;
    x = std::fabs(x);
    if (std::isinf(x)) return saturate ? 254 : 255;
    if (x == 0) return 0;
    int exponent = std::ilogb(x);
    if (up && std::ldexp(1.0, exponent) < x) ++exponent;
    if (exponent < -127) return 0;
    return exponent > 127 ? (saturate ? 254 : 255) : (uint8_t)(exponent + 127);
}

}  // namespace numbers
}  // namespace simt

// ---- e8m0 -------------------------------------------------------------------------------

#define SIMT_E8M0_FROM(SOURCE, T, X)                                                       \
    static inline __nv_fp8_storage_t __nv_cvt_##SOURCE##_to_e8m0(                          \
        T v, __nv_saturation_t saturate, cudaRoundMode rounding) {                         \
        return simt::numbers::encode_power(X, saturate == __NV_SATFINITE,                  \
                                           rounding == cudaRoundPosInf);                   \
    }
#define SIMT_E8M0_FROM2(SOURCE, T, X, Y)                                                   \
    static inline __nv_fp8x2_storage_t __nv_cvt_##SOURCE##_to_e8m0x2(                      \
        T v, __nv_saturation_t saturate, cudaRoundMode rounding) {                         \
        const bool finite = saturate == __NV_SATFINITE, up = rounding == cudaRoundPosInf;  \
        return (__nv_fp8x2_storage_t)(simt::numbers::encode_power(X, finite, up) |         \
                                      simt::numbers::encode_power(Y, finite, up) << 8);    \
    }
SIMT_E8M0_FROM(float, float, v)
SIMT_E8M0_FROM(double, double, v)
SIMT_E8M0_FROM(bfloat16raw, __nv_bfloat16_raw, simt::numbers::Brain16::decode(v.x))
SIMT_E8M0_FROM2(float2, float2, v.x, v.y)
SIMT_E8M0_FROM2(double2, double2, v.x, v.y)
SIMT_E8M0_FROM2(bfloat162raw, __nv_bfloat162_raw, simt::numbers::Brain16::decode(v.x),
                simt::numbers::Brain16::decode(v.y))
#undef SIMT_E8M0_FROM2
#undef SIMT_E8M0_FROM
static inline __nv_bfloat16_raw __nv_cvt_e8m0_to_bf16raw(__nv_fp8_storage_t x) {
    return __float2bfloat16(simt::numbers::decode_power(x));
}
static inline __nv_bfloat162_raw __nv_cvt_e8m0x2_to_bf162raw(__nv_fp8x2_storage_t x) {
    return __floats2bfloat162_rn(simt::numbers::decode_power((unsigned char)x),
                                 simt::numbers::decode_power((unsigned char)(x >> 8)));
}

// Constructors saturate to finite and round up.
struct alignas(1) __nv_fp8_e8m0 {
    unsigned char __x;
    __nv_fp8_e8m0() = default;
    explicit __nv_fp8_e8m0(float v) : __x(simt::numbers::encode_power(v, true, true)) {}
    explicit __nv_fp8_e8m0(double v) : __x(simt::numbers::encode_power(v, true, true)) {}
    explicit __nv_fp8_e8m0(__nv_bfloat16 v) : __nv_fp8_e8m0(simt::numbers::value(v)) {}
    explicit __nv_fp8_e8m0(__half v) : __nv_fp8_e8m0(simt::numbers::value(v)) {}
    explicit operator float() const { return simt::numbers::decode_power(__x); }
    explicit operator double() const { return simt::numbers::decode_power(__x); }
    explicit operator __nv_bfloat16() const {
        return __float2bfloat16(simt::numbers::decode_power(__x));
    }
};

// ---- e2m1 -------------------------------------------------------------------------------

using __nv_fp4_storage_t = unsigned char;  // in the low half
using __nv_fp4x2_storage_t = unsigned char;
using __nv_fp4x4_storage_t = unsigned short;
enum __nv_fp4_interpretation_t { __NV_E2M1 };

#define SIMT_FP4_FROM(SOURCE, T, X)                                                        \
    static inline __nv_fp4_storage_t __nv_cvt_##SOURCE##_to_fp4(                           \
        T v, __nv_fp4_interpretation_t, cudaRoundMode) {                                   \
        return simt::numbers::encode4(X);                                                  \
    }
#define SIMT_FP4_FROM2(SOURCE, T, X, Y)                                                    \
    static inline __nv_fp4x2_storage_t __nv_cvt_##SOURCE##_to_fp4x2(                       \
        T v, __nv_fp4_interpretation_t, cudaRoundMode) {                                   \
        return (__nv_fp4x2_storage_t)(simt::numbers::encode4(X) |                          \
                                      simt::numbers::encode4(Y) << 4);                     \
    }
SIMT_FP4_FROM(float, float, v)
SIMT_FP4_FROM(double, double, v)
SIMT_FP4_FROM(halfraw, __half_raw, simt::numbers::Binary16::decode(v.x))
SIMT_FP4_FROM(bfloat16raw, __nv_bfloat16_raw, simt::numbers::Brain16::decode(v.x))
SIMT_FP4_FROM2(float2, float2, v.x, v.y)
SIMT_FP4_FROM2(double2, double2, v.x, v.y)
SIMT_FP4_FROM2(halfraw2, __half2_raw, simt::numbers::Binary16::decode(v.x),
               simt::numbers::Binary16::decode(v.y))
SIMT_FP4_FROM2(bfloat16raw2, __nv_bfloat162_raw, simt::numbers::Brain16::decode(v.x),
               simt::numbers::Brain16::decode(v.y))
#undef SIMT_FP4_FROM2
#undef SIMT_FP4_FROM
static inline __half_raw __nv_cvt_fp4_to_halfraw(__nv_fp4_storage_t x, __nv_fp4_interpretation_t) {
    return __float2half(simt::numbers::decode4(x));
}
static inline __half2_raw __nv_cvt_fp4x2_to_halfraw2(__nv_fp4x2_storage_t x,
                                                     __nv_fp4_interpretation_t) {
    return __floats2half2_rn(simt::numbers::decode4(x), simt::numbers::decode4(x >> 4));
}

struct alignas(1) __nv_fp4_e2m1 {
    unsigned char __x;
    __nv_fp4_e2m1() = default;
    explicit __nv_fp4_e2m1(float v) : __x(simt::numbers::encode4(v)) {}
    explicit __nv_fp4_e2m1(double v) : __x(simt::numbers::encode4(v)) {}
    explicit __nv_fp4_e2m1(__half v) : __nv_fp4_e2m1(simt::numbers::value(v)) {}
    explicit __nv_fp4_e2m1(__nv_bfloat16 v) : __nv_fp4_e2m1(simt::numbers::value(v)) {}
    explicit __nv_fp4_e2m1(int v) : __nv_fp4_e2m1((float)v) {}
    explicit operator float() const { return simt::numbers::decode4(__x); }
    explicit operator double() const { return simt::numbers::decode4(__x); }
    explicit operator __half() const { return __float2half(simt::numbers::decode4(__x)); }
    explicit operator __nv_bfloat16() const {
        return __float2bfloat16(simt::numbers::decode4(__x));
    }
};
struct alignas(1) __nv_fp4x2_e2m1 {
    unsigned char __x;
    __nv_fp4x2_e2m1() = default;
    explicit __nv_fp4x2_e2m1(float2 v)
        : __x(__nv_cvt_float2_to_fp4x2(v, __NV_E2M1, cudaRoundNearest)) {}
    explicit __nv_fp4x2_e2m1(__half2 v) : __nv_fp4x2_e2m1(__half22float2(v)) {}
    explicit __nv_fp4x2_e2m1(__nv_bfloat162 v) : __nv_fp4x2_e2m1(__bfloat1622float2(v)) {}
    explicit operator float2() const {
        return make_float2(simt::numbers::decode4(__x), simt::numbers::decode4(__x >> 4));
    }
    explicit operator __half2() const { return __float22half2_rn((float2)*this); }
};
struct alignas(2) __nv_fp4x4_e2m1 {
    unsigned short __x;
    __nv_fp4x4_e2m1() = default;
    explicit __nv_fp4x4_e2m1(float4 v)
        : __x((unsigned short)(simt::numbers::encode4(v.x) | simt::numbers::encode4(v.y) << 4 |
                               simt::numbers::encode4(v.z) << 8 |
                               simt::numbers::encode4(v.w) << 12)) {}
    explicit operator float4() const {
        return make_float4(simt::numbers::decode4(__x), simt::numbers::decode4(__x >> 4),
                           simt::numbers::decode4(__x >> 8), simt::numbers::decode4(__x >> 12));
    }
};
#define __CUDA_FP4_TYPES_EXIST__
