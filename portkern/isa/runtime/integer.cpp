// Vector integers, moves, masks and carries.
#include "lanes.h"

namespace isa {

UNARY(v_mov_b32, u32, u32, a)
UNARY(v_mov_b16, u16, u16, a)
UNARY(v_mov_b64, u64, u64, a)
UNARY(v_not_b32, u32, u32, ~a)
UNARY(v_not_b16, u16, u16, (u16)~a)
UNARY(v_accvgpr_read_b32, u32, u32, a)
ALSO(v_accvgpr_read, v_accvgpr_read_b32)
UNARY(v_accvgpr_write_b32, u32, u32, a)
ALSO(v_accvgpr_write, v_accvgpr_write_b32)
UNARY(v_accvgpr_mov_b32, u32, u32, a)

static u32 reversed(u32 x) {
    x = (x & 0x55555555) << 1 | (x >> 1 & 0x55555555);
    x = (x & 0x33333333) << 2 | (x >> 2 & 0x33333333);
    x = (x & 0x0f0f0f0f) << 4 | (x >> 4 & 0x0f0f0f0f);
    return __builtin_bswap32(x);
}
UNARY(v_bfrev_b32, u32, u32, reversed(a))
UNARY(v_ffbh_u32, u32, u32, a ? (u32)__builtin_clz(a) : ~0u)
ALSO(v_clz_i32_u32, v_ffbh_u32)
UNARY(v_ffbl_b32, u32, u32, a ? (u32)__builtin_ctz(a) : ~0u)
ALSO(v_ctz_i32_b32, v_ffbl_b32)
UNARY(v_ffbh_i32, u32, i32, a == 0 || a == -1 ? ~0u : (u32)__builtin_clz((u32)(a < 0 ? ~a : a)))
ALSO(v_cls_i32, v_ffbh_i32)

// Clamped integers saturate.
template <class A, class F, class G>
static void saturating(Wave& w, const Instruction& i, F wraps, G saturates) {
    if (i.flags & CLAMP) binary<u32, A, A>(w, i, saturates);
    else binary<u32, A, A>(w, i, wraps);
}
static u32 within(i64 x) {
    return (u32)(x > 0x7fffffffll ? 0x7fffffffll : x < -0x80000000ll ? -0x80000000ll : x);
}
#define SATURATING(n, e, s)                                   \
    MODEL(n) {                                                \
        saturating<u32>(                                      \
            w, i, [](u32 a, u32 b) -> u32 { return e; },      \
            [](u32 a, u32 b) -> u32 { return s; });           \
    }
SATURATING(v_add_u32, a + b, a + b < a ? ~0u : a + b)
ALSO(v_add_nc_u32, v_add_u32)
SATURATING(v_sub_u32, a - b, a < b ? 0u : a - b)
ALSO(v_sub_nc_u32, v_sub_u32)
SATURATING(v_subrev_u32, b - a, b < a ? 0u : b - a)
ALSO(v_subrev_nc_u32, v_subrev_u32)
SATURATING(v_add_i32, a + b, within((i64)(i32)a + (i32)b))
ALSO(v_add_nc_i32, v_add_i32)
SATURATING(v_sub_i32, a - b, within((i64)(i32)a - (i32)b))
ALSO(v_sub_nc_i32, v_sub_i32)

BINARY(v_and_b32, u32, u32, u32, a & b)
BINARY(v_or_b32, u32, u32, u32, a | b)
BINARY(v_xor_b32, u32, u32, u32, a ^ b)
BINARY(v_xnor_b32, u32, u32, u32, ~(a ^ b))
BINARY(v_and_b16, u16, u16, u16, (u16)(a & b))
BINARY(v_or_b16, u16, u16, u16, (u16)(a | b))
BINARY(v_xor_b16, u16, u16, u16, (u16)(a ^ b))
BINARY(v_lshlrev_b32, u32, u32, u32, b << (a & 31))
BINARY(v_lshrrev_b32, u32, u32, u32, b >> (a & 31))
BINARY(v_ashrrev_i32, u32, u32, i32, (u32)(b >> (a & 31)))
BINARY(v_lshlrev_b64, u64, u32, u64, b << (a & 63))
BINARY(v_lshrrev_b64, u64, u32, u64, b >> (a & 63))
BINARY(v_ashrrev_i64, u64, u32, i64, (u64)(b >> (a & 63)))
BINARY(v_mul_lo_u32, u32, u32, u32, a * b)
BINARY(v_mul_hi_u32, u32, u32, u32, (u32)(((u64)a * b) >> 32))
BINARY(v_mul_hi_i32, u32, i32, i32, (u32)(((i64)a * b) >> 32))
static u32 u24(u32 x) { return x & 0xffffff; }
static i32 i24(u32 x) { return (i32)(x << 8) >> 8; }
BINARY(v_mul_u32_u24, u32, u32, u32, u24(a) * u24(b))
BINARY(v_mul_i32_i24, u32, u32, u32, (u32)i24(a) * (u32)i24(b))
BINARY(v_mul_hi_u32_u24, u32, u32, u32, (u32)(((u64)u24(a) * u24(b)) >> 32))
BINARY(v_mul_hi_i32_i24, u32, u32, u32, (u32)(((i64)i24(a) * i24(b)) >> 32))
TERNARY(v_mad_u32_u24, u32, u32, u32, u32, u24(a) * u24(b) + c)
TERNARY(v_mad_i32_i24, u32, u32, u32, u32, (u32)i24(a) * (u32)i24(b) + c)

template <class T> static T least(T a, T b) { return a < b ? a : b; }
template <class T> static T most(T a, T b) { return a > b ? a : b; }
template <class T> static T middle(T a, T b, T c) {
    return most(least(a, b), least(most(a, b), c));
}
#define EXTREMES(suffix, T)                                               \
    BINARY(v_min_##suffix, T, T, T, least(a, b))                          \
    BINARY(v_max_##suffix, T, T, T, most(a, b))                           \
    TERNARY(v_min3_##suffix, T, T, T, T, least(least(a, b), c))           \
    TERNARY(v_max3_##suffix, T, T, T, T, most(most(a, b), c))             \
    TERNARY(v_med3_##suffix, T, T, T, T, middle(a, b, c))
EXTREMES(u32, u32)
EXTREMES(i32, i32)
EXTREMES(u16, u16)
EXTREMES(i16, i16)
TERNARY(v_maxmin_i32, i32, i32, i32, i32, least(most(a, b), c))
TERNARY(v_minmax_i32, i32, i32, i32, i32, most(least(a, b), c))
TERNARY(v_maxmin_u32, u32, u32, u32, u32, least(most(a, b), c))
TERNARY(v_minmax_u32, u32, u32, u32, u32, most(least(a, b), c))

TERNARY(v_lshl_add_u32, u32, u32, u32, u32, (a << (b & 31)) + c)
TERNARY(v_add_lshl_u32, u32, u32, u32, u32, (a + b) << (c & 31))
TERNARY(v_lshl_or_b32, u32, u32, u32, u32, (a << (b & 31)) | c)
TERNARY(v_and_or_b32, u32, u32, u32, u32, (a & b) | c)
TERNARY(v_or3_b32, u32, u32, u32, u32, a | b | c)
TERNARY(v_add3_u32, u32, u32, u32, u32, a + b + c)
TERNARY(v_xad_u32, u32, u32, u32, u32, (a ^ b) + c)
TERNARY(v_xor3_b32, u32, u32, u32, u32, a ^ b ^ c)
TERNARY(v_lshl_add_u64, u64, u64, u32, u64, (a << (b & 7)) + c)
TERNARY(v_bfe_u32, u32, u32, u32, u32,
        (c & 31) == 0 ? 0u : (a >> (b & 31)) & (0xffffffffu >> (32 - (c & 31))))
static u32 signed_field(u32 a, u32 b, u32 c) {
    const u32 offset = b & 31, n = c & 31;
    if (n == 0) return 0;
    if (n + offset >= 32) return (u32)((i32)a >> offset);
    return (u32)((i32)(a << (32 - offset - n)) >> (32 - n));
}
TERNARY(v_bfe_i32, u32, u32, u32, u32, signed_field(a, b, c))
TERNARY(v_bfi_b32, u32, u32, u32, u32, (a & b) | (~a & c))
BINARY(v_bfm_b32, u32, u32, u32, ((1u << (a & 31)) - 1) << (b & 31))
TERNARY(v_alignbit_b32, u32, u32, u32, u32, (u32)(((u64)a << 32 | b) >> (c & 31)))
TERNARY(v_alignbyte_b32, u32, u32, u32, u32, (u32)(((u64)a << 32 | b) >> (8 * (c & 3))))
static u32 permuted(u32 a, u32 b, u32 c) {
    const u64 x = (u64)a << 32 | b;
    u32 r = 0;
    for (int k = 0; k < 4; ++k) {
        const u32 s = c >> 8 * k & 255;
        const u64 sign = s >= 8 && s < 12 ? x >> (16 * (s - 8) + 15) & 1 : 0;
        const u32 byte = s < 8 ? x >> 8 * s & 255 : s < 12 ? (sign ? 255 : 0) : s == 12 ? 0 : 255;
        r |= byte << 8 * k;
    }
    return r;
}
TERNARY(v_perm_b32, u32, u32, u32, u32, permuted(a, b, c))
// Any function of three bits: its table lies where other instructions have modifiers.
template <class T> void by_table(Wave& w, const Instruction& i) {
    Instruction plain = i;
    u32 table = (u32)i.omod << 6;
    for (int k = 0; k < 3; ++k) {
        table |= (u32)i.o[k + 1].abs << (3 + k) | (u32)i.o[k + 1].neg << k;
        plain.o[k + 1].abs = plain.o[k + 1].neg = false;
    }
    plain.omod = 0;
    ternary<T, T, T, T>(w, plain, [table](T a, T b, T c) {
        T r = 0;
        for (u32 k = 0; k < 8; ++k)
            if (table >> k & 1)
                r |= (T)((k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c));
        return r;
    });
}
MODEL(v_bitop3_b32) { by_table<u32>(w, i); }
MODEL(v_bitop3_b16) { by_table<u16>(w, i); }
BINARY(v_bcnt_u32_b32, u32, u32, u32, (u32)__builtin_popcount(a) + b)
TERNARY(v_sad_u32, u32, u32, u32, u32, (a > b ? a - b : b - a) + c)
static u32 differences(u32 a, u32 b) {
    u32 r = 0;
    for (int k = 0; k < 32; k += 8) {
        const u32 x = a >> k & 255, y = b >> k & 255;
        r += x > y ? x - y : y - x;
    }
    return r;
}
TERNARY(v_sad_u8, u32, u32, u32, u32, differences(a, b) + c)
TERNARY(v_sad_hi_u8, u32, u32, u32, u32, (differences(a, b) << 16) + c)
static u32 apart(u32 x, u32 y) { return x > y ? x - y : y - x; }
TERNARY(v_sad_u16, u32, u32, u32, u32,
        apart(a & 0xffff, b & 0xffff) + apart(a >> 16, b >> 16) + c)
// Of bytes that the second source has zeros for there is no difference.
static u32 masked_differences(u32 a, u32 b) {
    u32 r = 0;
    for (int k = 0; k < 32; k += 8)
        if (b >> k & 255) r += apart(a >> k & 255, b >> k & 255);
    return r;
}
TERNARY(v_msad_u8, u32, u32, u32, u32, masked_differences(a, b) + c)
static u32 averages(u32 a, u32 b, u32 c) {
    u32 r = 0;
    for (int k = 0; k < 32; k += 8)
        r |= ((a >> k & 255) + (b >> k & 255) + (c >> k & 1)) / 2 << k;
    return r;
}
TERNARY(v_lerp_u8, u32, u32, u32, u32, averages(a, b, c))

// Lanes below this one, of a mask.
static void below(Wave& w, const Instruction& i, int from) {
    BUFFER t[LANES], u[LANES];
    const Source a = fetch<u32>(w, i, 1, t), b = fetch<u32>(w, i, 2, u);
    lanes<u32>(w, i, [&](int l) {
        const int n = l - from;
        const u32 mask = n <= 0 ? 0 : n >= 32 ? ~0u : (1u << n) - 1;
        return (u32)__builtin_popcount(a.low[l] & mask) + b.low[l];
    });
}
MODEL(v_mbcnt_lo_u32_b32) { below(w, i, 0); }
MODEL(v_mbcnt_hi_u32_b32) { below(w, i, 32); }

// Result, carry out, two sources, and perhaps a carry in.
template <class F> static void carried(Wave& w, const Instruction& i, bool in, F f) {
    BUFFER t[2 * LANES], u[2 * LANES];
    const Source a = fetch<u32>(w, i, 2, t), b = fetch<u32>(w, i, 3, u);
    const u64 c = in ? mask_of(w, i, i.o[4]) : 0, m = written(w, i);
    alignas(64) u8 carry[LANES];
    BUFFER d[LANES];
    for (int l = 0; l < LANES; ++l) {
        const u64 x = f((u64)a.low[l], (u64)b.low[l], c >> l & 1);
        d[l] = (u32)x;
        carry[l] = x >> 32 & 1;
    }
    if (i.flags & CLAMP) return unmodelled(w, i);
    u32* to = w.v[i.o[0].reg];
    for (int l = 0; l < LANES; ++l)
        if (m >> l & 1) to[l] = d[l];
    set_mask(w, i.o[1], packed(carry) & m);
}
#define CARRY(n, in, e) \
    MODEL(n) { carried(w, i, in, [](u64 a, u64 b, [[maybe_unused]] u64 c) -> u64 { return e; }); }
CARRY(v_add_co_u32, false, a + b)
CARRY(v_sub_co_u32, false, a - b)
CARRY(v_subrev_co_u32, false, b - a)
CARRY(v_addc_co_u32, true, a + b + c)
ALSO(v_add_co_ci_u32, v_addc_co_u32)
CARRY(v_subb_co_u32, true, a - b - c)
ALSO(v_sub_co_ci_u32, v_subb_co_u32)
CARRY(v_subbrev_co_u32, true, b - a - c)
ALSO(v_subrev_co_ci_u32, v_subbrev_co_u32)
MODEL(v_mad_u64_u32) {
    BUFFER t[LANES], u[LANES], x[2 * LANES];
    const Source a = fetch<u32>(w, i, 2, t), b = fetch<u32>(w, i, 3, u), c = fetch<u64>(w, i, 4, x);
    u64 carry = 0;
    for (int l = 0; l < LANES; ++l) {
        const u64 p = (u64)a.low[l] * b.low[l];
        carry |= (u64)(p + get<u64>(c, l) < p) << l;
    }
    const u64 m = w.exec();
    lanes<u64>(w, i, [&](int l) { return (u64)a.low[l] * b.low[l] + get<u64>(c, l); });
    set_mask(w, i.o[1], carry & m);
}
ALSO(v_mad_co_u64_u32, v_mad_u64_u32)
MODEL(v_mad_i64_i32) {
    BUFFER t[LANES], u[LANES], x[2 * LANES];
    const Source a = fetch<u32>(w, i, 2, t), b = fetch<u32>(w, i, 3, u), c = fetch<u64>(w, i, 4, x);
    u64 carry = 0;
    for (int l = 0; l < LANES; ++l) {
        const i64 p = (i64)(i32)a.low[l] * (i32)b.low[l], q = (i64)get<u64>(c, l);
        i64 sum;
        carry |= (u64)__builtin_add_overflow(p, q, &sum) << l;
    }
    const u64 m = w.exec();
    lanes<u64>(w, i, [&](int l) {
        return (u64)((i64)(i32)a.low[l] * (i32)b.low[l]) + get<u64>(c, l);
    });
    set_mask(w, i.o[1], carry & m);
}
ALSO(v_mad_co_i64_i32, v_mad_i64_i32)

template <class T> static void chosen(Wave& w, const Instruction& i) {
    BUFFER t[LANES], u[LANES], c[LANES];
    const Source a = fetch<T>(w, i, 1, t), b = fetch<T>(w, i, 2, u);
    expand(mask_of(w, i, i.o[3]), c);
    lanes<T>(w, i, [&](int l) { return c[l] ? get<T>(b, l) : get<T>(a, l); });
}
MODEL(v_cndmask_b32) { chosen<u32>(w, i); }
MODEL(v_cndmask_b16) { chosen<u16>(w, i); }

MODEL(v_readfirstlane_b32) {
    const u64 e = w.exec();
    const int lane = e ? __builtin_ctzll(e) : 0;
    set32(w, i.o[0], i.o[1].kind == Kind::vector ? w.v[i.o[1].reg][lane] : s32(w, i.o[1]));
}
MODEL(v_readlane_b32) {
    set32(w, i.o[0], w.v[i.o[1].reg][s32(w, i.o[2]) & (w.size - 1)]);
}
MODEL(v_writelane_b32) { w.v[i.o[0].reg][s32(w, i.o[2]) & (w.size - 1)] = s32(w, i.o[1]); }

// Each lane of a row of 16 picks one by four bits of two scalars; `other`: in the row beside it.
static void permlane(Wave& w, const Instruction& i, int other) {
    const u32* from = w.v[i.o[1].reg];
    const u32 low = s32(w, i.o[2]), high = s32(w, i.o[3]);
    const bool inactive = i.opsel & 1, zero = i.opsel & 2;
    const u64 e = w.exec();
    BUFFER r[LANES];
    for (int l = 0; l < LANES; ++l) {
        const int k = l & 15, pick = (k < 8 ? low >> 4 * k : high >> 4 * (k - 8)) & 15;
        const int s = ((l & ~15) ^ other) | pick;
        const bool on = inactive || e >> s & 1;
        r[l] = on ? from[s] : zero ? 0 : w.v[i.o[0].reg][l];
    }
    lanes<u32>(w, i, [&](int l) { return r[l]; });
}
MODEL(v_permlane16_b32) { permlane(w, i, 0); }
MODEL(v_permlanex16_b32) { permlane(w, i, 16); }
MODEL(v_permlane64_b32) {
    if (w.size == 32) return;
    BUFFER r[LANES];
    for (int l = 0; l < LANES; ++l) r[l] = w.v[i.o[1].reg][l ^ 32];
    lanes<u32>(w, i, [&](int l) { return r[l]; });
}
// Odd rows of the first and even rows of the second change places.
static void rows_swapped(Wave& w, const Instruction& i, int row) {
    u32 *a = w.v[i.o[0].reg], *b = w.v[i.o[1].reg];
    const u64 e = w.exec();
    for (int l = 0; l < LANES; ++l)
        if (l & row && (e >> l & 1) && (e >> (l ^ row) & 1)) std::swap(a[l], b[l ^ row]);
}
MODEL(v_permlane16_swap_b32) { rows_swapped(w, i, 16); }
MODEL(v_permlane32_swap_b32) { rows_swapped(w, i, 32); }
MODEL(v_swap_b32) {
    u32 *a = w.v[i.o[0].reg], *b = w.v[i.o[1].reg];
    const u64 e = w.exec();
    for (int l = 0; l < LANES; ++l)
        if (e >> l & 1) std::swap(a[l], b[l]);
}
static bool names_register(Wave& w, const Instruction& i, u32 reg) {
    if (reg < w.machine->vectors) return true;
    unmodelled(w, i);
    return false;
}
MODEL(v_movrels_b32) {
    const u32 reg = i.o[1].reg + w.s[M0];
    if (!names_register(w, i, reg)) return;
    const u32* from = w.v[reg];
    lanes<u32>(w, i, [&](int l) { return from[l]; });
}
MODEL(v_movreld_b32) {
    Instruction to = i;
    to.o[0].reg = (u16)(i.o[0].reg + w.s[M0]);
    if (names_register(w, i, i.o[0].reg + w.s[M0])) unary<u32, u32>(w, to, [](u32 a) { return a; });
}
MODEL(v_pk_mov_b32) {
    BUFFER t[2 * LANES], u[2 * LANES];
    const Source a = fetch<u64>(w, i, 1, t), b = fetch<u64>(w, i, 2, u);
    const u32 *x = i.opsel & 1 ? a.high : a.low, *y = i.opsel & 2 ? b.high : b.low;
    lanes<u64>(w, i, [&](int l) { return (u64)y[l] << 32 | x[l]; });
}

// 16 bits
BINARY(v_add_u16, u16, u16, u16, (u16)(a + b))
ALSO(v_add_nc_u16, v_add_u16)
BINARY(v_sub_u16, u16, u16, u16, (u16)(a - b))
ALSO(v_sub_nc_u16, v_sub_u16)
BINARY(v_add_i16, u16, u16, u16, (u16)(a + b))
ALSO(v_add_nc_i16, v_add_i16)
BINARY(v_sub_i16, u16, u16, u16, (u16)(a - b))
ALSO(v_sub_nc_i16, v_sub_i16)
BINARY(v_subrev_u16, u16, u16, u16, (u16)(b - a))
BINARY(v_mul_lo_u16, u16, u16, u16, (u16)((u32)a * b))
BINARY(v_lshlrev_b16, u16, u16, u16, (u16)(b << (a & 15)))
BINARY(v_lshrrev_b16, u16, u16, u16, (u16)(b >> (a & 15)))
BINARY(v_ashrrev_i16, u16, u16, i16, (u16)(b >> (a & 15)))
TERNARY(v_mad_u16, u16, u16, u16, u16, (u16)((u32)a * b + c))
ALSO(v_mad_legacy_u16, v_mad_u16)
TERNARY(v_mad_i16, u16, u16, u16, u16, (u16)((u32)a * b + c))
TERNARY(v_mad_u32_u16, u32, u16, u16, u32, (u32)a * b + c)
TERNARY(v_mad_i32_i16, u32, i16, i16, u32, (u32)((i32)a * b) + c)
UNARY(v_sat_pk_u8_i16, u16, u32, ({
          const i32 x = (i16)a, y = (i16)(a >> 16);
          (u16)((x < 0 ? 0 : x > 255 ? 255 : x) | (y < 0 ? 0 : y > 255 ? 255 : y) << 8);
      }))

#define INTEGER_COMPARES(t, T)       \
    COMPARE(lt_##t, T, T, a < b)     \
    COMPARE(le_##t, T, T, a <= b)    \
    COMPARE(gt_##t, T, T, a > b)     \
    COMPARE(ge_##t, T, T, a >= b)    \
    COMPARE(eq_##t, T, T, a == b)    \
    COMPARE(ne_##t, T, T, a != b)    \
    COMPARE(f_##t, T, T, ((void)a, (void)b, false)) \
    COMPARE(t_##t, T, T, ((void)a, (void)b, true))
INTEGER_COMPARES(i32, i32)
INTEGER_COMPARES(u32, u32)
INTEGER_COMPARES(i64, i64)
INTEGER_COMPARES(u64, u64)
INTEGER_COMPARES(i16, i16)
INTEGER_COMPARES(u16, u16)

}  // namespace isa
