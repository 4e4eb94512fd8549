// what: a filter's loop reads one coefficient more than constant memory holds
// expect: SX103 | SX101 | SX104
// widths: 32 64
// sanitizer: none
// group: memory
#include <cuda_runtime.h>

#include "check.h"

constexpr int radius = 4;

__constant__ float taps[2 * radius + 1];

__global__ void filter(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0;
#ifdef BUG
    for (int d = -radius; d <= radius + 1; ++d)
#else
    for (int d = -radius; d <= radius; ++d)
#endif
        if (i + d >= 0 && i + d < n) sum += taps[d + radius] * x[i + d];
    y[i] = sum;
}

int main() {
    constexpr int n = 300;
    const auto x = numbers<float>(n), weights = numbers<float>(2 * radius + 1, 9);
    std::vector<float> want(n);
    for (int i = 0; i < n; ++i)
        for (int j = std::max(i - radius, 0); j <= std::min(i + radius, n - 1); ++j)
            want[i] += weights[j - i + radius] * x[j];

    CHECK_CUDA(cudaMemcpyToSymbol(taps, weights.data(), sizeof(taps)));
    float* y = device_array<float>(n);
    filter<<<3, 128>>>(to_device(x), y, n);
    finish();
    return check(to_host(y, n), want);
}
