// Vector floats of 32 and 64 bits: arithmetic, functions, conversions, division, comparisons.
#include "lanes.h"
#include "numbers.h"

namespace isa {
namespace {

// The transcendental unit of 32 bits takes and gives no denormals.
float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.f, x) : x; }

// 2^x in double, rounded once: nearer to the truth than the ulp that the hardware promises.
// Without branches, so that it is done for several lanes at once: adding this rounds to whole numbers
// and leaves them in the lowest bits.
constexpr double WHOLE = 0x1.8p52;
inline double power_of_two(double x) {
    const double shifted = x + WHOLE, f = (x - (shifted - WHOLE)) * 0.69314718055994530942;
    double r = 1.0 / 479001600;
    r = r * f + 1. / 39916800, r = r * f + 1. / 3628800, r = r * f + 1. / 362880;
    r = r * f + 1. / 40320, r = r * f + 1. / 5040, r = r * f + 1. / 720, r = r * f + 1. / 120;
    r = r * f + 1. / 24, r = r * f + 1. / 6, r = r * f + .5, r = r * f + 1., r = r * f + 1.;
    return r * as<double>((as<u64>(shifted) + 1023) << 52);
}
inline float exponential(float a) {
    const float inside = a > -150 ? (a < 128 ? a : 128) : -150;
    const float r = flushed((float)power_of_two((double)inside));
    return a != a ? a : a >= 128 ? INFINITY : a < -150 ? 0 : r;
}
float zero_or_fused(float a, float b, float c) {
    return a == 0 || b == 0 ? c : std::fma(a, b, c);
}
// The face of a cube that a direction meets, and where: its number, two coordinates, the axis twice.
struct Face {
    float number, s, t, axis;
};
Face face_of(float x, float y, float z) {
    const float ax = std::fabs(x), ay = std::fabs(y), az = std::fabs(z);
    if (az >= ax && az >= ay) return z < 0 ? Face{5, -x, -y, 2 * z} : Face{4, x, -y, 2 * z};
    if (ay >= ax) return y < 0 ? Face{3, x, -z, 2 * y} : Face{2, x, z, 2 * y};
    return x < 0 ? Face{1, z, -y, 2 * x} : Face{0, -z, -y, 2 * x};
}

}  // namespace

BINARY(v_add_f32, float, float, float, a + b)
BINARY(v_sub_f32, float, float, float, a - b)
BINARY(v_subrev_f32, float, float, float, b - a)
BINARY(v_mul_f32, float, float, float, a * b)
BINARY(v_mul_legacy_f32, float, float, float, a == 0 || b == 0 ? 0.f : a * b)
ALSO(v_mul_dx9_zero_f32, v_mul_legacy_f32)
EXTREMES_OF_FLOATS(f32, float)
EXTREMES_OF_THREE(f32, float)
EXTREMES_OF_FLOATS(f64, double)
TERNARY(v_fma_f32, float, float, float, float, std::fma(a, b, c))
TERNARY(v_fmamk_f32, float, float, float, float, std::fma(a, b, c))
TERNARY(v_fmaak_f32, float, float, float, float, std::fma(a, b, c))
TERNARY(v_mad_f32, float, float, float, float, a * b + c)
TERNARY(v_fma_dx9_zero_f32, float, float, float, float, zero_or_fused(a, b, c))
TERNARY(v_cubeid_f32, float, float, float, float, face_of(a, b, c).number)
TERNARY(v_cubesc_f32, float, float, float, float, face_of(a, b, c).s)
TERNARY(v_cubetc_f32, float, float, float, float, face_of(a, b, c).t)
TERNARY(v_cubema_f32, float, float, float, float, face_of(a, b, c).axis)
MODEL(v_fmac_dx9_zero_f32) {
    Instruction all = i;
    all.o[3] = i.o[0];
    ternary<float, float, float, float>(w, all, zero_or_fused);
}
MODEL(v_fmac_f32) {
    BUFFER t[LANES], u[LANES];
    const Source a = fetch<float>(w, i, 1, t), b = fetch<float>(w, i, 2, u);
    const u32* c = w.v[i.o[0].reg];
    lanes<float>(w, i, [&](int l) { return std::fma(get<float>(a, l), get<float>(b, l), f32(c[l])); });
}
MODEL(v_fmac_f64) {
    BUFFER t[2 * LANES], u[2 * LANES];
    const Source a = fetch<double>(w, i, 1, t), b = fetch<double>(w, i, 2, u);
    const Source c{w.v[i.o[0].reg], w.v[i.o[0].reg + 1]};
    lanes<double>(w, i, [&](int l) {
        return std::fma(get<double>(a, l), get<double>(b, l), get<double>(c, l));
    });
}

