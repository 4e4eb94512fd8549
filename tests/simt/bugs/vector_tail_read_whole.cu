// what: the last, incomplete group of four is read and written as a whole float4
// expect: SX101
// widths: 32 64
// sanitizer: memcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

__global__ void relu(const float* x, float* y, int n) {
    const int first = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
#ifdef BUG
    if (first < n) {
#else
    if (first + 4 <= n) {
#endif
        const float4 v = *reinterpret_cast<const float4*>(x + first);
        *reinterpret_cast<float4*>(y + first) =
            make_float4(fmaxf(v.x, 0), fmaxf(v.y, 0), fmaxf(v.z, 0), fmaxf(v.w, 0));
    } else {
        for (int i = first; i < n; ++i) y[i] = fmaxf(x[i], 0);
    }
}

int main() {
    constexpr int n = 1022;
    auto x = numbers<float>(n);
    for (float& value : x) value -= 50;
    std::vector<float> want(n);
    for (int i = 0; i < n; ++i) want[i] = std::max(x[i], 0.0f);

    float* y = device_array<float>(n);
    relu<<<2, 128>>>(to_device(x), y, n);
    finish();
    return check(to_host(y, n), want);
}
