// 16-bit floats, packed pairs of 16 bits, dot products, small formats.
#include "lanes.h"
#include "numbers.h"

namespace isa {
namespace {

f16 fused(f16 a, f16 b, f16 c) { return (f16)std::fma((double)a, (double)b, (double)c); }
// Compilers may keep a product of halves wider until it is cast.
f16 twice_rounded(f16 a, f16 b, f16 c) { return (f16)(a * b) + c; }
u32 toward_zero(float a) {
    const u32 r = bits16((f16)a);
    return std::fabs((float)half(r)) > std::fabs(a) ? r - 1 : r;
}
float bf16(u32 x) { return f32(x << 16); }
// Division's last step: what a quotient is where it is special.
f16 fixed_up(f16 q, f16 denominator, f16 numerator) {
    const float n = (float)numerator, d = (float)denominator;
    const float sign = std::signbit(d) != std::signbit(n) ? -1.f : 1.f;
    if (n != n) return quieted(numerator);
    if (d != d) return quieted(denominator);
    if ((d == 0 && n == 0) || (std::isinf(d) && std::isinf(n))) return half(0xfe00);
    if (d == 0 || std::isinf(n)) return (f16)(sign * INFINITY);
    if (std::isinf(d) || n == 0) return (f16)std::copysign(0.f, sign);
    return half((bits16(q) & 0x7fff) | (sign < 0 ? 0x8000 : 0));
}

}  // namespace

UNARY(v_cvt_f16_f32, f16, float, (f16)a)
UNARY(v_cvt_f32_f16, float, f16, (float)a)
UNARY(v_cvt_f16_u16, f16, u16, (f16)a)
UNARY(v_cvt_f16_i16, f16, i16, (f16)a)
UNARY(v_cvt_u32_u16, u32, u16, a)
UNARY(v_cvt_i32_i16, u32, i16, (u32)(int)a)
UNARY(v_cvt_u16_f16, u16, f16, saturated<u16>((double)a))
UNARY(v_cvt_i16_f16, u16, f16, (u16)saturated<i16>((double)a))
BINARY(v_add_f16, f16, f16, f16, a + b)
BINARY(v_sub_f16, f16, f16, f16, a - b)
BINARY(v_subrev_f16, f16, f16, f16, b - a)
BINARY(v_mul_f16, f16, f16, f16, a * b)
EXTREMES_OF_FLOATS(f16, f16)
EXTREMES_OF_THREE(f16, f16)
PARTS_OF_FLOATS(f16, f16)
UNARY(v_frexp_exp_i16_f16, u16, f16, (u16)exponent_of(a))
TERNARY(v_fma_f16, f16, f16, f16, f16, fused(a, b, c))
TERNARY(v_fmamk_f16, f16, f16, f16, f16, fused(a, b, c))
TERNARY(v_fmaak_f16, f16, f16, f16, f16, fused(a, b, c))
TERNARY(v_mad_f16, f16, f16, f16, f16, twice_rounded(a, b, c))
TERNARY(v_div_fixup_f16, f16, f16, f16, f16, fixed_up(a, b, c))
MODEL(v_fmac_f16) {
    ternary<f16, f16, f16, f16>(w, with_sum(i), [](f16 a, f16 b, f16 c) { return fused(a, b, c); });
}
MODEL(v_mac_f16) {
    ternary<f16, f16, f16, f16>(w, with_sum(i), twice_rounded);
}
UNARY(v_rcp_f16, f16, f16, (f16)(1.f / (float)a))
UNARY(v_rsq_f16, f16, f16, (f16)(1.0 / std::sqrt((double)a)))
UNARY(v_sqrt_f16, f16, f16, (f16)std::sqrt((float)a))
UNARY(v_exp_f16, f16, f16, (f16)std::exp2((double)a))
UNARY(v_log_f16, f16, f16, (f16)std::log2((double)a))
UNARY(v_sin_f16, f16, f16, (f16)std::sin(part_of_turn((double)a)))
UNARY(v_cos_f16, f16, f16, (f16)std::cos(part_of_turn((double)a)))
// RDNA4: one value, for the scalar unit.
#define SCALAR_HALF(n, e)                                                                  \
    MODEL(v_s_##n##_f16) {                                                                 \
        u32 x = s32(w, i.o[1]) >> (i.opsel & 1 ? 16 : 0) & 0xffff;                         \
        if (i.o[1].abs) x &= 0x7fff;                                                       \
        if (i.o[1].neg) x ^= 0x8000;                                                       \
        const double a = (double)half(x);                                                  \
        set32(w, i.o[0], bits16(limited((f16)(e), i)));                                    \
    }
SCALAR_HALF(rcp, 1 / a)
SCALAR_HALF(rsq, 1 / std::sqrt(a))
SCALAR_HALF(sqrt, std::sqrt(a))
SCALAR_HALF(exp, std::exp2(a))
SCALAR_HALF(log, std::log2(a))
BINARY(v_ldexp_f16, f16, f16, i16, (f16)std::ldexp((float)a, b))
BINARY(v_cvt_pkrtz_f16_f32, u32, float, float, toward_zero(a) | toward_zero(b) << 16)
ALSO(v_cvt_pk_rtz_f16_f32, v_cvt_pkrtz_f16_f32)
BINARY(v_cvt_pk_bf16_f32, u32, float, float, to_bf16(a) | to_bf16(b) << 16)
BINARY(v_cvt_pk_f16_f32, u32, float, float, bits16((f16)a) | bits16((f16)b) << 16)
UNARY(v_cvt_f32_bf16, float, u16, bf16(a))
// Bytes of small floats: fp8 has 3 bits after the point, bf8 2. Which byte or half is said by SDWA,
// or by op_sel, whose bits count backwards.
template <int MANTISSA> float small(const Wave& w, u32 byte) {
    const bool fnuz = w.machine->fnuz;
    return small_float(byte & 255, MANTISSA, (MANTISSA == 3 ? 7 : 15) + fnuz, fnuz);
}
template <int MANTISSA> u32 to_small(const Wave& w, float a) {
    const bool fnuz = w.machine->fnuz;
    return to_small_float(a, MANTISSA, (MANTISSA == 3 ? 7 : 15) + fnuz, fnuz);
}
#define SMALL(n, mantissa)                                                                 \
    MODEL(v_cvt_f32_##n) {                                                                 \
        Instruction all = i;                                                               \
        const u32 byte = i.flags & SDWA ? 0 : (i.opsel >> 1 & 1) | (i.opsel & 1) << 1;     \
        all.opsel = 0;                                                                     \
        unary<float, u32>(w, all, [&](u32 a) { return small<mantissa>(w, a >> 8 * byte); }); \
    }                                                                                      \
    MODEL(v_cvt_pk_f32_##n) {                                                              \
        Instruction all = i;                                                               \
        const u32 by = !(i.flags & SDWA) && i.opsel & 1 ? 16 : 0;                          \
        all.opsel = 0, all.flags &= ~(u32)SDWA;                                            \
        BUFFER t[LANES];                                                                   \
        const Source a = fetch<u32>(w, i, 1, t);                                           \
        lanes<u64>(w, all, [&](int l) {                                                    \
            const u32 x = a.low[l] >> by;                                                  \
            return (u64)bits(small<mantissa>(w, x >> 8)) << 32 | bits(small<mantissa>(w, x)); \
        });                                                                                \
    }                                                                                      \
    MODEL(v_cvt_pk_##n##_f32) {                                                            \
        Instruction all = i;                                                               \
        all.flags |= KEEP_HALF;                                                            \
        binary<u16, float, float>(w, all, [&](float a, float b) {                          \
            return to_small<mantissa>(w, a) | to_small<mantissa>(w, b) << 8;               \
        });                                                                                \
    }
SMALL(fp8, 3)
SMALL(bf8, 2)
#define NORMED(n, to, from)                                                                \
    BINARY(v_cvt_pknorm_##n, u32, from, from, normed<to>((double)a) | normed<to>((double)b) << 16) \
    ALSO(v_cvt_pk_norm_##n, v_cvt_pknorm_##n)
NORMED(i16_f32, i16, float)
NORMED(u16_f32, u16, float)
NORMED(i16_f16, i16, f16)
NORMED(u16_f16, u16, f16)
UNARY(v_cvt_norm_i16_f16, u16, f16, (u16)normed<i16>((double)a))
UNARY(v_cvt_norm_u16_f16, u16, f16, (u16)normed<u16>((double)a))
BINARY(v_cvt_pk_i16_f32, u32, float, float,
       (u16)saturated<i16>(a) | (u32)(u16)saturated<i16>(b) << 16)
BINARY(v_cvt_pk_u16_f32, u32, float, float, saturated<u16>(a) | (u32)saturated<u16>(b) << 16)
TERNARY(v_cvt_pk_u8_f32, u32, float, u32, u32,
        (c & ~(255u << 8 * (b & 3))) | (u32)saturated<u8>(a) << 8 * (b & 3))
UNARY(v_cvt_off_f32_i4, float, u32, (float)((i32)(a << 28) >> 28) / 16)
BINARY(v_cvt_pk_i16_i32, u32, i32, i32,
       (u16)saturated<i16>(a) | (u32)(u16)saturated<i16>(b) << 16)
BINARY(v_pack_b32_f16, u32, u16, u16, (u32)a | (u32)b << 16)
BINARY(v_cvt_pk_u16_u32, u32, u32, u32, (a > 65535 ? 65535 : a) | (b > 65535 ? 65535 : b) << 16)

template <bool Q, int N, class F> void packed_float(Wave& w, const Instruction& i, F f) {
    packed_half<N>(w, i, true, [&](const u32* x) -> u32 {
        return bits16(limited((f16)f(half(x[0]), half(x[1]), half(x[2])), i));
    });
}
#define PACKED_FLOAT(n, N, e)                                                             \
    IEEE_MODEL(n, (packed_float<Q, N>), f16,                                              \
               [](f16 a, f16 b, [[maybe_unused]] f16 c) -> f16 { return e; })
PACKED_FLOAT(v_pk_add_f16, 2, a + b)
PACKED_FLOAT(v_pk_mul_f16, 2, a * b)
PACKED_FLOAT(v_pk_max_f16, 2, (most<Q, f16>(a, b)))
ALSO(v_pk_max_num_f16, v_pk_max_f16)
PACKED_FLOAT(v_pk_min_f16, 2, (least<Q, f16>(a, b)))
ALSO(v_pk_min_num_f16, v_pk_min_f16)
PACKED_FLOAT(v_pk_minimum_f16, 2, (minimum<f16>(a, b)))
PACKED_FLOAT(v_pk_maximum_f16, 2, (maximum<f16>(a, b)))
PACKED_FLOAT(v_pk_minimum3_f16, 3, (minimum<f16>(minimum<f16>(a, b), c)))
PACKED_FLOAT(v_pk_maximum3_f16, 3, (maximum<f16>(maximum<f16>(a, b), c)))
PACKED_FLOAT(v_pk_fma_f16, 3, fused(a, b, c))
MODEL(v_pk_fmac_f16) {
    Instruction all = i;
    all.o[3] = i.o[0];
    all.opsel = 0, all.opsel_hi = 7;
    packed_float<false, 3>(w, all, fused);
}
#define PACKED_INTEGER(n, N, e)                                                           \
    MODEL(n) {                                                                            \
        if (i.flags & CLAMP) return unmodelled(w, i);                                     \
        packed_half<N>(w, i, false, [](const u32* x) -> u32 {                             \
            const u32 a = x[0], b = x[1];                                                 \
            return (u32)(e);                                                              \
        });                                                                               \
    }
PACKED_INTEGER(v_pk_add_u16, 2, a + b)
PACKED_INTEGER(v_pk_add_i16, 2, a + b)
PACKED_INTEGER(v_pk_sub_u16, 2, a - b)
PACKED_INTEGER(v_pk_sub_i16, 2, a - b)
PACKED_INTEGER(v_pk_mul_lo_u16, 2, a * b)
PACKED_INTEGER(v_pk_lshlrev_b16, 2, b << (a & 15))
PACKED_INTEGER(v_pk_lshrrev_b16, 2, b >> (a & 15))
PACKED_INTEGER(v_pk_ashrrev_i16, 2, (i16)b >> (a & 15))
PACKED_INTEGER(v_pk_max_u16, 2, a > b ? a : b)
PACKED_INTEGER(v_pk_min_u16, 2, a < b ? a : b)
PACKED_INTEGER(v_pk_max_i16, 2, (i16)a > (i16)b ? a : b)
PACKED_INTEGER(v_pk_min_i16, 2, (i16)a < (i16)b ? a : b)
PACKED_INTEGER(v_pk_mad_u16, 3, a * b + x[2])
PACKED_INTEGER(v_pk_mad_i16, 3, a * b + x[2])

// Each source is a float, or by op_sel_hi a half (or a constant of one) that becomes one.
static void mixed(Wave& w, const Instruction& i, float* r) {
    BUFFER t[LANES];
    float x[3][LANES];
    for (int k = 0; k < 3; ++k) {
        const bool halves = i.opsel_hi >> k & 1;
        const Source from = halves ? fetch<f16>(w, i, k + 1, t) : fetch<float>(w, i, k + 1, t);
        for (int l = 0; l < LANES; ++l)
            x[k][l] = halves ? (float)get<f16>(from, l) : get<float>(from, l);
    }
    for (int l = 0; l < LANES; ++l) r[l] = std::fma(x[0][l], x[1][l], x[2][l]);
}
MODEL(v_fma_mix_f32) {
    float r[LANES];
    mixed(w, i, r);
    lanes<float>(w, i, [&](int l) { return r[l]; });
}
static void mixed_half(Wave& w, const Instruction& i, bool high) {
    float r[LANES];
    mixed(w, i, r);
    Instruction to = i;
    to.opsel = high ? 8 : 0;
    to.flags |= KEEP_HALF;
    lanes<f16>(w, to, [&](int l) { return (f16)r[l]; });
}
MODEL(v_fma_mixlo_f16) { mixed_half(w, i, false); }
MODEL(v_fma_mixhi_f16) { mixed_half(w, i, true); }

// Products of parts of a word, added up.
template <int WIDTH, bool SIGNED> static u32 dot(u32 a, u32 b) {
    u32 r = 0;
    for (int k = 0; k < 32; k += WIDTH) {
        const u32 x = a << (32 - WIDTH - k), y = b << (32 - WIDTH - k);
        r += SIGNED ? (u32)(((i32)x >> (32 - WIDTH)) * ((i32)y >> (32 - WIDTH)))
                    : (x >> (32 - WIDTH)) * (y >> (32 - WIDTH));
    }
    return r;
}
// With clamp the sum is saturated; that is not known to be so of every step.
template <int WIDTH, bool SIGNED> static void dots(Wave& w, const Instruction& i, const Operand& sum) {
    if (i.flags & CLAMP) return unmodelled(w, i);
    Instruction all = i;
    all.o[3] = sum;
    ternary<u32, u32, u32, u32>(w, all, [](u32 a, u32 b, u32 c) { return dot<WIDTH, SIGNED>(a, b) + c; });
}
#define DOT(n, width, is_signed) MODEL(n) { dots<width, is_signed>(w, i, i.o[3]); }
#define DOTC(n, width, is_signed) MODEL(n) { dots<width, is_signed>(w, i, i.o[0]); }
DOT(v_dot4_i32_i8, 8, true)
DOT(v_dot4_u32_u8, 8, false)
DOT(v_dot8_i32_i4, 4, true)
DOT(v_dot8_u32_u4, 4, false)
DOT(v_dot2_i32_i16, 16, true)
DOT(v_dot2_u32_u16, 16, false)
DOTC(v_dot4c_i32_i8, 8, true)
DOTC(v_dot8c_i32_i4, 4, true)
DOTC(v_dot2c_i32_i16, 16, true)
static float dot2(u32 a, u32 b, float c) {
    return std::fma((float)half(a), (float)half(b),
                    std::fma((float)half(a >> 16), (float)half(b >> 16), c));
}
static float dot2_bf16(u32 a, u32 b, float c) {
    return std::fma(bf16(a), bf16(b), std::fma(bf16(a >> 16), bf16(b >> 16), c));
}
#define DOT2(n, f, sum)                                            \
    MODEL(n) {                                                     \
        Instruction all = i;                                       \
        all.o[3] = i.o[sum];                                       \
        ternary<float, u32, u32, float>(w, all, f);                \
    }
DOT2(v_dot2_f32_f16, dot2, 3)
DOT2(v_dot2c_f32_f16, dot2, 0)
DOT2(v_dot2_f32_bf16, dot2_bf16, 3)
DOT2(v_dot2c_f32_bf16, dot2_bf16, 0)
ALSO(v_dot2acc_f32_f16, v_dot2c_f32_f16)
ALSO(v_dot2acc_f32_bf16, v_dot2c_f32_bf16)

}  // namespace isa