UNARY(v_rcp_f32, float, float, flushed(1.f / flushed(a)))
ALSO(v_rcp_iflag_f32, v_rcp_f32)
UNARY(v_rsq_f32, float, float, flushed((float)(1.0 / std::sqrt((double)flushed(a)))))
UNARY(v_sqrt_f32, float, float, std::sqrt(flushed(a)))
UNARY(v_exp_f32, float, float, exponential(flushed(a)))
ALSO(v_exp_legacy_f32, v_exp_f32)
UNARY(v_log_f32, float, float, (float)std::log2((double)flushed(a)))
ALSO(v_log_legacy_f32, v_log_f32)
// RDNA4: one value, for the scalar unit.
static void transcendental(Wave& w, const Instruction& i, float (*f)(float)) {
    u32 x = s32(w, i.o[1]);
    if (i.o[1].abs) x &= 0x7fffffff;
    if (i.o[1].neg) x ^= 0x80000000;
    set32(w, i.o[0], bits(limited(f(f32(x)), i)));
}
#define SCALAR_FUNCTION(n, e) \
    MODEL(n) { transcendental(w, i, [](float a) -> float { return e; }); }
SCALAR_FUNCTION(v_s_rcp_f32, flushed(1.f / flushed(a)))
SCALAR_FUNCTION(v_s_rsq_f32, flushed((float)(1.0 / std::sqrt((double)flushed(a)))))
SCALAR_FUNCTION(v_s_sqrt_f32, std::sqrt(flushed(a)))
SCALAR_FUNCTION(v_s_exp_f32, exponential(flushed(a)))
SCALAR_FUNCTION(v_s_log_f32, (float)std::log2((double)flushed(a)))
UNARY(v_sin_f32, float, float, (float)std::sin(part_of_turn(a)))
UNARY(v_cos_f32, float, float, (float)std::cos(part_of_turn(a)))
#define PARTS(suffix, T)                                    \
    PARTS_OF_FLOATS(suffix, T)                              \
    UNARY(v_frexp_exp_i32_##suffix, u32, T, exponent_of(a)) \
    BINARY(v_ldexp_##suffix, T, T, i32, std::ldexp(a, b))
PARTS(f32, float)
PARTS(f64, double)

UNARY(v_cvt_f32_i32, float, i32, (float)a)
UNARY(v_cvt_f32_u32, float, u32, (float)a)
UNARY(v_cvt_u32_f32, u32, float, saturated<u32>(a))
UNARY(v_cvt_i32_f32, u32, float, (u32)saturated<i32>(a))
UNARY(v_cvt_f32_ubyte0, float, u32, (float)(a & 255))
UNARY(v_cvt_f32_ubyte1, float, u32, (float)(a >> 8 & 255))
UNARY(v_cvt_f32_ubyte2, float, u32, (float)(a >> 16 & 255))
UNARY(v_cvt_f32_ubyte3, float, u32, (float)(a >> 24))
UNARY(v_cvt_rpi_i32_f32, u32, float, (u32)saturated<i32>(std::floor((double)a + .5)))
ALSO(v_cvt_nearest_i32_f32, v_cvt_rpi_i32_f32)
UNARY(v_cvt_flr_i32_f32, u32, float, (u32)saturated<i32>(std::floor((double)a)))
ALSO(v_cvt_floor_i32_f32, v_cvt_flr_i32_f32)
UNARY(v_cvt_f64_f32, double, float, (double)a)
UNARY(v_cvt_f64_i32, double, i32, (double)a)
UNARY(v_cvt_f64_u32, double, u32, (double)a)
UNARY(v_cvt_f32_f64, float, double, (float)a)
UNARY(v_cvt_i32_f64, u32, double, (u32)saturated<i32>(a))
UNARY(v_cvt_u32_f64, u32, double, saturated<u32>(a))
UNARY(v_rcp_f64, double, double, 1. / a)
UNARY(v_rsq_f64, double, double, 1. / std::sqrt(a))
UNARY(v_sqrt_f64, double, double, std::sqrt(a))
BINARY(v_add_f64, double, double, double, a + b)
BINARY(v_mul_f64, double, double, double, a * b)
TERNARY(v_fma_f64, double, double, double, double, std::fma(a, b, c))

// ---- division: three instructions that are right together, as their whole must be
//
// AMD's text, taken word for word, gives wrong quotients in three places; here the scale of fmas is
// that of div_scale, overflow is asked of the quotient, and a tiny quotient is scaled down.

namespace {

template <class T> constexpr int near = sizeof(T) == 4 ? 64 : 128;
template <class T> int biased(T x) {
    if (x == 0) return 0;
    if constexpr (sizeof(T) == 4) return (int)(as<u32>(x) >> 23 & 255);
    else return (int)(as<u64>(x) >> 52 & 2047);
}
template <class T> bool denormal(T x) {
    return x != 0 && std::fabs(x) < (sizeof(T) == 4 ? (T)0x1p-126 : (T)0x1p-1022);
}

template <class T> T scale(T s0, T denominator, T numerator, bool& later) {
    constexpr bool single = sizeof(T) == 4;
    constexpr int far = single ? 96 : 768, tiny = single ? 23 : 53, by = near<T>;
    later = false;
    if (numerator == 0 || denominator == 0) return (T)NAN;
    if (biased(numerator) - biased(denominator) >= far) {
        later = true;
        return s0 == denominator ? std::ldexp(s0, by) : s0;
    }
    if (denormal(denominator)) return std::ldexp(s0, by);
    const bool far_inverse = denormal(1 / denominator);
    const bool far_quotient = denormal(numerator / denominator);
    if (far_inverse && far_quotient) {
        later = true;
        return s0 == denominator ? std::ldexp(s0, -by) : s0;
    }
    if (far_inverse) return std::ldexp(s0, -by);
    if (far_quotient) {
        later = true;
        return s0 == numerator ? std::ldexp(s0, by) : s0;
    }
    return biased(numerator) <= tiny ? std::ldexp(s0, by) : s0;
}

// Whether no lane's quotient, nor what it is made of, comes near the ends of the range: most never do,
// and this is asked of all lanes at once.
inline bool amid(const Source& denominator, const Source& numerator) {
    u32 rare = 0;
    for (int l = 0; l < LANES; ++l) {
        const i32 d = denominator.low[l] >> 23 & 255, n = numerator.low[l] >> 23 & 255;
        rare |= (u32)(d < 1) | (u32)(d > 252) | (u32)(n < 24) | (u32)(n > 254) |
                (u32)(n - d > 95) | (u32)(n - d < -124);
    }
    return !rare;
}

template <class T> void div_scale(Wave& w, const Instruction& i) {
    BUFFER t[2 * LANES], u[2 * LANES], x[2 * LANES];
    const Source a = fetch<T>(w, i, 2, t), b = fetch<T>(w, i, 3, u), c = fetch<T>(w, i, 4, x);
    if (sizeof(T) == 4 && amid(b, c)) {
        lanes<T>(w, i, [&](int l) { return get<T>(a, l); });
        return set_mask(w, i.o[1], 0);
    }
    u64 later = 0;
    T r[LANES];
    for (int l = 0; l < LANES; ++l) {
        bool v;
        r[l] = scale(get<T>(a, l), get<T>(b, l), get<T>(c, l), v);
        later |= (u64)v << l;
    }
    const u64 m = w.exec();
    lanes<T>(w, i, [&](int l) { return r[l]; });
    set_mask(w, i.o[1], later & m);
}

template <class T> void div_fmas(Wave& w, const Instruction& i) {
    BUFFER t[2 * LANES], u[2 * LANES], x[2 * LANES];
    const Source a = fetch<T>(w, i, 1, t), b = fetch<T>(w, i, 2, u), c = fetch<T>(w, i, 3, x);
    const u64 scaled_lanes = w.vcc();
    constexpr bool single = sizeof(T) == 4;
    lanes<T>(w, i, [&](int l) {
        const T p = get<T>(a, l), q = get<T>(b, l), r = get<T>(c, l);
        if (!(scaled_lanes >> l & 1)) return (T)std::fma(p, q, r);
        const int by = biased(r) > (single ? 127 : 1023) ? near<T> : -near<T>;
        // Scaled before it is rounded; of doubles, where only that is finite.
        if constexpr (single)
            return narrowed<T>(std::ldexp(odd_sum((double)p * (double)q, r, nearest), by), nearest);
        const T whole = std::fma(p, q, r);
        if (!std::isinf(whole) || std::isinf(p) || std::isinf(q) || std::isinf(r))
            return (T)std::ldexp(whole, by);
        const bool first = std::fabs(p) > std::fabs(q);
        return std::fma(first ? std::ldexp(p, by) : p, first ? q : std::ldexp(q, by),
                        std::ldexp(r, by));
    });
}

template <class T> T fixed_up(T q, T denominator, T numerator) {
    const T n = numerator, d = denominator;
    const T sign = std::signbit(d) != std::signbit(n) ? (T)-1 : (T)1;
    constexpr bool single = sizeof(T) == 4;
    if (n != n) return n;
    if (d != d) return d;
    if ((d == 0 && n == 0) || (std::isinf(d) && std::isinf(n))) return -(T)NAN;
    if (d == 0 || std::isinf(n)) return std::copysign((T)INFINITY, sign);
    if (std::isinf(d) || n == 0) return std::copysign((T)0, sign);
    if (biased(n) - biased(d) < (single ? -150 : -1075)) return std::copysign((T)0, sign);
    if (biased(q) == (single ? 255 : 2047)) return std::copysign((T)INFINITY, sign);
    return std::copysign(q, sign);
}

}  // namespace

MODEL(v_div_scale_f32) { div_scale<float>(w, i); }
MODEL(v_div_scale_f64) { div_scale<double>(w, i); }
MODEL(v_div_fmas_f32) { div_fmas<float>(w, i); }
MODEL(v_div_fmas_f64) { div_fmas<double>(w, i); }
MODEL(v_div_fixup_f32) {
    BUFFER t[LANES], u[LANES], x[LANES];
    const Source a = fetch<float>(w, i, 1, t), b = fetch<float>(w, i, 2, u);
    const Source c = fetch<float>(w, i, 3, x);
    u32 rare = 0;
    for (int l = 0; l < LANES; ++l) rare |= (u32)((a.low[l] >> 23 & 255) == 255);
    if (!rare && amid(b, c))
        return lanes<float>(w, i, [&](int l) {
            return f32((a.low[l] & 0x7fffffff) | ((b.low[l] ^ c.low[l]) & 0x80000000));
        });
    lanes<float>(w, i, [&](int l) {
        return fixed_up(get<float>(a, l), get<float>(b, l), get<float>(c, l));
    });
}
TERNARY(v_div_fixup_f64, double, double, double, double, fixed_up(a, b, c))

// ---- packed pairs of 32 bits

MODEL(v_pk_fma_f32) {
    packed_singles(w, i, 3, [](float a, float b, float c) { return std::fma(a, b, c); });
}
MODEL(v_pk_add_f32) { packed_singles(w, i, 2, [](float a, float b, float) { return a + b; }); }
MODEL(v_pk_mul_f32) { packed_singles(w, i, 2, [](float a, float b, float) { return a * b; }); }

// ---- comparisons

#define FLOAT_COMPARES(t, T)                       \
    COMPARE(f_##t, T, T, ((void)a, (void)b, false)) \
    COMPARE(lt_##t, T, T, a < b)                   \
    COMPARE(le_##t, T, T, a <= b)                  \
    COMPARE(gt_##t, T, T, a > b)                   \
    COMPARE(ge_##t, T, T, a >= b)                  \
    COMPARE(eq_##t, T, T, a == b)                  \
    COMPARE(lg_##t, T, T, a < b || a > b)          \
    COMPARE(neq_##t, T, T, !(a == b))              \
    COMPARE(nlt_##t, T, T, !(a < b))               \
    COMPARE(nle_##t, T, T, !(a <= b))              \
    COMPARE(ngt_##t, T, T, !(a > b))               \
    COMPARE(nge_##t, T, T, !(a >= b))              \
    COMPARE(nlg_##t, T, T, !(a < b || a > b))      \
    COMPARE(o_##t, T, T, a == a && b == b)         \
    COMPARE(u_##t, T, T, a != a || b != b)         \
    COMPARE(t_##t, T, T, ((void)a, (void)b, true)) \
    COMPARE(tru_##t, T, T, ((void)a, (void)b, true))
FLOAT_COMPARES(f32, float)
FLOAT_COMPARES(f64, double)
FLOAT_COMPARES(f16, f16)

template <class U, int MANTISSA> static bool of_class(U x, u32 asked) {
    constexpr int width = 8 * sizeof(U);
    const u32 most_exponent = (1u << (width - MANTISSA - 1)) - 1;
    const u32 e = (u32)(x >> MANTISSA) & most_exponent, negative = (u32)(x >> (width - 1));
    const U f = x & (((U)1 << MANTISSA) - 1);
    int k;
    if (e == most_exponent) k = f ? (f >> (MANTISSA - 1) ? 1 : 0) : negative ? 2 : 9;
    else if (e) k = negative ? 3 : 8;
    else if (f) k = negative ? 4 : 7;
    else k = negative ? 5 : 6;
    return asked >> k & 1;
}
#define CLASS(t, T, U, mantissa) \
    COMPARE(class_##t, T, u32, (of_class<U, mantissa>(as<U>(a), b)))
CLASS(f32, float, u32, 23)
CLASS(f64, double, u64, 52)
CLASS(f16, u16, u16, 10)

}  // namespace isa
