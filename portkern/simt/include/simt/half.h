// 16-bit floating point: what __half and __nv_bfloat16 share, and __half itself.
//
// Arithmetic is done in float and rounded once more to 16 bits. With p significant bits in the
// result and at least 2p + 2 in between, rounding twice gives what rounding once gives, for
// + - * / and sqrt (Figueroa, "When is double rounding innocuous?", 1995): float has 24, half
// needs 24, bfloat16 needs 18. Subnormal results keep the claim: a product or sum is then exact in
// float, and a quotient of p-bit numbers is never as close to the middle of two results as float's
// rounding reaches. Fused multiply-adds and everything that starts from a double are rounded to
// odd in between, which is innocuous always.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "integer.h"
#include "math.h"
#include "ring.h"
#include "vectors.h"

namespace simt {
namespace numbers {

// ---- narrow formats ----------------------------------------------------------------------

// What a format does above its largest number: IEEE's infinity, a NaN of all ones (OCP E4M3), or
// the one NaN that takes negative zero's place (AMD's fnuz formats, whose bias is one larger).
enum class Beyond : uint8_t { infinity, nan, fnuz };

// A sign, EXPONENT bits and MANTISSA bits, in the low bits of an unsigned.
template <int EXPONENT, int MANTISSA, Beyond BEYOND>
struct Narrow {
    static constexpr int mantissa = MANTISSA;
    static constexpr int bias = (1 << (EXPONENT - 1)) - (BEYOND == Beyond::fnuz ? 0 : 1);
    static constexpr unsigned sign = 1u << (EXPONENT + MANTISSA);
    static constexpr unsigned infinity = ((1u << EXPONENT) - 1) << MANTISSA;
    static constexpr unsigned nan = BEYOND == Beyond::fnuz ? sign : sign - 1;
    static constexpr unsigned largest = BEYOND == Beyond::infinity ? infinity - 1
                                        : BEYOND == Beyond::nan    ? sign - 2
                                                                   : sign - 1;

    static constexpr bool is_nan(unsigned code) {
        return BEYOND == Beyond::fnuz  ? code == nan
               : BEYOND == Beyond::nan ? (code & nan) == nan
                                       : (code & (sign - 1)) > infinity;
    }

    static unsigned encode(double x, Round mode, bool saturate = false) {
        const uint64_t bits = punned<uint64_t>(x), size = bits & ~(uint64_t(1) << 63);
        const bool negative = bits != size;
        constexpr uint64_t infinite = uint64_t(0x7ff) << 52;
        if (size > infinite) return nan;
        if (size == infinite) return signed_code(overflow(saturate), negative);

        const int exponent = int(size >> 52) - 1023;
        const uint64_t digits =
            (size & ((uint64_t(1) << 52) - 1)) | uint64_t(exponent > -1023) << 52;
        // Results are multiples of 2^(unit - MANTISSA).
        const int unit = exponent < 1 - bias ? 1 - bias : exponent;
        const int drop = smaller(52 - MANTISSA + unit - exponent, 60);
        uint64_t kept = digits >> drop;
        const uint64_t rest = digits - (kept << drop), half = uint64_t(1) << (drop - 1);
        const bool up = mode == Round::nearest ? rest > half || (rest == half && (kept & 1))
                        : mode == Round::zero  ? false
                                               : rest && negative == (mode == Round::down);
        kept += up;  // a carry moves into the exponent, as it should
        const uint64_t code = (uint64_t(unit + bias - 1) << MANTISSA) + kept;
        if (code <= largest) return signed_code(unsigned(code), negative);
        const bool away = mode == Round::nearest ||
                          (mode != Round::zero && negative == (mode == Round::down));
        return signed_code(overflow(saturate || !away), negative);
    }

    static float decode(unsigned code) {
        const unsigned size = code & (sign - 1), exponent = size >> MANTISSA;
        if (is_nan(code)) return punned<float>(hip ? 0x7fc00000u : 0x7fffffffu);
        float x;
        if (BEYOND == Beyond::infinity && size == infinity)
            x = std::numeric_limits<float>::infinity();
        else if (exponent)  // rebias
            x = punned<float>((size << (23 - MANTISSA)) + (unsigned(127 - bias) << 23));
        else
            x = float(size) * punned<float>(unsigned(127 + 1 - bias - MANTISSA) << 23);
        return code & sign ? -x : x;
    }

