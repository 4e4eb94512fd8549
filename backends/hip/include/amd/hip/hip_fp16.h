// float16 for HIP where ROCm's header is absent (PyPI has none): the compiler's _Float16 under the
// names that HIP gives it. Conversions round to nearest even; arithmetic is the hardware's.
#pragma once
#include <hip/hip_runtime.h>

#define PORTKERN_HD __host__ __device__ inline

namespace portkern_fp16 {
template <bool> struct When {};
template <> struct When<true> { typedef int type; };
}  // namespace portkern_fp16

struct __half_raw {
    unsigned short x;
};

struct __half {
    _Float16 value;
    __half() = default;
    PORTKERN_HD __half(float v) : value(static_cast<_Float16>(v)) {}
    PORTKERN_HD __half(double v) : value(static_cast<_Float16>(v)) {}
    template <typename T, typename portkern_fp16::When<__is_integral(T)>::type = 0>
    PORTKERN_HD __half(T v) : value(static_cast<_Float16>(v)) {}
    PORTKERN_HD __half(_Float16 v) : value(v) {}
    PORTKERN_HD __half(__half_raw v) : value(__builtin_bit_cast(_Float16, v.x)) {}
    PORTKERN_HD operator __half_raw() const { return {__builtin_bit_cast(unsigned short, value)}; }
    PORTKERN_HD operator float() const { return static_cast<float>(value); }
    PORTKERN_HD __half& operator+=(__half o) { value += o.value; return *this; }
    PORTKERN_HD __half& operator-=(__half o) { value -= o.value; return *this; }
    PORTKERN_HD __half& operator*=(__half o) { value *= o.value; return *this; }
    PORTKERN_HD __half& operator/=(__half o) { value /= o.value; return *this; }
    PORTKERN_HD friend __half operator+(__half a) { return a; }
    PORTKERN_HD friend __half operator-(__half a) { return -a.value; }
    PORTKERN_HD __half& operator++() { value += 1; return *this; }
    PORTKERN_HD __half& operator--() { value -= 1; return *this; }
    PORTKERN_HD friend __half operator+(__half a, __half b) { return a.value + b.value; }
    PORTKERN_HD friend __half operator-(__half a, __half b) { return a.value - b.value; }
    PORTKERN_HD friend __half operator*(__half a, __half b) { return a.value * b.value; }
    PORTKERN_HD friend __half operator/(__half a, __half b) { return a.value / b.value; }
    PORTKERN_HD friend bool operator==(__half a, __half b) { return a.value == b.value; }
    PORTKERN_HD friend bool operator!=(__half a, __half b) { return a.value != b.value; }
    PORTKERN_HD friend bool operator<(__half a, __half b) { return a.value < b.value; }
    PORTKERN_HD friend bool operator<=(__half a, __half b) { return a.value <= b.value; }
    PORTKERN_HD friend bool operator>(__half a, __half b) { return a.value > b.value; }
    PORTKERN_HD friend bool operator>=(__half a, __half b) { return a.value >= b.value; }
};
typedef __half half;

struct alignas(4) __half2 {
    __half x, y;
    PORTKERN_HD friend __half2 operator+(__half2 a, __half2 b) { return {a.x + b.x, a.y + b.y}; }
    PORTKERN_HD friend __half2 operator-(__half2 a, __half2 b) { return {a.x - b.x, a.y - b.y}; }
    PORTKERN_HD friend __half2 operator*(__half2 a, __half2 b) { return {a.x * b.x, a.y * b.y}; }
    PORTKERN_HD friend __half2 operator/(__half2 a, __half2 b) { return {a.x / b.x, a.y / b.y}; }
    PORTKERN_HD friend __half2 operator-(__half2 a) { return {-a.x, -a.y}; }
    PORTKERN_HD __half2& operator+=(__half2 o) { return *this = *this + o; }
    PORTKERN_HD __half2& operator-=(__half2 o) { return *this = *this - o; }
    PORTKERN_HD __half2& operator*=(__half2 o) { return *this = *this * o; }
    PORTKERN_HD __half2& operator/=(__half2 o) { return *this = *this / o; }
};
typedef __half2 half2;
struct __half2_raw {
    unsigned short x, y;
};

