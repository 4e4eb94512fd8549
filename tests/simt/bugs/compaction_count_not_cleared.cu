// what: threads count into a shared counter that thread 0 has yet to clear
// expect: SX205 | SX201
// widths: 32 64
// pitfall: 16
// sanitizer: racecheck
// group: races
#include <cuda_runtime.h>

#include "check.h"

__global__ void count_positive(const int* x, int* counts, int n) {
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;
#ifndef BUG
    __syncthreads();
#endif
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > 50) atomicAdd(&count, 1);
    __syncthreads();
    if (threadIdx.x == blockDim.x - 1) counts[blockIdx.x] = count;
}

int main() {
    constexpr int n = 900, block = 160, blocks = (n + block - 1) / block;
    const auto x = numbers<int>(n);
    std::vector<int> want(blocks);
    for (int i = 0; i < n; ++i) want[i / block] += x[i] > 50;

    int* counts = device_array<int>(blocks);
    count_positive<<<blocks, block>>>(to_device(x), counts, n);
    finish();
    return check(to_host(counts, blocks), want);
}
