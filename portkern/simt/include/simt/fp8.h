// 8-bit floating point: CUDA's __nv_fp8_* and HIP's __hip_fp8_*, in pairs and fours too. The
// unsigned power-of-two format e8m0 and the fp4 types are in fp4.h; fp6 is not modelled.
#pragma once
#include "bfloat16.h"

namespace simt {
namespace numbers {

using E4M3 = Narrow<4, 3, Beyond::nan>;  // OCP: largest 448, no infinity
using E5M2 = Narrow<5, 2, Beyond::infinity>;
using E4M3Fnuz = Narrow<4, 3, Beyond::fnuz>;  // largest 240
using E5M2Fnuz = Narrow<5, 2, Beyond::fnuz>;

// gfx942 turns infinities into NaN even where it saturates; OCP formats saturate them.
template <class Format>
static inline uint8_t encode8(double x, bool saturate) {
    const bool fnuz = Format::nan == Format::sign;
    return uint8_t(Format::encode(x, Round::nearest, saturate && !(fnuz && std::isinf(x))));
}

template <class Format>
static inline float decode_lane(uint32_t word, int lane) {
    return Format::decode(word >> 8 * lane & 0xff);
}
template <class Format>
static inline uint16_t encode8x2(double x, double y, bool saturate = true) {
    return uint16_t(encode8<Format>(x, saturate) | encode8<Format>(y, saturate) << 8);
}
template <class Format>
static inline uint32_t encode8x4(double x, double y, double z, double w) {
    return encode8x2<Format>(x, y) | uint32_t(encode8x2<Format>(z, w)) << 16;
}

}  // namespace numbers
}  // namespace simt

using __nv_fp8_storage_t = unsigned char;
using __nv_fp8x2_storage_t = unsigned short;
using __nv_fp8x4_storage_t = unsigned int;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

using __hip_fp8_storage_t = unsigned char;
using __hip_fp8x2_storage_t = unsigned short;
using __hip_fp8x4_storage_t = unsigned int;
enum __hip_saturation_t { __HIP_NOSAT = 0, __HIP_SATFINITE = 1 };
enum __hip_fp8_interpretation_t {
    __HIP_E4M3 = 0,
    __HIP_E5M2 = 1,
    __HIP_E4M3_FNUZ = 2,
    __HIP_E5M2_FNUZ = 3,
};

namespace simt {
namespace numbers {

static inline uint8_t encode8(double x, bool saturate, __nv_fp8_interpretation_t as) {
    return as == __NV_E4M3 ? encode8<E4M3>(x, saturate) : encode8<E5M2>(x, saturate);
}
static inline float decode8(uint8_t code, __nv_fp8_interpretation_t as) {
    return as == __NV_E4M3 ? E4M3::decode(code) : E5M2::decode(code);
}
static inline uint8_t encode8(double x, bool saturate, __hip_fp8_interpretation_t as) {
    switch (as) {
        case __HIP_E4M3: return encode8<E4M3>(x, saturate);
        case __HIP_E5M2: return encode8<E5M2>(x, saturate);
        case __HIP_E4M3_FNUZ: return encode8<E4M3Fnuz>(x, saturate);
        default: return encode8<E5M2Fnuz>(x, saturate);
    }
}
static inline float decode8(uint8_t code, __hip_fp8_interpretation_t as) {
    switch (as) {
        case __HIP_E4M3: return E4M3::decode(code);
        case __HIP_E5M2: return E5M2::decode(code);
        case __HIP_E4M3_FNUZ: return E4M3Fnuz::decode(code);
        default: return E5M2Fnuz::decode(code);
    }
}

}  // namespace numbers
}  // namespace simt

// ---- conversions of storage --------------------------------------------------------------

// X and Y are the numbers of a source `v`; a pair's first is the lower byte.
#define SIMT_FP8_FROM(V, SOURCE, T, X)                                                     \
    static inline __##V##_fp8_storage_t __##V##_cvt_##SOURCE##_to_fp8(                     \
        T v, __##V##_saturation_t saturate, __##V##_fp8_interpretation_t as) {             \
        return simt::numbers::encode8(X, (int)saturate == 1, as);                          \
    }
#define SIMT_FP8_FROM2(V, SOURCE, T, X, Y)                                                 \
    static inline __##V##_fp8x2_storage_t __##V##_cvt_##SOURCE##_to_fp8x2(                 \
        T v, __##V##_saturation_t saturate, __##V##_fp8_interpretation_t as) {             \
        const bool finite = (int)saturate == 1;                                            \
        return (unsigned short)(simt::numbers::encode8(X, finite, as) |                    \
                                simt::numbers::encode8(Y, finite, as) << 8);               \
    }