  private:
    static constexpr unsigned overflow(bool saturate) {
        return saturate                     ? largest
               : BEYOND == Beyond::infinity ? infinity
                                            : nan;
    }
    static constexpr unsigned signed_code(unsigned code, bool negative) {
        if (BEYOND == Beyond::fnuz && (code == 0 || code == nan)) return code;
        return negative ? code | sign : code;
    }
};

#ifdef SIMT_RING
// Elements of a ring, which nothing rounds.
static inline float odd_float(double x) { return float(x); }
static inline double odd_sum(double a, double b) { return a + b; }
template <class I>
static inline double odd_double(I v) { return double(v); }
#else
// The float that rounds to 16 bits as x does: of the two around x, the one with an odd last bit.
static inline float odd_float(double x) {
    const float nearest = float(x);
    const double back = nearest;
    uint32_t bits = punned<uint32_t>(nearest);
    if (back != x && !(bits & 1)) bits += (back < x) == (x > 0) ? 1 : -1;
    return punned<float>(bits);
}

// a + b as a double whose last bit is odd if anything was lost (Knuth's two-sum finds what).
static inline double odd_sum(double a, double b) {
    const double sum = a + b, part = sum - a;
    const double lost = (a - (sum - part)) + (b - part);
    uint64_t bits = punned<uint64_t>(sum);
    if ((lost < 0 || lost > 0) && !(bits & 1)) bits += (lost > 0) == (sum > 0) ? 1 : -1;
    return punned<double>(bits);
}

// An integer as a double whose last bit is odd if anything was lost.
template <class I>
static inline double odd_double(I v) {
    const bool negative = std::is_signed<I>::value && v < I(0);
    uint64_t size = negative ? 0 - uint64_t(v) : uint64_t(v);
    if (size >> 53) size = (size & ~uint64_t(0x7ff)) | uint64_t((size & 0x7ff) != 0) << 11;
    return negative ? -double(size) : double(size);
}

#endif

// ---- IEEE half ---------------------------------------------------------------------------

#if defined(__F16C__) && !defined(__clang__)
#define SIMT_NATIVE_HALF 1
// The instructions by themselves: of _Float16's way to double, g++ makes library calls.
static inline uint16_t native_encode(float x) {
    typedef float Floats __attribute__((vector_size(16)));
    return uint16_t(__builtin_ia32_vcvtps2ph(Floats{x, 0, 0, 0}, 0)[0]);
}
static inline float native_decode(uint16_t code) {
    typedef short Halves __attribute__((vector_size(16)));
    return __builtin_ia32_vcvtph2ps(Halves{short(code), 0, 0, 0, 0, 0, 0, 0})[0];
}
#elif defined(__F16C__) || defined(__aarch64__)
#define SIMT_NATIVE_HALF 1
#if defined(__aarch64__)
typedef __fp16 NativeHalf;
#else
typedef _Float16 NativeHalf;
#endif
static inline uint16_t native_encode(float x) { return punned<uint16_t>(NativeHalf(x)); }
static inline float native_decode(uint16_t code) { return float(punned<NativeHalf>(code)); }
#else
#define SIMT_NATIVE_HALF 0
#endif

struct Binary16 : Narrow<5, 10, Beyond::infinity> {
    static constexpr unsigned one = 0x3c00;
    static constexpr bool fma_fits_double = true;

#ifdef SIMT_RING
    static unsigned encode(float x) { return simt_ring_f32_to_f16(punned<uint32_t>(x)); }
    static unsigned encode(double x, Round, bool = false) { return encode(float(x)); }
    static float decode(unsigned code) {
        return punned<float>(simt_ring_f16_to_f32((uint16_t)code));
    }
#else
    using Narrow::encode;
    static unsigned encode(float x) {
        // NVIDIA's arithmetic makes every NaN this one; AMD's keeps sign and payload.
        if (!hip && __builtin_expect(x != x, 0)) return nan;
#if SIMT_NATIVE_HALF
        return native_encode(x);
#else
        const uint32_t bits = punned<uint32_t>(x), negative = bits >> 16 & 0x8000;
        uint32_t size = bits & 0x7fffffff;
        if (size >= 0x47800000)  // 2^16
            return negative | (size > 0x7f800000 ? 0x7e00 | (size >> 13 & 0x3ff) : 0x7c00);
        if (size < 0x38800000)  // 2^-14: beside 0.5, float's last place is half's subnormal one
            return negative | (punned<uint32_t>(punned<float>(size) + 0.5f) - 0x3f000000);
        size += 0xfff + (size >> 13 & 1);
        return negative | (size - (112u << 23)) >> 13;
#endif
    }
    static float decode(unsigned code) {
#if SIMT_NATIVE_HALF
        return native_decode(uint16_t(code));
#else
        const uint32_t negative = (code & 0x8000) << 16, exponent = code & 0x7c00;
        uint32_t size = ((code & 0x7fff) << 13) + (112u << 23);
        if (exponent == 0x7c00) size += 112u << 23;
        if (exponent == 0)  // as if there were a leading one, which is taken off again
            size = punned<uint32_t>(punned<float>(size + (1u << 23)) - punned<float>(113u << 23));
        return punned<float>(negative | size);
#endif
    }
#endif
};

// ---- storage and conversions -------------------------------------------------------------

// The bits alone: all there is of a type where a program asks for no conversions.
template <class Raw, class Format>
struct Bits16 {
    using simt_format = Format;

