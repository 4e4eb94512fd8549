// The scalar unit: arithmetic, branches, program flow, loads.
#include "lanes.h"
#include "numbers.h"

namespace isa {

#define SCALAR1(n, e) \
    MODEL(n) { const u32 a = s32(w, i.o[1]); set32(w, i.o[0], (u32)(e)); }
#define SCALAR1C(n, e)                               \
    MODEL(n) {                                       \
        const u32 a = s32(w, i.o[1]), r = (u32)(e);  \
        set32(w, i.o[0], r);                         \
        w.scc = r != 0;                              \
    }
#define SCALAR2(n, e) \
    MODEL(n) { const u32 a = s32(w, i.o[1]), b = s32(w, i.o[2]); set32(w, i.o[0], (u32)(e)); }
#define SCALAR2C(n, e, c)                                  \
    MODEL(n) {                                             \
        const u32 a = s32(w, i.o[1]), b = s32(w, i.o[2]);  \
        const u32 r = (u32)(e), carry = (u32)(c);          \
        set32(w, i.o[0], r);                               \
        w.scc = carry;                                     \
    }
#define WIDE1(n, e) \
    MODEL(n) { const u64 a = s64(w, i, i.o[1]); set64(w, i.o[0], (u64)(e)); }
#define WIDE1C(n, e)                                    \
    MODEL(n) {                                          \
        const u64 a = s64(w, i, i.o[1]), r = (u64)(e);  \
        set64(w, i.o[0], r);                            \
        w.scc = r != 0;                                 \
    }
#define WIDE2C(n, e)                                                  \
    MODEL(n) {                                                        \
        const u64 a = s64(w, i, i.o[1]), b = s64(w, i, i.o[2]);       \
        const u64 r = (u64)(e);                                       \
        set64(w, i.o[0], r);                                          \
        w.scc = r != 0;                                               \
    }
#define SHIFT64(n, T, e)                                        \
    MODEL(n) {                                                  \
        const T a = (T)s64(w, i, i.o[1]);                       \
        const u32 b = s32(w, i.o[2]) & 63;                      \
        const u64 r = (u64)(e);                                 \
        set64(w, i.o[0], r);                                    \
        w.scc = r != 0;                                         \
    }
#define NARROW1(n, e) \
    MODEL(n) { const u64 a = s64(w, i, i.o[1]); set32(w, i.o[0], (u32)(e)); }

static u32 reversed(u32 x) {
    u32 r = 0;
    for (int k = 0; k < 32; ++k) r |= (x >> k & 1) << (31 - k);
    return r;
}
static u64 quads(u64 a) {
    u64 r = 0;
    for (int k = 0; k < 64; k += 4)
        if (a >> k & 15) r |= 15ull << k;
    return r;
}
template <class T> static T field(T a, u32 b, unsigned width) {
    const u32 offset = b & (width - 1), n = b >> 16 & 127;
    if (n == 0) return 0;
    const T shifted = (T)(a >> offset);
    if (n >= width) return shifted;
    if (std::is_unsigned_v<T>) return (T)(shifted & (T)(((u64)1 << n) - 1));
    if (n + offset >= width) return shifted;
    return (T)((T)(a << (width - offset - n)) >> (width - n));
}

SCALAR1(s_mov_b32, a)
WIDE1(s_mov_b64, a)
SCALAR1C(s_not_b32, ~a)
WIDE1C(s_not_b64, ~a)
SCALAR1C(s_abs_i32, (i32)a < 0 ? 0u - a : a)
SCALAR1(s_brev_b32, reversed(a))
WIDE1(s_brev_b64, (u64)reversed((u32)a) << 32 | reversed((u32)(a >> 32)))
SCALAR1(s_sext_i32_i8, (i32)(i8)a)
SCALAR1(s_sext_i32_i16, (i32)(i16)a)
SCALAR1(s_ff1_i32_b32, a ? __builtin_ctz(a) : -1)
ALSO(s_ctz_i32_b32, s_ff1_i32_b32)
SCALAR1(s_flbit_i32_b32, a ? __builtin_clz(a) : -1)
ALSO(s_clz_i32_u32, s_flbit_i32_b32)
SCALAR1(s_flbit_i32, a == 0 || a == ~0u ? -1 : __builtin_clz((i32)a < 0 ? ~a : a))
ALSO(s_cls_i32, s_flbit_i32)
NARROW1(s_ff1_i32_b64, a ? __builtin_ctzll(a) : -1)
ALSO(s_ctz_i32_b64, s_ff1_i32_b64)
SCALAR1(s_ff0_i32_b32, ~a ? __builtin_ctz(~a) : -1)
NARROW1(s_ff0_i32_b64, ~a ? __builtin_ctzll(~a) : -1)
NARROW1(s_flbit_i32_i64, a == 0 || a == ~0ull ? -1 : __builtin_clzll((i64)a < 0 ? ~a : a))
ALSO(s_cls_i32_i64, s_flbit_i32_i64)
NARROW1(s_flbit_i32_b64, a ? __builtin_clzll(a) : -1)
ALSO(s_clz_i32_u64, s_flbit_i32_b64)
SCALAR1C(s_bcnt1_i32_b32, __builtin_popcount(a))
SCALAR1C(s_bcnt0_i32_b32, 32 - __builtin_popcount(a))
MODEL(s_bcnt1_i32_b64) {
    const u32 r = (u32)__builtin_popcountll(s64(w, i, i.o[1]));
    set32(w, i.o[0], r);
    w.scc = r != 0;
}
MODEL(s_bcnt0_i32_b64) {
    const u32 r = 64 - (u32)__builtin_popcountll(s64(w, i, i.o[1]));
    set32(w, i.o[0], r);
    w.scc = r != 0;
}
WIDE1C(s_wqm_b64, quads(a))
SCALAR1C(s_wqm_b32, quads(a))
static u64 used_quads(u64 a) {
    u64 r = 0;
    for (int k = 0; k < 16; ++k) r |= (u64)((a >> 4 * k & 15) != 0) << k;
    return r;
}
SCALAR1C(s_quadmask_b32, used_quads(a))
WIDE1C(s_quadmask_b64, used_quads(a))
MODEL(s_bitreplicate_b64_b32) {
    const u32 a = s32(w, i.o[1]);
    u64 r = 0;
    for (int k = 0; k < 32; ++k) r |= (u64)(a >> k & 1) * 3 << 2 * k;
    set64(w, i.o[0], r);
}
MODEL(s_bitset1_b64) { set64(w, i.o[0], w.pair(i.o[0].reg) | 1ull << (s32(w, i.o[1]) & 63)); }
MODEL(s_bitset0_b64) { set64(w, i.o[0], w.pair(i.o[0].reg) & ~(1ull << (s32(w, i.o[1]) & 63))); }
MODEL(s_bitset1_b32) { set32(w, i.o[0], w.s[i.o[0].reg] | 1u << (s32(w, i.o[1]) & 31)); }
MODEL(s_bitset0_b32) { set32(w, i.o[0], w.s[i.o[0].reg] & ~(1u << (s32(w, i.o[1]) & 31))); }
MODEL(s_movk_i32) { set32(w, i.o[0], (u32)i.imm); }
MODEL(s_cmovk_i32) {
    if (w.scc) set32(w, i.o[0], (u32)i.imm);
}
MODEL(s_cmov_b32) {
    if (w.scc) set32(w, i.o[0], s32(w, i.o[1]));
}
MODEL(s_cmov_b64) {
    if (w.scc) set64(w, i.o[0], s64(w, i, i.o[1]));
}
MODEL(s_addk_i32) {
    const u32 a = w.s[i.o[0].reg], b = (u32)i.imm, r = a + b;
    w.scc = ((a ^ ~b) & (a ^ r)) >> 31;
    set32(w, i.o[0], r);
}
ALSO(s_addk_co_i32, s_addk_i32)
MODEL(s_mulk_i32) { set32(w, i.o[0], w.s[i.o[0].reg] * (u32)i.imm); }

SCALAR2C(s_add_u32, a + b, ((u64)a + b) >> 32)
ALSO(s_add_co_u32, s_add_u32)
SCALAR2C(s_sub_u32, a - b, b > a)
ALSO(s_sub_co_u32, s_sub_u32)
SCALAR2C(s_addc_u32, (u64)a + b + w.scc, ((u64)a + b + w.scc) >> 32)
ALSO(s_add_co_ci_u32, s_addc_u32)
SCALAR2C(s_subb_u32, (u64)a - b - w.scc, (u64)b + w.scc > a)
ALSO(s_sub_co_ci_u32, s_subb_u32)
SCALAR2C(s_add_i32, a + b, ((a ^ ~b) & (a ^ (a + b))) >> 31)
ALSO(s_add_co_i32, s_add_i32)
SCALAR2C(s_sub_i32, a - b, ((a ^ b) & (a ^ (a - b))) >> 31)
ALSO(s_sub_co_i32, s_sub_i32)
SCALAR2C(s_min_i32, (i32)a < (i32)b ? a : b, (i32)a < (i32)b)
SCALAR2C(s_max_i32, (i32)a > (i32)b ? a : b, (i32)a > (i32)b)
SCALAR2C(s_min_u32, a < b ? a : b, a < b)
SCALAR2C(s_max_u32, a > b ? a : b, a > b)
SCALAR2C(s_and_b32, a & b, r != 0)
SCALAR2C(s_or_b32, a | b, r != 0)
SCALAR2C(s_xor_b32, a ^ b, r != 0)
SCALAR2C(s_andn2_b32, a & ~b, r != 0)
ALSO(s_and_not1_b32, s_andn2_b32)
SCALAR2C(s_orn2_b32, a | ~b, r != 0)
ALSO(s_or_not1_b32, s_orn2_b32)
SCALAR2C(s_nand_b32, ~(a & b), r != 0)
SCALAR2C(s_nor_b32, ~(a | b), r != 0)
SCALAR2C(s_xnor_b32, ~(a ^ b), r != 0)
WIDE2C(s_and_b64, a & b)
WIDE2C(s_or_b64, a | b)
WIDE2C(s_xor_b64, a ^ b)
WIDE2C(s_andn2_b64, a & ~b)
ALSO(s_and_not1_b64, s_andn2_b64)
WIDE2C(s_orn2_b64, a | ~b)
ALSO(s_or_not1_b64, s_orn2_b64)
WIDE2C(s_nand_b64, ~(a & b))
WIDE2C(s_nor_b64, ~(a | b))
WIDE2C(s_xnor_b64, ~(a ^ b))
SCALAR2C(s_lshl_b32, a << (b & 31), r != 0)
SCALAR2C(s_lshr_b32, a >> (b & 31), r != 0)
SCALAR2C(s_ashr_i32, (i32)a >> (b & 31), r != 0)
SHIFT64(s_lshl_b64, u64, a << b)
SHIFT64(s_lshr_b64, u64, a >> b)
SHIFT64(s_ashr_i64, i64, a >> b)
SCALAR2(s_mul_i32, a * b)
SCALAR2(s_mul_hi_u32, ((u64)a * b) >> 32)
SCALAR2(s_mul_hi_i32, ((i64)(i32)a * (i32)b) >> 32)
SCALAR2(s_bfm_b32, ((1u << (a & 31)) - 1) << (b & 31))
MODEL(s_bfm_b64) {
    const u32 a = s32(w, i.o[1]) & 63, b = s32(w, i.o[2]) & 63;
    set64(w, i.o[0], ((1ull << a) - 1) << b);
}
SCALAR2(s_pack_ll_b32_b16, (a & 0xffff) | b << 16)
SCALAR2(s_pack_lh_b32_b16, (a & 0xffff) | (b & 0xffff0000))
SCALAR2(s_pack_hh_b32_b16, a >> 16 | (b & 0xffff0000))
SCALAR2(s_pack_hl_b32_b16, a >> 16 | b << 16)
// The difference wraps before its sign is taken.
SCALAR2C(s_absdiff_i32, (i32)(a - b) < 0 ? b - a : a - b, r != 0)
#define SHIFT_ADD(k) \
    SCALAR2C(s_lshl##k##_add_u32, (a << k) + b, (((u64)a << k) + b) >> 32 != 0)
SHIFT_ADD(1)
SHIFT_ADD(2)
SHIFT_ADD(3)
SHIFT_ADD(4)
SCALAR2C(s_bfe_u32, field<u32>(a, b, 32), r != 0)
SCALAR2C(s_bfe_i32, field<i32>((i32)a, b, 32), r != 0)
MODEL(s_bfe_u64) {
    const u64 r = field<u64>(s64(w, i, i.o[1]), s32(w, i.o[2]), 64);
    set64(w, i.o[0], r);
    w.scc = r != 0;
}
MODEL(s_bfe_i64) {
    const i64 r = field<i64>((i64)s64(w, i, i.o[1]), s32(w, i.o[2]), 64);
    set64(w, i.o[0], (u64)r);
    w.scc = r != 0;
}
#define WIDE2(n, e)                                              \
    MODEL(n) {                                                   \
        const u64 a = s64(w, i, i.o[1]), b = s64(w, i, i.o[2]);  \
        set64(w, i.o[0], e);                                     \
    }
WIDE2(s_add_u64, a + b)
ALSO(s_add_nc_u64, s_add_u64)
WIDE2(s_sub_u64, a - b)
ALSO(s_sub_nc_u64, s_sub_u64)
WIDE2(s_mul_u64, a * b)

MODEL(s_bitcmp1_b32) { w.scc = s32(w, i.o[0]) >> (s32(w, i.o[1]) & 31) & 1; }
MODEL(s_bitcmp0_b32) { w.scc = !(s32(w, i.o[0]) >> (s32(w, i.o[1]) & 31) & 1); }
MODEL(s_bitcmp1_b64) { w.scc = s64(w, i, i.o[0]) >> (s32(w, i.o[1]) & 63) & 1; }
MODEL(s_bitcmp0_b64) { w.scc = !(s64(w, i, i.o[0]) >> (s32(w, i.o[1]) & 63) & 1); }
MODEL(s_cselect_b32) { set32(w, i.o[0], s32(w, i.o[w.scc ? 1 : 2])); }
MODEL(s_cselect_b64) { set64(w, i.o[0], s64(w, i, i.o[w.scc ? 1 : 2])); }
#define SCALAR_COMPARE(n, T, e)                                                       \
    MODEL(s_cmp_##n) { const T a = (T)s32(w, i.o[0]), b = (T)s32(w, i.o[1]); w.scc = e; } \
    MODEL(s_cmpk_##n) { const T a = (T)s32(w, i.o[0]), b = (T)i.imm; w.scc = e; }
SCALAR_COMPARE(eq_i32, i32, a == b)
SCALAR_COMPARE(lg_i32, i32, a != b)
SCALAR_COMPARE(gt_i32, i32, a > b)
SCALAR_COMPARE(ge_i32, i32, a >= b)
SCALAR_COMPARE(lt_i32, i32, a < b)
SCALAR_COMPARE(le_i32, i32, a <= b)
SCALAR_COMPARE(eq_u32, u32, a == b)
SCALAR_COMPARE(lg_u32, u32, a != b)
SCALAR_COMPARE(gt_u32, u32, a > b)
SCALAR_COMPARE(ge_u32, u32, a >= b)
SCALAR_COMPARE(lt_u32, u32, a < b)
SCALAR_COMPARE(le_u32, u32, a <= b)
MODEL(s_cmp_eq_u64) { w.scc = s64(w, i, i.o[0]) == s64(w, i, i.o[1]); }
MODEL(s_cmp_lg_u64) { w.scc = s64(w, i, i.o[0]) != s64(w, i, i.o[1]); }

// Floats of the scalar unit (RDNA 3.5 and 4).
#define SCALAR_FLOAT1(n, e) \
    MODEL(n) { const float a = f32(s32(w, i.o[1])); set32(w, i.o[0], bits(e)); }
#define SCALAR_FLOAT2(n, e)                                                \
    MODEL(n) {                                                             \
        const float a = f32(s32(w, i.o[1])), b = f32(s32(w, i.o[2]));      \
        set32(w, i.o[0], bits(e));                                         \
    }
SCALAR_FLOAT2(s_add_f32, a + b)
SCALAR_FLOAT2(s_sub_f32, a - b)
SCALAR_FLOAT2(s_mul_f32, a * b)
SCALAR_FLOAT1(s_ceil_f32, std::ceil(a))
SCALAR_FLOAT1(s_floor_f32, std::floor(a))
SCALAR_FLOAT1(s_trunc_f32, std::trunc(a))
SCALAR_FLOAT1(s_rndne_f32, std::nearbyint(a))
SCALAR_FLOAT2(s_min_num_f32, least<false>(a, b))
SCALAR_FLOAT2(s_max_num_f32, most<false>(a, b))
SCALAR_FLOAT2(s_minimum_f32, minimum(a, b))
SCALAR_FLOAT2(s_maximum_f32, maximum(a, b))
MODEL(s_fmac_f32) {
    const float a = f32(s32(w, i.o[1])), b = f32(s32(w, i.o[2]));
    set32(w, i.o[0], bits(std::fma(a, b, f32(w.s[i.o[0].reg]))));
}
MODEL(s_cvt_f32_i32) { set32(w, i.o[0], bits((float)(i32)s32(w, i.o[1]))); }
MODEL(s_cvt_f32_u32) { set32(w, i.o[0], bits((float)s32(w, i.o[1]))); }
MODEL(s_cvt_i32_f32) {
    const float a = f32(s32(w, i.o[1]));
    const i32 r = a != a ? 0 : a >= 0x1p31f ? 0x7fffffff : a < -0x1p31f ? -0x7fffffff - 1 : (i32)a;
    set32(w, i.o[0], (u32)r);
}
MODEL(s_cvt_u32_f32) {
    const float a = f32(s32(w, i.o[1]));
    set32(w, i.o[0], a != a || a <= -1 ? 0 : a >= 0x1p32f ? ~0u : (u32)a);
}
#define SCALAR_FLOAT_COMPARE(n, e)                                         \
    MODEL(s_cmp_##n##_f32) {                                               \
        const float a = f32(s32(w, i.o[0])), b = f32(s32(w, i.o[1]));      \
        w.scc = e;                                                         \
    }                                                                      \
    MODEL(s_cmp_##n##_f16) {                                               \
        const f16 a = half(s32(w, i.o[0])), b = half(s32(w, i.o[1]));      \
        w.scc = e;                                                         \
    }
// Halves leave the upper half of the destination zero.
#define SCALAR_HALF1(n, e) \
    MODEL(n) { const float a = (float)half(s32(w, i.o[1])); set32(w, i.o[0], bits16((f16)(e))); }
#define SCALAR_HALF2(n, e)                                                 \
    MODEL(n) {                                                             \
        const f16 a = half(s32(w, i.o[1])), b = half(s32(w, i.o[2]));      \
        set32(w, i.o[0], bits16((f16)(e)));                                \
    }
SCALAR_HALF1(s_ceil_f16, std::ceil(a))
SCALAR_HALF1(s_floor_f16, std::floor(a))
SCALAR_HALF1(s_trunc_f16, std::trunc(a))
SCALAR_HALF1(s_rndne_f16, std::nearbyint(a))
SCALAR_HALF2(s_add_f16, a + b)
SCALAR_HALF2(s_sub_f16, a - b)
SCALAR_HALF2(s_mul_f16, a * b)
SCALAR_HALF2(s_min_num_f16, least<false>(a, b))
SCALAR_HALF2(s_max_num_f16, most<false>(a, b))
SCALAR_HALF2(s_minimum_f16, minimum(a, b))
SCALAR_HALF2(s_maximum_f16, maximum(a, b))
MODEL(s_cvt_f32_f16) { set32(w, i.o[0], bits((float)half(s32(w, i.o[1])))); }
MODEL(s_cvt_hi_f32_f16) { set32(w, i.o[0], bits((float)half(s32(w, i.o[1]) >> 16))); }
MODEL(s_cvt_f16_f32) { set32(w, i.o[0], bits16((f16)f32(s32(w, i.o[1])))); }
MODEL(s_fmaak_f32) {
    set32(w, i.o[0], bits(std::fma(f32(s32(w, i.o[1])), f32(s32(w, i.o[2])), f32(s32(w, i.o[3])))));
}
ALSO(s_fmamk_f32, s_fmaak_f32)
SCALAR_FLOAT_COMPARE(lt, a < b)
SCALAR_FLOAT_COMPARE(eq, a == b)
SCALAR_FLOAT_COMPARE(le, a <= b)
SCALAR_FLOAT_COMPARE(gt, a > b)
SCALAR_FLOAT_COMPARE(ge, a >= b)
SCALAR_FLOAT_COMPARE(lg, a < b || a > b)
SCALAR_FLOAT_COMPARE(neq, !(a == b))
SCALAR_FLOAT_COMPARE(nlt, !(a < b))
SCALAR_FLOAT_COMPARE(nle, !(a <= b))
SCALAR_FLOAT_COMPARE(ngt, !(a > b))
SCALAR_FLOAT_COMPARE(nge, !(a >= b))
SCALAR_FLOAT_COMPARE(o, a == a && b == b)
SCALAR_FLOAT_COMPARE(u, a != a || b != b)
SCALAR_FLOAT_COMPARE(nlg, !(a < b || a > b))

// EXEC is saved, then narrowed.
#define SAVE64(n, e)                                    \
    MODEL(n) {                                          \
        const u64 a = s64(w, i, i.o[1]), x = w.exec();  \
        const u64 r = e;                                \
        set64(w, i.o[0], x);                            \
        w.set_pair(EXEC, r);                            \
        w.scc = r != 0;                                 \
    }
#define SAVE32(n, e)                                    \
    MODEL(n) {                                          \
        const u32 a = s32(w, i.o[1]), x = w.s[EXEC];    \
        const u32 r = e;                                \
        set32(w, i.o[0], x);                            \
        w.s[EXEC] = r;                                  \
        w.scc = r != 0;                                 \
    }
#define SAVES(n, e) \
    SAVE64(s_##n##_saveexec_b64, e) SAVE32(s_##n##_saveexec_b32, e)
SAVES(and, a & x)
SAVES(or, a | x)
SAVES(xor, a ^ x)
SAVES(andn2, a & ~x)
ALSO(s_and_not1_saveexec_b64, s_andn2_saveexec_b64)
ALSO(s_and_not1_saveexec_b32, s_andn2_saveexec_b32)
SAVES(andn1, ~a & x)
ALSO(s_and_not0_saveexec_b64, s_andn1_saveexec_b64)
ALSO(s_and_not0_saveexec_b32, s_andn1_saveexec_b32)
SAVES(orn2, a | ~x)
ALSO(s_or_not1_saveexec_b64, s_orn2_saveexec_b64)
ALSO(s_or_not1_saveexec_b32, s_orn2_saveexec_b32)
SAVES(orn1, ~a | x)
ALSO(s_or_not0_saveexec_b64, s_orn1_saveexec_b64)
ALSO(s_or_not0_saveexec_b32, s_orn1_saveexec_b32)
SAVES(nand, ~(a & x))
SAVES(nor, ~(a | x))
SAVES(xnor, ~(a ^ x))
// EXEC is narrowed, and the result is kept too.
#define WRITE_EXEC(n, e)                                \
    MODEL(s_##n##_wrexec_b64) {                         \
        const u64 a = s64(w, i, i.o[1]), x = w.exec();  \
        const u64 r = e;                                \
        set64(w, i.o[0], r);                            \
        w.set_pair(EXEC, r);                            \
        w.scc = r != 0;                                 \
    }                                                   \
    MODEL(s_##n##_wrexec_b32) {                         \
        const u32 a = s32(w, i.o[1]), x = w.s[EXEC];    \
        const u32 r = e;                                \
        set32(w, i.o[0], r);                            \
        w.s[EXEC] = r;                                  \
        w.scc = r != 0;                                 \
    }
WRITE_EXEC(andn2, a & ~x)
ALSO(s_and_not1_wrexec_b64, s_andn2_wrexec_b64)
ALSO(s_and_not1_wrexec_b32, s_andn2_wrexec_b32)
WRITE_EXEC(andn1, ~a & x)
ALSO(s_and_not0_wrexec_b64, s_andn1_wrexec_b64)
ALSO(s_and_not0_wrexec_b32, s_andn1_wrexec_b32)

// ---- flow: imm is the index of the target

MODEL(s_branch) { w.index = (u32)i.imm; }
#define BRANCH(n, condition) \
    MODEL(n) {               \
        if (condition) w.index = (u32)i.imm; \
    }
BRANCH(s_cbranch_scc0, !w.scc)
BRANCH(s_cbranch_scc1, w.scc)
BRANCH(s_cbranch_vccz, !w.vcc())
BRANCH(s_cbranch_vccnz, w.vcc())
BRANCH(s_cbranch_execz, !w.exec())
BRANCH(s_cbranch_execnz, w.exec())

static void jump(Wave& w, const Instruction& i, u64 address) {
    const Program& p = *w.machine->program;
    const u64 at = (address - w.machine->base - p.start) / 4;
    if (address % 4 || at >= p.at.size() || p.at[at] == ~0u)
        w.machine->stop(Finding::bad_jump, w, i.pc, 0, address, i.name);
    else w.index = p.at[at];
}
MODEL(s_getpc_b64) { set64(w, i.o[0], w.machine->base + i.next); }
MODEL(s_setpc_b64) { jump(w, i, s64(w, i, i.o[0])); }
MODEL(s_swappc_b64) {
    const u64 to = s64(w, i, i.o[1]);
    set64(w, i.o[0], w.machine->base + i.next);
    jump(w, i, to);
}
MODEL(s_call_b64) {
    set64(w, i.o[0], w.machine->base + i.next);
    w.index = (u32)i.imm;
}
MODEL(s_endpgm) { w.done = true; }
MODEL(s_barrier) { w.at_barrier = true; }
MODEL(s_barrier_wait) { w.at_barrier = true; }
MODEL(s_barrier_signal) {
    if (s32(w, i.o[0]) != ~0u) unmodelled(w, i);       // named barriers
}
MODEL(s_trap) { w.machine->stop(Finding::trap, w, i.pc, 0, (u32)i.imm, i.name); }
MODEL(s_sleep) { w.yields = true; }
MODEL(s_nop) {}
// Waits, caches and priorities: here memory is one, and every access is done when it is made.
#define NOTHING(n) ALSO(n, s_nop)
NOTHING(s_waitcnt)
NOTHING(s_waitcnt_depctr)
NOTHING(s_waitcnt_vscnt)
NOTHING(s_waitcnt_vmcnt)
NOTHING(s_waitcnt_lgkmcnt)
NOTHING(s_waitcnt_expcnt)
NOTHING(s_wait_alu)
NOTHING(s_wait_idle)
NOTHING(s_wait_event)
NOTHING(s_wait_loadcnt)
NOTHING(s_wait_storecnt)
NOTHING(s_wait_samplecnt)
NOTHING(s_wait_bvhcnt)
NOTHING(s_wait_expcnt)
NOTHING(s_wait_dscnt)
NOTHING(s_wait_kmcnt)
NOTHING(s_wait_loadcnt_dscnt)
NOTHING(s_wait_storecnt_dscnt)
NOTHING(s_setprio)
NOTHING(s_icache_inv)
NOTHING(s_dcache_inv)
NOTHING(s_dcache_wb)
NOTHING(s_inst_prefetch)
NOTHING(s_set_inst_prefetch_distance)
NOTHING(s_prefetch_inst)
NOTHING(s_prefetch_inst_pc_rel)
NOTHING(s_prefetch_data)
NOTHING(s_delay_alu)
NOTHING(s_clause)
NOTHING(buffer_wbl2)
NOTHING(buffer_inv)
NOTHING(buffer_wbinvl1)
NOTHING(buffer_wbinvl1_vol)
NOTHING(buffer_invl2)
NOTHING(buffer_gl0_inv)
NOTHING(buffer_gl1_inv)
NOTHING(global_wb)
NOTHING(global_wbinv)
NOTHING(global_inv)
NOTHING(v_nop)
NOTHING(ds_nop)

MODEL(s_sendmsg) {
    if ((i.imm & 15) != 3) unmodelled(w, i);           // 3: its registers are free again
}
static void clock_of(Wave& w, const Instruction& i) {
    set64(w, i.o[0], w.machine->executed + w.executed);
}
MODEL(s_memtime) { clock_of(w, i); }
MODEL(s_memrealtime) { clock_of(w, i); }

// The mode register alone; other hardware registers say where a wave runs, which is nowhere.
static bool mode_field(const Instruction& i, u32& offset, u32& mask) {
    offset = (u32)i.imm >> 6 & 31;
    mask = (u32)((2ull << ((u32)i.imm >> 11 & 31)) - 1);
    return (i.imm & 63) == 1;
}
MODEL(s_getreg_b32) {
    u32 offset, mask;
    if (mode_field(i, offset, mask)) set32(w, i.o[0], w.mode >> offset & mask);
    else unmodelled(w, i);
}
static void set_mode(Wave& w, const Instruction& i, u32 value) {
    u32 offset, mask;
    if ((i.imm & 63) == 26) return;                    // RDNA4: how waves are scheduled
    if (!mode_field(i, offset, mask)) return unmodelled(w, i);
    const u32 mode = (w.mode & ~(mask << offset)) | (value & mask) << offset;
    // Clamped NaNs, NaNs that signal, and what is too large for a half: as the launch has them.
    constexpr u32 fixed = 1u << 8 | 1u << 9 | 1u << 23;
    if ((mode ^ w.mode) & fixed) return mode_refused(w, i);
    w.mode = mode;
}
MODEL(s_setreg_imm32_b32) { set_mode(w, i, i.o[0].value); }
MODEL(s_setreg_b32) { set_mode(w, i, s32(w, i.o[0])); }
MODEL(s_round_mode) { w.mode = (w.mode & ~0xfu) | ((u32)i.imm & 15); }
MODEL(s_denorm_mode) { w.mode = (w.mode & ~0xf0u) | ((u32)i.imm & 15) << 4; }

// ---- loads

static void load(Wave& w, const Instruction& i, unsigned words) {
    const u64 base = s64(w, i, i.o[1]) & ~3ull;
    const u64 offset = i.o[2].kind == Kind::none ? 0 : s32(w, i.o[2]);
    const u64 address = (base + offset + (u64)(i64)i.imm) & ~3ull;
    const u8* from = global_at(w, i, address, 4 * words, false, 0);
    if (from) memcpy(&w.s[i.o[0].reg], from, 4 * words);
    else memset(&w.s[i.o[0].reg], 0, 4 * words);
}
static void buffer_load(Wave& w, const Instruction& i, unsigned words) {
    const u64 base = w.pair(i.o[1].reg) & 0xffffffffffffull;
    const u32 records = w.s[i.o[1].reg + 2];
    const u32 offset = (i.o[2].kind == Kind::none ? 0 : s32(w, i.o[2])) + (u32)i.imm;
    for (unsigned k = 0; k < words; ++k) {
        u32 x = 0;
        if ((u64)offset + 4 * k + 4 <= records)
            if (const u8* from = global_at(w, i, base + offset + 4 * k, 4, false, 0))
                memcpy(&x, from, 4);
        w.s[i.o[0].reg + k] = x;
    }
}
#define LOADS(cdna, rdna, words)                                       \
    MODEL(s_load_##cdna) { load(w, i, words); }                        \
    ALSO(s_load_##rdna, s_load_##cdna)                                 \
    MODEL(s_buffer_load_##cdna) { buffer_load(w, i, words); }          \
    ALSO(s_buffer_load_##rdna, s_buffer_load_##cdna)
LOADS(dword, b32, 1)
LOADS(dwordx2, b64, 2)
MODEL(s_load_b96) { load(w, i, 3); }
LOADS(dwordx4, b128, 4)
LOADS(dwordx8, b256, 8)
LOADS(dwordx16, b512, 16)
template <class T> static void load_part(Wave& w, const Instruction& i) {
    const u64 offset = i.o[2].kind == Kind::none ? 0 : s32(w, i.o[2]);
    const u64 address = s64(w, i, i.o[1]) + offset + (u64)(i64)i.imm;
    T x = 0;
    if (const u8* from = global_at(w, i, address, sizeof x, false, 0)) memcpy(&x, from, sizeof x);
    set32(w, i.o[0], (u32)(i32)x);
}
MODEL(s_load_u8) { load_part<u8>(w, i); }
MODEL(s_load_i8) { load_part<i8>(w, i); }
MODEL(s_load_u16) { load_part<u16>(w, i); }
MODEL(s_load_i16) { load_part<i16>(w, i); }

}  // namespace isa
