// clang's builtins for AMD GPUs other than the matrix instructions: lanes, barriers, bits, numbers.
#pragma once
#include "ext_vector.h"
#include "loads.h"
#include "math.h"
#include "narrow.h"
#include "warp.h"
#include "atomics.h"

// ---- who and where -----------------------------------------------------------------------

static inline unsigned __builtin_amdgcn_workitem_id_x() { return threadIdx.x; }
static inline unsigned __builtin_amdgcn_workitem_id_y() { return threadIdx.y; }
static inline unsigned __builtin_amdgcn_workitem_id_z() { return threadIdx.z; }
static inline unsigned __builtin_amdgcn_workgroup_id_x() { return blockIdx.x; }
static inline unsigned __builtin_amdgcn_workgroup_id_y() { return blockIdx.y; }
static inline unsigned __builtin_amdgcn_workgroup_id_z() { return blockIdx.z; }
static inline unsigned short __builtin_amdgcn_workgroup_size_x() { return blockDim.x; }
static inline unsigned short __builtin_amdgcn_workgroup_size_y() { return blockDim.y; }
static inline unsigned short __builtin_amdgcn_workgroup_size_z() { return blockDim.z; }
static inline unsigned __builtin_amdgcn_grid_size_x() { return gridDim.x * blockDim.x; }
static inline unsigned __builtin_amdgcn_grid_size_y() { return gridDim.y * blockDim.y; }
static inline unsigned __builtin_amdgcn_grid_size_z() { return gridDim.z * blockDim.z; }
static inline unsigned __builtin_amdgcn_wavefrontsize() { return (unsigned)warpSize; }

// The lanes below this one that `mask` names: lo counts the first 32, hi the others.
static inline unsigned __builtin_amdgcn_mbcnt_lo(unsigned mask, unsigned base) {
    const int lane = simt::lane_id();
    return base + (unsigned)__builtin_popcount(lane < 32 ? mask & ((1u << lane) - 1) : mask);
}
static inline unsigned __builtin_amdgcn_mbcnt_hi(unsigned mask, unsigned base) {
    const int lane = simt::lane_id();
    return base + (lane < 32 ? 0 : (unsigned)__builtin_popcount(mask & ((1u << (lane - 32)) - 1)));
}

// ---- barriers, fences, hints -------------------------------------------------------------

static inline void __builtin_amdgcn_s_barrier(SIMT_AT) { simt::block_barrier(at); }
// A barrier in two parts: the second one is where all meet.
static inline void __builtin_amdgcn_s_barrier_signal(int) {}
static inline void __builtin_amdgcn_s_barrier_wait(short, SIMT_AT) {
    simt::block_barrier(at);
}
// Holds the compiler back, and the lanes that stand here together.
static inline void __builtin_amdgcn_wave_barrier(SIMT_AT) {
    simt::warp_barrier(simt::converged, at);
}
// The order is that of a full fence; the scope is LLVM's name of it.
template <class... More>
static inline void __builtin_amdgcn_fence(unsigned, const char* scope, More...) {
    const bool device = !strncmp(scope, "agent", 5);
    const bool system = !*scope || !strncmp(scope, "one-as", 6);
    simt::fence(system ? simt::Scope::system : device ? simt::Scope::device : simt::Scope::block);
}
static inline void __builtin_amdgcn_s_waitcnt(int) {}
static inline void __builtin_amdgcn_sched_barrier(int) {}
static inline void __builtin_amdgcn_sched_group_barrier(int, int, int) {}
static inline void __builtin_amdgcn_iglp_opt(int) {}
static inline void __builtin_amdgcn_s_setprio(short) {}
static inline void __builtin_amdgcn_s_dcache_inv() {}
static inline void __builtin_amdgcn_s_sleep(int) { simt::spin(); }
static inline void __builtin_amdgcn_s_sleep_var(unsigned) { simt::spin(); }
static inline uint64_t __builtin_amdgcn_s_memtime() { return (uint64_t)simt::device_clock(); }
static inline uint64_t __builtin_amdgcn_s_memrealtime() { return (uint64_t)simt::device_clock(); }
static inline bool __builtin_amdgcn_is_shared(const void* p) { return simt::is_shared(p); }
static inline bool __builtin_amdgcn_is_private(const void* p) {
    return !simt::is_shared(p) && !simt::is_global(p);
}

