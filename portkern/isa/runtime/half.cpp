// 16-bit floats, packed pairs of 16 bits, dot products, small formats.
#include "lanes.h"

namespace isa {
namespace {

float least(float a, float b) {
    if (a != a) return b;
    if (b != b) return a;
    return a < b ? a : b < a ? b : std::signbit(a) ? a : b;
}
float most(float a, float b) {
    if (a != a) return b;
    if (b != b) return a;
    return a > b ? a : b > a ? b : std::signbit(a) ? b : a;
}
f16 fused(f16 a, f16 b, f16 c) { return (f16)std::fma((double)a, (double)b, (double)c); }
u32 toward_zero(float a) {
    const u32 r = bits16((f16)a);
    return std::fabs((float)half(r)) > std::fabs(a) ? r - 1 : r;
}
float bf16(u32 x) { return f32(x << 16); }
u32 to_bf16(float a) {
    const u32 x = bits(a);
    if (a != a) return x >> 16 | 0x40;
    return (x + 0x7fff + (x >> 16 & 1)) >> 16;
}
u16 to_u16(f16 a) { return (float)a != (float)a || a <= 0 ? 0 : (float)a >= 65535 ? 65535 : (u16)(float)a; }
i16 to_i16(f16 a) {
    const float x = (float)a;
    return x != x ? 0 : x >= 32767 ? 32767 : x <= -32768 ? -32768 : (i16)x;
}

// Two halves at once; f takes up to three 16-bit values and gives one.
template <int N, class F>
void packed_half(Wave& w, const Instruction& i, bool real, F f) {
    BUFFER t[3][LANES];
    for (int k = 0; k < N; ++k) {
        const Operand& o = i.o[k + 1];
        if (real && o.kind == Kind::constant && o.constant == Constant::floating)
            fill(t[k], bits16((f16)f32(o.value)));
        else raw(w, i, o, t[k]);
    }
    lanes<u32>(w, i, [&](int l) {
        u32 r = 0;
        for (int h = 0; h < 2; ++h) {
            const u32 select = h ? i.opsel_hi : i.opsel, neg = h ? i.neg_hi : i.neg_lo;
            u32 x[3] = {};
            for (int k = 0; k < N; ++k)
                x[k] = ((select >> k & 1 ? t[k][l] >> 16 : t[k][l]) & 0xffff) ^
                       (neg >> k & 1) << 15;
            r |= (f(x) & 0xffff) << 16 * h;
        }
        return r;
    });
}

}  // namespace

UNARY(v_cvt_f16_f32, f16, float, (f16)a)
UNARY(v_cvt_f32_f16, float, f16, (float)a)
UNARY(v_cvt_f16_u16, f16, u16, (f16)a)
UNARY(v_cvt_f16_i16, f16, i16, (f16)a)
UNARY(v_cvt_u32_u16, u32, u16, a)
UNARY(v_cvt_i32_i16, u32, i16, (u32)(int)a)
UNARY(v_cvt_u16_f16, u16, f16, to_u16(a))
UNARY(v_cvt_i16_f16, u16, f16, (u16)to_i16(a))
BINARY(v_add_f16, f16, f16, f16, a + b)
BINARY(v_sub_f16, f16, f16, f16, a - b)
BINARY(v_subrev_f16, f16, f16, f16, b - a)
BINARY(v_mul_f16, f16, f16, f16, a * b)
BINARY(v_max_f16, f16, f16, f16, (f16)most(a, b))
ALSO(v_max_num_f16, v_max_f16)
BINARY(v_min_f16, f16, f16, f16, (f16)least(a, b))
ALSO(v_min_num_f16, v_min_f16)
TERNARY(v_fma_f16, f16, f16, f16, f16, fused(a, b, c))
TERNARY(v_max3_f16, f16, f16, f16, f16, (f16)most(most(a, b), c))
TERNARY(v_min3_f16, f16, f16, f16, f16, (f16)least(least(a, b), c))
MODEL(v_fmac_f16) {
    Instruction all = i;
    all.o[3] = i.o[0];
    ternary<f16, f16, f16, f16>(w, all, [](f16 a, f16 b, f16 c) { return fused(a, b, c); });
}
UNARY(v_rcp_f16, f16, f16, (f16)(1.f / (float)a))
UNARY(v_rsq_f16, f16, f16, (f16)(1.0 / std::sqrt((double)a)))
UNARY(v_sqrt_f16, f16, f16, (f16)std::sqrt((float)a))
UNARY(v_exp_f16, f16, f16, (f16)std::exp2((double)a))
UNARY(v_log_f16, f16, f16, (f16)std::log2((double)a))
UNARY(v_floor_f16, f16, f16, (f16)std::floor((float)a))
UNARY(v_ceil_f16, f16, f16, (f16)std::ceil((float)a))
UNARY(v_trunc_f16, f16, f16, (f16)std::trunc((float)a))
UNARY(v_rndne_f16, f16, f16, (f16)std::nearbyint((float)a))
BINARY(v_ldexp_f16, f16, f16, i16, (f16)std::ldexp((float)a, b))
BINARY(v_cvt_pkrtz_f16_f32, u32, float, float, toward_zero(a) | toward_zero(b) << 16)
ALSO(v_cvt_pk_rtz_f16_f32, v_cvt_pkrtz_f16_f32)
BINARY(v_cvt_pk_bf16_f32, u32, float, float, to_bf16(a) | to_bf16(b) << 16)
BINARY(v_cvt_pk_f16_f32, u32, float, float, bits16((f16)a) | bits16((f16)b) << 16)
UNARY(v_cvt_f32_bf16, float, u16, bf16(a))
BINARY(v_pack_b32_f16, u32, u16, u16, (u32)a | (u32)b << 16)
BINARY(v_cvt_pk_u16_u32, u32, u32, u32, (a > 65535 ? 65535 : a) | (b > 65535 ? 65535 : b) << 16)

#define PACKED_FLOAT(n, N, e)                                              \
    MODEL(n) {                                                             \
        packed_half<N>(w, i, true, [](const u32* x) -> u32 {               \
            const f16 a = half(x[0]), b = half(x[1]);                      \
            return bits16((f16)(e));                                       \
        });                                                                \
    }
PACKED_FLOAT(v_pk_add_f16, 2, a + b)
PACKED_FLOAT(v_pk_mul_f16, 2, a * b)
PACKED_FLOAT(v_pk_max_f16, 2, most(a, b))
ALSO(v_pk_max_num_f16, v_pk_max_f16)
PACKED_FLOAT(v_pk_min_f16, 2, least(a, b))
ALSO(v_pk_min_num_f16, v_pk_min_f16)
PACKED_FLOAT(v_pk_fma_f16, 3, fused(a, b, half(x[2])))
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

static i32 dot4(u32 a, u32 b) {
    i32 r = 0;
    for (int k = 0; k < 32; k += 8) r += (i32)(i8)(a >> k) * (i8)(b >> k);
    return r;
}
static u32 dot4u(u32 a, u32 b) {
    u32 r = 0;
    for (int k = 0; k < 32; k += 8) r += (a >> k & 255) * (b >> k & 255);
    return r;
}
TERNARY(v_dot4_i32_i8, u32, u32, u32, u32, (u32)dot4(a, b) + c)
TERNARY(v_dot4_u32_u8, u32, u32, u32, u32, dot4u(a, b) + c)
MODEL(v_dot4c_i32_i8) {
    BUFFER t[LANES], u[LANES];
    const Source a = fetch<u32>(w, i, 1, t), b = fetch<u32>(w, i, 2, u);
    const u32* c = w.v[i.o[0].reg];
    lanes<u32>(w, i, [&](int l) { return (u32)dot4(a.low[l], b.low[l]) + c[l]; });
}
static float dot2(u32 a, u32 b, float c) {
    return std::fma((float)half(a), (float)half(b),
                    std::fma((float)half(a >> 16), (float)half(b >> 16), c));
}
TERNARY(v_dot2_f32_f16, float, u32, u32, float, dot2(a, b, c))
MODEL(v_dot2c_f32_f16) {
    BUFFER t[LANES], u[LANES];
    const Source a = fetch<u32>(w, i, 1, t), b = fetch<u32>(w, i, 2, u);
    const u32* c = w.v[i.o[0].reg];
    lanes<float>(w, i, [&](int l) { return dot2(a.low[l], b.low[l], f32(c[l])); });
}

}  // namespace isa
