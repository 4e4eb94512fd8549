// what: sixteen lanes shuffle among themselves but read from a lane outside their mask
// expect: SX306
// widths: 32 64
// pitfall: 13
// sanitizer: none
// group: convergence
#include <cuda_runtime.h>

#include "check.h"

constexpr int group = 16;

// The first 16 lanes of each block rotate their values.
__global__ void rotate(const int* x, int* y, int by) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    int value = x[i];
    if (threadIdx.x < group) {
#ifdef BUG
        value = __shfl_sync(0x0000ffff, value, threadIdx.x + by);
#else
        value = __shfl_sync(0x0000ffff, value, threadIdx.x + by, group);
#endif
    }
    y[i] = value;
}

int main() {
    constexpr int block = 64, n = 2 * block, by = 3;
    const auto x = numbers<int>(n);
    std::vector<int> want(x);
    for (int i = 0; i < n; ++i)
        if (i % block < group) want[i] = x[i / block * block + (i % block + by) % group];

    int* y = device_array<int>(n);
    rotate<<<2, block>>>(to_device(x), y, by);
    finish();
    return check(to_host(y, n), want);
}