// ---- values of other lanes ---------------------------------------------------------------

namespace simt {
namespace amd {

// Different operations do not meet, wherever they stand in the source; below 16 are warp.h's own.
enum Kind { kind_bpermute = 16, kind_swizzle, kind_dpp, kind_dpp8, kind_row, kind_half, kind_lane };

// Lane `source`'s value, or 0 if it does not stand here.
template <int kind, class T>
SIMT_NO_CHECK static inline T value_or_zero(T value, int source, bool& found, Site at) {
    using W = Word<sizeof(T)>;
    Shuffle<W> own;
    own.value = same_bits<W>(value);
    own.source = source;
    meet(converged, own, exchange<W, kind>, at);
    found = own.found;
    return same_bits<T>(found ? own.result : (W)0);
}

template <class T>
struct First {
    T value;
};
template <class T>
SIMT_NO_CHECK inline void copy_first(First<T>* const* own, Mask present) {
    const T value = own[__builtin_ctzll(present)]->value;
    for (Mask m = present; m; m &= m - 1) own[__builtin_ctzll(m)]->value = value;
}
template <class T>
SIMT_NO_CHECK static inline T first_lane(T value, Site at) {
    First<T> own = {value};
    meet(converged, own, copy_first<T>, at);
    return own.value;
}

struct Push {
    int value, to, result;
};
SIMT_NO_CHECK inline void push(Push* const* own, Mask present) {
    for (Mask m = present; m; m &= m - 1) {
        const Push& from = *own[__builtin_ctzll(m)];
        if (own[from.to]) own[from.to]->result = from.value;
    }
}

// Byte addresses of lanes wrap at the size of the wave.
static inline int lane_of(int address) { return (address >> 2) & (warpSize - 1); }

// The lane a data-parallel primitive reads, or -1 where there is none ("DPP" in the ISA guides).
static inline int dpp_source(int control, int lane) {
    const int row = lane & ~15, place = lane & 15, by = control & 15;
    if (control < 0x100) return (lane & ~3) | (control >> 2 * (lane & 3) & 3);  // quad_perm
    switch (control & 0x1f0) {
        case 0x100: return place + by < 16 ? lane + by : -1;    // row_shl
        case 0x110: return place >= by ? lane - by : -1;        // row_shr
        case 0x120: return row | ((place - by) & 15);           // row_ror
        case 0x150: return row | by;                            // row_share, row_newbcast
        case 0x160: return row | (place ^ by);                  // row_xmask
        default: break;
    }
    const int last = warpSize - 1;
    switch (control) {
        case 0x130: return lane < last ? lane + 1 : -1;         // wave_shl
        case 0x134: return (lane + 1) & last;                   // wave_rol
        case 0x138: return lane - 1;                            // wave_shr
        case 0x13c: return (lane - 1) & last;                   // wave_ror
        case 0x140: return row | (15 - place);                  // row_mirror
        case 0x141: return (lane & ~7) | (7 - (lane & 7));      // row_half_mirror
        case 0x142: return row - 1;                             // row_bcast15
        case 0x143: return lane >= 32 ? 31 : -1;                // row_bcast31
        default: return -2;
    }
}

// Lanes whose row or bank is masked out, or which read nowhere, keep `old`; with `bound` the
// latter get 0.
template <class T>
static inline T dpp(T old, T value, int control, int rows, int banks, bool bound, Site at) {
    const int lane = lane_id(), source = dpp_source(control, lane);
    if (source == -2) fatal(406, at, "DPP control %#x is not modelled", control);
    bool found;
    const T got = value_or_zero<kind_dpp>(value, source < 0 ? lane : source, found, at);
    if (!(rows >> lane / 16 & 1) || !(banks >> lane % 16 / 4 & 1)) return old;
    if (source >= 0 && found) return got;
    return bound ? same_bits<T>((Word<sizeof(T)>)0) : old;
}

// Within 32 lanes, or within 4 if bit 15 is set ("DS_SWIZZLE_B32").
static inline int swizzle_source(int pattern, int lane, Site at) {
    if (pattern & 0x8000) {
        if (pattern & 0x4000) fatal(406, at, "ds_swizzle pattern %#x is not modelled", pattern);
        return (lane & ~3) | (pattern >> 2 * (lane & 3) & 3);
    }
    const int place = lane & 31;
    return (lane & ~31) | (((place & pattern) | (pattern >> 5 & 31)) ^ (pattern >> 10 & 31));
}

// One of the 16 lanes of `row`, as 4 bits for each lane say.
static inline unsigned permute_row(unsigned old, unsigned value, int row, unsigned low,
                                   unsigned high, bool bound, Site at) {
    const int place = lane_id() & 15;
    const int source = row + (int)((place < 8 ? low : high) >> 4 * (place & 7) & 15);
    bool found;
    const unsigned got = value_or_zero<kind_row>(value, source & (warpSize - 1), found, at);
    return found || bound ? got : old;
}

}  // namespace amd
}  // namespace simt

