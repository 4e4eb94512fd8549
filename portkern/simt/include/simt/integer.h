// Integer intrinsics, the SIMD-in-a-word family, bit casts, and conversions between integers and
// floating point in every rounding mode.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "vectors.h"

namespace simt {
namespace numbers {

#if defined(__HIP_PLATFORM_AMD__)
constexpr bool hip = true;  // where the vendors differ, the source's language decides
#else
constexpr bool hip = false;
#endif

enum class Round : uint8_t { nearest, zero, down, up };  // _rn, _rz, _rd, _ru

// The same bits as another type (std::bit_cast, which C++17 lacks).
template <class To, class From>
static constexpr To punned(const From& from) { return __builtin_bit_cast(To, from); }

template <class F>
static inline F rounded_to_integral(F x, Round mode) {
    switch (mode) {
        case Round::nearest: return std::rint(x);
        case Round::zero: return std::trunc(x);
        case Round::down: return std::floor(x);
        default: return std::ceil(x);
    }
}

// Saturates, as PTX's cvt does. A NaN gives 0 in 32 bits and less; PTX gives the sign bit alone
// where the integer has 64 bits or the source is double ("cvt" in the PTX ISA).
template <class I, class F>
static inline I to_integer(F x, Round mode) {
    using Limits = std::numeric_limits<I>;
    if (x != x) {
        const bool wide = sizeof(I) == 8 || sizeof(F) == 8;
        return hip || !wide ? I(0) : I(std::make_unsigned_t<I>(1) << (sizeof(I) * 8 - 1));
    }
    x = rounded_to_integral(x, mode);
    // Exact in F, which the largest integer itself may not be.
    constexpr F end = F(Limits::max() / 2 + 1) * F(2);
    if (x < F(Limits::min())) return Limits::min();
    if (x >= end) return Limits::max();
    return I(x);
}

// Rounds by hand: a cast under a changed rounding mode may be moved by the compiler.
template <class F, class I>
static inline F from_integer(I v, Round mode) {
    const bool negative = std::is_signed<I>::value && v < I(0);
    const uint64_t magnitude = negative ? 0 - uint64_t(v) : uint64_t(v);
    const int digits = magnitude ? 64 - __builtin_clzll(magnitude) : 0;
    const int drop = digits - std::numeric_limits<F>::digits;
    if (mode == Round::nearest || drop <= 0) return F(v);
    uint64_t kept = magnitude >> drop;
    const bool inexact = (kept << drop) != magnitude;
    if (inexact && mode == (negative ? Round::down : Round::up)) ++kept;
    const F result = F(kept) * F(uint64_t(1) << drop);
    return negative ? -result : result;
}

static inline float to_float(double x, Round mode) {
    const float nearest = float(x);
    const double back = nearest;
    const float infinity = std::numeric_limits<float>::infinity();
    switch (mode) {
        case Round::nearest: return nearest;
        case Round::zero:
            return std::fabs(back) > std::fabs(x) ? std::nextafter(nearest, 0.0f) : nearest;
        case Round::down: return back > x ? std::nextafter(nearest, -infinity) : nearest;
        default: return back < x ? std::nextafter(nearest, infinity) : nearest;
    }
}

}  // namespace numbers
}  // namespace simt

// ---- bits --------------------------------------------------------------------------------

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }

static inline unsigned __brev(unsigned x) {
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}
static inline unsigned long long __brevll(unsigned long long x) {
    return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32));
}

static inline unsigned short __nv_bswap16(unsigned short x) { return __builtin_bswap16(x); }
static inline unsigned __nv_bswap32(unsigned x) { return __builtin_bswap32(x); }
static inline unsigned long long __nv_bswap64(unsigned long long x) {
    return __builtin_bswap64(x);
}

// Byte i of the result is the byte of y:x (x is bytes 0 to 3) that bits 4i to 4i+2 of s name.
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s) {
    const uint64_t bytes = (uint64_t)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i)
        result |= (unsigned)(bytes >> 8 * (s >> 4 * i & 7) & 0xff) << 8 * i;
    return result;
}

