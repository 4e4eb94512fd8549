// what: the last warp of a tree reduction trusts volatile instead of __syncwarp
// expect: SX204
// widths: 32 64
// pitfall: 11
// sanitizer: racecheck
// group: races
// checks: lockstep
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 256;

__device__ void warp_tail(volatile float* s, int t) {
    for (int d = warpSize; d > 0; d /= 2) {
        const float sum = s[t] + s[t + d];
#ifndef BUG
        __syncwarp();
#endif
        s[t] = sum;
#ifndef BUG
        __syncwarp();
#endif
    }
}

__global__ void block_sums(const float* x, float* sums) {
    __shared__ float s[block];
    const int t = threadIdx.x;
    s[t] = x[blockIdx.x * block + t];
    __syncthreads();
    for (int half = block / 2; half > warpSize; half /= 2) {
        if (t < half) s[t] += s[t + half];
        __syncthreads();
    }
    if (t < warpSize) warp_tail(s, t);
    if (t == 0) sums[blockIdx.x] = s[0];
}

int main() {
    constexpr int blocks = 3;
    const auto x = numbers<float>(blocks * block);
    std::vector<float> want(blocks);
    for (int i = 0; i < blocks * block; ++i) want[i / block] += x[i];

    float* sums = device_array<float>(blocks);
    block_sums<<<blocks, block>>>(to_device(x), sums);
    finish();
    return check(to_host(sums, blocks), want);
}
