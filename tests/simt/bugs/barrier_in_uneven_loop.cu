// what: a loop that some threads run once more than others has a barrier in it
// expect: SX301 | SX302
// widths: 32 64
// pitfall: 15
// sanitizer: synccheck
// group: convergence
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 96;

// Running totals of chunks of `block` values: a serial scan over chunks, parallel within.
__global__ void chunk_scan(const int* x, int* y, int n) {
    __shared__ int s[block];
    int carry = 0;
#ifdef BUG
    for (int i = threadIdx.x; i < n; i += block) {
#else
    for (int i = threadIdx.x; i - int(threadIdx.x) < n; i += block) {
#endif
        s[threadIdx.x] = i < n ? x[i] : 0;
        __syncthreads();
        int sum = carry;
        for (unsigned k = 0; k <= threadIdx.x; ++k) sum += s[k];
        for (int k = 0; k < block; ++k) carry += s[k];
        if (i < n) y[i] = sum;
        __syncthreads();
    }
}

int main() {
    constexpr int n = 3 * block + 40;
    const auto x = numbers<int>(n);
    std::vector<int> want(x);
    for (int i = 1; i < n; ++i) want[i] += want[i - 1];

    int* y = device_array<int>(n);
    chunk_scan<<<1, block>>>(to_device(x), y, n);
    finish();
    return check(to_host(y, n), want);
}
