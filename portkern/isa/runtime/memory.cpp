// Global, flat, scratch and buffer memory of lanes.
//
// Operands: destination or buffer data, address, data, scalar base (flat kinds); data, address,
// resource, scalar offset (buffers).
#include <atomic>

#include "lanes.h"
#include "numbers.h"
#include "shadow.h"

namespace isa {
namespace {

enum class Space { global, flat, scratch, buffer };

struct Buffer {
    u64 base = 0;
    u32 stride = 0, records = 0, offset = 0;
    const u32 *index = nullptr, *lane_offset = nullptr;
};

Buffer buffer_of(const Wave& w, const Instruction& i) {
    Buffer b;
    const u32* r = &w.s[i.o[2].reg];
    b.base = ((u64)r[1] << 32 | r[0]) & 0xffffffffffffull;
    b.stride = r[1] >> 16 & 0x3fff;
    b.records = r[2];
    b.offset = s32(w, i.o[3]);
    const u32 first = i.o[1].reg, indexed = i.flags & IDXEN ? 1 : 0;
    if (indexed) b.index = w.v[first];
    if (i.flags & OFFEN) b.lane_offset = w.v[first + indexed];
    return b;
}

// False where the hardware reads zero and stores nothing. Compilers mask lanes off in this way.
bool inside(const Buffer& b, const Instruction& i, int l, u32 more, u32 bytes, u64& address) {
    const u64 offset = (u64)(b.lane_offset ? b.lane_offset[l] : 0) + (u32)i.imm + more;
    const u32 index = b.index ? b.index[l] : 0;
    if (b.stride == 0 || !b.index) {
        const u32 taken = b.offset < b.records ? b.offset : b.records;
        if (offset + bytes > (u64)b.records - taken || offset + bytes > 0xffffffffull)
            return false;
    } else if (index >= b.records || offset >= b.stride) {
        return false;
    }
    address = b.base + b.offset + offset + (u64)b.stride * index;
    return true;
}

template <Space S> u64 address_of(const Wave& w, const Instruction& i, int l) {
    const Operand &a = i.o[1], &s = i.o[3];
    if constexpr (S == Space::scratch) {
        const u32 lane = a.kind == Kind::vector ? w.v[a.reg][l] : 0;
        const u32 base = s.kind != Kind::none ? s32(w, s) : 0;
        return PRIVATE_APERTURE << 32 | (u32)(lane + base + (u32)i.imm);
    } else {
        const u64 more = (u64)(i64)i.imm;
        if (S == Space::global && s.kind == Kind::scalar)
            return w.pair(s.reg) + w.v[a.reg][l] + more;
        return ((u64)w.v[a.reg + 1][l] << 32 | w.v[a.reg][l]) + more;
    }
}

template <Space S>
u8* place(Wave& w, const Instruction& i, const Buffer& b, int l, u32 more, u32 bytes, bool store) {
    if constexpr (S == Space::buffer) {
        u64 address;
        if (!inside(b, i, l, more, bytes, address)) return nullptr;
        return global_at(w, i, address, bytes, store, l);
    } else {
        const u64 address = address_of<S>(w, i, l) + more;
        if constexpr (S == Space::global) return global_at(w, i, address, bytes, store, l);
        else return flat_at(w, i, address, bytes, store, l);
    }
}

void to_lds(Wave& w, const Instruction& i, int words, const u32 (*from)[LANES], u64 e) {
    const u32 base = (w.s[M0] & 0xffff) + (u32)i.imm;
    for (int l = 0; l < LANES; ++l) {
        if (!(e >> l & 1)) continue;
        for (int k = 0; k < words; ++k) {
            u8* to = lds_at(w, i, (u64)base + 4 * (u32)(words * l + k), 4, l);
            if (!to) continue;
            lds_written(w, i, to, &from[k][l], 4, l);
            lds_fills(w, to, 4);
            put(*w.machine, to, &from[k][l], 4);
        }
    }
}

template <Space S> void load_words(Wave& w, const Instruction& i, int words) {
    const u64 e = w.exec();
    Buffer b;
    if (S == Space::buffer) b = buffer_of(w, i);
    BUFFER read[4][LANES];
    for (int l = 0; l < LANES; ++l) {
        if (!(e >> l & 1)) continue;
        u32 x[4] = {};
        if (S == Space::buffer) {
            for (int k = 0; k < words; ++k)
                if (const u8* p = place<S>(w, i, b, l, 4 * (u32)k, 4, false)) memcpy(&x[k], p, 4);
        } else if (const u8* p = place<S>(w, i, b, l, 0, 4 * (u32)words, false)) {
            memcpy(x, p, 4 * (size_t)words);
        }
        for (int k = 0; k < words; ++k) read[k][l] = x[k];
    }
    if (i.flags & TO_LDS) return to_lds(w, i, words, read, e);
    for (int k = 0; k < words; ++k) {
        u32* d = w.v[i.o[0].reg + k];
        for (int l = 0; l < LANES; ++l)
            if (e >> l & 1) d[l] = read[k][l];
    }
}

enum class Part { whole, low, high };

template <Space S, class T> void load_part(Wave& w, const Instruction& i, Part part) {
    const u64 e = w.exec();
    Buffer b;
    if (S == Space::buffer) b = buffer_of(w, i);
    if (i.flags & TO_LDS) return unmodelled(w, i);
    BUFFER read[LANES];
    for (int l = 0; l < LANES; ++l) {
        if (!(e >> l & 1)) continue;
        T x = 0;
        if (const u8* p = place<S>(w, i, b, l, 0, sizeof x, false)) memcpy(&x, p, sizeof x);
        read[l] = part == Part::whole ? (u32)(i32)x : (u32)(u16)(i16)x;
    }
    u32* d = w.v[i.o[0].reg];
    for (int l = 0; l < LANES; ++l) {
        if (!(e >> l & 1)) continue;
        if (part == Part::whole) d[l] = read[l];
        else if (part == Part::low) d[l] = (d[l] & 0xffff0000) | read[l];
        else d[l] = (d[l] & 0xffff) | read[l] << 16;
    }
}

template <Space S> const u32 (*stored(const Wave& w, const Instruction& i))[LANES] {
    return &w.v[i.o[S == Space::buffer ? 0 : 2].reg];
}

template <Space S> void store_words(Wave& w, const Instruction& i, int words) {
    const u64 e = w.exec();
    Buffer b;
    if (S == Space::buffer) b = buffer_of(w, i);
    const u32(*from)[LANES] = stored<S>(w, i);
    for (int l = 0; l < LANES; ++l) {
        if (!(e >> l & 1)) continue;
        u32 x[4];
        for (int k = 0; k < words; ++k) x[k] = from[k][l];
        if (S == Space::buffer) {
            for (int k = 0; k < words; ++k)
                if (u8* p = place<S>(w, i, b, l, 4 * (u32)k, 4, true)) put(*w.machine, p, &x[k], 4);
        } else if (u8* p = place<S>(w, i, b, l, 0, 4 * (u32)words, true)) {
            put(*w.machine, p, x, 4 * (u32)words);
        }
    }
}

template <Space S, class T> void store_part(Wave& w, const Instruction& i, int shift) {
    const u64 e = w.exec();
    Buffer b;
    if (S == Space::buffer) b = buffer_of(w, i);
    const u32(*from)[LANES] = stored<S>(w, i);
    for (int l = 0; l < LANES; ++l) {
        if (!(e >> l & 1)) continue;
        const T x = (T)(from[0][l] >> shift);
        if (u8* p = place<S>(w, i, b, l, 0, sizeof x, true)) put(*w.machine, p, &x, sizeof x);
    }
}

// f takes what is there and the lane's data; with RETURNS the first register becomes what was there.
template <Space S, class T, class F> void atomic(Wave& w, const Instruction& i, F f) {
    const u64 e = w.exec();
    Buffer b;
    if (S == Space::buffer) b = buffer_of(w, i);
    const u32(*from)[LANES] = stored<S>(w, i);
    for (int l = 0; l < LANES; ++l) {
        if (!(e >> l & 1)) continue;
        u8* p = place<S>(w, i, b, l, 0, sizeof(T), true);
        u64 before = 0;
        if (p) {
            T old, data[2];
            memcpy(&old, p, sizeof old);
            u32 words[4] = {from[0][l], from[1][l], from[2][l], from[3][l]};
            memcpy(data, words, sizeof data);
            const T now = f(old, data[0], data[1]);
            put(*w.machine, p, &now, sizeof now);
            memcpy(&before, &old, sizeof old);
        }
        if (!(i.flags & RETURNS)) continue;
        w.v[i.o[0].reg][l] = (u32)before;
        if (sizeof(T) == 8) w.v[i.o[0].reg + 1][l] = (u32)(before >> 32);
    }
}

}  // namespace

#define LOADS(sp, S, old, now, words)                                \
    MODEL(sp##_load_##old) { load_words<Space::S>(w, i, words); }    \
    ALSO(sp##_load_##now, sp##_load_##old)
#define LOADS_PART(sp, S, old, now, T, part)                                       \
    MODEL(sp##_load_##old) { load_part<Space::S, T>(w, i, Part::part); }           \
    ALSO(sp##_load_##now, sp##_load_##old)
#define STORES(sp, S, old, now, words)                               \
    MODEL(sp##_store_##old) { store_words<Space::S>(w, i, words); }  \
    ALSO(sp##_store_##now, sp##_store_##old)
#define STORES_PART(sp, S, old, now, T, shift)                            \
    MODEL(sp##_store_##old) { store_part<Space::S, T>(w, i, shift); }     \
    ALSO(sp##_store_##now, sp##_store_##old)
#define ACCESSES(sp, S)                                              \
    LOADS(sp, S, dword, b32, 1)                                      \
    LOADS(sp, S, dwordx2, b64, 2)                                    \
    LOADS(sp, S, dwordx3, b96, 3)                                    \
    LOADS(sp, S, dwordx4, b128, 4)                                   \
    LOADS_PART(sp, S, ubyte, u8, u8, whole)                          \
    LOADS_PART(sp, S, sbyte, i8, i8, whole)                          \
    LOADS_PART(sp, S, ushort, u16, u16, whole)                       \
    LOADS_PART(sp, S, sshort, i16, i16, whole)                       \
    LOADS_PART(sp, S, short_d16, d16_b16, u16, low)                  \
    LOADS_PART(sp, S, short_d16_hi, d16_hi_b16, u16, high)           \
    LOADS_PART(sp, S, ubyte_d16, d16_u8, u8, low)                    \
    LOADS_PART(sp, S, ubyte_d16_hi, d16_hi_u8, u8, high)             \
    LOADS_PART(sp, S, sbyte_d16, d16_i8, i8, low)                    \
    LOADS_PART(sp, S, sbyte_d16_hi, d16_hi_i8, i8, high)             \
    STORES(sp, S, dword, b32, 1)                                     \
    STORES(sp, S, dwordx2, b64, 2)                                   \
    STORES(sp, S, dwordx3, b96, 3)                                   \
    STORES(sp, S, dwordx4, b128, 4)                                  \
    STORES_PART(sp, S, byte, b8, u8, 0)                              \
    STORES_PART(sp, S, short, b16, u16, 0)                           \
    STORES_PART(sp, S, short_d16_hi, d16_hi_b16, u16, 16)            \
    STORES_PART(sp, S, byte_d16_hi, d16_hi_b8, u8, 16)
ACCESSES(global, global)
ACCESSES(flat, flat)
ACCESSES(scratch, scratch)
ACCESSES(buffer, buffer)
// Straight into LDS.
#define LDS_LOADS(sp, S)                                                          \
    MODEL(sp##_load_lds_dword) { load_words<Space::S>(w, i, 1); }                 \
    ALSO(sp##_load_lds_dwordx1, sp##_load_lds_dword)                              \
    MODEL(sp##_load_lds_dwordx3) { load_words<Space::S>(w, i, 3); }               \
    MODEL(sp##_load_lds_dwordx4) { load_words<Space::S>(w, i, 4); }
LDS_LOADS(global, global)

#define ONE_NAME(sp, S, name, T, e)                                                     \
    MODEL(sp##_atomic_##name) {                                                        \
        atomic<Space::S, T>(w, i, []([[maybe_unused]] T x, T a, [[maybe_unused]] T b) -> T { \
            return e;                                                                  \
        });                                                                            \
    }
#define ATOMIC(sp, S, old, now, T, e) \
    ONE_NAME(sp, S, old, T, e)        \
    ALSO(sp##_atomic_##now, sp##_atomic_##old)
#define ATOMICS(sp, S)                                                    \
    ATOMIC(sp, S, add, add_u32, u32, x + a)                               \
    ATOMIC(sp, S, sub, sub_u32, u32, x - a)                               \
    ATOMIC(sp, S, inc, inc_u32, u32, x >= a ? 0 : x + 1)                  \
    ATOMIC(sp, S, dec, dec_u32, u32, x == 0 || x > a ? a : x - 1)         \
    ATOMIC(sp, S, umax, max_u32, u32, x > a ? x : a)                      \
    ATOMIC(sp, S, umin, min_u32, u32, x < a ? x : a)                      \
    ATOMIC(sp, S, smax, max_i32, i32, x > a ? x : a)                      \
    ATOMIC(sp, S, smin, min_i32, i32, x < a ? x : a)                      \
    ATOMIC(sp, S, and, and_b32, u32, x & a)                               \
    ATOMIC(sp, S, or, or_b32, u32, x | a)                                 \
    ATOMIC(sp, S, xor, xor_b32, u32, x ^ a)                               \
    ATOMIC(sp, S, swap, swap_b32, u32, a)                                 \
    ATOMIC(sp, S, cmpswap, cmpswap_b32, u32, x == b ? a : x)              \
    ATOMIC(sp, S, add_x2, add_u64, u64, x + a)                            \
    ATOMIC(sp, S, sub_x2, sub_u64, u64, x - a)                            \
    ATOMIC(sp, S, umax_x2, max_u64, u64, x > a ? x : a)                   \
    ATOMIC(sp, S, umin_x2, min_u64, u64, x < a ? x : a)                   \
    ATOMIC(sp, S, smax_x2, max_i64, i64, x > a ? x : a)                   \
    ATOMIC(sp, S, smin_x2, min_i64, i64, x < a ? x : a)                   \
    ATOMIC(sp, S, and_x2, and_b64, u64, x & a)                            \
    ATOMIC(sp, S, or_x2, or_b64, u64, x | a)                              \
    ATOMIC(sp, S, xor_x2, xor_b64, u64, x ^ a)                            \
    ATOMIC(sp, S, swap_x2, swap_b64, u64, a)                              \
    ATOMIC(sp, S, cmpswap_x2, cmpswap_b64, u64, x == b ? a : x)           \
    ATOMIC(sp, S, add_f32, add_float, float, x + a)                       \
    ATOMIC(sp, S, add_f64, add_double, double, x + a)                     \
    ONE_NAME(sp, S, min_f32, float, a < x ? a : x)                         \
    ONE_NAME(sp, S, max_f32, float, a > x ? a : x)                         \
    ONE_NAME(sp, S, min_f64, double, a < x ? a : x)                        \
    ONE_NAME(sp, S, max_f64, double, a > x ? a : x)                        \
    ONE_NAME(sp, S, min_num_f32, float, least<false>(x, a))                \
    ONE_NAME(sp, S, max_num_f32, float, most<false>(x, a))                 \
    ONE_NAME(sp, S, min_num_f64, double, least<false>(x, a))               \
    ONE_NAME(sp, S, max_num_f64, double, most<false>(x, a))                \
    ONE_NAME(sp, S, cond_sub_u32, u32, x >= a ? x - a : x)                 \
    ATOMIC(sp, S, csub_u32, sub_clamp_u32, u32, x >= a ? x - a : 0)       \
    ATOMIC(sp, S, inc_x2, inc_u64, u64, x >= a ? 0 : x + 1)               \
    ATOMIC(sp, S, dec_x2, dec_u64, u64, x == 0 || x > a ? a : x - 1)      \
    ONE_NAME(sp, S, cmpswap_f32, float, x == b ? a : x)                    \
    ATOMIC(sp, S, pk_add_f16, pk_add_rtn_f16, u32, halves_added(x, a))    \
    ATOMIC(sp, S, pk_add_bf16, pk_add_rtn_bf16, u32, bf16_added(x, a))
ATOMICS(global, global)
ATOMICS(flat, flat)
ATOMICS(buffer, buffer)

}  // namespace isa
