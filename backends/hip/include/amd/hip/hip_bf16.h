// bfloat16 for HIP where ROCm's header is absent (PyPI has none): the compiler's __bf16 under the
// names that HIP gives it. Arithmetic is done in float32 and rounded once, to nearest even.
#pragma once
#include <hip/hip_runtime.h>

#define PORTKERN_HD __host__ __device__ inline

namespace portkern_bf16 {
template <bool> struct When {};
template <> struct When<true> { typedef int type; };
}  // namespace portkern_bf16

struct __hip_bfloat16 {
    __bf16 value;
    __hip_bfloat16() = default;
    PORTKERN_HD __hip_bfloat16(float v) : value(static_cast<__bf16>(v)) {}
    PORTKERN_HD __hip_bfloat16(double v) : value(static_cast<__bf16>(v)) {}
    template <typename T, typename portkern_bf16::When<__is_integral(T)>::type = 0>
    PORTKERN_HD __hip_bfloat16(T v) : value(static_cast<__bf16>(static_cast<float>(v))) {}
    PORTKERN_HD __hip_bfloat16(__bf16 v) : value(v) {}
    PORTKERN_HD operator float() const { return static_cast<float>(value); }
    PORTKERN_HD __hip_bfloat16& operator+=(__hip_bfloat16 o) { return *this = float(*this) + float(o); }
    PORTKERN_HD __hip_bfloat16& operator-=(__hip_bfloat16 o) { return *this = float(*this) - float(o); }
    PORTKERN_HD __hip_bfloat16& operator*=(__hip_bfloat16 o) { return *this = float(*this) * float(o); }
    PORTKERN_HD __hip_bfloat16& operator/=(__hip_bfloat16 o) { return *this = float(*this) / float(o); }
    PORTKERN_HD friend __hip_bfloat16 operator+(__hip_bfloat16 a) { return a; }
    PORTKERN_HD friend __hip_bfloat16 operator-(__hip_bfloat16 a) { return -float(a); }
    PORTKERN_HD friend __hip_bfloat16 operator+(__hip_bfloat16 a, __hip_bfloat16 b) { return a += b; }
    PORTKERN_HD friend __hip_bfloat16 operator-(__hip_bfloat16 a, __hip_bfloat16 b) { return a -= b; }
    PORTKERN_HD friend __hip_bfloat16 operator*(__hip_bfloat16 a, __hip_bfloat16 b) { return a *= b; }
    PORTKERN_HD friend __hip_bfloat16 operator/(__hip_bfloat16 a, __hip_bfloat16 b) { return a /= b; }
    PORTKERN_HD friend bool operator==(__hip_bfloat16 a, __hip_bfloat16 b) { return float(a) == float(b); }
    PORTKERN_HD friend bool operator!=(__hip_bfloat16 a, __hip_bfloat16 b) { return float(a) != float(b); }
    PORTKERN_HD friend bool operator<(__hip_bfloat16 a, __hip_bfloat16 b) { return float(a) < float(b); }
    PORTKERN_HD friend bool operator<=(__hip_bfloat16 a, __hip_bfloat16 b) { return float(a) <= float(b); }
    PORTKERN_HD friend bool operator>(__hip_bfloat16 a, __hip_bfloat16 b) { return float(a) > float(b); }
    PORTKERN_HD friend bool operator>=(__hip_bfloat16 a, __hip_bfloat16 b) { return float(a) >= float(b); }
};
typedef __hip_bfloat16 hip_bfloat16;  // the older header's name for the same bits

struct __hip_bfloat16_raw {
    unsigned short x;
};
struct alignas(4) __hip_bfloat162 {
    __hip_bfloat16 x, y;
    PORTKERN_HD friend __hip_bfloat162 operator+(__hip_bfloat162 a, __hip_bfloat162 b) { return {a.x + b.x, a.y + b.y}; }
    PORTKERN_HD friend __hip_bfloat162 operator-(__hip_bfloat162 a, __hip_bfloat162 b) { return {a.x - b.x, a.y - b.y}; }
    PORTKERN_HD friend __hip_bfloat162 operator*(__hip_bfloat162 a, __hip_bfloat162 b) { return {a.x * b.x, a.y * b.y}; }
    PORTKERN_HD friend __hip_bfloat162 operator/(__hip_bfloat162 a, __hip_bfloat162 b) { return {a.x / b.x, a.y / b.y}; }
    PORTKERN_HD friend __hip_bfloat162 operator-(__hip_bfloat162 a) { return {-a.x, -a.y}; }
    PORTKERN_HD __hip_bfloat162& operator+=(__hip_bfloat162 o) { return *this = *this + o; }
    PORTKERN_HD __hip_bfloat162& operator-=(__hip_bfloat162 o) { return *this = *this - o; }
    PORTKERN_HD __hip_bfloat162& operator*=(__hip_bfloat162 o) { return *this = *this * o; }
};

