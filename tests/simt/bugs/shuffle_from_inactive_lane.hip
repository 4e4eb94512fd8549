// what: a shuffle without a mask reads lanes that the branch has left out
// expect: SX306
// widths: 32 64
// pitfall: 13
// sanitizer: none
// group: convergence
#include <hip/hip_runtime.h>

#include "check.h"

// Difference to the value a quarter of a warp further on, where the warp has one.
__global__ void far_difference(const int* x, int* y) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int lane = threadIdx.x % warpSize, quarter = warpSize / 4;
    int value = 0;
#ifdef BUG
    if (lane < 3 * quarter) value = __shfl_down(x[i], quarter) - x[i];
#else
    const int other = __shfl_down(x[i], quarter);
    if (lane < 3 * quarter) value = other - x[i];
#endif
    y[i] = value;
}

int main() {
    constexpr int n = 256;
    const int lanes = lanes_per_warp(), quarter = lanes / 4;
    const auto x = numbers<int>(n);
    std::vector<int> want(n);
    for (int i = 0; i < n; ++i)
        if (i % lanes < 3 * quarter) want[i] = x[i + quarter] - x[i];

    int* y = device_array<int>(n);
    far_difference<<<2, 128>>>(to_device(x), y);
    finish();
    return check(to_host(y, n), want);
}
