// Numbers as the units of AMD's GPUs take them: extremes, conversions, small formats.
#pragma once
#include <algorithm>
#include <limits>

#include "wave.h"

namespace isa {

// What the C library computes with.
template <class T> using Wide = std::conditional_t<sizeof(T) == 2, float, T>;

template <class T> inline bool signals(T x) {
    bool quiet;
    if constexpr (sizeof(T) == 2) quiet = as<u16>(x) & 0x200;
    else if constexpr (sizeof(T) == 4) quiet = as<u32>(x) & 0x400000;
    else quiet = as<u64>(x) >> 51 & 1;
    return (x != x) & !quiet;
}
template <class T> inline T quieted(T x) {
    if constexpr (sizeof(T) == 2) return as<T>((u16)(as<u16>(x) | 0x200));
    else if constexpr (sizeof(T) == 4) return as<T>(as<u32>(x) | 0x400000);
    else return as<T>(as<u64>(x) | 1ull << 51);
}
template <class T> inline bool negative(T x) {
    if constexpr (sizeof(T) == 2) return as<u16>(x) >> 15;
    else if constexpr (sizeof(T) == 4) return as<u32>(x) >> 31;
    else return as<u64>(x) >> 63;
}

// A number goes before a NaN, and with IEEE a NaN that signals before all; -0 is below +0.
// Without branches, so that it is done for several lanes at once.
template <bool IEEE, class T> inline T picked(bool first, T a, T b) {
    const bool no_a = a != a, no_b = b != b;
    T r = first ? a : b;
    r = no_b ? a : r;
    r = no_a ? b : r;
    r = no_a & no_b ? quieted(a) : r;
    if constexpr (IEEE) {
        r = signals(b) ? quieted(b) : r;
        r = signals(a) ? quieted(a) : r;
    }
    return r;
}
template <bool IEEE, class T> inline T least(T a, T b) {
    return picked<IEEE>((a < b) | ((a == b) & negative(a)), a, b);
}
template <bool IEEE, class T> inline T most(T a, T b) {
    return picked<IEEE>((a > b) | ((a == b) & !negative(a)), a, b);
}
template <bool IEEE, class T> inline T middle(T a, T b, T c) {
    if (a != a || b != b || c != c) return least<IEEE>(least<IEEE>(a, b), c);
    const T m = most<IEEE>(most<IEEE>(a, b), c);
    return m == a ? most<IEEE>(b, c) : m == b ? most<IEEE>(a, c) : most<IEEE>(a, b);
}
// Of IEEE 754-2019: a NaN whenever there is one.
template <class T> inline T minimum(T a, T b) {
    return a != a ? quieted(a) : b != b ? quieted(b) : least<false>(a, b);
}
template <class T> inline T maximum(T a, T b) {
    return a != a ? quieted(a) : b != b ? quieted(b) : most<false>(a, b);
}

inline u32 to_bf16(float a) {
    const u32 x = bits(a);
    if (a != a) return x >> 16 | 0x40;
    return (x + 0x7fff + (x >> 16 & 1)) >> 16;
}
// Pairs of halves or of bfloat16, added.
inline u32 halves_added(u32 a, u32 b) {
    return bits16(half(a) + half(b)) | bits16(half(a >> 16) + half(b >> 16)) << 16;
}
inline u32 bf16_added(u32 a, u32 b) {
    return to_bf16(f32(a << 16) + f32(b << 16)) |
           to_bf16(f32(a & 0xffff0000) + f32(b & 0xffff0000)) << 16;
}
// Truncates; what does not fit becomes the nearest that does, NaN 0.
template <class To> inline To saturated(double a) {
    using Limits = std::numeric_limits<To>;
    if (a != a) return 0;
    if (a >= (double)Limits::max()) return Limits::max();
    return a <= (double)Limits::min() ? Limits::min() : (To)a;
}
// fp8 and bf8 of gfx942 have no infinities, a bias one greater, and one NaN: 0x80.
inline float small_float(u32 x, int mantissa, int bias, bool fnuz) {
    const int exponent_bits = 7 - mantissa;
    const u32 sign = x >> 7 & 1, e = x >> mantissa & ((1u << exponent_bits) - 1);
    const u32 m = x & ((1u << mantissa) - 1);
    if (fnuz && x == 0x80) return NAN;
    if (!fnuz && exponent_bits == 5 && e == 31) return m ? NAN : sign ? -INFINITY : INFINITY;
    if (!fnuz && exponent_bits == 4 && e == 15 && m == 7) return NAN;
    const float f = e ? std::ldexp(1.f + (float)m / (float)(1 << mantissa), (int)e - bias)
                      : std::ldexp((float)m, 1 - bias - mantissa);
    return sign ? -f : f;
}
// To the nearest even; what is too large is infinite, or NaN where there are no infinities.
inline u32 to_small_float(float a, int mantissa, int bias, bool fnuz) {
    const int exponent_bits = 7 - mantissa;
    const u32 sign = bits(a) >> 31 << 7;
    const bool infinities = !fnuz && exponent_bits == 5;
    const u32 nan = fnuz ? 0x80 : infinities ? 0x7e : 0x7f;
    const u32 infinite = infinities ? 0x7c | sign : fnuz ? 0x80 : 0x7f | sign;
    if (a != a) return fnuz ? nan : nan | sign;
    if (std::isinf(a)) return infinite;
    const float size = std::fabs(a);
    int e = size == 0 ? 1 - bias : std::ilogb(size);
    if (e < 1 - bias) e = 1 - bias;
    // In units of the last place, with the exponent's field above them.
    const u32 units = (u32)std::nearbyint(std::ldexp(size, mantissa - e));
    const u32 r = units + ((u32)(e + bias - 1) << mantissa);
    const u32 most = fnuz ? 0x7f : infinities ? 0x7b : 0x7e;
    if (r > most) return infinite;
    return fnuz && r == 0 ? 0 : r | sign;
}

// [-1, 1] or [0, 1] to integers of 16 bits.
template <class To> inline u32 normed(double a) {
    constexpr double most = std::numeric_limits<To>::max();
    const double low = std::is_signed_v<To> ? -1 : 0;
    const double x = a != a ? 0 : a < low ? low : a > 1 ? 1 : a;
    return (u16)(To)std::nearbyint(x * most);
}
// What is left of a number of turns; hardware does so, too.
inline double part_of_turn(double x) {
    return (x - std::nearbyint(x)) * 6.283185307179586476925;
}

// ---- one rounding, in the mode register's directions

enum Round : u32 { nearest, up, down, to_zero };

// A double that is exact, or rounded to odd, as a narrower float.
template <class T> inline T narrowed(double x, u32 round) {
    constexpr int mantissa = sizeof(T) == 2 ? 10 : 23, least = sizeof(T) == 2 ? -14 : -126;
    constexpr double most = sizeof(T) == 2 ? 65504. : 0x1.fffffep127;
    if (x != x || std::isinf(x) || x == 0) return (T)x;
    const int e = std::max(std::ilogb(x), least);
    const double units = std::ldexp(x, mantissa - e);
    const double whole = round == nearest ? std::nearbyint(units)
                         : round == up    ? std::ceil(units)
                         : round == down  ? std::floor(units)
                                          : std::trunc(units);
    const double r = std::ldexp(whole, e - mantissa);
    if (std::fabs(r) <= most) return (T)std::copysign(r, x);
    const bool away = round == nearest || round == (x > 0 ? up : down);
    return (T)std::copysign(away ? INFINITY : most, x);
}

// The sum of two doubles, rounded to odd; a sum of zero has the sign that the mode gives it.
inline double odd_sum(double a, double b, u32 round) {
    const double total = a + b;
    if (total != total || std::isinf(total)) return total;
    if (total == 0)
        return a == 0 && std::signbit(a) == std::signbit(b) ? a : round == down ? -0. : 0.;
    const double back = total - a, error = (a - (total - back)) + (b - back);
    u64 bits = as<u64>(total);
    if (error != 0 && !(bits & 1)) bits += (error > 0) == (total > 0) ? 1 : -1;
    return as<double>(bits);
}

// A model that asks whether NaNs that signal go before all: Q says so in the expression.
#define IEEE_MODEL(n, count, T, ...)                                                  \
    MODEL(n) {                                                                        \
        const auto run = [&](auto ieee) {                                             \
            [[maybe_unused]] constexpr bool Q = decltype(ieee)::value;                \
            count(w, i, __VA_ARGS__);                                                 \
        };                                                                            \
        if (w.machine->ieee) run(std::true_type());                                   \
        else run(std::false_type());                                                  \
    }
#define EXTREME2(n, T, e) \
    IEEE_MODEL(n, (binary<T, T, T>), T, [](T a, T b) -> T { return e; })
#define EXTREME3(n, T, e) \
    IEEE_MODEL(n, (ternary<T, T, T, T>), T, [](T a, T b, T c) -> T { return e; })
#define EXTREMES_OF_FLOATS(suffix, T)                                        \
    EXTREME2(v_min_##suffix, T, (least<Q, T>(a, b)))                         \
    ALSO(v_min_num_##suffix, v_min_##suffix)                                 \
    EXTREME2(v_max_##suffix, T, (most<Q, T>(a, b)))                          \
    ALSO(v_max_num_##suffix, v_max_##suffix)                                 \
    BINARY(v_minimum_##suffix, T, T, T, (minimum<T>(a, b)))                  \
    BINARY(v_maximum_##suffix, T, T, T, (maximum<T>(a, b)))
#define EXTREMES_OF_THREE(suffix, T)                                         \
    EXTREME3(v_min3_##suffix, T, (least<Q, T>(least<Q, T>(a, b), c)))        \
    ALSO(v_min3_num_##suffix, v_min3_##suffix)                               \
    EXTREME3(v_max3_##suffix, T, (most<Q, T>(most<Q, T>(a, b), c)))          \
    ALSO(v_max3_num_##suffix, v_max3_##suffix)                               \
    EXTREME3(v_med3_##suffix, T, (middle<Q, T>(a, b, c)))                    \
    ALSO(v_med3_num_##suffix, v_med3_##suffix)                               \
    EXTREME3(v_maxmin_##suffix, T, (least<Q, T>(most<Q, T>(a, b), c)))       \
    ALSO(v_maxmin_num_##suffix, v_maxmin_##suffix)                           \
    EXTREME3(v_minmax_##suffix, T, (most<Q, T>(least<Q, T>(a, b), c)))       \
    ALSO(v_minmax_num_##suffix, v_minmax_##suffix)                           \
    TERNARY(v_minimum3_##suffix, T, T, T, T, (minimum<T>(minimum<T>(a, b), c)))        \
    TERNARY(v_maximum3_##suffix, T, T, T, T, (maximum<T>(maximum<T>(a, b), c)))        \
    TERNARY(v_minimummaximum_##suffix, T, T, T, T, (maximum<T>(minimum<T>(a, b), c)))  \
    TERNARY(v_maximumminimum_##suffix, T, T, T, T, (minimum<T>(maximum<T>(a, b), c)))
#define PARTS_OF_FLOATS(suffix, T)                        \
    UNARY(v_floor_##suffix, T, T, (T)std::floor((Wide<T>)a))       \
    UNARY(v_ceil_##suffix, T, T, (T)std::ceil((Wide<T>)a))         \
    UNARY(v_trunc_##suffix, T, T, (T)std::trunc((Wide<T>)a))       \
    UNARY(v_rndne_##suffix, T, T, (T)std::nearbyint((Wide<T>)a))   \
    UNARY(v_fract_##suffix, T, T, fraction(a))            \
    UNARY(v_frexp_mant_##suffix, T, T, mantissa_of(a))

template <class T> inline u32 exponent_of(T a) {
    const double x = (double)a;
    return a != a || std::isinf(x) || x == 0 ? 0u : (u32)(std::ilogb(x) + 1);
}
template <class T> inline T mantissa_of(T a) {
    int e;
    const double x = (double)a;
    return a != a || std::isinf(x) ? a : (T)std::frexp(x, &e);
}
// Below one, and a NaN for what has no fraction.
template <class T> inline T fraction(T a) {
    constexpr double below = sizeof(T) == 2   ? 1 - 0x1p-11
                             : sizeof(T) == 4 ? 1 - 0x1p-24
                                              : 1 - 0x1p-53;
    const double x = (double)a;
    const T rest = (T)(a - (T)std::floor(x));
    return rest > (T)below ? (T)below : rest;
}

}  // namespace isa