    Bits16() = default;
    constexpr Bits16(const Raw& raw) : __x(raw.x) {}
    operator Raw() const {
        Raw raw;
        raw.x = __x;
        return raw;
    }
    operator Raw() const volatile {
        Raw raw;
        raw.x = __x;
        return raw;
    }

  protected:
    unsigned short __x;
};

// Adds CUDA's implicit conversions: from and to float and every integer, and from double.
template <class Raw, class Format>
struct Float16 : Bits16<Raw, Format> {
    using Base = Bits16<Raw, Format>;
    using Base::Base;
    using Base::__x;

    Float16() = default;
    Float16(float v) { __x = (unsigned short)Format::encode(v); }
    Float16(double v) { __x = (unsigned short)Format::encode(odd_float(v)); }
    Float16(short v) : Float16(float(v)) {}
    Float16(unsigned short v) : Float16(float(v)) {}
    Float16(int v) : Float16(double(v)) {}
    Float16(unsigned v) : Float16(double(v)) {}
    Float16(long v) : Float16(odd_double(v)) {}
    Float16(unsigned long v) : Float16(odd_double(v)) {}
    Float16(long long v) : Float16(odd_double(v)) {}
    Float16(unsigned long long v) : Float16(odd_double(v)) {}

    operator float() const { return Format::decode(__x); }
    operator signed char() const { return integer<signed char>(); }
    operator unsigned char() const { return integer<unsigned char>(); }
    operator char() const { return integer<char>(); }
    operator short() const { return integer<short>(); }
    operator unsigned short() const { return integer<unsigned short>(); }
    operator int() const { return integer<int>(); }
    operator unsigned() const { return integer<unsigned>(); }
    operator long() const { return integer<long>(); }
    operator unsigned long() const { return integer<unsigned long>(); }
    operator long long() const { return integer<long long>(); }
    operator unsigned long long() const { return integer<unsigned long long>(); }
    constexpr operator bool() const { return (__x & 0x7fff) != 0; }

#if defined(__HIP_PLATFORM_AMD__) && defined(__FLT16_MAX__)
    // HIP's __half is _Float16 inside.
    template <class N, std::enable_if_t<std::is_same<N, _Float16>::value, int> = 0>
    Float16(N v) : Float16(float(v)) {}
    operator _Float16() const { return _Float16(float(*this)); }
#endif

  private:
    template <class I>
    I integer() const { return to_integer<I>(Format::decode(__x), Round::zero); }
};

template <class T>
using FormatOf = typename T::simt_format;

template <class T>
static inline unsigned code_of(T x) { return punned<unsigned short>(x); }
template <class T>
static inline T from_code(unsigned code) { return punned<T>((unsigned short)code); }
template <class T>
static inline float value(T x) { return FormatOf<T>::decode(code_of(x)); }
template <class T>
static inline T round_to(float x) { return from_code<T>(FormatOf<T>::encode(x)); }
template <class T>
static inline T round_to(double x) { return from_code<T>(FormatOf<T>::encode(odd_float(x))); }
template <class T>
static inline T round_to(double x, Round mode) {
    return mode == Round::nearest ? round_to<T>(x)
                                  : from_code<T>(FormatOf<T>::encode(x, mode));
}
template <class T>
static inline bool is_nan(T x) {
#ifdef SIMT_RING
    return value(x) != value(x);
#else
    return (code_of(x) & 0x7fff) > FormatOf<T>::infinity;
#endif
}

// ---- operations --------------------------------------------------------------------------

template <class T>
static inline T canonical_nan() { return from_code<T>(FormatOf<T>::nan); }
// x with another sign, as `code`; NVIDIA's neg and abs make a NaN the canonical one.
template <class T>
static inline T with_sign(T x, unsigned code) {
    return !hip && is_nan(x) ? canonical_nan<T>() : from_code<T>(code);
}
template <class T>
static inline T one() { return from_code<T>(FormatOf<T>::one); }

template <class T>
static inline T fused(T a, T b, T c) {
    const double product = double(value(a)) * value(b);  // exact
    // half: where product + c does not fit a double, the larger is not near the middle of two
    // halves, because it is c or because c >= 2^-24 would have fitted beside it.
    if (FormatOf<T>::fma_fits_double) return round_to<T>(product + value(c));
    return round_to<T>(odd_sum(product, value(c)));
}
template <class T>
static inline T saturated_unit(T x) {  // to [0, 1]; a NaN becomes 0
    return !(value(x) > 0) ? from_code<T>(0) : value(x) > 1 ? one<T>() : x;
}
template <class T>
static inline T relu(T x) {
    return is_nan(x) ? canonical_nan<T>() : code_of(x) & 0x8000 ? from_code<T>(0) : x;
}
// The larger or smaller; -0 is below +0; a NaN loses, or wins where `nan` says so.
template <class T>
static inline T pick(T a, T b, bool larger, bool nan) {
    if (is_nan(a) || is_nan(b)) {
        if (nan || (is_nan(a) && is_nan(b))) return canonical_nan<T>();
        return is_nan(a) ? b : a;
    }
    const float x = value(a), y = value(b);
    if (x == y) return from_code<T>(larger ? code_of(a) & code_of(b) : code_of(a) | code_of(b));
    return (x > y) == larger ? a : b;
}
template <class T2, class F>
static inline T2 both(T2 a, F f) { return T2(f(a.x), f(a.y)); }
template <class T2, class F>
static inline T2 both(T2 a, T2 b, F f) { return T2(f(a.x, b.x), f(a.y, b.y)); }
template <class T2, class F>
static inline T2 both(T2 a, T2 b, T2 c, F f) { return T2(f(a.x, b.x, c.x), f(a.y, b.y, c.y)); }

}  // namespace numbers
}  // namespace simt

