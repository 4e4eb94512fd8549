// what: an in-place prefix sum adds before its neighbours have read the old value
// expect: SX201
// widths: 32 64
// pitfall: 16
// sanitizer: racecheck
// group: races
#include <cuda_runtime.h>

#include "check.h"

__global__ void inclusive_scan(const int* x, int* y, int n) {
    __shared__ int s[512];
    const int t = threadIdx.x;
    s[t] = t < n ? x[t] : 0;
    __syncthreads();
    for (int d = 1; d < blockDim.x; d *= 2) {
        const int before = t >= d ? s[t - d] : 0;
#ifndef BUG
        __syncthreads();
#endif
        s[t] += before;
        __syncthreads();
    }
    if (t < n) y[t] = s[t];
}

int main() {
    constexpr int n = 500;
    const auto x = numbers<int>(n);
    std::vector<int> want(x);
    for (int i = 1; i < n; ++i) want[i] += want[i - 1];

    int* y = device_array<int>(n);
    inclusive_scan<<<1, 512>>>(to_device(x), y, n);
    finish();
    return check(to_host(y, n), want);
}