#define SIMT_FP8_CONVERSIONS(V)                                                            \
    SIMT_FP8_FROM(V, float, float, v)                                                      \
    SIMT_FP8_FROM(V, double, double, v)                                                    \
    SIMT_FP8_FROM(V, halfraw, __half_raw, simt::numbers::Binary16::decode(v.x))            \
    SIMT_FP8_FROM(V, bfloat16raw, __nv_bfloat16_raw, simt::numbers::Brain16::decode(v.x))  \
    SIMT_FP8_FROM2(V, float2, float2, v.x, v.y)                                            \
    SIMT_FP8_FROM2(V, double2, double2, v.x, v.y)                                          \
    SIMT_FP8_FROM2(V, halfraw2, __half2_raw, simt::numbers::Binary16::decode(v.x),         \
                   simt::numbers::Binary16::decode(v.y))                                   \
    SIMT_FP8_FROM2(V, bfloat16raw2, __nv_bfloat162_raw, simt::numbers::Brain16::decode(v.x), \
                   simt::numbers::Brain16::decode(v.y))                                    \
    static inline __half_raw __##V##_cvt_fp8_to_halfraw(__##V##_fp8_storage_t x,           \
                                                        __##V##_fp8_interpretation_t as) { \
        return __float2half(simt::numbers::decode8(x, as));                                \
    }                                                                                      \
    static inline __half2_raw __##V##_cvt_fp8x2_to_halfraw2(                               \
        __##V##_fp8x2_storage_t x, __##V##_fp8_interpretation_t as) {                      \
        return __floats2half2_rn(simt::numbers::decode8((unsigned char)x, as),             \
                                 simt::numbers::decode8((unsigned char)(x >> 8), as));     \
    }
SIMT_FP8_CONVERSIONS(nv)
SIMT_FP8_CONVERSIONS(hip)
#undef SIMT_FP8_CONVERSIONS
#undef SIMT_FP8_FROM2
#undef SIMT_FP8_FROM

// ---- types -------------------------------------------------------------------------------

// CUDA's conversions are explicit and HIP's are not: KEYWORD. Constructors saturate to finite.
// Integers go through float, as the vendors' do.
#define SIMT_FP8_FROM_INTEGER(KEYWORD, NAME, I) \
    KEYWORD NAME(I v) : NAME((float)v) {}
#define SIMT_FP8_TO_INTEGER(KEYWORD, I)                                                    \
    KEYWORD operator I() const {                                                           \
        return simt::numbers::to_integer<I>(simt_value(), simt::numbers::Round::zero);     \
    }
#define SIMT_FP8_SCALAR(KEYWORD, NAME, FORMAT)                                             \
    struct alignas(1) NAME {                                                               \
        unsigned char __x;                                                                 \
        NAME() = default;                                                                  \
        KEYWORD NAME(float v) : __x(simt::numbers::encode8<FORMAT>(v, true)) {}            \
        KEYWORD NAME(double v) : __x(simt::numbers::encode8<FORMAT>(v, true)) {}           \
        KEYWORD NAME(__half v) : NAME(simt::numbers::value(v)) {}                          \
        KEYWORD NAME(__nv_bfloat16 v) : NAME(simt::numbers::value(v)) {}                   \
        SIMT_FP8_FROM_INTEGER(KEYWORD, NAME, short)                                        \
        SIMT_FP8_FROM_INTEGER(KEYWORD, NAME, unsigned short)                               \
        SIMT_FP8_FROM_INTEGER(KEYWORD, NAME, int)                                          \
        SIMT_FP8_FROM_INTEGER(KEYWORD, NAME, unsigned)                                     \
        SIMT_FP8_FROM_INTEGER(KEYWORD, NAME, long)                                         \
        SIMT_FP8_FROM_INTEGER(KEYWORD, NAME, unsigned long)                                \
        SIMT_FP8_FROM_INTEGER(KEYWORD, NAME, long long)                                    \
        SIMT_FP8_FROM_INTEGER(KEYWORD, NAME, unsigned long long)                           \
        KEYWORD operator float() const { return simt_value(); }                            \
        KEYWORD operator double() const { return simt_value(); }                           \
        KEYWORD operator __half() const { return __float2half(simt_value()); }             \
        KEYWORD operator __nv_bfloat16() const { return __float2bfloat16(simt_value()); }  \
        SIMT_FP8_TO_INTEGER(KEYWORD, char)                                                 \
        SIMT_FP8_TO_INTEGER(KEYWORD, signed char)                                          \
        SIMT_FP8_TO_INTEGER(KEYWORD, unsigned char)                                        \
        SIMT_FP8_TO_INTEGER(KEYWORD, short)                                                \
        SIMT_FP8_TO_INTEGER(KEYWORD, unsigned short)                                       \
        SIMT_FP8_TO_INTEGER(KEYWORD, int)                                                  \
        SIMT_FP8_TO_INTEGER(KEYWORD, unsigned)                                             \
        SIMT_FP8_TO_INTEGER(KEYWORD, long)                                                 \
        SIMT_FP8_TO_INTEGER(KEYWORD, unsigned long)                                        \
        SIMT_FP8_TO_INTEGER(KEYWORD, long long)                                            \
        SIMT_FP8_TO_INTEGER(KEYWORD, unsigned long long)                                   \
        KEYWORD operator bool() const { return simt_value() != 0; }                        \
                                                                                           \
      private:                                                                             \
        float simt_value() const { return FORMAT::decode(__x); }                           \
    };