// The upper (l) or lower (r) half of hi:lo shifted by shift modulo 32, or at most 32 (c).
static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned shift) {
    return (unsigned)(((uint64_t)hi << 32 | lo) << (shift & 31) >> 32);
}
static inline unsigned __funnelshift_lc(unsigned lo, unsigned hi, unsigned shift) {
    return (unsigned)(((uint64_t)hi << 32 | lo) << (shift < 32 ? shift : 32) >> 32);
}
static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned shift) {
    return (unsigned)(((uint64_t)hi << 32 | lo) >> (shift & 31));
}
static inline unsigned __funnelshift_rc(unsigned lo, unsigned hi, unsigned shift) {
    return (unsigned)(((uint64_t)hi << 32 | lo) >> (shift < 32 ? shift : 32));
}

namespace simt {
namespace numbers {
// Position of the |offset|-th set bit at or above (offset > 0) or at or below (< 0) base; 0 asks
// whether bit base itself is set. -1 as unsigned where there is none.
static inline int find_nth_set(uint64_t mask, int bits, int base, int offset) {
    const int step = offset < 0 ? -1 : 1;
    int left = offset == 0 ? 1 : offset < 0 ? -offset : offset;
    const int end = offset == 0 ? base + 1 : offset < 0 ? -1 : bits;
    for (int i = base; i != end && i >= 0 && i < bits; i += step)
        if ((mask >> i & 1) && --left == 0) return i;
    return -1;
}
}  // namespace numbers
}  // namespace simt

static inline unsigned __fns(unsigned mask, unsigned base, int offset) {
    return (unsigned)simt::numbers::find_nth_set(mask, 32, (int)base, offset);
}
// HIP only: __fns for masks of either width, and bit fields.
static inline int __fns32(uint32_t mask, uint32_t base, int offset) {
    return simt::numbers::find_nth_set(mask, 32, (int)base, offset);
}
static inline int __fns64(uint64_t mask, uint32_t base, int offset) {
    return simt::numbers::find_nth_set(mask, 64, (int)base, offset);
}
static inline unsigned __lastbit_u32_u32(uint32_t x) {
    return (unsigned)(__builtin_ffs((int)x) - 1);
}
static inline unsigned __lastbit_u32_u64(uint64_t x) {
    return (unsigned)(__builtin_ffsll((long long)x) - 1);
}
static inline unsigned __bitextract_u32(unsigned x, unsigned offset, unsigned width) {
    offset &= 31;
    width &= 31;
    return width ? x << ((32 - offset - width) & 31) >> (32 - width) : 0;
}
static inline uint64_t __bitextract_u64(uint64_t x, unsigned offset, unsigned width) {
    offset &= 63;
    width &= 63;
    return width ? x << ((64 - offset - width) & 63) >> (64 - width) : 0;
}
static inline unsigned __bitinsert_u32(unsigned into, unsigned x, unsigned offset, unsigned width) {
    offset &= 31;
    const unsigned field = ((1u << (width & 31)) - 1) << offset;
    return (into & ~field) | (x << offset & field);
}
static inline uint64_t __bitinsert_u64(uint64_t into, uint64_t x, unsigned offset,
                                       unsigned width) {
    offset &= 63;
    const uint64_t field = ((uint64_t(1) << (width & 63)) - 1) << offset;
    return (into & ~field) | (x << offset & field);
}

// ---- products, averages, differences -----------------------------------------------------

static inline int __mulhi(int x, int y) { return (int)((int64_t)x * y >> 32); }
static inline unsigned __umulhi(unsigned x, unsigned y) {
    return (unsigned)((uint64_t)x * y >> 32);
}
static inline long long __mul64hi(long long x, long long y) {
    __extension__ typedef __int128 Wide;
    return (long long)((Wide)x * y >> 64);
}
static inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    __extension__ typedef unsigned __int128 Wide;
    return (unsigned long long)((Wide)x * y >> 64);
}

// The lower 32 bits of the product of the lower 24 bits.
static inline int __mul24(int x, int y) {
    return (int)((int64_t)((int)((unsigned)x << 8) >> 8) * ((int)((unsigned)y << 8) >> 8));
}
static inline unsigned __umul24(unsigned x, unsigned y) { return (x & 0xffffff) * (y & 0xffffff); }

// Averages without overflow: rounded down, or up (r).
static inline int __hadd(int x, int y) { return (x & y) + ((x ^ y) >> 1); }
static inline int __rhadd(int x, int y) { return (x | y) - ((x ^ y) >> 1); }
static inline unsigned __uhadd(unsigned x, unsigned y) { return (x & y) + ((x ^ y) >> 1); }
static inline unsigned __urhadd(unsigned x, unsigned y) { return (x | y) - ((x ^ y) >> 1); }

