// bfloat16 for HIP where ROCm's header is absent (PyPI has none): the compiler's __bf16 under the
// names that HIP gives it. Arithmetic is done in float32 and rounded once, to nearest even.
#pragma once
#include <hip/hip_runtime.h>

#define PORTKERN_HD __host__ __device__ inline

struct __hip_bfloat16 {
    __bf16 value;
    __hip_bfloat16() = default;
    PORTKERN_HD __hip_bfloat16(float v) : value(static_cast<__bf16>(v)) {}
    PORTKERN_HD __hip_bfloat16(double v) : value(static_cast<__bf16>(v)) {}
    PORTKERN_HD __hip_bfloat16(int v) : value(static_cast<__bf16>(static_cast<float>(v))) {}
    PORTKERN_HD __hip_bfloat16(__bf16 v) : value(v) {}
    PORTKERN_HD operator float() const { return static_cast<float>(value); }
    PORTKERN_HD __hip_bfloat16& operator+=(__hip_bfloat16 o) { return *this = float(*this) + float(o); }
    PORTKERN_HD __hip_bfloat16& operator-=(__hip_bfloat16 o) { return *this = float(*this) - float(o); }
    PORTKERN_HD __hip_bfloat16& operator*=(__hip_bfloat16 o) { return *this = float(*this) * float(o); }
    PORTKERN_HD __hip_bfloat16& operator/=(__hip_bfloat16 o) { return *this = float(*this) / float(o); }
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

struct alignas(4) __hip_bfloat162 {
    __hip_bfloat16 x, y;
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
#undef PORTKERN_HD