#define SIMT_FP8_PAIR(KEYWORD, NAME, FORMAT)                                               \
    struct alignas(2) NAME {                                                               \
        unsigned short __x;                                                                \
        NAME() = default;                                                                  \
        KEYWORD NAME(float2 v) : __x(simt::numbers::encode8x2<FORMAT>(v.x, v.y)) {}        \
        KEYWORD NAME(double2 v) : __x(simt::numbers::encode8x2<FORMAT>(v.x, v.y)) {}       \
        KEYWORD NAME(__half2 v) : NAME(__half22float2(v)) {}                               \
        KEYWORD NAME(__nv_bfloat162 v) : NAME(__bfloat1622float2(v)) {}                    \
        KEYWORD operator float2() const {                                                  \
            return make_float2(simt::numbers::decode_lane<FORMAT>(__x, 0),                 \
                               simt::numbers::decode_lane<FORMAT>(__x, 1));                \
        }                                                                                  \
        KEYWORD operator __half2() const { return __float22half2_rn((float2)*this); }      \
    };
#define SIMT_FP8_FOUR(KEYWORD, NAME, FORMAT)                                               \
    struct alignas(4) NAME {                                                               \
        unsigned int __x;                                                                  \
        NAME() = default;                                                                  \
        KEYWORD NAME(float4 v)                                                             \
            : __x(simt::numbers::encode8x4<FORMAT>(v.x, v.y, v.z, v.w)) {}                 \
        KEYWORD NAME(double4 v)                                                            \
            : __x(simt::numbers::encode8x4<FORMAT>(v.x, v.y, v.z, v.w)) {}                 \
        KEYWORD NAME(__half2 low, __half2 high)                                            \
            : NAME(make_float4(__low2float(low), __high2float(low), __low2float(high),     \
                               __high2float(high))) {}                                     \
        KEYWORD NAME(__nv_bfloat162 low, __nv_bfloat162 high)                              \
            : NAME(make_float4(__low2float(low), __high2float(low), __low2float(high),     \
                               __high2float(high))) {}                                     \
        KEYWORD operator float4() const {                                                  \
            return make_float4(simt::numbers::decode_lane<FORMAT>(__x, 0),                 \
                               simt::numbers::decode_lane<FORMAT>(__x, 1),                 \
                               simt::numbers::decode_lane<FORMAT>(__x, 2),                 \
                               simt::numbers::decode_lane<FORMAT>(__x, 3));                \
        }                                                                                  \
    };
#define SIMT_FP8(KEYWORD, V, NAME, FORMAT)               \
    SIMT_FP8_SCALAR(KEYWORD, __##V##_fp8_##NAME, FORMAT) \
    SIMT_FP8_PAIR(KEYWORD, __##V##_fp8x2_##NAME, FORMAT) \
    SIMT_FP8_FOUR(KEYWORD, __##V##_fp8x4_##NAME, FORMAT)
SIMT_FP8(explicit, nv, e4m3, simt::numbers::E4M3)
SIMT_FP8(explicit, nv, e5m2, simt::numbers::E5M2)
SIMT_FP8(, hip, e4m3, simt::numbers::E4M3)
SIMT_FP8(, hip, e5m2, simt::numbers::E5M2)
SIMT_FP8(, hip, e4m3_fnuz, simt::numbers::E4M3Fnuz)
SIMT_FP8(, hip, e5m2_fnuz, simt::numbers::E5M2Fnuz)
#undef SIMT_FP8
#undef SIMT_FP8_FOUR
#undef SIMT_FP8_PAIR
#undef SIMT_FP8_SCALAR
#undef SIMT_FP8_TO_INTEGER
#undef SIMT_FP8_FROM_INTEGER

#define __CUDA_FP8_TYPES_EXIST__

// HIP's macros: which types the target converts. All types exist everywhere. On gfx942 HIP marks
// the OCP types' conversions as host functions, on gfx950 and gfx12 the fnuz types'; one pass for
// host and device cannot tell them apart, so that a kernel may use here what hipcc would refuse.
#if defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__)
#define HIP_FP8_TYPE_OCP 0
#define HIP_FP8_TYPE_FNUZ 1
#define HIP_FP8_CVT_FAST_PATH 1
#elif defined(__gfx950__) || defined(__gfx1200__) || defined(__gfx1201__)
#define HIP_FP8_TYPE_OCP 1
#define HIP_FP8_TYPE_FNUZ 0
#define HIP_FP8_CVT_FAST_PATH 1
#else
#define HIP_FP8_TYPE_OCP 1
#define HIP_FP8_TYPE_FNUZ 1
#define HIP_FP8_CVT_FAST_PATH 0
#endif