// ---- the intrinsics of a 16-bit type -----------------------------------------------------

// T is the type, T2 its pair, N and N2 what they are called inside names of intrinsics.

#define SIMT_F16_FROM_FLOAT(SUFFIX, MODE, T, N)                                            \
    static inline T __float2##N##_##SUFFIX(float x) {                                      \
        return simt::numbers::round_to<T>((double)x, simt::numbers::Round::MODE);          \
    }
#define SIMT_F16_INTEGER(SUFFIX, MODE, T, N, I, INAME)                                     \
    static inline I __##N##2##INAME##_##SUFFIX(T x) {                                      \
        return simt::numbers::to_integer<I>(simt::numbers::value(x), simt::numbers::Round::MODE); \
    }                                                                                      \
    static inline T __##INAME##2##N##_##SUFFIX(I x) {                                      \
        return simt::numbers::round_to<T>(simt::numbers::odd_double(x),                    \
                                          simt::numbers::Round::MODE);                     \
    }
#define SIMT_F16_CONVERSIONS(T, N)                                                         \
    static inline float __##N##2float(T x) { return simt::numbers::value(x); }             \
    static inline T __float2##N(float x) { return simt::numbers::round_to<T>(x); }         \
    static inline T __float2##N##_rn(float x) { return simt::numbers::round_to<T>(x); }    \
    SIMT_F16_FROM_FLOAT(rz, zero, T, N)                                                    \
    SIMT_F16_FROM_FLOAT(rd, down, T, N)                                                    \
    SIMT_F16_FROM_FLOAT(ru, up, T, N)                                                      \
    static inline T __double2##N(double x) { return simt::numbers::round_to<T>(x); }       \
    static inline short __##N##_as_short(T x) { return simt::numbers::punned<short>(x); }  \
    static inline unsigned short __##N##_as_ushort(T x) {                                  \
        return simt::numbers::punned<unsigned short>(x);                                   \
    }                                                                                      \
    static inline T __short_as_##N(short x) { return simt::numbers::punned<T>(x); }        \
    static inline T __ushort_as_##N(unsigned short x) { return simt::numbers::punned<T>(x); } \
    SIMT_EACH_ROUNDING(SIMT_F16_INTEGER, T, N, short, short)                               \
    SIMT_EACH_ROUNDING(SIMT_F16_INTEGER, T, N, unsigned short, ushort)                     \
    SIMT_EACH_ROUNDING(SIMT_F16_INTEGER, T, N, int, int)                                   \
    SIMT_EACH_ROUNDING(SIMT_F16_INTEGER, T, N, unsigned, uint)                             \
    SIMT_EACH_ROUNDING(SIMT_F16_INTEGER, T, N, long long, ll)                              \
    SIMT_EACH_ROUNDING(SIMT_F16_INTEGER, T, N, unsigned long long, ull)                    \
    static inline signed char __##N##2char_rz(T x) {                                       \
        return simt::numbers::to_integer<signed char>(simt::numbers::value(x),             \
                                                      simt::numbers::Round::zero);         \
    }                                                                                      \
    static inline unsigned char __##N##2uchar_rz(T x) {                                    \
        return simt::numbers::to_integer<unsigned char>(simt::numbers::value(x),           \
                                                        simt::numbers::Round::zero);       \
    }

