// what: in blocks of 16 x 8 threads the lane is taken from threadIdx.x alone
// expect: wrong
// widths: 32 64
// sanitizer: none
// group: convergence
#include <cuda_runtime.h>

#include "check.h"

__global__ void sum_image(const int* x, int* sum, int cols) {
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    int value = x[row * cols + col];
    for (int d = warpSize / 2; d > 0; d /= 2) value += __shfl_down_sync(0xffffffff, value, d);
#ifdef BUG
    const int lane = threadIdx.x % warpSize;
#else
    const int lane = (threadIdx.y * blockDim.x + threadIdx.x) % warpSize;
#endif
    if (lane == 0) atomicAdd(sum, value);
}

int main() {
    constexpr int rows = 16, cols = 48;
    const auto x = numbers<int>(rows * cols);
    std::vector<int> want(1);
    for (int value : x) want[0] += value;

    int* sum = device_zeros<int>(1);
    sum_image<<<dim3(3, 2), dim3(16, 8)>>>(to_device(x), sum, cols);
    finish();
    return check(to_host(sum, 1), want);
}