PORTKERN_HD __half __float2half(float v) { return v; }
PORTKERN_HD __half __float2half_rn(float v) { return v; }
PORTKERN_HD __half __double2half(double v) { return v; }
PORTKERN_HD float __half2float(__half v) { return v; }
PORTKERN_HD unsigned short __half_as_ushort(__half v) { return __builtin_bit_cast(unsigned short, v.value); }
PORTKERN_HD __half __ushort_as_half(unsigned short v) { return __builtin_bit_cast(_Float16, v); }
PORTKERN_HD __half2 __halves2half2(__half a, __half b) { return {a, b}; }
PORTKERN_HD __half2 make_half2(__half a, __half b) { return {a, b}; }
PORTKERN_HD __half2 __half2half2(__half a) { return {a, a}; }
PORTKERN_HD __half2 __float2half2_rn(float v) { return {v, v}; }
PORTKERN_HD __half2 __floats2half2_rn(float a, float b) { return {a, b}; }
PORTKERN_HD __half2 __float22half2_rn(float2 v) { return {v.x, v.y}; }
PORTKERN_HD float2 __half22float2(__half2 v) { return make_float2(v.x, v.y); }
PORTKERN_HD __half __low2half(__half2 v) { return v.x; }
PORTKERN_HD __half __high2half(__half2 v) { return v.y; }
PORTKERN_HD float __low2float(__half2 v) { return v.x; }
PORTKERN_HD float __high2float(__half2 v) { return v.y; }