#define SIMT_F16_PAIRS(T, T2, N, N2)                                                       \
    static inline T2 make_##N2(T x, T y) { return T2(x, y); }                              \
    static inline T2 __halves2##N2(T x, T y) { return T2(x, y); }                          \
    static inline T2 __##N##2##N2(T x) { return T2(x, x); }                                \
    static inline T2 __float2##N2##_rn(float x) { return __##N##2##N2(__float2##N(x)); }   \
    static inline T2 __floats2##N2##_rn(float x, float y) {                                \
        return T2(__float2##N(x), __float2##N(y));                                         \
    }                                                                                      \
    static inline T2 __float22##N2##_rn(float2 v) { return __floats2##N2##_rn(v.x, v.y); } \
    static inline float2 __##N2##2float2(T2 v) {                                           \
        return make_float2(simt::numbers::value(v.x), simt::numbers::value(v.y));          \
    }                                                                                      \
    static inline float __low2float(T2 v) { return simt::numbers::value(v.x); }            \
    static inline float __high2float(T2 v) { return simt::numbers::value(v.y); }           \
    static inline T __low2##N(T2 v) { return v.x; }                                        \
    static inline T __high2##N(T2 v) { return v.y; }                                       \
    static inline T2 __low2##N2(T2 v) { return T2(v.x, v.x); }                             \
    static inline T2 __high2##N2(T2 v) { return T2(v.y, v.y); }                            \
    static inline T2 __lows2##N2(T2 a, T2 b) { return T2(a.x, b.x); }                      \
    static inline T2 __highs2##N2(T2 a, T2 b) { return T2(a.y, b.y); }                     \
    static inline T2 __lowhigh2highlow(T2 v) { return T2(v.y, v.x); }

// NAME(a), NAME2(a, a) and so on: EXPR in terms of a, b and c of type T.
#define SIMT_F16_1(T, T2, NAME, NAME2, EXPR)                                               \
    static inline T NAME(T a) { return EXPR; }                                             \
    static inline T2 NAME2(T2 a) { return simt::numbers::both(a, [](T a) -> T { return EXPR; }); }
#define SIMT_F16_2(T, T2, NAME, NAME2, EXPR)                                               \
    static inline T NAME(T a, T b) { return EXPR; }                                        \
    static inline T2 NAME2(T2 a, T2 b) {                                                   \
        return simt::numbers::both(a, b, [](T a, T b) -> T { return EXPR; });              \
    }
#define SIMT_F16_3(T, T2, NAME, NAME2, EXPR)                                               \
    static inline T NAME(T a, T b, T c) { return EXPR; }                                   \
    static inline T2 NAME2(T2 a, T2 b, T2 c) {                                             \
        return simt::numbers::both(a, b, c, [](T a, T b, T c) -> T { return EXPR; });      \
    }
