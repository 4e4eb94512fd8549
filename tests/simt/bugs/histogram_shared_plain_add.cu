// what: bins in shared memory are counted without atomics
// expect: SX201
// widths: 32 64
// sanitizer: racecheck
// group: races
#include <cuda_runtime.h>

#include "check.h"

constexpr int bins = 16;

__global__ void histogram(const unsigned char* data, unsigned* counts, int n) {
    __shared__ unsigned local[bins];
    if (threadIdx.x < bins) local[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
#ifdef BUG
        local[data[i] % bins]++;
#else
        atomicAdd(&local[data[i] % bins], 1u);
#endif
    }
    __syncthreads();
    if (threadIdx.x < bins) atomicAdd(&counts[threadIdx.x], local[threadIdx.x]);
}

int main() {
    constexpr int n = 5000;
    const auto data = numbers<unsigned char>(n, 251);
    std::vector<unsigned> want(bins);
    for (unsigned char value : data) ++want[value % bins];

    unsigned* counts = device_zeros<unsigned>(bins);
    histogram<<<4, 128>>>(to_device(data), counts, n);
    finish();
    return check(to_host(counts, bins), want);
}