// Of ints: a float that is passed is converted, as clang does.
static inline int __builtin_amdgcn_readfirstlane(int value, SIMT_AT) {
    return simt::amd::first_lane(value, at);
}
static inline int __builtin_amdgcn_readlane(int value, int lane, SIMT_AT) {
    const int source = lane & (warpSize - 1);
    return simt::shuffle_from<simt::amd::kind_lane>(simt::converged, value, source, at);
}
static inline int __builtin_amdgcn_ds_bpermute(int address, int value, SIMT_AT) {
    bool found;
    const int source = simt::amd::lane_of(address);
    return simt::amd::value_or_zero<simt::amd::kind_bpermute>(value, source, found, at);
}
SIMT_NO_CHECK static inline int __builtin_amdgcn_ds_permute(int address, int value, SIMT_AT) {
    simt::amd::Push own = {value, simt::amd::lane_of(address), 0};
    simt::meet(simt::converged, own, simt::amd::push, at);
    return own.result;
}
static inline int __builtin_amdgcn_ds_swizzle(int value, int pattern, SIMT_AT) {
    bool found;
    const int source = simt::amd::swizzle_source(pattern, simt::lane_id(), at);
    return simt::amd::value_or_zero<simt::amd::kind_swizzle>(value, source, found, at);
}
template <class T>
static inline T __builtin_amdgcn_update_dpp(T old, T value, int control, int row_mask,
                                            int bank_mask, bool bound_control, SIMT_AT) {
    return simt::amd::dpp(old, value, control, row_mask, bank_mask, bound_control, at);
}
// What lanes without a source get is not defined: a NaN, or the largest integer, shows.
template <class T>
static inline T __builtin_amdgcn_mov_dpp(T value, int control, int row_mask, int bank_mask,
                                         bool bound_control, SIMT_AT) {
    using W = simt::Word<sizeof(T)>;
    const T old = simt::same_bits<T>((W)((W)~W{0} >> 1));
    return simt::amd::dpp(old, value, control, row_mask, bank_mask, bound_control, at);
}
// 3 bits for each lane of 8.
static inline unsigned __builtin_amdgcn_mov_dpp8(unsigned value, unsigned selectors, SIMT_AT) {
    const int lane = simt::lane_id();
    bool found;
    const int source = (lane & ~7) | (int)(selectors >> 3 * (lane & 7) & 7);
    return simt::amd::value_or_zero<simt::amd::kind_dpp8>(value, source, found, at);
}
static inline unsigned __builtin_amdgcn_permlane16(unsigned old, unsigned value, unsigned low,
                                                   unsigned high, bool, bool bound_control,
                                                   SIMT_AT) {
    const int row = simt::lane_id() & ~15;
    return simt::amd::permute_row(old, value, row, low, high, bound_control, at);
}
static inline unsigned __builtin_amdgcn_permlanex16(unsigned old, unsigned value, unsigned low,
                                                    unsigned high, bool, bool bound_control,
                                                    SIMT_AT) {
    const int row = (simt::lane_id() & ~15) ^ 16;
    return simt::amd::permute_row(old, value, row, low, high, bound_control, at);
}
static inline unsigned __builtin_amdgcn_permlane64(unsigned value, SIMT_AT) {
    bool found;
    const int lane = simt::lane_id(), source = warpSize == 64 ? lane ^ 32 : lane;
    return simt::amd::value_or_zero<simt::amd::kind_half>(value, source, found, at);
}
static inline uint32_t __builtin_amdgcn_ballot_w32(bool p, SIMT_AT) {
    return (uint32_t)simt::vote(simt::converged, p, at);
}
static inline uint64_t __builtin_amdgcn_ballot_w64(bool p, SIMT_AT) {
    return simt::vote(simt::converged, p, at);
}
static inline uint64_t __builtin_amdgcn_read_exec(SIMT_AT) { return simt::active_mask(at); }
static inline uint32_t __builtin_amdgcn_read_exec_lo(SIMT_AT) {
    return (uint32_t)simt::active_mask(at);
}
static inline uint32_t __builtin_amdgcn_read_exec_hi(SIMT_AT) {
    return (uint32_t)(simt::active_mask(at) >> 32);
}

