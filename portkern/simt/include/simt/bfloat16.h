// bfloat16: CUDA's __nv_bfloat16 and HIP's __hip_bfloat16, which are one type here.
#pragma once
#include "half.h"

namespace simt {
namespace numbers {

struct Brain16 : Narrow<8, 7, Beyond::infinity> {
    static constexpr unsigned one = 0x3f80;
    static constexpr bool fma_fits_double = false;  // exponents reach too far apart

#ifdef SIMT_RING
    static unsigned encode(float x) { return simt_ring_f32_to_bf16(punned<uint32_t>(x)); }
    static unsigned encode(double x, Round, bool = false) { return encode(float(x)); }
    static float decode(unsigned code) {
        return punned<float>(simt_ring_bf16_to_f32((uint16_t)code));
    }
#else
    using Narrow::encode;
    static unsigned encode(float x) {
        const uint32_t bits = punned<uint32_t>(x);
        if (__builtin_expect(x != x, 0)) return hip ? bits >> 16 | ((bits & 0xffff) != 0) : nan;
        return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    }
    static float decode(unsigned code) { return punned<float>(code << 16); }
#endif
};

}  // namespace numbers
}  // namespace simt

struct alignas(2) __nv_bfloat16_raw {
    unsigned short x;
};
struct alignas(4) __nv_bfloat162_raw {
    unsigned short x, y;
};

#if defined(__CUDA_NO_BFLOAT16_CONVERSIONS__)
#define SIMT_BFLOAT16_BASE simt::numbers::Bits16<__nv_bfloat16_raw, simt::numbers::Brain16>
#else
#define SIMT_BFLOAT16_BASE simt::numbers::Float16<__nv_bfloat16_raw, simt::numbers::Brain16>
#endif

struct alignas(2) __nv_bfloat16 : SIMT_BFLOAT16_BASE {
    using simt_base = SIMT_BFLOAT16_BASE;
    using simt_base::simt_base;
    __nv_bfloat16() = default;
#if !defined(__CUDA_NO_BFLOAT16_CONVERSIONS__)
    explicit __nv_bfloat16(__half x) : simt_base(simt::numbers::value(x)) {}
#endif
    __nv_bfloat16& operator=(const __nv_bfloat16_raw& raw) {
        __x = raw.x;
        return *this;
    }
    void operator=(const __nv_bfloat16_raw& raw) volatile { __x = raw.x; }
    void operator=(const volatile __nv_bfloat16_raw& raw) volatile { __x = raw.x; }
};
SIMT_F16_PAIR(__nv_bfloat16, __nv_bfloat162, __nv_bfloat16_raw, __nv_bfloat162_raw)

using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;
using __hip_bfloat16 = __nv_bfloat16;
using __hip_bfloat162 = __nv_bfloat162;
using __hip_bfloat16_raw = __nv_bfloat16_raw;
using __hip_bfloat162_raw = __nv_bfloat162_raw;

#if !defined(__CUDA_NO_HALF_CONVERSIONS__) && !defined(__HIP_NO_HALF_CONVERSIONS__)
inline __half::__half(__nv_bfloat16 x) : simt_base(simt::numbers::value(x)) {}
#endif

SIMT_F16_INTRINSICS(__nv_bfloat16, __nv_bfloat162, bfloat16, bfloat162)
#if !defined(__CUDA_NO_BFLOAT16_OPERATORS__)
SIMT_F16_SCALAR_OPERATORS(__nv_bfloat16)
#endif
#if !defined(__CUDA_NO_BFLOAT162_OPERATORS__)
SIMT_F16_PAIR_OPERATORS(__nv_bfloat16, __nv_bfloat162)
#endif

#define __CUDA_BF16_TYPES_EXIST__
#define CUDART_INF_BF16 __ushort_as_bfloat16((unsigned short)0x7F80U)
#define CUDART_NAN_BF16 __ushort_as_bfloat16((unsigned short)0x7FFFU)
#define CUDART_MIN_DENORM_BF16 __ushort_as_bfloat16((unsigned short)0x0001U)
#define CUDART_MAX_NORMAL_BF16 __ushort_as_bfloat16((unsigned short)0x7F7FU)
#define CUDART_NEG_ZERO_BF16 __ushort_as_bfloat16((unsigned short)0x8000U)
#define CUDART_ZERO_BF16 __ushort_as_bfloat16((unsigned short)0x0000U)
#define CUDART_ONE_BF16 __ushort_as_bfloat16((unsigned short)0x3F80U)
#define HIPRT_INF_BF16 CUDART_INF_BF16
#define HIPRT_NAN_BF16 CUDART_NAN_BF16
#define HIPRT_MIN_DENORM_BF16 CUDART_MIN_DENORM_BF16
#define HIPRT_MAX_NORMAL_BF16 CUDART_MAX_NORMAL_BF16
#define HIPRT_NEG_ZERO_BF16 CUDART_NEG_ZERO_BF16
#define HIPRT_ZERO_BF16 CUDART_ZERO_BF16
#define HIPRT_ONE_BF16 CUDART_ONE_BF16
