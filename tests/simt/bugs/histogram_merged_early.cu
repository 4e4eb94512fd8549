// what: a block's bins are merged while its other warps still count into them
// expect: SX205 | SX201
// widths: 32 64
// pitfall: 16
// sanitizer: racecheck
// group: races
#include <cuda_runtime.h>

#include "check.h"

constexpr int bins = 64;

__global__ void histogram(const int* data, int* counts, int n) {
    __shared__ int local[bins];
    for (int b = threadIdx.x; b < bins; b += blockDim.x) local[b] = 0;
    __syncthreads();
    const int first = blockIdx.x * blockDim.x * 4;
    for (int k = 0; k < 4; ++k) {
        const int i = first + k * blockDim.x + threadIdx.x;
        if (i < n) atomicAdd(&local[data[i]], 1);
    }
#ifndef BUG
    __syncthreads();
#endif
    for (int b = threadIdx.x; b < bins; b += blockDim.x)
        if (local[b] > 0) atomicAdd(&counts[b], local[b]);
}

int main() {
    constexpr int n = 3001, block = 192;
    const auto data = numbers<int>(n, bins);
    std::vector<int> want(bins);
    for (int value : data) ++want[value];

    int* counts = device_zeros<int>(bins);
    histogram<<<(n + 4 * block - 1) / (4 * block), block>>>(to_device(data), counts, n);
    finish();
    return check(to_host(counts, bins), want);
}