// ---- bits --------------------------------------------------------------------------------

static inline unsigned __builtin_amdgcn_ubfe(unsigned x, unsigned from, unsigned count) {
    return x >> (from & 31) & ((1u << (count & 31)) - 1);
}
static inline int __builtin_amdgcn_sbfe(int x, unsigned from, unsigned count) {
    from &= 31, count &= 31;
    if (!count) return 0;
    const unsigned field = from + count < 32 ? (unsigned)x << (32 - from - count) : (unsigned)x;
    return (int)field >> (from + count < 32 ? 32 - count : from);
}
static inline unsigned __builtin_amdgcn_alignbit(unsigned hi, unsigned lo, unsigned shift) {
    return __funnelshift_r(lo, hi, shift);
}
static inline unsigned __builtin_amdgcn_alignbyte(unsigned hi, unsigned lo, unsigned shift) {
    return __funnelshift_r(lo, hi, 8 * (shift & 3));
}
// Bytes of hi:lo by number; 8 to 11 spread a sign, 12 is 0x00, more is 0xff ("V_PERM_B32").
static inline unsigned __builtin_amdgcn_perm(unsigned hi, unsigned lo, unsigned selectors) {
    const uint64_t bytes = (uint64_t)hi << 32 | lo;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        const unsigned s = selectors >> 8 * i & 0xff;
        unsigned byte = s > 12 ? 0xff : 0;
        if (s < 8) byte = (unsigned)(bytes >> 8 * s) & 0xff;
        else if (s < 12) byte = bytes >> (16 * (s - 8) + 15) & 1 ? 0xff : 0;
        result |= byte << 8 * i;
    }
    return result;
}
// Averages of bytes; the low bits of c say which to round up.
static inline unsigned __builtin_amdgcn_lerp(unsigned a, unsigned b, unsigned c) {
    unsigned result = 0;
    for (int i = 0; i < 32; i += 8)
        result |= (((a >> i & 0xff) + (b >> i & 0xff) + (c >> i & 1)) >> 1) << i;
    return result;
}
static inline unsigned __builtin_amdgcn_sad_u8(unsigned a, unsigned b, unsigned c) {
    return c + __vsadu4(a, b);
}
static inline unsigned __builtin_amdgcn_sad_hi_u8(unsigned a, unsigned b, unsigned c) {
    return c + (__vsadu4(a, b) << 16);
}
static inline unsigned __builtin_amdgcn_sad_u16(unsigned a, unsigned b, unsigned c) {
    return c + __vsadu2(a, b);
}

