// what: each warp's private bins, written without atomics by its leader, are chosen by tid / 32
// expect: SX107 | wrong
// widths: 64
// pitfall: 7
// sanitizer: none
// group: width
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 128, bins = 8;

// A warp counts one bin after the other by vote; nobody shares its row of `local`.
__global__ void histogram(const int* x, int* counts) {
    __shared__ int local[block / 32][bins];
    const int lane = threadIdx.x % warpSize, value = x[blockIdx.x * block + threadIdx.x];
#ifdef BUG
    const int warp = threadIdx.x / 32;
#else
    const int warp = threadIdx.x / warpSize;
#endif
    for (int b = 0; b < bins; ++b) {
        int votes = value % bins == b;
        for (int d = warpSize / 2; d > 0; d /= 2) votes += __shfl_down_sync(~0u, votes, d);
        if (lane == 0) local[warp][b] = votes;
    }
    __syncthreads();
    if (threadIdx.x < bins)
        for (int w = 0; w < block / warpSize; ++w)
            atomicAdd(&counts[threadIdx.x], local[w][threadIdx.x]);
}

int main() {
    constexpr int n = 4 * block;
    const auto x = numbers<int>(n);
    std::vector<int> want(bins);
    for (int value : x) ++want[value % bins];

    int* counts = device_zeros<int>(bins);
    histogram<<<4, block>>>(to_device(x), counts);
    finish();
    return check(to_host(counts, bins), want);
}