PORTKERN_HD __half __hadd(__half a, __half b) { return a + b; }
PORTKERN_HD __half __hsub(__half a, __half b) { return a - b; }
PORTKERN_HD __half __hmul(__half a, __half b) { return a * b; }
PORTKERN_HD __half __hdiv(__half a, __half b) { return a / b; }
PORTKERN_HD __half __hneg(__half a) { return -a; }
PORTKERN_HD __half __habs(__half a) { return a.value < 0 ? -a.value : a.value; }
PORTKERN_HD __half __hfma(__half a, __half b, __half c) { return __builtin_fmaf16(a.value, b.value, c.value); }
PORTKERN_HD __half __hmax(__half a, __half b) { return __builtin_fmaxf16(a.value, b.value); }
PORTKERN_HD __half __hmin(__half a, __half b) { return __builtin_fminf16(a.value, b.value); }
PORTKERN_HD bool __heq(__half a, __half b) { return a == b; }
PORTKERN_HD bool __hlt(__half a, __half b) { return a < b; }
PORTKERN_HD bool __hgt(__half a, __half b) { return a > b; }
PORTKERN_HD bool __hne(__half a, __half b) { return a != b; }
PORTKERN_HD bool __hle(__half a, __half b) { return a <= b; }
PORTKERN_HD bool __hge(__half a, __half b) { return a >= b; }
PORTKERN_HD int __hisinf(__half a) { return __builtin_isinf(float(a.value)) ? (a.value > 0 ? 1 : -1) : 0; }
PORTKERN_HD bool __hisnan(__half a) { return a.value != a.value; }
PORTKERN_HD __half2 __hadd2(__half2 a, __half2 b) { return a + b; }
PORTKERN_HD __half2 __hsub2(__half2 a, __half2 b) { return a - b; }
PORTKERN_HD __half2 __hmul2(__half2 a, __half2 b) { return a * b; }
PORTKERN_HD __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
PORTKERN_HD __half2 __heq2(__half2 a, __half2 b) { return {__half(int(a.x == b.x)), __half(int(a.y == b.y))}; }
PORTKERN_HD bool __hbeq2(__half2 a, __half2 b) { return a.x == b.x && a.y == b.y; }
PORTKERN_HD __half2 __hne2(__half2 a, __half2 b) { return {__half(int(a.x != b.x)), __half(int(a.y != b.y))}; }
PORTKERN_HD bool __hbne2(__half2 a, __half2 b) { return a.x != b.x && a.y != b.y; }
PORTKERN_HD __half2 __hlt2(__half2 a, __half2 b) { return {__half(int(a.x < b.x)), __half(int(a.y < b.y))}; }
PORTKERN_HD bool __hblt2(__half2 a, __half2 b) { return a.x < b.x && a.y < b.y; }
PORTKERN_HD __half2 __hle2(__half2 a, __half2 b) { return {__half(int(a.x <= b.x)), __half(int(a.y <= b.y))}; }
PORTKERN_HD bool __hble2(__half2 a, __half2 b) { return a.x <= b.x && a.y <= b.y; }
PORTKERN_HD __half2 __hgt2(__half2 a, __half2 b) { return {__half(int(a.x > b.x)), __half(int(a.y > b.y))}; }
PORTKERN_HD bool __hbgt2(__half2 a, __half2 b) { return a.x > b.x && a.y > b.y; }
PORTKERN_HD __half2 __hge2(__half2 a, __half2 b) { return {__half(int(a.x >= b.x)), __half(int(a.y >= b.y))}; }
PORTKERN_HD bool __hbge2(__half2 a, __half2 b) { return a.x >= b.x && a.y >= b.y; }
PORTKERN_HD __half2 __h2div(__half2 a, __half2 b) { return a / b; }
PORTKERN_HD __half2 __hneg2(__half2 a) { return {-a.x, -a.y}; }
PORTKERN_HD __half2 __habs2(__half2 a) { return {__habs(a.x), __habs(a.y)}; }
PORTKERN_HD __half2 __hmax2(__half2 a, __half2 b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }
PORTKERN_HD __half2 __hmin2(__half2 a, __half2 b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }
PORTKERN_HD __half2 __low2half2(__half2 v) { return {v.x, v.x}; }
PORTKERN_HD __half2 __high2half2(__half2 v) { return {v.y, v.y}; }
PORTKERN_HD __half2 __lowhigh2highlow(__half2 v) { return {v.y, v.x}; }
PORTKERN_HD __half2 __lows2half2(__half2 a, __half2 b) { return {a.x, b.x}; }
PORTKERN_HD __half2 __highs2half2(__half2 a, __half2 b) { return {a.y, b.y}; }
PORTKERN_HD short __half_as_short(__half v) { return __builtin_bit_cast(short, v.value); }
PORTKERN_HD __half __short_as_half(short v) { return __builtin_bit_cast(_Float16, v); }
PORTKERN_HD __half __int2half_rn(int v) { return v; }
PORTKERN_HD int __half2int_rn(__half v) { return static_cast<int>(__builtin_rintf(v)); }
PORTKERN_HD int __half2int_rz(__half v) { return static_cast<int>(float(v)); }
PORTKERN_HD int __half2int_rd(__half v) { return static_cast<int>(__builtin_floorf(v)); }
PORTKERN_HD int __half2int_ru(__half v) { return static_cast<int>(__builtin_ceilf(v)); }
PORTKERN_HD __half __uint2half_rn(unsigned v) { return v; }
PORTKERN_HD unsigned __half2uint_rn(__half v) { return static_cast<unsigned>(__builtin_rintf(v)); }
PORTKERN_HD unsigned __half2uint_rz(__half v) { return static_cast<unsigned>(float(v)); }
PORTKERN_HD unsigned __half2uint_rd(__half v) { return static_cast<unsigned>(__builtin_floorf(v)); }
PORTKERN_HD unsigned __half2uint_ru(__half v) { return static_cast<unsigned>(__builtin_ceilf(v)); }
PORTKERN_HD __half __short2half_rn(short v) { return v; }
PORTKERN_HD short __half2short_rn(__half v) { return static_cast<short>(__builtin_rintf(v)); }
PORTKERN_HD short __half2short_rz(__half v) { return static_cast<short>(float(v)); }
PORTKERN_HD short __half2short_rd(__half v) { return static_cast<short>(__builtin_floorf(v)); }
PORTKERN_HD short __half2short_ru(__half v) { return static_cast<short>(__builtin_ceilf(v)); }
PORTKERN_HD __half __ushort2half_rn(unsigned short v) { return v; }
PORTKERN_HD unsigned short __half2ushort_rn(__half v) { return static_cast<unsigned short>(__builtin_rintf(v)); }
PORTKERN_HD unsigned short __half2ushort_rz(__half v) { return static_cast<unsigned short>(float(v)); }
PORTKERN_HD unsigned short __half2ushort_rd(__half v) { return static_cast<unsigned short>(__builtin_floorf(v)); }
PORTKERN_HD unsigned short __half2ushort_ru(__half v) { return static_cast<unsigned short>(__builtin_ceilf(v)); }
PORTKERN_HD __half __ll2half_rn(long long v) { return v; }
PORTKERN_HD long long __half2ll_rn(__half v) { return static_cast<long long>(__builtin_rintf(v)); }
PORTKERN_HD long long __half2ll_rz(__half v) { return static_cast<long long>(float(v)); }
PORTKERN_HD long long __half2ll_rd(__half v) { return static_cast<long long>(__builtin_floorf(v)); }
PORTKERN_HD long long __half2ll_ru(__half v) { return static_cast<long long>(__builtin_ceilf(v)); }
PORTKERN_HD __half __ull2half_rn(unsigned long long v) { return v; }
PORTKERN_HD unsigned long long __half2ull_rn(__half v) { return static_cast<unsigned long long>(__builtin_rintf(v)); }
PORTKERN_HD unsigned long long __half2ull_rz(__half v) { return static_cast<unsigned long long>(float(v)); }
PORTKERN_HD unsigned long long __half2ull_rd(__half v) { return static_cast<unsigned long long>(__builtin_floorf(v)); }
PORTKERN_HD unsigned long long __half2ull_ru(__half v) { return static_cast<unsigned long long>(__builtin_ceilf(v)); }
// In float32 and rounded once: exact enough for any use, and the same on every target.
__device__ inline __half hexp(__half v) { return expf(v); }
__device__ inline __half hlog(__half v) { return logf(v); }
__device__ inline __half hsqrt(__half v) { return sqrtf(v); }
__device__ inline __half hrsqrt(__half v) { return rsqrtf(v); }
__device__ inline __half hrcp(__half v) { return 1.0f / float(v); }
__device__ inline __half hexp2(__half v) { return exp2f(v); }
__device__ inline __half hexp10(__half v) { return exp10f(v); }
__device__ inline __half hlog2(__half v) { return log2f(v); }
__device__ inline __half hlog10(__half v) { return log10f(v); }
__device__ inline __half hsin(__half v) { return sinf(v); }
__device__ inline __half hcos(__half v) { return cosf(v); }
__device__ inline __half hceil(__half v) { return ceilf(v); }
__device__ inline __half hfloor(__half v) { return floorf(v); }
__device__ inline __half htrunc(__half v) { return truncf(v); }
__device__ inline __half hrint(__half v) { return rintf(v); }
__device__ inline __half2 h2exp(__half2 v) { return {hexp(v.x), hexp(v.y)}; }
__device__ inline __half2 h2log(__half2 v) { return {hlog(v.x), hlog(v.y)}; }
__device__ inline __half2 h2sqrt(__half2 v) { return {hsqrt(v.x), hsqrt(v.y)}; }
__device__ inline __half2 h2rsqrt(__half2 v) { return {hrsqrt(v.x), hrsqrt(v.y)}; }
__device__ inline __half2 h2rcp(__half2 v) { return {hrcp(v.x), hrcp(v.y)}; }
__device__ inline __half2 h2exp2(__half2 v) { return {hexp2(v.x), hexp2(v.y)}; }
__device__ inline __half2 h2exp10(__half2 v) { return {hexp10(v.x), hexp10(v.y)}; }
__device__ inline __half2 h2log2(__half2 v) { return {hlog2(v.x), hlog2(v.y)}; }
__device__ inline __half2 h2log10(__half2 v) { return {hlog10(v.x), hlog10(v.y)}; }
__device__ inline __half2 h2sin(__half2 v) { return {hsin(v.x), hsin(v.y)}; }
__device__ inline __half2 h2cos(__half2 v) { return {hcos(v.x), hcos(v.y)}; }
__device__ inline __half2 h2ceil(__half2 v) { return {hceil(v.x), hceil(v.y)}; }
__device__ inline __half2 h2floor(__half2 v) { return {hfloor(v.x), hfloor(v.y)}; }
__device__ inline __half2 h2trunc(__half2 v) { return {htrunc(v.x), htrunc(v.y)}; }
__device__ inline __half2 h2rint(__half2 v) { return {hrint(v.x), hrint(v.y)}; }