PORTKERN_HD __hip_bfloat16 __float2bfloat16(float v) { return v; }
PORTKERN_HD __hip_bfloat16 __float2bfloat16_rn(float v) { return v; }
PORTKERN_HD __hip_bfloat16 __double2bfloat16(double v) { return v; }
PORTKERN_HD float __bfloat162float(__hip_bfloat16 v) { return v; }
PORTKERN_HD unsigned short __bfloat16_as_ushort(__hip_bfloat16 v) { return __builtin_bit_cast(unsigned short, v.value); }
PORTKERN_HD __hip_bfloat16 __ushort_as_bfloat16(unsigned short v) { return __builtin_bit_cast(__bf16, v); }
PORTKERN_HD __hip_bfloat162 __halves2bfloat162(__hip_bfloat16 a, __hip_bfloat16 b) { return {a, b}; }
PORTKERN_HD __hip_bfloat162 __floats2bfloat162_rn(float a, float b) { return {a, b}; }
PORTKERN_HD __hip_bfloat162 __float22bfloat162_rn(float2 v) { return {v.x, v.y}; }
PORTKERN_HD float2 __bfloat1622float2(__hip_bfloat162 v) { return make_float2(v.x, v.y); }
PORTKERN_HD __hip_bfloat16 __low2bfloat16(__hip_bfloat162 v) { return v.x; }
PORTKERN_HD __hip_bfloat16 __high2bfloat16(__hip_bfloat162 v) { return v.y; }
PORTKERN_HD __hip_bfloat16 __hadd(__hip_bfloat16 a, __hip_bfloat16 b) { return a + b; }
PORTKERN_HD __hip_bfloat16 __hsub(__hip_bfloat16 a, __hip_bfloat16 b) { return a - b; }
PORTKERN_HD __hip_bfloat16 __hmul(__hip_bfloat16 a, __hip_bfloat16 b) { return a * b; }
PORTKERN_HD __hip_bfloat16 __hdiv(__hip_bfloat16 a, __hip_bfloat16 b) { return a / b; }
PORTKERN_HD __hip_bfloat16 __hneg(__hip_bfloat16 a) { return -a; }
PORTKERN_HD __hip_bfloat16 __habs(__hip_bfloat16 a) { return __builtin_fabsf(a); }
PORTKERN_HD __hip_bfloat16 __hmax(__hip_bfloat16 a, __hip_bfloat16 b) { return __builtin_fmaxf(a, b); }
PORTKERN_HD __hip_bfloat16 __hmin(__hip_bfloat16 a, __hip_bfloat16 b) { return __builtin_fminf(a, b); }
PORTKERN_HD __hip_bfloat16 __hfma(__hip_bfloat16 a, __hip_bfloat16 b, __hip_bfloat16 c) {
    return __builtin_fmaf(a, b, c);
}
PORTKERN_HD __hip_bfloat162 __float2bfloat162_rn(float v) { return {v, v}; }
PORTKERN_HD __hip_bfloat162 __bfloat162bfloat162(__hip_bfloat16 v) { return {v, v}; }
PORTKERN_HD __hip_bfloat162 make_bfloat162(__hip_bfloat16 a, __hip_bfloat16 b) { return {a, b}; }
PORTKERN_HD __hip_bfloat162 __low2bfloat162(__hip_bfloat162 v) { return {v.x, v.x}; }
PORTKERN_HD __hip_bfloat162 __high2bfloat162(__hip_bfloat162 v) { return {v.y, v.y}; }
PORTKERN_HD __hip_bfloat162 __lowhigh2highlow(__hip_bfloat162 v) { return {v.y, v.x}; }
PORTKERN_HD __hip_bfloat162 __lows2bfloat162(__hip_bfloat162 a, __hip_bfloat162 b) { return {a.x, b.x}; }
PORTKERN_HD __hip_bfloat162 __highs2bfloat162(__hip_bfloat162 a, __hip_bfloat162 b) { return {a.y, b.y}; }
PORTKERN_HD float __low2float(__hip_bfloat162 v) { return v.x; }
PORTKERN_HD float __high2float(__hip_bfloat162 v) { return v.y; }
PORTKERN_HD short __bfloat16_as_short(__hip_bfloat16 v) { return __builtin_bit_cast(short, v.value); }
PORTKERN_HD __hip_bfloat16 __short_as_bfloat16(short v) { return __builtin_bit_cast(__bf16, v); }
PORTKERN_HD int __bfloat162int_rn(__hip_bfloat16 v) { return static_cast<int>(__builtin_rintf(v)); }
PORTKERN_HD int __bfloat162int_rz(__hip_bfloat16 v) { return static_cast<int>(float(v)); }
PORTKERN_HD __hip_bfloat16 __int2bfloat16_rn(int v) { return v; }
PORTKERN_HD bool __hisnan(__hip_bfloat16 a) { return float(a) != float(a); }
PORTKERN_HD int __hisinf(__hip_bfloat16 a) { return __builtin_isinf(float(a)) ? (float(a) > 0 ? 1 : -1) : 0; }
PORTKERN_HD __hip_bfloat162 __hadd2(__hip_bfloat162 a, __hip_bfloat162 b) { return a + b; }
PORTKERN_HD __hip_bfloat162 __hsub2(__hip_bfloat162 a, __hip_bfloat162 b) { return a - b; }
PORTKERN_HD __hip_bfloat162 __hmul2(__hip_bfloat162 a, __hip_bfloat162 b) { return a * b; }
PORTKERN_HD __hip_bfloat162 __h2div(__hip_bfloat162 a, __hip_bfloat162 b) { return a / b; }
PORTKERN_HD __hip_bfloat162 __hneg2(__hip_bfloat162 a) { return -a; }
PORTKERN_HD __hip_bfloat162 __habs2(__hip_bfloat162 a) { return {__habs(a.x), __habs(a.y)}; }
PORTKERN_HD __hip_bfloat162 __hmax2(__hip_bfloat162 a, __hip_bfloat162 b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }
PORTKERN_HD __hip_bfloat162 __hmin2(__hip_bfloat162 a, __hip_bfloat162 b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }
PORTKERN_HD __hip_bfloat162 __hfma2(__hip_bfloat162 a, __hip_bfloat162 b, __hip_bfloat162 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
PORTKERN_HD bool __heq(__hip_bfloat16 a, __hip_bfloat16 b) { return a == b; }
PORTKERN_HD __hip_bfloat162 __heq2(__hip_bfloat162 a, __hip_bfloat162 b) { return {__hip_bfloat16(int(a.x == b.x)), __hip_bfloat16(int(a.y == b.y))}; }
PORTKERN_HD bool __hbeq2(__hip_bfloat162 a, __hip_bfloat162 b) { return a.x == b.x && a.y == b.y; }
PORTKERN_HD bool __hne(__hip_bfloat16 a, __hip_bfloat16 b) { return a != b; }
PORTKERN_HD __hip_bfloat162 __hne2(__hip_bfloat162 a, __hip_bfloat162 b) { return {__hip_bfloat16(int(a.x != b.x)), __hip_bfloat16(int(a.y != b.y))}; }
PORTKERN_HD bool __hbne2(__hip_bfloat162 a, __hip_bfloat162 b) { return a.x != b.x && a.y != b.y; }
PORTKERN_HD bool __hlt(__hip_bfloat16 a, __hip_bfloat16 b) { return a < b; }
PORTKERN_HD __hip_bfloat162 __hlt2(__hip_bfloat162 a, __hip_bfloat162 b) { return {__hip_bfloat16(int(a.x < b.x)), __hip_bfloat16(int(a.y < b.y))}; }
PORTKERN_HD bool __hblt2(__hip_bfloat162 a, __hip_bfloat162 b) { return a.x < b.x && a.y < b.y; }
PORTKERN_HD bool __hle(__hip_bfloat16 a, __hip_bfloat16 b) { return a <= b; }
PORTKERN_HD __hip_bfloat162 __hle2(__hip_bfloat162 a, __hip_bfloat162 b) { return {__hip_bfloat16(int(a.x <= b.x)), __hip_bfloat16(int(a.y <= b.y))}; }
PORTKERN_HD bool __hble2(__hip_bfloat162 a, __hip_bfloat162 b) { return a.x <= b.x && a.y <= b.y; }
PORTKERN_HD bool __hgt(__hip_bfloat16 a, __hip_bfloat16 b) { return a > b; }
PORTKERN_HD __hip_bfloat162 __hgt2(__hip_bfloat162 a, __hip_bfloat162 b) { return {__hip_bfloat16(int(a.x > b.x)), __hip_bfloat16(int(a.y > b.y))}; }
PORTKERN_HD bool __hbgt2(__hip_bfloat162 a, __hip_bfloat162 b) { return a.x > b.x && a.y > b.y; }
PORTKERN_HD bool __hge(__hip_bfloat16 a, __hip_bfloat16 b) { return a >= b; }
PORTKERN_HD __hip_bfloat162 __hge2(__hip_bfloat162 a, __hip_bfloat162 b) { return {__hip_bfloat16(int(a.x >= b.x)), __hip_bfloat16(int(a.y >= b.y))}; }
PORTKERN_HD bool __hbge2(__hip_bfloat162 a, __hip_bfloat162 b) { return a.x >= b.x && a.y >= b.y; }
__device__ inline __hip_bfloat16 hexp(__hip_bfloat16 v) { return expf(v); }
__device__ inline __hip_bfloat162 h2exp(__hip_bfloat162 v) { return {hexp(v.x), hexp(v.y)}; }
__device__ inline __hip_bfloat16 hlog(__hip_bfloat16 v) { return logf(v); }
__device__ inline __hip_bfloat162 h2log(__hip_bfloat162 v) { return {hlog(v.x), hlog(v.y)}; }
__device__ inline __hip_bfloat16 hsqrt(__hip_bfloat16 v) { return sqrtf(v); }
__device__ inline __hip_bfloat162 h2sqrt(__hip_bfloat162 v) { return {hsqrt(v.x), hsqrt(v.y)}; }
__device__ inline __hip_bfloat16 hrsqrt(__hip_bfloat16 v) { return rsqrtf(v); }
__device__ inline __hip_bfloat162 h2rsqrt(__hip_bfloat162 v) { return {hrsqrt(v.x), hrsqrt(v.y)}; }
__device__ inline __hip_bfloat16 hexp2(__hip_bfloat16 v) { return exp2f(v); }
__device__ inline __hip_bfloat162 h2exp2(__hip_bfloat162 v) { return {hexp2(v.x), hexp2(v.y)}; }
__device__ inline __hip_bfloat16 hexp10(__hip_bfloat16 v) { return exp10f(v); }
__device__ inline __hip_bfloat162 h2exp10(__hip_bfloat162 v) { return {hexp10(v.x), hexp10(v.y)}; }
__device__ inline __hip_bfloat16 hlog2(__hip_bfloat16 v) { return log2f(v); }
__device__ inline __hip_bfloat162 h2log2(__hip_bfloat162 v) { return {hlog2(v.x), hlog2(v.y)}; }
__device__ inline __hip_bfloat16 hlog10(__hip_bfloat16 v) { return log10f(v); }
__device__ inline __hip_bfloat162 h2log10(__hip_bfloat162 v) { return {hlog10(v.x), hlog10(v.y)}; }
__device__ inline __hip_bfloat16 hsin(__hip_bfloat16 v) { return sinf(v); }
__device__ inline __hip_bfloat162 h2sin(__hip_bfloat162 v) { return {hsin(v.x), hsin(v.y)}; }
__device__ inline __hip_bfloat16 hcos(__hip_bfloat16 v) { return cosf(v); }
__device__ inline __hip_bfloat162 h2cos(__hip_bfloat162 v) { return {hcos(v.x), hcos(v.y)}; }
__device__ inline __hip_bfloat16 hceil(__hip_bfloat16 v) { return ceilf(v); }
__device__ inline __hip_bfloat162 h2ceil(__hip_bfloat162 v) { return {hceil(v.x), hceil(v.y)}; }
__device__ inline __hip_bfloat16 hfloor(__hip_bfloat16 v) { return floorf(v); }
__device__ inline __hip_bfloat162 h2floor(__hip_bfloat162 v) { return {hfloor(v.x), hfloor(v.y)}; }
__device__ inline __hip_bfloat16 htrunc(__hip_bfloat16 v) { return truncf(v); }
__device__ inline __hip_bfloat162 h2trunc(__hip_bfloat162 v) { return {htrunc(v.x), htrunc(v.y)}; }
__device__ inline __hip_bfloat16 hrint(__hip_bfloat16 v) { return rintf(v); }
__device__ inline __hip_bfloat162 h2rint(__hip_bfloat162 v) { return {hrint(v.x), hrint(v.y)}; }
__device__ inline __hip_bfloat16 hrcp(__hip_bfloat16 v) { return 1.0f / float(v); }
__device__ inline __hip_bfloat162 h2rcp(__hip_bfloat162 v) { return {hrcp(v.x), hrcp(v.y)}; }
__device__ inline __hip_bfloat16 __ldg(const __hip_bfloat16* p) { return *p; }
__device__ inline __hip_bfloat162 __ldg(const __hip_bfloat162* p) { return *p; }
__device__ inline __hip_bfloat16 __shfl(__hip_bfloat16 v, int n, int width = warpSize) {
    return __ushort_as_bfloat16(static_cast<unsigned short>(__shfl(int(__bfloat16_as_ushort(v)), n, width)));
}
__device__ inline __hip_bfloat162 __shfl(__hip_bfloat162 v, int n, int width = warpSize) {
    return __builtin_bit_cast(__hip_bfloat162, __shfl(__builtin_bit_cast(int, v), n, width));
}
__device__ inline __hip_bfloat16 __shfl_xor(__hip_bfloat16 v, int n, int width = warpSize) {
    return __ushort_as_bfloat16(static_cast<unsigned short>(__shfl_xor(int(__bfloat16_as_ushort(v)), n, width)));
}
__device__ inline __hip_bfloat162 __shfl_xor(__hip_bfloat162 v, int n, int width = warpSize) {
    return __builtin_bit_cast(__hip_bfloat162, __shfl_xor(__builtin_bit_cast(int, v), n, width));
}
__device__ inline __hip_bfloat16 __shfl_down(__hip_bfloat16 v, unsigned n, int width = warpSize) {
    return __ushort_as_bfloat16(static_cast<unsigned short>(__shfl_down(int(__bfloat16_as_ushort(v)), n, width)));
}
__device__ inline __hip_bfloat162 __shfl_down(__hip_bfloat162 v, unsigned n, int width = warpSize) {
    return __builtin_bit_cast(__hip_bfloat162, __shfl_down(__builtin_bit_cast(int, v), n, width));
}
__device__ inline __hip_bfloat16 __shfl_up(__hip_bfloat16 v, unsigned n, int width = warpSize) {
    return __ushort_as_bfloat16(static_cast<unsigned short>(__shfl_up(int(__bfloat16_as_ushort(v)), n, width)));
}
__device__ inline __hip_bfloat162 __shfl_up(__hip_bfloat162 v, unsigned n, int width = warpSize) {
    return __builtin_bit_cast(__hip_bfloat162, __shfl_up(__builtin_bit_cast(int, v), n, width));
}
/// By compare and swap on every target; the hardware's own where ROCm's header is used.
__device__ inline __hip_bfloat162 unsafeAtomicAdd(__hip_bfloat162* address, __hip_bfloat162 v) {
    unsigned* word = reinterpret_cast<unsigned*>(address);
    unsigned seen = *word, assumed;
    do {
        assumed = seen;
        seen = atomicCAS(word, assumed, __builtin_bit_cast(unsigned, __builtin_bit_cast(__hip_bfloat162, assumed) + v));
    } while (seen != assumed);
    return __builtin_bit_cast(__hip_bfloat162, seen);
}
#undef PORTKERN_HD
