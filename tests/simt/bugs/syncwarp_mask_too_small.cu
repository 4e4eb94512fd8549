// what: all lanes call __syncwarp with a mask that names half of them
// expect: SX304
// widths: 32 64
// sanitizer: synccheck
// group: convergence
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 64;

__global__ void swap_neighbours(const int* x, int* y) {
    __shared__ int s[block];
    const int t = threadIdx.x;
    s[t] = x[blockIdx.x * block + t];
#ifdef BUG
    __syncwarp(0x0000ffff);
#else
    __syncwarp();
#endif
    y[blockIdx.x * block + t] = s[t ^ 1];
}

int main() {
    constexpr int n = 3 * block;
    const auto x = numbers<int>(n);
    std::vector<int> want(n);
    for (int i = 0; i < n; ++i) want[i] = x[i ^ 1];

    int* y = device_array<int>(n);
    swap_neighbours<<<3, block>>>(to_device(x), y);
    finish();
    return check(to_host(y, n), want);
}
