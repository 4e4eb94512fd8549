// what: a loop steps by the block's number of warps, which is zero on a device with wider warps
// expect: SX405
// widths: 64
// sanitizer: none
// group: convergence
// checks: hangs
#include <cuda_runtime.h>

#include "check.h"

__global__ void column_sums(const float* x, float* sums, int rows, int cols) {
#ifdef BUG
    const int warps = blockDim.x / warpSize;
#else
    const int warps = (blockDim.x + warpSize - 1) / warpSize;
#endif
    const int lane = threadIdx.x % warpSize, col = blockIdx.x * warpSize + lane;
    float sum = 0;
    for (int row = threadIdx.x / warpSize; row < rows; row += warps)
        if (col < cols) sum += x[row * cols + col];
    if (col < cols) atomicAdd(&sums[col], sum);
}

int main() {
    constexpr int rows = 20, cols = 32, block = 32;
    const auto x = numbers<float>(rows * cols);
    std::vector<float> want(cols);
    for (int i = 0; i < rows * cols; ++i) want[i % cols] += x[i];

    float* sums = device_zeros<float>(cols);
    column_sums<<<1, block>>>(to_device(x), sums, rows, cols);
    finish();
    return check(to_host(sums, cols), want);
}
