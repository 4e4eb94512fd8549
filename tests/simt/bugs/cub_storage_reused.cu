// what: a second cub::BlockReduce takes the same storage with no barrier after the first
// expect: SX201
// widths: 32 64
// sanitizer: racecheck
// group: races
#include <cub/cub.cuh>
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 256;

__global__ void moments(const float* x, float* sums, int n) {
    using Reduce = cub::BlockReduce<float, block>;
    __shared__ typename Reduce::TempStorage storage;
    const int i = blockIdx.x * block + threadIdx.x;
    const float value = i < n ? x[i] : 0;
    const float sum = Reduce(storage).Sum(value);
#ifndef BUG
    __syncthreads();
#endif
    const float squares = Reduce(storage).Sum(value * value);
    if (threadIdx.x == 0) {
        sums[2 * blockIdx.x] = sum;
        sums[2 * blockIdx.x + 1] = squares;
    }
}

int main() {
    constexpr int n = 700, blocks = (n + block - 1) / block;
    const auto x = numbers<float>(n);
    std::vector<float> want(2 * blocks);
    for (int i = 0; i < n; ++i) {
        want[i / block * 2] += x[i];
        want[i / block * 2 + 1] += x[i] * x[i];
    }
    float* sums = device_array<float>(2 * blocks);
    moments<<<blocks, block>>>(to_device(x), sums, n);
    finish();
    return check(to_host(sums, 2 * blocks), want);
}