namespace simt {
namespace amd {

// c + sum of products of the elements of two words, modulo 2^32 or clamped to R.
template <class R, class A, class B>
static inline R dot(uint32_t a, uint32_t b, R c, bool clamp) {
    constexpr int bits = 8 * sizeof(A);
    int64_t sum = c;
    for (int i = 0; i < 32; i += bits) sum += (int64_t)(A)(a >> i) * (B)(b >> i);
    using Limits = std::numeric_limits<R>;
    if (clamp && sum > (int64_t)Limits::max()) return Limits::max();
    if (clamp && sum < (int64_t)Limits::min()) return Limits::min();
    return (R)sum;
}
template <class R, bool A, bool B>
static inline R dot_of_nibbles(uint32_t a, uint32_t b, R c, bool clamp) {
    int64_t sum = c;
    for (int i = 0; i < 32; i += 4) {
        const int x = (int)(a >> i & 15), y = (int)(b >> i & 15);
        sum += (A ? (x ^ 8) - 8 : x) * (B ? (y ^ 8) - 8 : y);
    }
    using Limits = std::numeric_limits<R>;
    if (clamp && sum > (int64_t)Limits::max()) return Limits::max();
    if (clamp && sum < (int64_t)Limits::min()) return Limits::min();
    return (R)sum;
}
template <class N, class V>
static inline float dot_of_pairs(const V& a, const V& b, float c, bool clamp) {
    static_assert(sizeof(V) == 4, "two elements of 16 bits");
    N x[2], y[2];
    memcpy((void*)x, (const void*)&a, 4);
    memcpy((void*)y, (const void*)&b, 4);
    const double exact = (double)(float)x[0] * (float)y[0] + (double)(float)x[1] * (float)y[1];
    const float sum = (float)(exact + c);
    return clamp ? std::fmin(std::fmax(sum, 0.0f), 1.0f) : sum;
}

}  // namespace amd
}  // namespace simt

static inline int __builtin_amdgcn_sdot4(int a, int b, int c, bool clamp) {
    return simt::amd::dot<int, int8_t, int8_t>((unsigned)a, (unsigned)b, c, clamp);
}
static inline unsigned __builtin_amdgcn_udot4(unsigned a, unsigned b, unsigned c, bool clamp) {
    return simt::amd::dot<unsigned, uint8_t, uint8_t>(a, b, c, clamp);
}
static inline int __builtin_amdgcn_sudot4(bool a_signed, int a, bool b_signed, int b, int c,
                                          bool clamp) {
    const unsigned x = (unsigned)a, y = (unsigned)b;
    if (a_signed)
        return b_signed ? simt::amd::dot<int, int8_t, int8_t>(x, y, c, clamp)
                        : simt::amd::dot<int, int8_t, uint8_t>(x, y, c, clamp);
    return b_signed ? simt::amd::dot<int, uint8_t, int8_t>(x, y, c, clamp)
                    : simt::amd::dot<int, uint8_t, uint8_t>(x, y, c, clamp);
}
static inline int __builtin_amdgcn_sdot8(int a, int b, int c, bool clamp) {
    return simt::amd::dot_of_nibbles<int, true, true>((unsigned)a, (unsigned)b, c, clamp);
}
static inline unsigned __builtin_amdgcn_udot8(unsigned a, unsigned b, unsigned c, bool clamp) {
    return simt::amd::dot_of_nibbles<unsigned, false, false>(a, b, c, clamp);
}
template <class V>
static inline int __builtin_amdgcn_sdot2(V a, V b, int c, bool clamp) {
    const auto x = simt::numbers::punned<uint32_t>(a), y = simt::numbers::punned<uint32_t>(b);
    return simt::amd::dot<int, int16_t, int16_t>(x, y, c, clamp);
}
template <class V>
static inline unsigned __builtin_amdgcn_udot2(V a, V b, unsigned c, bool clamp) {
    const auto x = simt::numbers::punned<uint32_t>(a), y = simt::numbers::punned<uint32_t>(b);
    return simt::amd::dot<unsigned, uint16_t, uint16_t>(x, y, c, clamp);
}
template <class V>
static inline float __builtin_amdgcn_fdot2(V a, V b, float c, bool clamp) {
    return simt::amd::dot_of_pairs<simt::f16>(a, b, c, clamp);
}
template <class V>
static inline float __builtin_amdgcn_fdot2_f32_bf16(V a, V b, float c, bool clamp) {
    return simt::amd::dot_of_pairs<simt::bf16>(a, b, c, clamp);
}