__device__ inline __half __shfl(__half v, int lane, int width = warpSize) {
    return __ushort_as_half(static_cast<unsigned short>(__shfl(int(__half_as_ushort(v)), lane, width)));
}
__device__ inline __half __shfl_xor(__half v, int mask, int width = warpSize) {
    return __ushort_as_half(static_cast<unsigned short>(__shfl_xor(int(__half_as_ushort(v)), mask, width)));
}
__device__ inline __half __shfl_down(__half v, unsigned delta, int width = warpSize) {
    return __ushort_as_half(static_cast<unsigned short>(__shfl_down(int(__half_as_ushort(v)), delta, width)));
}
__device__ inline __half __shfl_up(__half v, unsigned delta, int width = warpSize) {
    return __ushort_as_half(static_cast<unsigned short>(__shfl_up(int(__half_as_ushort(v)), delta, width)));
}
__device__ inline __half2 __shfl(__half2 v, int n, int width = warpSize) {
    return __builtin_bit_cast(__half2, __shfl(__builtin_bit_cast(int, v), n, width));
}
__device__ inline __half2 __shfl_xor(__half2 v, int n, int width = warpSize) {
    return __builtin_bit_cast(__half2, __shfl_xor(__builtin_bit_cast(int, v), n, width));
}
__device__ inline __half2 __shfl_down(__half2 v, unsigned n, int width = warpSize) {
    return __builtin_bit_cast(__half2, __shfl_down(__builtin_bit_cast(int, v), n, width));
}
__device__ inline __half2 __shfl_up(__half2 v, unsigned n, int width = warpSize) {
    return __builtin_bit_cast(__half2, __shfl_up(__builtin_bit_cast(int, v), n, width));
}
__device__ inline __half __ldg(const __half* p) { return *p; }
__device__ inline __half2 __ldg(const __half2* p) { return *p; }
/// By compare and swap on every target; the hardware's own where ROCm's header is used.
__device__ inline __half2 unsafeAtomicAdd(__half2* address, __half2 v) {
    unsigned* word = reinterpret_cast<unsigned*>(address);
    unsigned seen = *word, assumed;
    do {
        assumed = seen;
        seen = atomicCAS(word, assumed, __builtin_bit_cast(unsigned, __builtin_bit_cast(__half2, assumed) + v));
    } while (seen != assumed);
    return __builtin_bit_cast(__half2, seen);
}
#undef PORTKERN_HD