static inline unsigned __sad(int x, int y, unsigned z) {  // |x - y| + z
    return (x > y ? (unsigned)x - (unsigned)y : (unsigned)y - (unsigned)x) + z;
}
static inline unsigned __usad(unsigned x, unsigned y, unsigned z) {
    return (x > y ? x - y : y - x) + z;
}

namespace simt {
namespace numbers {

// c plus the dot product of `count` elements of a with bytes of b, modulo 2^32. A and B are the
// types of an element; b's bytes begin at byte `first`.
template <class A, class B>
static inline unsigned dot(unsigned a, unsigned b, unsigned c, int first) {
    constexpr int bits = 8 * sizeof(A);
    for (int i = 0; i < 32 / bits; ++i)
        c += (unsigned)((int)(A)(a >> bits * i) * (int)(B)(b >> 8 * (first + i)));
    return c;
}

}  // namespace numbers
}  // namespace simt

#if !defined(__HIP_PLATFORM_AMD__)  // HIP has none of these
#define SIMT_DOT(NAME, R, SIGNED, VECTOR_A, VECTOR_B, A, B, FIRST)                         \
    static inline R NAME(SIGNED a, SIGNED b, R c) {                                        \
        return (R)simt::numbers::dot<A, B>((unsigned)a, (unsigned)b, (unsigned)c, FIRST);  \
    }                                                                                      \
    static inline R NAME(VECTOR_A a, VECTOR_B b, R c) {                                    \
        return NAME(simt::numbers::punned<SIGNED>(a), simt::numbers::punned<SIGNED>(b), c); \
    }
SIMT_DOT(__dp4a, int, int, char4, char4, int8_t, int8_t, 0)
SIMT_DOT(__dp4a, unsigned, unsigned, uchar4, uchar4, uint8_t, uint8_t, 0)
SIMT_DOT(__dp2a_lo, int, int, short2, char4, int16_t, int8_t, 0)
SIMT_DOT(__dp2a_lo, unsigned, unsigned, ushort2, uchar4, uint16_t, uint8_t, 0)
SIMT_DOT(__dp2a_hi, int, int, short2, char4, int16_t, int8_t, 2)
SIMT_DOT(__dp2a_hi, unsigned, unsigned, ushort2, uchar4, uint16_t, uint8_t, 2)
#undef SIMT_DOT
#endif

// ---- the same bits in another type -------------------------------------------------------

static inline int __float_as_int(float x) { return simt::numbers::punned<int>(x); }
static inline unsigned __float_as_uint(float x) { return simt::numbers::punned<unsigned>(x); }
static inline float __int_as_float(int x) { return simt::numbers::punned<float>(x); }
static inline float __uint_as_float(unsigned x) { return simt::numbers::punned<float>(x); }
static inline long long __double_as_longlong(double x) {
    return simt::numbers::punned<long long>(x);
}
static inline double __longlong_as_double(long long x) { return simt::numbers::punned<double>(x); }
static inline int __double2hiint(double x) { return (int)(__double_as_longlong(x) >> 32); }
static inline int __double2loint(double x) { return (int)__double_as_longlong(x); }
static inline double __hiloint2double(int hi, int lo) {
    return simt::numbers::punned<double>((uint64_t)(unsigned)hi << 32 | (unsigned)lo);
}

// ---- floating point to integer and back --------------------------------------------------

#define SIMT_EACH_ROUNDING(M, ...) \
    M(rn, nearest, __VA_ARGS__)    \
    M(rz, zero, __VA_ARGS__)       \
    M(rd, down, __VA_ARGS__)       \
    M(ru, up, __VA_ARGS__)

#define SIMT_TO_INTEGER(SUFFIX, MODE, F, I, INAME)                                \
    static inline I __##F##2##INAME##_##SUFFIX(F x) {                             \
        return simt::numbers::to_integer<I>(x, simt::numbers::Round::MODE);       \
    }
#define SIMT_FROM_INTEGER(SUFFIX, MODE, F, I, INAME)                              \
    static inline F __##INAME##2##F##_##SUFFIX(I x) {                             \
        return simt::numbers::from_integer<F>(x, simt::numbers::Round::MODE);     \
    }