// ---- numbers -----------------------------------------------------------------------------

// Instructions within 1 ulp of these, with subnormals as the mode register says.
static inline float __builtin_amdgcn_rcpf(float x) { return 1 / x; }
static inline double __builtin_amdgcn_rcp(double x) { return 1 / x; }
static inline float __builtin_amdgcn_sqrtf(float x) { return std::sqrt(x); }
static inline double __builtin_amdgcn_sqrt(double x) { return std::sqrt(x); }
static inline float __builtin_amdgcn_rsqf(float x) { return simt::numbers::reciprocal_root(x); }
static inline double __builtin_amdgcn_rsq(double x) { return 1 / std::sqrt(x); }
static inline float __builtin_amdgcn_exp2f(float x) { return std::exp2(x); }
static inline float __builtin_amdgcn_logf(float x) { return std::log2(x); }
// The argument counts turns.
static inline float __builtin_amdgcn_sinf(float x) {
    return (float)simt::numbers::sin_of_pi(2 * (double)x, 0);
}
static inline float __builtin_amdgcn_cosf(float x) {
    return (float)simt::numbers::sin_of_pi(2 * (double)x, 1);
}
static inline float __builtin_amdgcn_fractf(float x) {
    return std::fmin(x - std::floor(x), 0x1.fffffep-1f);
}
static inline double __builtin_amdgcn_fract(double x) {
    return std::fmin(x - std::floor(x), 0x1.fffffffffffffp-1);
}
static inline float __builtin_amdgcn_ldexpf(float x, int by) { return std::ldexp(x, by); }
static inline double __builtin_amdgcn_ldexp(double x, int by) { return std::ldexp(x, by); }
static inline float __builtin_amdgcn_frexp_mantf(float x) {
    int exponent;
    return std::isfinite(x) ? std::frexp(x, &exponent) : x;
}
static inline int __builtin_amdgcn_frexp_expf(float x) {
    int exponent = 0;
    if (std::isfinite(x)) (void)std::frexp(x, &exponent);
    return exponent;
}
static inline float __builtin_amdgcn_fmed3f(float a, float b, float c) {
    if (a != a || b != b || c != c) return std::fmin(std::fmin(a, b), c);
    return std::fmax(std::fmin(a, b), std::fmin(std::fmax(a, b), c));
}
// Bits of `mask`: signalling NaN, quiet NaN, -inf, -normal, -subnormal, -0, +0, …, +inf.
static inline bool __builtin_amdgcn_classf(float x, int mask) {
    const bool negative = std::signbit(x);
    if (x != x) return mask >> (simt::numbers::punned<uint32_t>(x) >> 22 & 1) & 1;
    switch (std::fpclassify(x)) {
        case FP_INFINITE: return mask >> (negative ? 2 : 9) & 1;
        case FP_NORMAL: return mask >> (negative ? 3 : 8) & 1;
        case FP_SUBNORMAL: return mask >> (negative ? 4 : 7) & 1;
        default: return mask >> (negative ? 5 : 6) & 1;
    }
}

#ifdef __FLT16_MAX__
static inline simt::ext_vector<_Float16, 2> __builtin_amdgcn_cvt_pkrtz(float a, float b) {
    const simt::f16 pair[2] = {simt::f16(a, simt::numbers::Round::zero),
                               simt::f16(b, simt::numbers::Round::zero)};
    simt::ext_vector<_Float16, 2> result;
    memcpy((void*)&result, pair, sizeof result);
    return result;
}
#endif
static inline unsigned __builtin_amdgcn_cvt_pk_u8_f32(float x, unsigned byte, unsigned old) {
    const uint32_t value = simt::numbers::to_integer<uint8_t>(x, simt::numbers::Round::zero);
    const unsigned at = 8 * (byte & 3);
    return (old & ~(0xffu << at)) | value << at;
}

