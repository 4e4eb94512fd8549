// Operands of vector instructions, and the loops over lanes.
#pragma once
#include <immintrin.h>

#include <type_traits>

#include "wave.h"

namespace isa {

#define MODEL(name)                                              \
    static void model_##name(Wave& w, const Instruction& i);     \
    static const Registered registered_##name(#name, model_##name); \
    static void model_##name([[maybe_unused]] Wave& w, [[maybe_unused]] const Instruction& i)
// Another family's name of the same instruction.
#define ALSO(other, name) static const Registered registered_##other(#other, model_##name);

// ---- scalar operands

inline u64 widened(const Instruction& i, const Operand& o, bool real) {
    if (o.constant == Constant::floating)
        return o.value == 0x3e22f983 ? 0x3fc45f306dc9c882ull : as<u64>((double)f32(o.value));
    if (o.constant == Constant::integer) return (u64)(i64)(i32)o.value;
    if (real) return (u64)o.value << 32;
    return i.flags & SIGNED_LITERAL ? (u64)(i64)(i32)o.value : o.value;
}

inline u32 status(const Wave& w, const Operand& o) {
    return o.reg == 253 ? w.scc : o.reg == 251 ? !w.vcc() : !w.exec();
}

inline u32 s32(const Wave& w, const Operand& o) {
    if (o.kind == Kind::scalar) return w.s[o.reg];
    return o.kind == Kind::status ? status(w, o) : o.value;
}

inline u64 s64(const Wave& w, const Instruction& i, const Operand& o, bool real = false) {
    if (o.kind == Kind::scalar) return w.pair(o.reg);
    return o.kind == Kind::status ? status(w, o) : widened(i, o, real);
}

inline void set32(Wave& w, const Operand& o, u32 x) {
    w.s[o.reg] = x;
}

inline void set64(Wave& w, const Operand& o, u64 x) {
    w.set_pair(o.reg, x);
}

// Masks of lanes are one register in waves of 32.
inline void set_mask(Wave& w, const Operand& o, u64 x) {
    if (o.count == 1) w.s[o.reg] = (u32)x;
    else w.set_pair(o.reg, x);
}

inline u64 mask_of(const Wave& w, const Instruction& i, const Operand& o) {
    if (o.kind == Kind::scalar && o.count == 1) return w.s[o.reg];
    return s64(w, i, o);
}

// ---- lanes that others read

// The lane that lane l reads, and whether there is one.
inline int dpp_lane(int l, const Instruction& i, bool& valid) {
    const u32 c = i.dpp;
    const int row = l & ~15, k = l & 15, n = c & 15;
    valid = true;
    if (i.flags & DPP8) return (l & ~7) | (c >> 3 * (l & 7) & 7);
    if (c < 0x100) return (l & ~3) | (c >> 2 * (l & 3) & 3);
    switch (c & 0x1f0) {
    case 0x100: valid = k + n < 16; return row | ((k + n) & 15);
    case 0x110: valid = k >= n; return row | ((k - n) & 15);
    case 0x120: return row | ((k - n) & 15);
    case 0x150: return row | n;
    case 0x160: return row | (k ^ n);
    }
    switch (c) {
    case 0x130: valid = l < 63; return (l + 1) & 63;
    case 0x134: return (l + 1) & 63;
    case 0x138: valid = l > 0; return (l - 1) & 63;
    case 0x13c: return (l - 1) & 63;
    case 0x140: return row | (15 - k);
    case 0x141: return (l & ~7) | (7 - (l & 7));
    case 0x142: valid = l >= 16; return row ? row - 1 : 0;
    case 0x143: valid = l >= 32; return 31;
    }
    valid = false;
    return l;
}

// The lanes that all lanes read, and which of them are there: the same for each control.
struct Moves {
    alignas(64) i32 from[LANES];
    u64 valid = 0;

