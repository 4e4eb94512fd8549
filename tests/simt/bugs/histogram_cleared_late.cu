// what: counting starts before another warp has cleared the bins
// expect: SX205 | SX201
// widths: 32 64
// pitfall: 16
// sanitizer: racecheck
// group: races
#include <cuda_runtime.h>

#include "check.h"

constexpr int bins = 256;  // of 8 bits each: one clear per thread

__global__ void byte_histogram(const uint32_t* words, int* counts, int n) {
    __shared__ int local[bins];
    local[threadIdx.x] = 0;
#ifndef BUG
    __syncthreads();
#endif
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        for (int shift = 0; shift < 32; shift += 8) atomicAdd(&local[words[i] >> shift & 255], 1);
    __syncthreads();
    counts[threadIdx.x] = local[threadIdx.x];
}

int main() {
    constexpr int n = 800;
    auto words = numbers<uint32_t>(n, 65521);
    for (uint32_t& word : words) word *= 65537u;
    std::vector<int> want(bins);
    for (uint32_t word : words)
        for (int shift = 0; shift < 32; shift += 8) ++want[word >> shift & 255];

    int* counts = device_array<int>(bins);
    byte_histogram<<<1, bins>>>(to_device(words), counts, n);
    finish();
    return check(to_host(counts, bins), want);
}