SIMT_EACH_ROUNDING(SIMT_TO_INTEGER, float, int, int)
SIMT_EACH_ROUNDING(SIMT_TO_INTEGER, float, unsigned, uint)
SIMT_EACH_ROUNDING(SIMT_TO_INTEGER, float, long long, ll)
SIMT_EACH_ROUNDING(SIMT_TO_INTEGER, float, unsigned long long, ull)
SIMT_EACH_ROUNDING(SIMT_TO_INTEGER, double, int, int)
SIMT_EACH_ROUNDING(SIMT_TO_INTEGER, double, unsigned, uint)
SIMT_EACH_ROUNDING(SIMT_TO_INTEGER, double, long long, ll)
SIMT_EACH_ROUNDING(SIMT_TO_INTEGER, double, unsigned long long, ull)
SIMT_EACH_ROUNDING(SIMT_FROM_INTEGER, float, int, int)
SIMT_EACH_ROUNDING(SIMT_FROM_INTEGER, float, unsigned, uint)
SIMT_EACH_ROUNDING(SIMT_FROM_INTEGER, float, long long, ll)
SIMT_EACH_ROUNDING(SIMT_FROM_INTEGER, float, unsigned long long, ull)
SIMT_EACH_ROUNDING(SIMT_FROM_INTEGER, double, long long, ll)
SIMT_EACH_ROUNDING(SIMT_FROM_INTEGER, double, unsigned long long, ull)
#undef SIMT_TO_INTEGER
#undef SIMT_FROM_INTEGER

static inline double __int2double_rn(int x) { return x; }
static inline double __uint2double_rn(unsigned x) { return x; }

#define SIMT_DOUBLE_TO_FLOAT(SUFFIX, MODE, F)                                     \
    static inline F __double2float_##SUFFIX(double x) {                           \
        return simt::numbers::to_float(x, simt::numbers::Round::MODE);            \
    }
SIMT_EACH_ROUNDING(SIMT_DOUBLE_TO_FLOAT, float)
#undef SIMT_DOUBLE_TO_FLOAT

// ---- SIMD in a word ----------------------------------------------------------------------

namespace simt {
namespace numbers {

// f for each pair of lanes, of type Lane; the low bits of what it returns are the result's lane.
template <class Lane, class F>
static inline unsigned lanes(unsigned a, unsigned b, F f) {
    constexpr int bits = 8 * sizeof(Lane);
    unsigned result = 0;
    for (int i = 0; i < 32; i += bits) {
        const unsigned lane = (unsigned)f((int)(Lane)(a >> i), (int)(Lane)(b >> i));
        result |= (unsigned)(std::make_unsigned_t<Lane>)lane << i;
    }
    return result;
}
template <class Lane, class F>
static inline unsigned lanes(unsigned a, unsigned b, unsigned c, F f) {
    constexpr int bits = 8 * sizeof(Lane);
    unsigned result = 0;
    for (int i = 0; i < 32; i += bits) {
        const unsigned lane = (unsigned)f((int)(Lane)(a >> i), (int)(Lane)(b >> i), (Lane)(c >> i));
        result |= (unsigned)(std::make_unsigned_t<Lane>)lane << i;
    }
    return result;
}
template <class Lane, class F>
static inline unsigned sum_of_lanes(unsigned a, unsigned b, F f) {
    constexpr int bits = 8 * sizeof(Lane);
    unsigned result = 0;
    for (int i = 0; i < 32; i += bits)
        result += (unsigned)f((int)(Lane)(a >> i), (int)(Lane)(b >> i));
    return result;
}

template <class T>
static inline T larger(T a, T b) { return a > b ? a : b; }
template <class T>
static inline T smaller(T a, T b) { return a < b ? a : b; }
template <class Lane>
static inline int saturated(int x) {
    return larger<int>(std::numeric_limits<Lane>::min(),
                       smaller<int>(std::numeric_limits<Lane>::max(), x));
}
static inline int distance(int a, int b) { return a > b ? a - b : b - a; }

}  // namespace numbers
}  // namespace simt

#define SIMT_SIMD1(NAME, LANE, ...)                                                        \
    static inline unsigned NAME(unsigned word) {                                           \
        return simt::numbers::lanes<LANE>(word, 0u, [](int a, int) { return __VA_ARGS__; }); \
    }
#define SIMT_SIMD2(NAME, LANE, ...)                                                        \
    static inline unsigned NAME(unsigned x, unsigned y) {                                  \
        return simt::numbers::lanes<LANE>(x, y, [](int a, int b) { return __VA_ARGS__; }); \
    }
