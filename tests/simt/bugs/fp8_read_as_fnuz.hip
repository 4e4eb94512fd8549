// what: fp8 weights in the OCP format are read as the device's FNUZ type, which halves them
// expect: wrong | build
// widths: 64
// pitfall: 43
// sanitizer: none
// group: arithmetic
#include <hip/hip_fp8.h>
#include <hip/hip_runtime.h>

#include "check.h"

// e4m3 by the OCP specification: bias 7, no infinities, NaN is S1111111.
__host__ __device__ inline float from_e4m3(unsigned char bits) {
    const int exponent = bits >> 3 & 15, mantissa = bits & 7;
    const float size = exponent ? ldexpf(1 + mantissa / 8.0f, exponent - 7)
                                : ldexpf(mantissa / 8.0f, -6);
    return bits & 128 ? -size : size;
}

__global__ void dequantise(const unsigned char* weights, float* out, float scale, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
#ifdef BUG
    __hip_fp8_e4m3_fnuz value;
    value.__x = weights[i];
    out[i] = scale * float(value);
#else
    out[i] = scale * from_e4m3(weights[i]);
#endif
}

int main() {
    std::vector<unsigned char> weights;
    for (int bits = 0; bits < 256; ++bits)
        if ((bits & 127) != 127) weights.push_back(bits);
    const int n = int(weights.size());
    std::vector<float> want(n);
    for (int i = 0; i < n; ++i) want[i] = 0.5f * from_e4m3(weights[i]);

    float* out = device_array<float>(n);
    dequantise<<<2, 128>>>(to_device(weights), out, 0.5f, n);
    finish();
    return check(to_host(out, n), want);
}
