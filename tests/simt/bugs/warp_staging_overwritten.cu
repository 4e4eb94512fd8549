// what: a warp's staging buffer is refilled before all of its lanes have read the last values
// expect: SX201 | SX204
// widths: 32 64
// pitfall: 16
// sanitizer: racecheck
// group: races
// checks: lockstep
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 64;

__global__ void wrapped_sums(const float* x, float* y, int rounds) {
    __shared__ float stage[block];
    const int lane = threadIdx.x % warpSize;
    float* mine = stage + threadIdx.x - lane;
    float sum = 0;
    for (int r = 0; r < rounds; ++r) {
        mine[lane] = x[r * block + threadIdx.x];
        __syncwarp();
        sum += mine[lane] * mine[lane ^ 1];
#ifndef BUG
        __syncwarp();
#endif
    }
    y[threadIdx.x] = sum;
}

int main() {
    constexpr int rounds = 5;
    const auto x = numbers<float>(rounds * block);
    std::vector<float> want(block);
    for (int i = 0; i < rounds * block; ++i) want[i % block] += x[i] * x[i ^ 1];

    float* y = device_array<float>(block);
    wrapped_sums<<<1, block>>>(to_device(x), y, rounds);
    finish();
    return check(to_host(y, block), want);
}