#define SIMT_SIMD_COMPARE(NAME, N, LANE, OP)                                               \
    SIMT_SIMD2(__vcmp##NAME##N, LANE, a OP b ? -1 : 0)                                     \
    SIMT_SIMD2(__vset##NAME##N, LANE, a OP b ? 1 : 0)
#define SIMT_SIMD_SUM(NAME, LANE)                                                          \
    static inline unsigned NAME(unsigned x, unsigned y) {                                  \
        return simt::numbers::sum_of_lanes<LANE>(x, y, simt::numbers::distance);           \
    }
// S and U are the signed and unsigned lane of N lanes in a word. Suffixes: ss and us saturate, s
// and u say how lanes are read.
#define SIMT_SIMD(N, S, U)                                                                 \
    SIMT_SIMD1(__vabs##N, S, a < 0 ? -a : a)                                               \
    SIMT_SIMD1(__vabsss##N, S, simt::numbers::saturated<S>(a < 0 ? -a : a))                \
    SIMT_SIMD1(__vneg##N, S, -a)                                                           \
    SIMT_SIMD1(__vnegss##N, S, simt::numbers::saturated<S>(-a))                            \
    SIMT_SIMD2(__vadd##N, U, a + b)                                                        \
    SIMT_SIMD2(__vaddss##N, S, simt::numbers::saturated<S>(a + b))                         \
    SIMT_SIMD2(__vaddus##N, U, simt::numbers::saturated<U>(a + b))                         \
    SIMT_SIMD2(__vsub##N, U, a - b)                                                        \
    SIMT_SIMD2(__vsubss##N, S, simt::numbers::saturated<S>(a - b))                         \
    SIMT_SIMD2(__vsubus##N, U, simt::numbers::saturated<U>(a - b))                         \
    SIMT_SIMD2(__vavgs##N, S, (a + b + (a + b >= 0)) >> 1)                                 \
    SIMT_SIMD2(__vavgu##N, U, (a + b + 1) >> 1)                                            \
    SIMT_SIMD2(__vhaddu##N, U, (a + b) >> 1)                                               \
    SIMT_SIMD2(__vmaxs##N, S, a > b ? a : b)                                               \
    SIMT_SIMD2(__vmaxu##N, U, a > b ? a : b)                                               \
    SIMT_SIMD2(__vmins##N, S, a < b ? a : b)                                               \
    SIMT_SIMD2(__vminu##N, U, a < b ? a : b)                                               \
    SIMT_SIMD2(__vabsdiffs##N, S, simt::numbers::distance(a, b))                           \
    SIMT_SIMD2(__vabsdiffu##N, U, simt::numbers::distance(a, b))                           \
    SIMT_SIMD_SUM(__vsads##N, S)                                                           \
    SIMT_SIMD_SUM(__vsadu##N, U)                                                           \
    SIMT_SIMD_COMPARE(eq, N, U, ==)                                                        \
    SIMT_SIMD_COMPARE(ne, N, U, !=)                                                        \
    SIMT_SIMD_COMPARE(ges, N, S, >=)                                                       \
    SIMT_SIMD_COMPARE(geu, N, U, >=)                                                       \
    SIMT_SIMD_COMPARE(gts, N, S, >)                                                        \
    SIMT_SIMD_COMPARE(gtu, N, U, >)                                                        \
    SIMT_SIMD_COMPARE(les, N, S, <=)                                                       \
    SIMT_SIMD_COMPARE(leu, N, U, <=)                                                       \
    SIMT_SIMD_COMPARE(lts, N, S, <)                                                        \
    SIMT_SIMD_COMPARE(ltu, N, U, <)
SIMT_SIMD(2, int16_t, uint16_t)
SIMT_SIMD(4, int8_t, uint8_t)
#undef SIMT_SIMD
#undef SIMT_SIMD_SUM
#undef SIMT_SIMD_COMPARE
#undef SIMT_SIMD2
#undef SIMT_SIMD1

// ---- fused minima and maxima (DPX) -------------------------------------------------------

// PICK is larger or smaller; sums wrap. relu: not below 0.
#define SIMT_DPX(WORD, PICK)                                                               \
    static inline int __vi##WORD##_s32_relu(int a, int b) {                                \
        return simt::numbers::larger(simt::numbers::PICK(a, b), 0);                        \
    }                                                                                      \
    static inline int __vi##WORD##3_s32(int a, int b, int c) {                             \
        return simt::numbers::PICK(simt::numbers::PICK(a, b), c);                          \
    }                                                                                      \
    static inline int __vi##WORD##3_s32_relu(int a, int b, int c) {                        \
        return simt::numbers::larger(__vi##WORD##3_s32(a, b, c), 0);                       \
    }                                                                                      \
    static inline unsigned __vi##WORD##3_u32(unsigned a, unsigned b, unsigned c) {         \
        return simt::numbers::PICK(simt::numbers::PICK(a, b), c);                          \
    }                                                                                      \
    static inline int __viadd##WORD##_s32(int a, int b, int c) {                           \
        return simt::numbers::PICK((int)((unsigned)a + (unsigned)b), c);                   \
    }                                                                                      \
    static inline int __viadd##WORD##_s32_relu(int a, int b, int c) {                      \
        return simt::numbers::larger(__viadd##WORD##_s32(a, b, c), 0);                     \
    }                                                                                      \
    static inline unsigned __viadd##WORD##_u32(unsigned a, unsigned b, unsigned c) {       \
        return simt::numbers::PICK(a + b, c);                                              \
    }                                                                                      \
    static inline unsigned __vi##WORD##_s16x2_relu(unsigned x, unsigned y) {               \
        return simt::numbers::lanes<int16_t>(x, y, [](int a, int b) {                      \
            return simt::numbers::larger(simt::numbers::PICK(a, b), 0);                    \
        });                                                                                \
    }                                                                                      \
    SIMT_DPX_LANES(__vi##WORD##3_s16x2, int16_t, __vi##WORD##3_s32(a, b, c))               \
    SIMT_DPX_LANES(__vi##WORD##3_s16x2_relu, int16_t, __vi##WORD##3_s32_relu(a, b, c))     \
    SIMT_DPX_LANES(__vi##WORD##3_u16x2, uint16_t, __vi##WORD##3_s32(a, b, c))              \
    SIMT_DPX_LANES(__viadd##WORD##_s16x2, int16_t, simt::numbers::PICK<int>((int16_t)(a + b), c)) \
    SIMT_DPX_LANES(__viadd##WORD##_s16x2_relu, int16_t,                                    \
                   simt::numbers::larger(simt::numbers::PICK<int>((int16_t)(a + b), c), 0)) \
    SIMT_DPX_LANES(__viadd##WORD##_u16x2, uint16_t, simt::numbers::PICK<int>((uint16_t)(a + b), c))
#define SIMT_DPX_LANES(NAME, LANE, ...)                                                    \
    static inline unsigned NAME(unsigned x, unsigned y, unsigned z) {                      \
        return simt::numbers::lanes<LANE>(x, y, z,                                         \
                                          [](int a, int b, int c) { return __VA_ARGS__; }); \
    }
SIMT_DPX(max, larger)
SIMT_DPX(min, smaller)
#undef SIMT_DPX
#undef SIMT_DPX_LANES

// The larger (max) or smaller (min); *pred says whether it is the first.
#define SIMT_DPX_WHICH(WORD, OP)                                                           \
    static inline int __vib##WORD##_s32(int a, int b, bool* pred) {                        \
        return (*pred = a OP b) ? a : b;                                                   \
    }                                                                                      \
    static inline unsigned __vib##WORD##_u32(unsigned a, unsigned b, bool* pred) {         \
        return (*pred = a OP b) ? a : b;                                                   \
    }                                                                                      \
    static inline unsigned __vib##WORD##_s16x2(unsigned a, unsigned b, bool* pred_hi,      \
                                               bool* pred_lo) {                            \
        *pred_hi = (int16_t)(a >> 16) OP (int16_t)(b >> 16);                               \
        *pred_lo = (int16_t)a OP (int16_t)b;                                               \
        return ((*pred_hi ? a : b) & 0xffff0000u) | ((*pred_lo ? a : b) & 0xffffu);        \
    }                                                                                      \
    static inline unsigned __vib##WORD##_u16x2(unsigned a, unsigned b, bool* pred_hi,      \
                                               bool* pred_lo) {                            \
        *pred_hi = a >> 16 OP b >> 16;                                                     \
        *pred_lo = (uint16_t)a OP (uint16_t)b;                                             \
        return ((*pred_hi ? a : b) & 0xffff0000u) | ((*pred_lo ? a : b) & 0xffffu);        \
    }
SIMT_DPX_WHICH(max, >=)
SIMT_DPX_WHICH(min, <=)
#undef SIMT_DPX_WHICH
