// what: the barrier stands inside the guard that the tail's threads do not pass
// expect: SX301 | SX302
// widths: 32 64
// pitfall: 14
// sanitizer: synccheck
// group: convergence
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 128;

__global__ void mirror_blocks(const int* x, int* y, int n) {
    __shared__ int s[block];
    const int first = blockIdx.x * block, i = first + threadIdx.x;
    const int held = min(block, n - first);
#ifdef BUG
    if (i < n) {
        s[threadIdx.x] = x[i];
        __syncthreads();
        y[i] = s[held - 1 - threadIdx.x];
    }
#else
    if (i < n) s[threadIdx.x] = x[i];
    __syncthreads();
    if (i < n) y[i] = s[held - 1 - threadIdx.x];
#endif
}

int main() {
    constexpr int n = 300;
    const auto x = numbers<int>(n);
    std::vector<int> want(n);
    for (int i = 0; i < n; ++i) {
        const int first = i / block * block, end = std::min(first + block, n);
        want[i] = x[first + end - 1 - i];
    }
    int* y = device_array<int>(n);
    mirror_blocks<<<(n + block - 1) / block, block>>>(to_device(x), y, n);
    finish();
    return check(to_host(y, n), want);
}
