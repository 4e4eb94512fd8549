// what: float4(x) is taken for a broadcast, and sets the first component only
// expect: wrong | build
// widths: 32 64
// pitfall: 53
// sanitizer: none
// group: porting
#include <hip/hip_runtime.h>

#include "check.h"

__global__ void add_bias(const float4* x, const float* bias, float4* y, int rows, int packs) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * packs) return;
    const float b = bias[i / packs];
#ifdef BUG
    const float4 add = float4(b);
#else
    const float4 add = make_float4(b, b, b, b);
#endif
    y[i] = make_float4(x[i].x + add.x, x[i].y + add.y, x[i].z + add.z, x[i].w + add.w);
}

int main() {
    constexpr int rows = 12, packs = 5, n = rows * packs;
    const auto values = numbers<float>(4 * n), bias = numbers<float>(rows, 9);
    std::vector<float4> x(n);
    std::vector<float> got, want(4 * n);
    for (int i = 0; i < n; ++i)
        x[i] = make_float4(values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3]);
    for (int i = 0; i < 4 * n; ++i) want[i] = values[i] + bias[i / (4 * packs)];

    float4* y = device_array<float4>(n);
    add_bias<<<1, 64>>>(to_device(x), to_device(bias), y, rows, packs);
    finish();
    for (const float4& v : to_host(y, n)) got.insert(got.end(), {v.x, v.y, v.z, v.w});
    return check(got, want);
}
