// what: every 32nd thread stores to the cell of its warp, so a wide warp has two leaders
// expect: SX204 | SX201 | wrong
// widths: 64
// pitfall: 2
// sanitizer: none
// group: width
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 128;

// The number of threads of each block that see an odd value.
__global__ void count_odd(const int* x, int* counts) {
    __shared__ int odd[block / 32];
    int value = x[blockIdx.x * block + threadIdx.x] & 1;
    for (int d = warpSize / 2; d > 0; d /= 2) value += __shfl_down_sync(0xffffffff, value, d);
#ifdef BUG
    const bool leader = (threadIdx.x & 31) == 0;
#else
    const bool leader = threadIdx.x % warpSize == 0;
#endif
    if (leader) odd[threadIdx.x / warpSize] = value;
    __syncthreads();
    if (threadIdx.x != 0) return;
    int sum = 0;
    for (int w = 0; w < block / warpSize; ++w) sum += odd[w];
    counts[blockIdx.x] = sum;
}

int main() {
    constexpr int blocks = 4;
    const auto x = numbers<int>(blocks * block);
    std::vector<int> want(blocks);
    for (int i = 0; i < blocks * block; ++i) want[i / block] += x[i] & 1;

    int* counts = device_array<int>(blocks);
    count_odd<<<blocks, block>>>(to_device(x), counts);
    finish();
    return check(to_host(counts, blocks), want);
}
