// Floating-point formats narrower than float32, as bits: how to read them and how to round to them.
// float16 and its kin are classes elsewhere; matrix and PTX instructions only see their bits.
#pragma once
#include <cstdint>
#include <type_traits>

#include "integer.h"
#include "ring.h"

namespace simt {
namespace narrow {

using numbers::Round;

// What the largest exponent means. ocp: numbers, and one NaN of all ones. fnuz: numbers; NaN is -0.
enum class Special : uint8_t { ieee, ocp, fnuz };

template <class B, int EXPONENT, int MANTISSA, int BIAS, Special SPECIAL>
struct Format {
    using Bits = B;
    static constexpr int exponent = EXPONENT, mantissa = MANTISSA, bias = BIAS;
    static constexpr Special special = SPECIAL;
    static constexpr uint32_t sign = 1u << (EXPONENT + MANTISSA);
    static constexpr uint32_t infinity = sign - (1u << MANTISSA);  // IEEE only
    // CUDA's NaN, for the formats that have many
    static constexpr uint32_t nan = SPECIAL == Special::fnuz ? sign : sign - 1;
    static constexpr uint32_t largest =
        SPECIAL == Special::ieee ? infinity - 1 : SPECIAL == Special::ocp ? sign - 2 : sign - 1;
};

using Half = Format<uint16_t, 5, 10, 15, Special::ieee>;
using Bfloat = Format<uint16_t, 8, 7, 127, Special::ieee>;
using Tf32 = Format<uint32_t, 8, 10, 127, Special::ieee>;  // in the low 19 bits
using E4m3 = Format<uint8_t, 4, 3, 7, Special::ocp>;
using E5m2 = Format<uint8_t, 5, 2, 15, Special::ieee>;
using E4m3Fnuz = Format<uint8_t, 4, 3, 8, Special::fnuz>;
using E5m2Fnuz = Format<uint8_t, 5, 2, 16, Special::fnuz>;

#ifdef SIMT_RING
// Elements of a ring; in 8 bits and fewer there are none, and values leave it.
template <class F>
static inline float read(uint32_t b) {
    if constexpr (std::is_same<F, Half>::value)
        return numbers::punned<float>(simt_ring_f16_to_f32((uint16_t)b));
    if constexpr (std::is_same<F, Bfloat>::value)
        return numbers::punned<float>(simt_ring_bf16_to_f32((uint16_t)b));
    simt_ring_lost();
    return 0;
}
template <class F>
static inline typename F::Bits round(double x, Round = Round::nearest, bool = false) {
    const uint32_t bits = numbers::punned<uint32_t>((float)x);
    if constexpr (std::is_same<F, Half>::value) return simt_ring_f32_to_f16(bits);
    if constexpr (std::is_same<F, Bfloat>::value) return simt_ring_f32_to_bf16(bits);
    simt_ring_lost();
    return 0;
}
#else
// The value of some bits: exact, since float32 has more of everything.
template <class F>
static inline float read(uint32_t b) {
    constexpr int up = 23 - F::mantissa;
    const uint32_t magnitude = b & (F::sign - 1), sign = (b & F::sign) << (up + 8 - F::exponent);
    if (F::bias == 127) return numbers::punned<float>(sign | magnitude << up);
    const uint32_t exponent = magnitude >> F::mantissa;
    uint32_t value = (magnitude << up) + ((uint32_t)(127 - F::bias) << 23);
    if (exponent == 0) {
        constexpr float least = 1.0f / (1u << (F::bias + F::mantissa - 1) % 32);
        value = numbers::punned<uint32_t>((float)(int)magnitude * least);
    }
    if (F::special == Special::ieee && magnitude >= F::infinity)
        value = 0x7f800000u | magnitude << up;
    if (F::special == Special::ocp && magnitude == F::nan) value = 0x7fffffffu;
    if (F::special == Special::fnuz && b == F::nan) value = 0x7fffffffu;
    return numbers::punned<float>(sign | value);
}

template <class F>
static inline uint32_t overflowed(bool negative, bool finite, Round mode, bool saturate) {
    const uint32_t sign = negative ? F::sign : 0;
    const bool inwards = mode == Round::zero || mode == (negative ? Round::up : Round::down);
    if (saturate || (finite && inwards)) return sign | F::largest;
    return F::special == Special::ieee ? sign | F::infinity
           : F::special == Special::ocp ? sign | F::nan : F::nan;
}

// Rounded once, subnormals included. `saturate`: what is too large becomes the largest number.
template <class F>
static inline typename F::Bits round(double x, Round mode = Round::nearest, bool saturate = false) {
    using Bits = typename F::Bits;
    if (x != x) return (Bits)F::nan;
    const uint64_t b = numbers::punned<uint64_t>(x);
    const bool negative = b >> 63;
    const int raw = (int)(b >> 52 & 0x7ff), exponent = raw - 1023;
    constexpr int least = 1 - F::bias;
    const int scale = exponent < least ? least : exponent;  // subnormals share the least exponent
    int drop = 52 - F::mantissa + (scale - exponent);
    if (drop > 62) drop = 62;
    const uint64_t fraction = (b & ((1ull << 52) - 1)) | (raw ? 1ull << 52 : 0);
    const uint64_t rest = fraction & ((1ull << drop) - 1), half = 1ull << (drop - 1);
    uint64_t kept = fraction >> drop;
    const bool more = mode == Round::nearest ? rest > half || (rest == half && (kept & 1))
                      : mode == Round::zero ? false
                                            : rest && negative == (mode == Round::down);
    kept += more + ((uint64_t)(scale - least) << F::mantissa);
    if (kept > F::largest) return (Bits)overflowed<F>(negative, raw != 0x7ff, mode, saturate);
    if (F::special == Special::fnuz && kept == 0) return 0;
    return (Bits)(kept | (negative ? F::sign : 0));
}
#endif

// A value kept as bits; arithmetic is done on float32 or float64 and rounded back.
template <class F>
struct Number {
    using Format = F;
    typename F::Bits held;
    Number() = default;
    explicit Number(double x, Round mode = Round::nearest, bool saturate = false)
        : held(round<F>(x, mode, saturate)) {}
    operator float() const { return read<F>(held); }
};

}  // namespace narrow

using f16 = narrow::Number<narrow::Half>;
using bf16 = narrow::Number<narrow::Bfloat>;
using e4m3 = narrow::Number<narrow::E4m3>;
using e5m2 = narrow::Number<narrow::E5m2>;
using e4m3fnuz = narrow::Number<narrow::E4m3Fnuz>;
using e5m2fnuz = narrow::Number<narrow::E5m2Fnuz>;

// A float32 of which the tensor core reads the upper 19 bits.
struct tf32 {
    float held;
#ifdef SIMT_RING
    operator float() const { return held; }
};
static inline float round_tf32(float x, numbers::Round) { return x; }
static inline float round_tf32_away(float x) { return x; }
#else
    operator float() const {
        return numbers::punned<float>(numbers::punned<uint32_t>(held) & ~0x1fffu);
    }
};
static inline float round_tf32(float x, numbers::Round mode) {
    return numbers::punned<float>(narrow::round<narrow::Tf32>(x, mode) << 13);
}
// Halfway cases go away from zero (cvt.rna): the carry runs into the exponent, as it should.
static inline float round_tf32_away(float x) {
    if (x != x) return numbers::punned<float>(narrow::Tf32::nan << 13);
    if (x - x != 0) return x;
    return numbers::punned<float>((numbers::punned<uint32_t>(x) + 0x1000u) & ~0x1fffu);
}
#endif

}  // namespace simt