namespace simt {
namespace amd {

// 8-bit floats are AMD's own on gfx942, OCP's elsewhere.
static inline float from_fp8(int packed, int byte) {
    const uint32_t bits = (uint32_t)packed >> 8 * (byte & 3) & 0xff;
    return facts.fp8 == Fp8::fnuz ? narrow::read<narrow::E4m3Fnuz>(bits)
                                  : narrow::read<narrow::E4m3>(bits);
}
static inline float from_bf8(int packed, int byte) {
    const uint32_t bits = (uint32_t)packed >> 8 * (byte & 3) & 0xff;
    return facts.fp8 == Fp8::fnuz ? narrow::read<narrow::E5m2Fnuz>(bits)
                                  : narrow::read<narrow::E5m2>(bits);
}
static inline uint32_t to_fp8(float x) {
    return facts.fp8 == Fp8::fnuz ? narrow::round<narrow::E4m3Fnuz>(x)
                                  : narrow::round<narrow::E4m3>(x);
}
static inline uint32_t to_bf8(float x) {
    return facts.fp8 == Fp8::fnuz ? narrow::round<narrow::E5m2Fnuz>(x)
                                  : narrow::round<narrow::E5m2>(x);
}
static inline int insert(uint32_t pair, int old, bool upper) {
    return (int)(upper ? ((uint32_t)old & 0xffff) | pair << 16 : ((uint32_t)old & ~0xffffu) | pair);
}

}  // namespace amd
}  // namespace simt

#define SIMT_EIGHT_BITS(NAME)                                                                  \
    static inline float __builtin_amdgcn_cvt_f32_##NAME(int packed, int byte) {                \
        return simt::amd::from_##NAME(packed, byte);                                           \
    }                                                                                          \
    static inline simt::ext_vector<float, 2> __builtin_amdgcn_cvt_pk_f32_##NAME(int packed,    \
                                                                                bool upper) {  \
        return {simt::amd::from_##NAME(packed, 2 * upper),                                     \
                simt::amd::from_##NAME(packed, 2 * upper + 1)};                                \
    }                                                                                          \
    static inline int __builtin_amdgcn_cvt_pk_##NAME##_f32(float a, float b, int old,          \
                                                           bool upper) {                       \
        return simt::amd::insert(simt::amd::to_##NAME(a) | simt::amd::to_##NAME(b) << 8, old,  \
                                 upper);                                                       \
    }
SIMT_EIGHT_BITS(fp8)
SIMT_EIGHT_BITS(bf8)
#undef SIMT_EIGHT_BITS

// ---- atomics -----------------------------------------------------------------------------

#define SIMT_FLOAT_ATOMIC(NAME, T, OP)                                      \
    static inline T __builtin_amdgcn_##NAME(T* p, T value) {                \
        return simt::OP(p, value, simt::Scope::device);                     \
    }
SIMT_FLOAT_ATOMIC(global_atomic_fadd_f32, float, atomic_add)
SIMT_FLOAT_ATOMIC(global_atomic_fadd_f64, double, atomic_add)
SIMT_FLOAT_ATOMIC(flat_atomic_fadd_f32, float, atomic_add)
SIMT_FLOAT_ATOMIC(flat_atomic_fadd_f64, double, atomic_add)
SIMT_FLOAT_ATOMIC(ds_atomic_fadd_f32, float, atomic_add)
SIMT_FLOAT_ATOMIC(ds_atomic_fadd_f64, double, atomic_add)
SIMT_FLOAT_ATOMIC(global_atomic_fmin_f64, double, atomic_min)
SIMT_FLOAT_ATOMIC(global_atomic_fmax_f64, double, atomic_max)
SIMT_FLOAT_ATOMIC(flat_atomic_fmin_f64, double, atomic_min)
SIMT_FLOAT_ATOMIC(flat_atomic_fmax_f64, double, atomic_max)
#undef SIMT_FLOAT_ATOMIC
static inline uint32_t __builtin_amdgcn_atomic_inc32(volatile uint32_t* p, uint32_t most, unsigned,
                                                     const char*, bool = false) {
    return simt::atomic_inc(p, most, simt::Scope::device);
}
static inline uint32_t __builtin_amdgcn_atomic_dec32(volatile uint32_t* p, uint32_t most, unsigned,
                                                     const char*, bool = false) {
    return simt::atomic_dec(p, most, simt::Scope::device);
}