#define SIMT_F16_OPERATION(T, T2, WORD, OP)                                                \
    SIMT_F16_2(T, T2, __h##WORD, __h##WORD##2,                                             \
               simt::numbers::round_to<T>(simt::numbers::value(a) OP simt::numbers::value(b))) \
    SIMT_F16_2(T, T2, __h##WORD##_rn, __h##WORD##2_rn, __h##WORD(a, b))                    \
    SIMT_F16_2(T, T2, __h##WORD##_sat, __h##WORD##2_sat,                                   \
               simt::numbers::saturated_unit(__h##WORD(a, b)))
#define SIMT_F16_ARITHMETIC(T, T2)                                                         \
    SIMT_F16_OPERATION(T, T2, add, +)                                                      \
    SIMT_F16_OPERATION(T, T2, sub, -)                                                      \
    SIMT_F16_OPERATION(T, T2, mul, *)                                                      \
    SIMT_F16_2(T, T2, __hdiv, __h2div,                                                     \
               simt::numbers::round_to<T>(simt::numbers::value(a) / simt::numbers::value(b))) \
    SIMT_F16_3(T, T2, __hfma, __hfma2, simt::numbers::fused(a, b, c))                      \
    SIMT_F16_3(T, T2, __hfma_sat, __hfma2_sat,                                             \
               simt::numbers::saturated_unit(simt::numbers::fused(a, b, c)))               \
    SIMT_F16_3(T, T2, __hfma_relu, __hfma2_relu,                                           \
               simt::numbers::relu(simt::numbers::fused(a, b, c)))                         \
    SIMT_F16_1(T, T2, __hneg, __hneg2,                                                     \
               simt::numbers::with_sign(a, simt::numbers::code_of(a) ^ 0x8000))            \
    SIMT_F16_1(T, T2, __habs, __habs2,                                                     \
               simt::numbers::with_sign(a, simt::numbers::code_of(a) & 0x7fff))            \
    SIMT_F16_2(T, T2, __hmax, __hmax2, simt::numbers::pick(a, b, true, false))             \
    SIMT_F16_2(T, T2, __hmin, __hmin2, simt::numbers::pick(a, b, false, false))            \
    SIMT_F16_2(T, T2, __hmax_nan, __hmax2_nan, simt::numbers::pick(a, b, true, true))      \
    SIMT_F16_2(T, T2, __hmin_nan, __hmin2_nan, simt::numbers::pick(a, b, false, true))     \
    /* c + a * b of complex numbers (x + iy), by four fused steps */                       \
    static inline T2 __hcmadd(T2 a, T2 b, T2 c) {                                          \
        return T2(__hfma(__hneg(a.y), b.y, __hfma(a.x, b.x, c.x)),                         \
                  __hfma(a.y, b.x, __hfma(a.x, b.y, c.y)));                                \
    }

// Ordered comparisons are false and unordered ones (u) true where a NaN takes part. Of pairs: 1
// or 0 for each half, both at once (b), a mask.
#define SIMT_F16_COMPARE(T, T2, WORD, EXPR)                                                \
    static inline bool __h##WORD(T left, T right) {                                        \
        const float a = simt::numbers::value(left), b = simt::numbers::value(right);       \
        return EXPR;                                                                       \
    }                                                                                      \
    static inline T2 __h##WORD##2(T2 a, T2 b) {                                            \
        return simt::numbers::both(a, b, [](T a, T b) {                                    \
            return __h##WORD(a, b) ? simt::numbers::one<T>() : simt::numbers::from_code<T>(0); \
        });                                                                                \
    }                                                                                      \
    static inline unsigned __h##WORD##2_mask(T2 a, T2 b) {                                 \
        return (__h##WORD(a.x, b.x) ? 0xffffu : 0) | (__h##WORD(a.y, b.y) ? 0xffff0000u : 0); \
    }                                                                                      \
    static inline bool __hb##WORD##2(T2 a, T2 b) {                                         \
        return __h##WORD(a.x, b.x) && __h##WORD(a.y, b.y);                                 \
    }
#define SIMT_F16_COMPARISONS(T, T2)                                                        \
    SIMT_F16_COMPARE(T, T2, eq, a == b)                                                    \
    SIMT_F16_COMPARE(T, T2, ne, simt::numbers::hip ? a != b : a < b || a > b)              \
    SIMT_F16_COMPARE(T, T2, lt, a < b)                                                     \
    SIMT_F16_COMPARE(T, T2, le, a <= b)                                                    \
    SIMT_F16_COMPARE(T, T2, gt, a > b)                                                     \
    SIMT_F16_COMPARE(T, T2, ge, a >= b)                                                    \
    SIMT_F16_COMPARE(T, T2, equ, !(a < b || a > b))                                        \
    SIMT_F16_COMPARE(T, T2, neu, a != b)                                                   \
    SIMT_F16_COMPARE(T, T2, ltu, !(a >= b))                                                \
    SIMT_F16_COMPARE(T, T2, leu, !(a > b))                                                 \
    SIMT_F16_COMPARE(T, T2, gtu, !(a <= b))                                                \
    SIMT_F16_COMPARE(T, T2, geu, !(a < b))                                                 \
    static inline bool __hisnan(T a) { return simt::numbers::is_nan(a); }                  \
    static inline int __hisinf(T a) { /* the sign of the infinity, or 0 */                 \
        const float x = simt::numbers::value(a);                                           \
        return std::isinf(x) ? (x < 0 ? -1 : 1) : 0;                                       \
    }                                                                                      \
    static inline T2 __hisnan2(T2 a) {                                                     \
        return simt::numbers::both(a, [](T a) {                                            \
            return __hisnan(a) ? simt::numbers::one<T>() : simt::numbers::from_code<T>(0); \
        });                                                                                \
    }                                                                                      \
    static inline T2 __hisinf2(T2 a) {                                                     \
        return simt::numbers::both(a, [](T a) {                                            \
            return __hisinf(a) ? simt::numbers::one<T>() : simt::numbers::from_code<T>(0); \
        });                                                                                \
    }

// The function of the double, rounded once. tanh_approx is allowed an error of 2^-10.987 and has
// less here.
#define SIMT_F16_FUNCTION(T, T2, WORD, EXPR)                                               \
    static inline T h##WORD(T v) {                                                         \
        const double x = simt::numbers::value(v);                                          \
        return simt::numbers::round_to<T>(EXPR);                                           \
    }                                                                                      \
    static inline T2 h2##WORD(T2 v) { return T2(h##WORD(v.x), h##WORD(v.y)); }
