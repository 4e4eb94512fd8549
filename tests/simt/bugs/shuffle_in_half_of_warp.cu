// what: half of a warp calls a shuffle for which it names the other half, which goes elsewhere
// expect: SX303 | SX306
// widths: 32 64
// pitfall: 13
// sanitizer: none
// group: convergence
// checks: hangs
#include <cuda_runtime.h>

#include "check.h"

// The lower half of each warp subtracts what the upper half holds; the upper half is done.
__global__ void fold(const int* x, int* y) {
    const int lane = threadIdx.x % warpSize, half = warpSize / 2;
    const int value = x[threadIdx.x];
#ifdef BUG
    if (lane < half) y[threadIdx.x] = value - __shfl_down_sync(0xffffffff, value, half);
    else y[threadIdx.x] = value;
    __syncthreads();
#else
    const int other = __shfl_down_sync(0xffffffff, value, half);
    y[threadIdx.x] = lane < half ? value - other : value;
#endif
}

int main() {
    constexpr int n = 128;
    const int lanes = lanes_per_warp();
    const auto x = numbers<int>(n);
    std::vector<int> want(x);
    for (int i = 0; i < n; ++i)
        if (i % lanes < lanes / 2) want[i] -= x[i + lanes / 2];

    int* y = device_array<int>(n);
    fold<<<1, n>>>(to_device(x), y);
    finish();
    return check(to_host(y, n), want);
}
