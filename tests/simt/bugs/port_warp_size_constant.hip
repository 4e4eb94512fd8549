// what: a shared array is sized by warpSize, which HIP knows at run time only
// expect: build
// widths: 32 64
// pitfall: 8
// sanitizer: none
// group: porting
#include <hip/hip_runtime.h>

#include "check.h"

constexpr int block = 256;

__global__ void block_minima(const int* x, int* minima) {
#ifdef BUG
    __shared__ int partial[block / warpSize];
#else
    __shared__ int partial[block / 32];
#endif
    int value = x[blockIdx.x * block + threadIdx.x];
    for (int d = warpSize / 2; d > 0; d /= 2) value = min(value, __shfl_xor(value, d));
    if (threadIdx.x % warpSize == 0) partial[threadIdx.x / warpSize] = value;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int w = 1; w < block / warpSize; ++w) value = min(value, partial[w]);
    minima[blockIdx.x] = value;
}

int main() {
    constexpr int blocks = 4;
    const auto x = numbers<int>(blocks * block, 1999);
    std::vector<int> want(blocks);
    for (int b = 0; b < blocks; ++b)
        want[b] = *std::min_element(&x[b * block], &x[b * block] + block);

    int* minima = device_array<int>(blocks);
    block_minima<<<blocks, block>>>(to_device(x), minima);
    finish();
    return check(to_host(minima, blocks), want);
}
