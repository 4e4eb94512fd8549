// what: a tree reduction in shared memory has no barrier between its steps
// expect: SX201
// widths: 32 64
// pitfall: 16
// sanitizer: racecheck
// group: races
#include <cuda_runtime.h>

#include "check.h"

__global__ void block_sums(const float* x, float* sums, int n) {
    extern __shared__ float s[];
    const unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? x[i] : 0;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (t < half) s[t] += s[t + half];
#ifndef BUG
        __syncthreads();
#endif
    }
    if (t == 0) sums[blockIdx.x] = s[0];
}

int main() {
    constexpr int n = 1000, block = 256, blocks = (n + block - 1) / block;
    const auto x = numbers<float>(n);
    std::vector<float> want(blocks);
    for (int i = 0; i < n; ++i) want[i / block] += x[i];

    float* sums = device_array<float>(blocks);
    block_sums<<<blocks, block, block * sizeof(float)>>>(to_device(x), sums, n);
    finish();
    return check(to_host(sums, blocks), want);
}
