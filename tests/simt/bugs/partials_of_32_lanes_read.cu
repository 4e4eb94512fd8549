// what: a partial sum is stored per warp but one per 32 threads is read
// expect: SX107 | wrong
// widths: 64
// pitfall: 7
// sanitizer: none
// group: width
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 256;

__global__ void block_sums(const double* x, double* sums) {
    __shared__ double partial[block / 32];  // enough for the narrowest warp
    const int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
    double value = x[blockIdx.x * block + threadIdx.x];
    for (int d = warpSize / 2; d > 0; d /= 2) value += __shfl_down_sync(0xffffffff, value, d);
    if (lane == 0) partial[warp] = value;
    __syncthreads();
    if (threadIdx.x == 0) {
#ifdef BUG
        const int warps = block / 32;
#else
        const int warps = block / warpSize;
#endif
        value = 0;
        for (int w = 0; w < warps; ++w) value += partial[w];
        sums[blockIdx.x] = value;
    }
}

int main() {
    constexpr int blocks = 3;
    const auto x = numbers<double>(blocks * block);
    std::vector<double> want(blocks);
    for (int i = 0; i < blocks * block; ++i) want[i / block] += x[i];

    double* sums = device_array<double>(blocks);
    block_sums<<<blocks, block>>>(to_device(x), sums);
    finish();
    return check(to_host(sums, blocks), want);
}
