// what: a stencil reads its neighbours' cells and the halo before they are loaded
// expect: SX201
// widths: 32 64
// pitfall: 16
// sanitizer: racecheck
// group: races
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 128, radius = 3;

__global__ void stencil(const float* in, float* out, int n) {
    __shared__ float s[block + 2 * radius];
    const int i = blockIdx.x * block + threadIdx.x, at = threadIdx.x + radius;
    s[at] = i < n ? in[i] : 0;
    if (threadIdx.x < radius) {
        s[at - radius] = i >= radius ? in[i - radius] : 0;
        s[at + block] = i + block < n ? in[i + block] : 0;
    }
#ifndef BUG
    __syncthreads();
#endif
    float sum = 0;
    for (int d = -radius; d <= radius; ++d) sum += s[at + d];
    if (i < n) out[i] = sum;
}

int main() {
    constexpr int n = 1000;
    const auto in = numbers<float>(n);
    std::vector<float> want(n);
    for (int i = 0; i < n; ++i)
        for (int j = std::max(i - radius, 0); j <= std::min(i + radius, n - 1); ++j)
            want[i] += in[j];

    float* out = device_array<float>(n);
    stencil<<<(n + block - 1) / block, block>>>(to_device(in), out, n);
    finish();
    return check(to_host(out, n), want);
}
