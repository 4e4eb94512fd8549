// what: lanes fold partial results of warps that the block does not have
// expect: SX107
// widths: 32 64
// sanitizer: none
// group: memory
#include <climits>
#include <cuda_runtime.h>

#include "check.h"

__global__ void block_max(const int* x, int* top) {
    __shared__ int partial[32];
    const int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
    int value = x[blockIdx.x * blockDim.x + threadIdx.x];
    for (int d = warpSize / 2; d > 0; d /= 2)
        value = max(value, __shfl_xor_sync(0xffffffff, value, d));
    if (lane == 0) partial[warp] = value;
    __syncthreads();
    if (warp != 0) return;
#ifdef BUG
    value = lane < 32 ? partial[lane] : INT_MIN;
#else
    value = lane < blockDim.x / warpSize ? partial[lane] : INT_MIN;
#endif
    for (int d = warpSize / 2; d > 0; d /= 2)
        value = max(value, __shfl_xor_sync(0xffffffff, value, d));
    if (lane == 0) top[blockIdx.x] = value;
}

int main() {
    constexpr int block = 192, blocks = 3;
    auto x = numbers<int>(block * blocks, 977);
    for (int& value : x) value -= 2000;  // so that a zero in unset memory would win
    std::vector<int> want(blocks);
    for (int b = 0; b < blocks; ++b)
        want[b] = *std::max_element(&x[b * block], &x[b * block] + block);

    int* top = device_array<int>(blocks);
    block_max<<<blocks, block>>>(to_device(x), top);
    finish();
    return check(to_host(top, blocks), want);
}
