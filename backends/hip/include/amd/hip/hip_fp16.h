// float16 for HIP where ROCm's header is absent (PyPI has none): the compiler's _Float16 under the
// names that HIP gives it. Conversions round to nearest even; arithmetic is the hardware's.
#pragma once
#include <hip/hip_runtime.h>

#define PORTKERN_HD __host__ __device__ inline

struct __half {
    _Float16 value;
    __half() = default;
    PORTKERN_HD __half(float v) : value(static_cast<_Float16>(v)) {}
    PORTKERN_HD __half(double v) : value(static_cast<_Float16>(v)) {}
    PORTKERN_HD __half(int v) : value(static_cast<_Float16>(v)) {}
    PORTKERN_HD __half(_Float16 v) : value(v) {}
    PORTKERN_HD operator float() const { return static_cast<float>(value); }
    PORTKERN_HD __half& operator+=(__half o) { value += o.value; return *this; }
    PORTKERN_HD __half& operator-=(__half o) { value -= o.value; return *this; }
    PORTKERN_HD __half& operator*=(__half o) { value *= o.value; return *this; }
    PORTKERN_HD __half& operator/=(__half o) { value /= o.value; return *this; }
    PORTKERN_HD friend __half operator-(__half a) { return -a.value; }
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
};
typedef __half2 half2;

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
PORTKERN_HD bool __hisnan(__half a) { return a.value != a.value; }
PORTKERN_HD __half2 __hadd2(__half2 a, __half2 b) { return a + b; }
PORTKERN_HD __half2 __hsub2(__half2 a, __half2 b) { return a - b; }
PORTKERN_HD __half2 __hmul2(__half2 a, __half2 b) { return a * b; }
PORTKERN_HD __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
// In float32 and rounded once: exact enough for any use, and the same on every target.
__device__ inline __half hexp(__half v) { return expf(v); }
__device__ inline __half hlog(__half v) { return logf(v); }
__device__ inline __half hsqrt(__half v) { return sqrtf(v); }
__device__ inline __half hrsqrt(__half v) { return rsqrtf(v); }
__device__ inline __half hrcp(__half v) { return 1.0f / float(v); }

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
#undef PORTKERN_HD
