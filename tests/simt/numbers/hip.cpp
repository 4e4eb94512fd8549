// HIP's spellings, and what differs from CUDA, as a list of operations like intrinsics.cu's.
#include <hip/hip_bf16.h>
#include <hip/hip_bfloat16.h>
#include <hip/hip_fp16.h>
#include <hip/hip_fp8.h>

#include <cstdint>
#include <cstring>

#include "simt/math.h"

template <class T>
static T as(uint64_t word) {
    T value;
    std::memcpy((void*)&value, &word, sizeof(value));
    return value;
}
template <class T>
static uint64_t bits(T value) {
    uint64_t word = 0;
    std::memcpy(&word, &value, sizeof(value));
    return word;
}

struct Operation {
    const char *name, *signature;
    uint64_t (*run)(uint64_t x, uint64_t y);
};
#define OP(NAME, ...) \
    {#NAME, "", [](uint64_t x, uint64_t y) { return (void)x, (void)y, bits(__VA_ARGS__); }}
#define FP8(NAME, WHICH)                                                             \
    OP(float_to_##NAME, __hip_cvt_float_to_fp8(as<float>(x), __HIP_SATFINITE, WHICH)), \
    OP(float_to_##NAME##_nosat, __hip_cvt_float_to_fp8(as<float>(x), __HIP_NOSAT, WHICH)), \
    OP(NAME##_of_float, __hip_fp8_##NAME(as<float>(x)).__x),                         \
    OP(NAME##_to_float, (float)as<__hip_fp8_##NAME>(x)),                             \
    OP(NAME##_to_half, __hip_cvt_fp8_to_halfraw((unsigned char)x, WHICH))

static float through_native(float x) {
#ifdef __FLT16_MAX__
    const _Float16 native = __half(x);
    return (float)__half(native);
#else
    return __half2float(__half(x));
#endif
}

static const Operation operations[] = {
    FP8(e4m3, __HIP_E4M3),
    FP8(e5m2, __HIP_E5M2),
    FP8(e4m3_fnuz, __HIP_E4M3_FNUZ),
    FP8(e5m2_fnuz, __HIP_E5M2_FNUZ),
    OP(float2bfloat16, __float2bfloat16(as<float>(x))),
    OP(hne, __hne(as<__half>(x), as<__half>(y))),
    OP(float2ll_rz, __float2ll_rz(as<float>(x))),
    OP(hip_bfloat16, hip_bfloat16(as<float>(x))),
    OP(hip_bfloat16_truncate, hip_bfloat16(as<float>(x), hip_bfloat16::truncate)),
    OP(native_half, through_native(as<float>(x))),
    OP(ocml, __ocml_fma_rte_f32(as<float>(x), 9.0f, __ocml_fabs_f32(__ocml_len3_f32(
                                                        as<float>(x), 0.0f, 0.0f)) *
                                                        __ocml_copysign_f32(1.0f, as<float>(x)))),
};

extern "C" int simt_operations() {
    return (int)(sizeof(operations) / sizeof(operations[0]));
}
extern "C" const char* simt_name(int k) { return operations[k].name; }
extern "C" const char* simt_signature(int k) { return operations[k].signature; }
extern "C" void simt_run(int k, const uint64_t* in, uint64_t* out, size_t n) {
    for (size_t i = 0; i < n; ++i) out[i] = operations[k].run(in[i], in[n + i]);
}
