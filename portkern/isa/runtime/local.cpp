// LDS: loads, stores, atomics, and what passes between lanes through its crossbar.
#include "lanes.h"
#include "numbers.h"
#include "shadow.h"

namespace isa {
namespace {

// Addresses are of 32 bits, and wrap: compilers fold a constant into the offset from below zero.

// A lane's value is `words` registers, or one whose low part is a T.
template <class T> void read(Wave& w, const Instruction& i, int words, int places, u32 stride) {
    const u64 e = w.exec();
    const u32 bytes = words ? 4 * (u32)words : sizeof(T);
    const int registers = words ? words : 1;
    BUFFER address[LANES];
    memcpy(address, w.v[i.o[1].reg], sizeof address);  // may lie in the destination
    for (int c = 0; c < places; ++c) {
        const u32 offset = (u32)(c ? i.imm2 : i.imm) * stride;
        u32(*to)[LANES] = &w.v[i.o[0].reg + c * registers];
        for (int l = 0; l < LANES; ++l) {
            if (!(e >> l & 1)) continue;
            const u8* from = lds_at(w, i, address[l] + offset, bytes, l);
            if (from) lds_read(w, i, from, bytes, l);
            if (words) {
                u32 x[4] = {};
                if (from) memcpy(x, from, bytes);
                for (int k = 0; k < words; ++k) to[k][l] = x[k];
            } else {
                T x = 0;
                if (from) memcpy(&x, from, sizeof x);
                to[0][l] = (u32)(i32)x;
            }
        }
    }
}

template <class T> void write(Wave& w, const Instruction& i, int words, int places, u32 stride,
                              int shift = 0) {
    const u64 e = w.exec();
    const u32 bytes = words ? 4 * (u32)words : sizeof(T);
    for (int c = 0; c < places; ++c) {
        const u32 offset = (u32)(c ? i.imm2 : i.imm) * stride;
        const u32(*from)[LANES] = &w.v[i.o[1 + c].reg];
        for (int l = 0; l < LANES; ++l) {
            if (!(e >> l & 1)) continue;
            u8* to = lds_at(w, i, w.v[i.o[0].reg][l] + offset, bytes, l);
            if (!to) continue;
            if (!words) {
                const T x = (T)(from[0][l] >> shift);
                lds_written(w, i, to, &x, sizeof x, l);
                put(*w.machine, to, &x, sizeof x);
            } else {
                u32 x[4];
                for (int k = 0; k < words; ++k) x[k] = from[k][l];
                lds_written(w, i, to, x, bytes, l);
                put(*w.machine, to, x, bytes);
            }
        }
    }
}

template <class T> void read_half(Wave& w, const Instruction& i, bool high) {
    const u64 e = w.exec();
    u32* d = w.v[i.o[0].reg];
    for (int l = 0; l < LANES; ++l) {
        if (!(e >> l & 1)) continue;
        T x = 0;
        if (u8* from = lds_at(w, i, w.v[i.o[1].reg][l] + (u32)i.imm, sizeof x, l)) {
            lds_read(w, i, from, sizeof x, l);
            memcpy(&x, from, sizeof x);
        }
        const u32 half = (u16)(i16)x;
        d[l] = high ? (d[l] & 0xffff) | half << 16 : (d[l] & 0xffff0000) | half;
    }
}

template <class T> T value_of(const Wave& w, u32 reg, int l) {
    if constexpr (sizeof(T) == 4) return as<T>(w.v[reg][l]);
    else return as<T>((u64)w.v[reg + 1][l] << 32 | w.v[reg][l]);
}

// f takes what is there and the instruction's values.
template <class T, class F> void atomic(Wave& w, const Instruction& i, F f) {
    const u64 e = w.exec();
    const int at = i.destinations;
    for (int l = 0; l < LANES; ++l) {
        if (!(e >> l & 1)) continue;
        u8* p = lds_at(w, i, w.v[i.o[at].reg][l] + (u32)i.imm, sizeof(T), l);
        if (!p) continue;
        T old;
        memcpy(&old, p, sizeof old);
        const bool second = i.o[at + 2].kind == Kind::vector;
        const T a = value_of<T>(w, i.o[at + 1].reg, l);
        const T b = second ? value_of<T>(w, i.o[at + 2].reg, l) : T();
        const T now = f(old, a, b);
        put(*w.machine, p, &now, sizeof now);
        lds_changed(w, p, sizeof(T));
        if (!at) continue;
        u64 x = 0;
        memcpy(&x, &old, sizeof old);
        w.v[i.o[0].reg][l] = (u32)x;
        if (sizeof(T) == 8) w.v[i.o[0].reg + 1][l] = (u32)(x >> 32);
    }
}

}  // namespace

#define READS(old, now, ...)                          \
    MODEL(old) { read<u32>(w, i, __VA_ARGS__); }      \
    ALSO(now, old)
READS(ds_read_b32, ds_load_b32, 1, 1, 1)
READS(ds_read_b64, ds_load_b64, 2, 1, 1)
READS(ds_read_b96, ds_load_b96, 3, 1, 1)
READS(ds_read_b128, ds_load_b128, 4, 1, 1)
READS(ds_read2_b32, ds_load_2addr_b32, 1, 2, 4)
READS(ds_read2st64_b32, ds_load_2addr_stride64_b32, 1, 2, 256)
READS(ds_read2_b64, ds_load_2addr_b64, 2, 2, 8)
READS(ds_read2st64_b64, ds_load_2addr_stride64_b64, 2, 2, 512)
#define READS_PART(old, now, T)                       \
    MODEL(old) { read<T>(w, i, 0, 1, 1); }            \
    ALSO(now, old)
READS_PART(ds_read_u8, ds_load_u8, u8)
READS_PART(ds_read_i8, ds_load_i8, i8)
READS_PART(ds_read_u16, ds_load_u16, u16)
READS_PART(ds_read_i16, ds_load_i16, i16)
#define READS_HALF(old, now, T, high)                 \
    MODEL(old) { read_half<T>(w, i, high); }          \
    ALSO(now, old)
READS_HALF(ds_read_u16_d16, ds_load_u16_d16, u16, false)
READS_HALF(ds_read_u16_d16_hi, ds_load_u16_d16_hi, u16, true)
READS_HALF(ds_read_u8_d16, ds_load_u8_d16, u8, false)
READS_HALF(ds_read_u8_d16_hi, ds_load_u8_d16_hi, u8, true)
READS_HALF(ds_read_i8_d16, ds_load_i8_d16, i8, false)
READS_HALF(ds_read_i8_d16_hi, ds_load_i8_d16_hi, i8, true)
#define WRITES(old, now, ...)                         \
    MODEL(old) { write<u32>(w, i, __VA_ARGS__); }     \
    ALSO(now, old)
WRITES(ds_write_b32, ds_store_b32, 1, 1, 1)
WRITES(ds_write_b64, ds_store_b64, 2, 1, 1)
WRITES(ds_write_b96, ds_store_b96, 3, 1, 1)
WRITES(ds_write_b128, ds_store_b128, 4, 1, 1)
WRITES(ds_write2_b32, ds_store_2addr_b32, 1, 2, 4)
WRITES(ds_write2st64_b32, ds_store_2addr_stride64_b32, 1, 2, 256)
WRITES(ds_write2_b64, ds_store_2addr_b64, 2, 2, 8)
WRITES(ds_write2st64_b64, ds_store_2addr_stride64_b64, 2, 2, 512)
#define WRITES_PART(old, now, T, shift)               \
    MODEL(old) { write<T>(w, i, 0, 1, 1, shift); }    \
    ALSO(now, old)
WRITES_PART(ds_write_b8, ds_store_b8, u8, 0)
WRITES_PART(ds_write_b16, ds_store_b16, u16, 0)
WRITES_PART(ds_write_b8_d16_hi, ds_store_b8_d16_hi, u8, 16)
WRITES_PART(ds_write_b16_d16_hi, ds_store_b16_d16_hi, u16, 16)

#define ATOMIC(n, T, e)                                                                \
    MODEL(n) {                                                                         \
        atomic<T>(w, i, []([[maybe_unused]] T x, T a, [[maybe_unused]] T b) -> T {     \
            return e;                                                                  \
        });                                                                            \
    }
#define ATOMICS(name, suffix, T, e)            \
    ATOMIC(ds_##name##_##suffix, T, e)         \
    ATOMIC(ds_##name##_rtn_##suffix, T, e)
ATOMICS(add, u32, u32, x + a)
ATOMICS(sub, u32, u32, x - a)
ATOMICS(rsub, u32, u32, a - x)
ATOMICS(inc, u32, u32, x >= a ? 0 : x + 1)
ATOMICS(dec, u32, u32, x == 0 || x > a ? a : x - 1)
ATOMICS(add, u64, u64, x + a)
ATOMICS(sub, u64, u64, x - a)
ATOMICS(add, f32, float, x + a)
ATOMICS(add, f64, double, x + a)
ATOMICS(min, u32, u32, x < a ? x : a)
ATOMICS(max, u32, u32, x > a ? x : a)
ATOMICS(min, i32, i32, x < a ? x : a)
ATOMICS(max, i32, i32, x > a ? x : a)
ATOMICS(min, u64, u64, x < a ? x : a)
ATOMICS(max, u64, u64, x > a ? x : a)
ATOMICS(min, i64, i64, x < a ? x : a)
ATOMICS(max, i64, i64, x > a ? x : a)
// A NaN in memory stays there; of RDNA4's it does not.
ATOMICS(min, f32, float, a < x ? a : x)
ATOMICS(max, f32, float, a > x ? a : x)
ATOMICS(min, f64, double, a < x ? a : x)
ATOMICS(max, f64, double, a > x ? a : x)
ATOMICS(min_num, f32, float, least<false>(x, a))
ATOMICS(max_num, f32, float, most<false>(x, a))
ATOMICS(min_num, f64, double, least<false>(x, a))
ATOMICS(max_num, f64, double, most<false>(x, a))
ATOMICS(rsub, u64, u64, a - x)
ATOMICS(inc, u64, u64, x >= a ? 0 : x + 1)
ATOMICS(dec, u64, u64, x == 0 || x > a ? a : x - 1)
ATOMICS(mskor, b32, u32, (x & ~a) | b)
ATOMICS(mskor, b64, u64, (x & ~a) | b)
ATOMICS(cond_sub, u32, u32, x >= a ? x - a : x)
ATOMICS(sub_clamp, u32, u32, x >= a ? x - a : 0)
ATOMIC(ds_wrap_rtn_b32, u32, x >= a ? x - a : x + b)
ATOMIC(ds_pk_add_f16, u32, halves_added(x, a))
ATOMIC(ds_pk_add_rtn_f16, u32, halves_added(x, a))
ATOMIC(ds_pk_add_bf16, u32, bf16_added(x, a))
ATOMIC(ds_pk_add_rtn_bf16, u32, bf16_added(x, a))
ATOMICS(cmpst, f32, float, x == a ? b : x)
ATOMICS(cmpst, f64, double, x == a ? b : x)
ATOMICS(cmpstore, f32, float, x == b ? a : x)
ATOMICS(cmpstore, f64, double, x == b ? a : x)
ATOMICS(and, b32, u32, x & a)
ATOMICS(or, b32, u32, x | a)
ATOMICS(xor, b32, u32, x ^ a)
ATOMICS(and, b64, u64, x & a)
ATOMICS(or, b64, u64, x | a)
ATOMICS(xor, b64, u64, x ^ a)
ATOMIC(ds_wrxchg_rtn_b32, u32, a)
ALSO(ds_storexchg_rtn_b32, ds_wrxchg_rtn_b32)
ATOMIC(ds_wrxchg_rtn_b64, u64, a)
ALSO(ds_storexchg_rtn_b64, ds_wrxchg_rtn_b64)
// gfx9 compares with the first value, RDNA with the second.
ATOMICS(cmpst, b32, u32, x == a ? b : x)
ATOMICS(cmpst, b64, u64, x == a ? b : x)
ATOMICS(cmpstore, b32, u32, x == b ? a : x)
ATOMICS(cmpstore, b64, u64, x == b ? a : x)

// Sixteen lanes have rows of sixteen T, eight bytes of a row each; a lane gets a column.
template <class T> static void read_columns(Wave& w, const Instruction& i) {
    constexpr int held = 8 / sizeof(T), lanes_of_row = 16 / held;
    const u64 e = w.exec();
    u64 rows[LANES] = {};
    for (int l = 0; l < LANES; ++l) {
        if (!(e >> l & 1)) continue;
        const u8* from = lds_at(w, i, w.v[i.o[1].reg][l] + (u32)i.imm, 8, l);
        if (!from) continue;
        lds_read(w, i, from, 8, l);
        memcpy(&rows[l], from, 8);
    }
    for (int l = 0; l < LANES; ++l) {
        if (!(e >> l & 1)) continue;
        const int first = (l & 48) + (l & 15) / held;
        u64 column = 0;
        for (int k = 0; k < held; ++k) {
            const T x = (T)(rows[first + lanes_of_row * k] >> 8 * sizeof(T) * (size_t)(l % held));
            column |= (u64)x << 8 * sizeof(T) * (size_t)k;
        }
        w.v[i.o[0].reg][l] = (u32)column;
        w.v[i.o[0].reg + 1][l] = (u32)(column >> 32);
    }
}
MODEL(ds_read_b64_tr_b16) { read_columns<u16>(w, i); }
MODEL(ds_read_b64_tr_b8) { read_columns<u8>(w, i); }

MODEL(ds_bpermute_b32) {
    const u64 e = w.exec();
    const u32 *a = w.v[i.o[1].reg], *b = w.v[i.o[2].reg];
    BUFFER r[LANES];
    for (int l = 0; l < LANES; ++l) {
        const u32 s = (a[l] + (u32)i.imm) >> 2 & (w.size - 1);
        r[l] = e >> s & 1 ? b[s] : 0;
    }
    lanes<u32>(w, i, [&](int l) { return r[l]; });
}
MODEL(ds_permute_b32) {
    const u64 e = w.exec();
    const u32 *a = w.v[i.o[1].reg], *b = w.v[i.o[2].reg];
    BUFFER r[LANES] = {};
    for (int l = 0; l < LANES; ++l)
        if (e >> l & 1) r[(a[l] + (u32)i.imm) >> 2 & (w.size - 1)] = b[l];
    lanes<u32>(w, i, [&](int l) { return r[l]; });
}
MODEL(ds_swizzle_b32) {
    const u64 e = w.exec();
    const u32 o = (u32)i.imm, *a = w.v[i.o[1].reg];
    if ((o & 0xe000) == 0xe000 || (o & 0xe000) == 0xc000) return unmodelled(w, i);  // FFT, rotate
    BUFFER r[LANES];
    for (u32 l = 0; l < LANES; ++l) {
        const u32 k = l & 31;
        const u32 s = o & 0x8000 ? (l & ~3u) | (o >> 2 * (l & 3) & 3)
                                 : (l & 32) | (((k & o) | o >> 5) ^ o >> 10) % 32;
        r[l] = e >> s & 1 ? a[s] : 0;
    }
    lanes<u32>(w, i, [&](int l) { return r[l]; });
}

}  // namespace isa
