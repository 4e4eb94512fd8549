// what: a warp sum starts at a distance of 16 and lane 0 of the warp takes it for the whole
// expect: wrong
// widths: 64
// pitfall: 1
// sanitizer: none
// group: width
#include <cuda_runtime.h>

#include "check.h"

__global__ void sum_squares(const float* x, float* sum, int n) {
    float value = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        value += x[i] * x[i];
#ifdef BUG
    for (int d = 16; d > 0; d >>= 1) value += __shfl_down_sync(0xffffffff, value, d);
#else
    for (int d = warpSize / 2; d > 0; d >>= 1) value += __shfl_down_sync(0xffffffff, value, d);
#endif
    if (threadIdx.x % warpSize == 0) atomicAdd(sum, value);
}

int main() {
    constexpr int n = 1500;
    const auto x = numbers<float>(n, 31);
    std::vector<float> want(1);
    for (float value : x) want[0] += value * value;

    float* sum = device_zeros<float>(1);
    sum_squares<<<2, 256>>>(to_device(x), sum, n);
    finish();
    return check(to_host(sum, 1), want);
}
