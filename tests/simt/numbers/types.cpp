// What converts to what, and what does not compile. Checked by compiling it, also with the macros
// that take conversions and operators away.
#ifndef __HIP_PLATFORM_AMD__  // HIP has no headers of these names
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#endif
#include <hip/hip_bf16.h>
#include <hip/hip_bfloat16.h>
#include <hip/hip_fp16.h>
#include <hip/hip_fp8.h>
#include <hip/hip_math_constants.h>
#include <math_constants.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "simt/math.h"

template <class, class = void>
struct Adds : std::false_type {};
template <class A, class B>
struct Adds<std::pair<A, B>, std::void_t<decltype(std::declval<A>() + std::declval<B>())>>
    : std::true_type {};
template <class A, class B>
constexpr bool adds = Adds<std::pair<A, B>>::value;
template <class From, class To>
constexpr bool converts = std::is_convertible<From, To>::value;
template <class From, class To>
constexpr bool constructs = std::is_constructible<To, From>::value;

template <class T, int SIZE>
constexpr bool plain = sizeof(T) == SIZE && alignof(T) == SIZE && std::is_trivial<T>::value &&
                       std::is_standard_layout<T>::value;
static_assert(plain<half, 2> && plain<half2, 4> && plain<__half_raw, 2>, "");
static_assert(plain<nv_bfloat16, 2> && plain<nv_bfloat162, 4> && plain<hip_bfloat16, 2>, "");
static_assert(plain<__nv_fp8_e4m3, 1> && plain<__nv_fp8x2_e5m2, 2>, "");
static_assert(plain<__nv_fp8x4_e4m3, 4> && plain<__hip_fp8x2_e5m2, 2>, "");
static_assert(plain<__hip_fp8_e4m3_fnuz, 1> && plain<__hip_fp8x4_e5m2_fnuz, 4>, "");

union InUnion {
    half h;
    half2 h2;
    nv_bfloat16 b[2];
    __nv_fp8_e4m3 f[4];
};
static_assert(std::is_trivial<InUnion>::value, "");
static_assert(converts<half, __half_raw> && converts<__half_raw, half>, "");
static_assert(converts<half2, __half2_raw> && converts<__half2_raw, half2>, "");

#ifdef WITHOUT
static_assert(!converts<half, float> && !converts<float, half> && !constructs<float, half>, "");
static_assert(!converts<nv_bfloat16, float> && !constructs<float, nv_bfloat16>, "");
static_assert(!adds<half, half> && !adds<half2, half2>, "");
static_assert(!adds<nv_bfloat16, nv_bfloat16> && !adds<nv_bfloat162, nv_bfloat162>, "");
float by_intrinsics(half h) { return __half2float(__hadd(h, __float2half(1.0f))); }
#else
template <class T>
constexpr bool like_a_number =
    converts<T, float> && converts<T, double> && converts<T, int> && converts<T, bool> &&
    converts<T, unsigned char> && converts<T, long> && converts<T, unsigned long long> &&
    converts<float, T> && converts<double, T> && converts<int, T> && converts<unsigned, T> &&
    converts<short, T> && converts<long, T> && converts<unsigned long long, T> &&
    converts<bool, T> && adds<T, T> && !adds<T, float> && !adds<int, T> && !adds<T, double>;
static_assert(like_a_number<half> && like_a_number<nv_bfloat16>, "");
static_assert(!converts<half, nv_bfloat16> && constructs<half, nv_bfloat16>, "");
static_assert(!converts<nv_bfloat16, half> && constructs<nv_bfloat16, half>, "");
static_assert(!converts<float, half2> && adds<half2, half2> && !adds<half2, half>, "");

// CUDA's 8-bit types convert when told to, HIP's by themselves.
static_assert(!converts<float, __nv_fp8_e4m3> && constructs<float, __nv_fp8_e4m3>, "");
static_assert(!converts<__nv_fp8_e4m3, float> && constructs<__nv_fp8_e4m3, float>, "");
static_assert(constructs<half, __nv_fp8_e5m2> && constructs<__nv_fp8_e5m2, half>, "");
static_assert(constructs<float4, __nv_fp8x4_e4m3> && constructs<__nv_fp8x4_e4m3, float4>, "");
static_assert(converts<float, __hip_fp8_e4m3_fnuz> && converts<__hip_fp8_e4m3_fnuz, float>, "");
static_assert(!converts<float, hip_bfloat16> && converts<hip_bfloat16, float>, "");

template <class T, class T2>
float usual_code(T h, const T* in, T2* out, bool flag) {
    T zero = 0, one = 1.0f, half_ = 0.5, sum(0), values[3] = {1, 2.0f, 3.0};
    const float x = h;
    const double wide = h;
    const int whole = h;
    sum += h * one + T(2.0f);
    sum -= half_;
    sum *= static_cast<T>(x);
    sum /= 2;
    sum = x;
    sum = 3;
    sum += 1.0f;
    volatile T shared = values[0];
    shared = sum;
    T back = shared;
    if (h > zero && !flag && h) back = -h;
    T2 pair{one, back}, other = {values[1], values[2]};
    pair += other;
    pair = pair * other - -pair;
    pair.x = x;
    *out = pair;
    ++sum;
    sum--;
    return (float)sum + (float)in[0] + (flag ? x : (float)pair.y) + (float)wide + whole;
}
template float usual_code(half, const half*, half2*, bool);
template float usual_code(nv_bfloat16, const nv_bfloat16*, nv_bfloat162*, bool);
#endif

// User code that brings in the standard library's names as well.
namespace user {
using namespace std;
static_assert(is_same<decltype(max(1, 2u)), unsigned>::value, "");
static_assert(is_same<decltype(max(1.0f, 2.0)), double>::value, "");
static_assert(is_same<decltype(min(1L, 2UL)), unsigned long>::value, "");
static_assert(is_same<decltype(::max(1.0f, 2.0f)), float>::value, "");
static_assert(is_same<decltype(rsqrt(2.0f)), float>::value, "");
static_assert(is_same<decltype(rsqrt(2.0)), double>::value, "");
static_assert(is_same<decltype(abs(-2.0f)), float>::value, "");
static_assert(is_same<decltype(::fma(1.0f, 2.0f, 3.0f)), float>::value, "");
bool special(float x) {
    return isnan(x) || ::isinf(x) || signbit(x) || !::isfinite(x) || __isnanf(x) || !__finitef(x);
}
// The fast intrinsics are functions, with an address and in any namespace.
float fast(float x) {
    float (*const pointer)(float) = &::__expf;
    x = pointer(x);
    float s, c;
    ::__sincosf(x, &s, &c);
    ::sincosf(x, &s, &c);
    return ::__powf(__sinf(x), c) + __fdividef(s, x) + __tanf(x) + __saturatef(x) + CUDART_PI_F +
           HIP_PI_F + copysignf(j0f(x), fmaxf(x, s));
}
}  // namespace user