#define SIMT_F16_FUNCTIONS(T, T2)                                                          \
    SIMT_F16_FUNCTION(T, T2, exp, std::exp(x))                                             \
    SIMT_F16_FUNCTION(T, T2, exp2, std::exp2(x))                                           \
    SIMT_F16_FUNCTION(T, T2, exp10, ::exp10(x))                                            \
    SIMT_F16_FUNCTION(T, T2, log, std::log(x))                                             \
    SIMT_F16_FUNCTION(T, T2, log2, std::log2(x))                                           \
    SIMT_F16_FUNCTION(T, T2, log10, std::log10(x))                                         \
    SIMT_F16_FUNCTION(T, T2, sqrt, std::sqrt(x))                                           \
    SIMT_F16_FUNCTION(T, T2, rsqrt, 1 / std::sqrt(x))                                      \
    SIMT_F16_FUNCTION(T, T2, rcp, 1 / x)                                                   \
    SIMT_F16_FUNCTION(T, T2, sin, std::sin(x))                                             \
    SIMT_F16_FUNCTION(T, T2, cos, std::cos(x))                                             \
    SIMT_F16_FUNCTION(T, T2, tanh, std::tanh(x))                                           \
    SIMT_F16_FUNCTION(T, T2, tanh_approx, std::tanh(x))                                    \
    SIMT_F16_FUNCTION(T, T2, floor, std::floor(x))                                         \
    SIMT_F16_FUNCTION(T, T2, ceil, std::ceil(x))                                           \
    SIMT_F16_FUNCTION(T, T2, rint, std::rint(x))                                           \
    SIMT_F16_FUNCTION(T, T2, trunc, std::trunc(x))

#define SIMT_F16_INTRINSICS(T, T2, N, N2) \
    SIMT_F16_CONVERSIONS(T, N)            \
    SIMT_F16_PAIRS(T, T2, N, N2)          \
    SIMT_F16_ARITHMETIC(T, T2)            \
    SIMT_F16_COMPARISONS(T, T2)           \
    SIMT_F16_FUNCTIONS(T, T2)

// Operators of the type itself or of its pair, by name of the intrinsic that each is.
#define SIMT_F16_OPERATORS(T, ADD, SUB, MUL, DIV, NEG, EQ, NE, LT, LE, GT, GE, ONE)        \
    static inline T operator+(const T& a, const T& b) { return ADD(a, b); }                \
    static inline T operator-(const T& a, const T& b) { return SUB(a, b); }                \
    static inline T operator*(const T& a, const T& b) { return MUL(a, b); }                \
    static inline T operator/(const T& a, const T& b) { return DIV(a, b); }                \
    static inline T& operator+=(T& a, const T& b) { return a = ADD(a, b); }                \
    static inline T& operator-=(T& a, const T& b) { return a = SUB(a, b); }                \
    static inline T& operator*=(T& a, const T& b) { return a = MUL(a, b); }                \
    static inline T& operator/=(T& a, const T& b) { return a = DIV(a, b); }                \
    static inline T& operator++(T& a) { return a = ADD(a, ONE); }                          \
    static inline T& operator--(T& a) { return a = SUB(a, ONE); }                          \
    static inline T operator++(T& a, int) {                                                \
        const T before = a;                                                                \
        ++a;                                                                               \
        return before;                                                                     \
    }                                                                                      \
    static inline T operator--(T& a, int) {                                                \
        const T before = a;                                                                \
        --a;                                                                               \
        return before;                                                                     \
    }                                                                                      \
    static inline T operator+(const T& a) { return a; }                                    \
    static inline T operator-(const T& a) { return NEG(a); }                               \
    static inline bool operator==(const T& a, const T& b) { return EQ(a, b); }             \
    static inline bool operator!=(const T& a, const T& b) { return NE(a, b); }             \
    static inline bool operator<(const T& a, const T& b) { return LT(a, b); }              \
    static inline bool operator<=(const T& a, const T& b) { return LE(a, b); }             \
    static inline bool operator>(const T& a, const T& b) { return GT(a, b); }              \
    static inline bool operator>=(const T& a, const T& b) { return GE(a, b); }
#define SIMT_F16_SCALAR_OPERATORS(T)                                                       \
    SIMT_F16_OPERATORS(T, __hadd, __hsub, __hmul, __hdiv, __hneg, __heq, __hneu, __hlt, __hle, \
                       __hgt, __hge, simt::numbers::one<T>())