    Moves() = default;
    explicit Moves(const Instruction& i) {
        for (int l = 0; l < LANES; ++l) {
            bool there;
            from[l] = dpp_lane(l, i, there);
            valid |= (u64)there << l;
        }
    }
    // A bit for each lane: that of the lane it reads.
    u64 of(u64 bits) const {
        if (bits == ~0ull) return bits;
        u64 r = 0;
        for (int l = 0; l < LANES; ++l) r |= (bits >> from[l] & 1) << l;
        return r;
    }
};

inline const Moves& moves_of(const Instruction& i) {
    static thread_local Moves last;
    static thread_local u64 key = ~0ull;
    static const std::vector<Moves> known = [] {
        std::vector<Moves> all;
        Instruction each;
        for (each.dpp = 0; each.dpp < 512; ++each.dpp) all.emplace_back(each);
        return all;
    }();
    if (!(i.flags & DPP8)) return known[i.dpp & 511];
    if (key != i.dpp) last = Moves(i), key = i.dpp;
    return last;
}

// Lanes that are read: off ones are not there.
inline u64 readable(const Wave& w, const Instruction& i, const Moves& moves) {
    return i.flags & FETCH_INACTIVE ? ~0ull : moves.of(w.exec());
}

// Lanes that are written: EXEC, and what DPP's masks and bounds leave of it.
inline u64 written(const Wave& w, const Instruction& i) {
    u64 m = w.exec();
    if (__builtin_expect(!(i.flags & DPP), 1)) return m;
    const Moves& moves = moves_of(i);
    if (!(i.flags & BOUND_ZERO))
        m &= moves.valid & (i.flags & DPP8 ? ~0ull : readable(w, i, moves));
    const u64 banks = i.bank_mask * 0x1111111111111111ull;
    if (i.row_mask != 15 || i.bank_mask != 15)
        for (int l = 0; l < LANES; ++l)
            if (!(i.row_mask >> (l >> 4) & 1) || !(banks >> (l >> 2) & 1)) m &= ~(1ull << l);
    return m;
}

inline void read_lanes(const Wave& w, const Instruction& i, const u32* from, u32* to) {
    const Moves& moves = moves_of(i);
    const u64 there = moves.valid & readable(w, i, moves);
    for (int l = 0; l < LANES; l += 8)
        _mm256_store_si256((__m256i*)(to + l),
                           _mm256_i32gather_epi32((const int*)from,
                                                  *(const __m256i*)(moves.from + l), 4));
    if (there != ~0ull)
        for (int l = 0; l < LANES; ++l) to[l] = there >> l & 1 ? to[l] : 0;
}

inline void take_part(u32* t, const Operand& o) {
    for (int l = 0; l < LANES; ++l) {
        u32 x = t[l];
        if (o.part < 4) {
            x = x >> (8 * o.part) & 255;
            if (o.sext) x = (u32)(i32)(i8)x;
        } else if (o.part < 6) {
            x = x >> (16 * (o.part - 4)) & 0xffff;
            if (o.sext) x = (u32)(i32)(i16)x;
        }
        t[l] = x;
    }
}

// ---- vector operands

#define BUFFER alignas(64) u32

struct Source {
    const u32 *low, *high;
};

inline void fill(u32* t, u32 x) {
    for (int l = 0; l < LANES; ++l) t[l] = x;
}

inline void raw(const Wave& w, const Instruction& i, const Operand& o, u32* t) {
    if (o.kind != Kind::vector) fill(t, s32(w, o));
    else if (o.dpp) read_lanes(w, i, w.v[o.reg], t);
    else memcpy(t, w.v[o.reg], 4 * LANES);
    if (o.part < 6) take_part(t, o);
}

inline void signs(u32* t, const Operand& o, u32 sign) {
    if (o.abs)
        for (int l = 0; l < LANES; ++l) t[l] &= ~sign;
    if (o.neg)
        for (int l = 0; l < LANES; ++l) t[l] ^= sign;
}

// 16-bit operands: op_sel says which half; a floating constant becomes one of 16 bits.
inline Source fetch16(const Wave& w, const Instruction& i, int k, u32* t, bool real) {
    const Operand& o = i.o[k];
    if (o.kind == Kind::constant && o.constant == Constant::floating && real)
        fill(t, bits16((f16)f32(o.value)));
    else raw(w, i, o, t);
    const bool high = i.opsel >> (k - 1) & 1 && o.kind != Kind::constant;
    for (int l = 0; l < LANES; ++l) t[l] = (high ? t[l] >> 16 : t[l]) & 0xffff;
    signs(t, o, 0x8000);
    return {t, nullptr};
}

template <class T> inline Source fetch(const Wave& w, const Instruction& i, int k, u32* t) {
    const Operand& o = i.o[k];
    if constexpr (sizeof(T) == 2) {
        return fetch16(w, i, k, t, std::is_same_v<T, f16>);
    } else if constexpr (sizeof(T) == 4) {
        if (o.kind == Kind::vector && o.plain()) return {w.v[o.reg], nullptr};
        raw(w, i, o, t);
        signs(t, o, 0x80000000);
        return {t, nullptr};
    } else {
        if (o.kind == Kind::vector && o.plain()) return {w.v[o.reg], w.v[o.reg + 1]};
        if (o.kind == Kind::vector) {
            for (int h = 0; h < 2; ++h) {
                if (o.dpp) read_lanes(w, i, w.v[o.reg + h], t + h * LANES);
                else memcpy(t + h * LANES, w.v[o.reg + h], 4 * LANES);
            }
        } else {
            const u64 x = s64(w, i, o, std::is_same_v<T, double>);
            fill(t, (u32)x);
            fill(t + LANES, (u32)(x >> 32));
        }
        signs(t + LANES, o, 0x80000000);
        return {t, t + LANES};
    }
}

template <class T> inline T get(const Source& s, int l) {
    if constexpr (sizeof(T) == 2) return as<T>((u16)s.low[l]);
    else if constexpr (sizeof(T) == 4) return as<T>(s.low[l]);
    else return as<T>((u64)s.high[l] << 32 | s.low[l]);
}

inline void expand(u64 m, u32* e) {
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    for (int l = 0; l < LANES; l += 8) {
        const __m256i on = _mm256_and_si256(_mm256_set1_epi32((int)(m >> l & 255)), bit);
        _mm256_storeu_si256((__m256i*)(e + l), _mm256_cmpeq_epi32(on, bit));
    }
}

inline u64 packed(const u8* b) {
    u64 r = 0;
    for (int c = 0; c < 4; ++c) {
        const __m128i x = _mm_load_si128((const __m128i*)(b + 16 * c));
        r |= (u64)(u16)_mm_movemask_epi8(_mm_cmpgt_epi8(x, _mm_setzero_si128())) << (16 * c);
    }
    return r;
}

template <class T> inline T clamped(T x) { return x > (T)0 ? (x < (T)1 ? x : (T)1) : (T)0; }

// Scales of results (mul:2 and the like) are ignored where results may be denormals; where they may
// not, modes.cpp has them.
template <class T> inline T limited(T x, const Instruction& i) {
    return i.flags & CLAMP ? clamped(x) : x;
}

// Parts of a destination: SDWA's, a half by op_sel, or RDNA's lower half.
template <class D, class F> inline void write_part(Wave& w, const Instruction& i, u64 m, F f) {
    u32* d = w.v[i.o[0].reg];
    const bool sdwa = i.flags & SDWA, high = !sdwa && i.opsel >> 3 & 1;
    const int part = sdwa ? i.dst_part : high ? 5 : i.flags & KEEP_HALF ? 4 : 6;
    const bool keeps = !sdwa || i.flags & KEEP_UNUSED;
    const u32 width = part < 4 ? 0xff : part < 6 ? 0xffff : ~0u;
    const int shift = part < 4 ? 8 * part : part < 6 ? 16 * (part - 4) : 0;
    for (int l = 0; l < LANES; ++l) {
        if (!(m >> l & 1)) continue;
        D value = f(l);
        if constexpr (std::is_floating_point_v<D> || std::is_same_v<D, f16>)
            value = limited(value, i);
        u32 r;
        if constexpr (sizeof(D) == 2) r = as<u16>(value);
        else r = as<u32>(value);
        if (sdwa && i.flags & SIGNED_UNUSED && r & (width >> 1) + 1) r |= ~width;
        else r &= width;
        d[l] = (keeps ? d[l] & ~(width << shift) : 0) | r << shift;
    }
}

template <class D, class F> inline void lanes(Wave& w, const Instruction& i, F f) {
    const u64 m = written(w, i);
    constexpr bool real = std::is_floating_point_v<D>;
    if constexpr (sizeof(D) == 2) {
        write_part<D>(w, i, m, f);
    } else if constexpr (sizeof(D) == 4) {
        if (__builtin_expect((i.flags & SDWA) != 0, 0)) return write_part<D>(w, i, m, f);
        u32* d = w.v[i.o[0].reg];
        if (real && __builtin_expect(i.flags & CLAMP, 0)) {
            for (int l = 0; l < LANES; ++l)
                if (m >> l & 1) d[l] = as<u32>(limited((D)f(l), i));
        } else if (__builtin_expect(m == ~0ull, 1)) {
#pragma GCC ivdep
            for (int l = 0; l < LANES; ++l) d[l] = as<u32>((D)f(l));
        } else if (m == 0xffffffffull) {
#pragma GCC ivdep
            for (int l = 0; l < LANES / 2; ++l) d[l] = as<u32>((D)f(l));
        } else {
            BUFFER e[LANES];
            expand(m, e);
#pragma GCC ivdep
            for (int l = 0; l < LANES; ++l) {
                const u32 r = as<u32>((D)f(l));
                d[l] = e[l] ? r : d[l];
            }
        }
    } else {
        u32 *d = w.v[i.o[0].reg], *h = w.v[i.o[0].reg + 1];
        BUFFER low[LANES], high[LANES], e[LANES];
        expand(m, e);
        for (int l = 0; l < LANES; ++l) {
            D value = f(l);
            if constexpr (real) value = limited(value, i);
            const u64 r = as<u64>(value);
            low[l] = (u32)r, high[l] = (u32)(r >> 32);
        }
        for (int l = 0; l < LANES; ++l) {
            d[l] = e[l] ? low[l] : d[l];
            h[l] = e[l] ? high[l] : h[l];
        }
    }
}

template <class D, class A, class F> inline void unary(Wave& w, const Instruction& i, F f) {
    BUFFER t[2 * LANES];
    const Source a = fetch<A>(w, i, 1, t);
    lanes<D>(w, i, [&](int l) { return (D)f(get<A>(a, l)); });
}

template <class D, class A, class B, class F>
inline void binary(Wave& w, const Instruction& i, F f) {
    BUFFER t[2 * LANES], u[2 * LANES];
    const Source a = fetch<A>(w, i, 1, t), b = fetch<B>(w, i, 2, u);
    lanes<D>(w, i, [&](int l) { return (D)f(get<A>(a, l), get<B>(b, l)); });
}

template <class D, class A, class B, class C, class F>
inline void ternary(Wave& w, const Instruction& i, F f) {
    BUFFER t[2 * LANES], u[2 * LANES], x[2 * LANES];
    const Source a = fetch<A>(w, i, 1, t), b = fetch<B>(w, i, 2, u), c = fetch<C>(w, i, 3, x);
    lanes<D>(w, i, [&](int l) { return (D)f(get<A>(a, l), get<B>(b, l), get<C>(c, l)); });
}

template <class A, class B, class F>
inline void compare(Wave& w, const Instruction& i, bool to_exec, F f) {
    BUFFER t[2 * LANES], u[2 * LANES];
    const Source a = fetch<A>(w, i, 1, t), b = fetch<B>(w, i, 2, u);
    alignas(64) u8 r[LANES];
    for (int l = 0; l < LANES; ++l) r[l] = f(get<A>(a, l), get<B>(b, l)) ? 1 : 0;
    const u64 result = packed(r) & w.exec();
    set_mask(w, i.o[0], result);
    if (to_exec) w.set_pair(EXEC, result);
}

// ---- pairs in one operand

// Two halves at once; f takes up to three 16-bit values and gives one.
template <int N, class F>
inline void packed_half(Wave& w, const Instruction& i, bool real, F f) {
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

// Two of 32 bits.
template <class F>
inline void packed_singles(Wave& w, const Instruction& i, int sources, F f) {
    BUFFER t[3][2 * LANES];
    Source s[3];
    for (int k = 0; k < sources; ++k) s[k] = fetch<u64>(w, i, k + 1, t[k]);
    // A constant is the low half alone.
    for (int k = 0; k < sources; ++k)
        if (i.o[k + 1].kind == Kind::constant) fill(t[k], i.o[k + 1].value), fill(t[k] + LANES, 0);
    alignas(64) float r[2][LANES];
    for (int h = 0; h < 2; ++h) {
        const u32 select = h ? i.opsel_hi : i.opsel, neg = h ? i.neg_hi : i.neg_lo;
        const u32* x[3] = {};
        u32 sign[3] = {};
        for (int k = 0; k < 3; ++k) {
            const Source& from = s[k < sources ? k : 0];
            x[k] = select >> k & 1 ? from.high : from.low;
            sign[k] = (neg >> k & 1) << 31;
        }
        for (int l = 0; l < LANES; ++l)
            r[h][l] = f(f32(x[0][l] ^ sign[0]), f32(x[1][l] ^ sign[1]), f32(x[2][l] ^ sign[2]));
    }
    if (i.flags & CLAMP) return unmodelled(w, i);
    lanes<u64>(w, i, [&](int l) { return (u64)bits(r[1][l]) << 32 | bits(r[0][l]); });
}

#define UNARY(n, D, A, e) \
    MODEL(n) { unary<D, A>(w, i, [](A a) -> D { return e; }); }
#define BINARY(n, D, A, B, e) \
    MODEL(n) { binary<D, A, B>(w, i, [](A a, B b) -> D { return e; }); }
#define TERNARY(n, D, A, B, C, e) \
    MODEL(n) { ternary<D, A, B, C>(w, i, [](A a, B b, C c) -> D { return e; }); }
#define COMPARE(n, A, B, e)                                                          \
    MODEL(v_cmp_##n) { compare<A, B>(w, i, false, [](A a, B b) -> bool { return e; }); } \
    MODEL(v_cmpx_##n) { compare<A, B>(w, i, true, [](A a, B b) -> bool { return e; }); }

// The destination is the third source, the half of it that is written.
inline Instruction with_sum(const Instruction& i) {
    Instruction all = i;
    all.o[3] = i.o[0];
    if (i.opsel >> 3 & 1) all.opsel |= 4;
    return all;
}

}  // namespace isa