#define SIMT_F16_PAIR_OPERATORS(T, T2)                                                     \
    SIMT_F16_OPERATORS(T2, __hadd2, __hsub2, __hmul2, __h2div, __hneg2, __hbeq2, __hbneu2, \
                       __hblt2, __hble2, __hbgt2, __hbge2,                                 \
                       T2(simt::numbers::one<T>(), simt::numbers::one<T>()))

// The pair's struct: two numbers, first the lower half of the 32 bits.
#define SIMT_F16_PAIR(T, T2, RAW, RAW2)                                                    \
    struct alignas(4) T2 {                                                                 \
        T x, y;                                                                            \
        T2() = default;                                                                    \
        constexpr T2(const T& a, const T& b) : x(a), y(b) {}                               \
        T2(const RAW2& raw) { *this = simt::numbers::punned<T2>(raw); }                    \
        T2& operator=(const RAW2& raw) { return *this = simt::numbers::punned<T2>(raw); }  \
        operator RAW2() const { return simt::numbers::punned<RAW2>(*this); }               \
    };

// ---- __half ------------------------------------------------------------------------------

#if defined(__HIP_PLATFORM_AMD__) && defined(__FLT16_MAX__)
struct alignas(2) __half_raw {
    union {
        _Float16 data;
        unsigned short x;
    };
};
#else
struct alignas(2) __half_raw {
    unsigned short x;
};
#endif
struct alignas(4) __half2_raw {
    unsigned short x, y;
};

#if defined(__CUDA_NO_HALF_CONVERSIONS__) || defined(__HIP_NO_HALF_CONVERSIONS__)
#define SIMT_HALF_BASE simt::numbers::Bits16<__half_raw, simt::numbers::Binary16>
#else
#define SIMT_HALF_BASE simt::numbers::Float16<__half_raw, simt::numbers::Binary16>
#endif

struct __nv_bfloat16;

struct alignas(2) __half : SIMT_HALF_BASE {
    using simt_base = SIMT_HALF_BASE;
    using simt_base::simt_base;
    __half() = default;
#if !defined(__CUDA_NO_HALF_CONVERSIONS__) && !defined(__HIP_NO_HALF_CONVERSIONS__)
    explicit __half(__nv_bfloat16 x);  // in bfloat16.h
#endif
    __half& operator=(const __half_raw& raw) {
        __x = raw.x;
        return *this;
    }
    void operator=(const __half_raw& raw) volatile { __x = raw.x; }
    void operator=(const volatile __half_raw& raw) volatile { __x = raw.x; }
};
SIMT_F16_PAIR(__half, __half2, __half_raw, __half2_raw)

using __nv_half = __half;
using __nv_half2 = __half2;
using __nv_half_raw = __half_raw;
using __nv_half2_raw = __half2_raw;
using nv_half = __half;
using nv_half2 = __half2;
#if !defined(CUDA_NO_HALF)
using half = __half;
using half2 = __half2;
#endif

SIMT_F16_INTRINSICS(__half, __half2, half, half2)
#if !defined(__CUDA_NO_HALF_OPERATORS__) && !defined(__HIP_NO_HALF_OPERATORS__)
SIMT_F16_SCALAR_OPERATORS(__half)
#endif
#if !defined(__CUDA_NO_HALF2_OPERATORS__) && !defined(__HIP_NO_HALF_OPERATORS__)
SIMT_F16_PAIR_OPERATORS(__half, __half2)
#endif

#define __CUDA_FP16_TYPES_EXIST__
#define CUDART_INF_FP16 __ushort_as_half((unsigned short)0x7C00U)
#define CUDART_NAN_FP16 __ushort_as_half((unsigned short)0x7FFFU)
#define CUDART_MIN_DENORM_FP16 __ushort_as_half((unsigned short)0x0001U)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half((unsigned short)0x7BFFU)
#define CUDART_NEG_ZERO_FP16 __ushort_as_half((unsigned short)0x8000U)
#define CUDART_ZERO_FP16 __ushort_as_half((unsigned short)0x0000U)
#define CUDART_ONE_FP16 __ushort_as_half((unsigned short)0x3C00U)
#define HIPRT_INF_FP16 CUDART_INF_FP16
#define HIPRT_NAN_FP16 CUDART_NAN_FP16
#define HIPRT_MIN_DENORM_FP16 CUDART_MIN_DENORM_FP16
#define HIPRT_MAX_NORMAL_FP16 CUDART_MAX_NORMAL_FP16
#define HIPRT_NEG_ZERO_FP16 CUDART_NEG_ZERO_FP16
#define HIPRT_ZERO_FP16 CUDART_ZERO_FP16
#define HIPRT_ONE_FP16 CUDART_ONE_FP16
