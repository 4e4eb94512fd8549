// what: lanes that shuffle with each other pass different masks
// expect: SX305 | SX303
// widths: 32 64
// sanitizer: none
// group: convergence
#include <cuda_runtime.h>

#include "check.h"

// Sums over segments of 16 lanes; the first warp of the block holds two or more of them.
__global__ void segment_sums(const int* x, int* sums) {
    const int t = threadIdx.x;
#ifdef BUG
    const unsigned mask = t < 16 ? 0x0000ffff : 0xffffffff;
#else
    const unsigned mask = 0xffffffff;
#endif
    int value = x[t];
    for (int d = 8; d > 0; d /= 2) value += __shfl_xor_sync(mask, value, d, 16);
    if (t % 16 == 0) sums[t / 16] = value;
}

int main() {
    constexpr int n = 64;
    const auto x = numbers<int>(n);
    std::vector<int> want(n / 16);
    for (int i = 0; i < n; ++i) want[i / 16] += x[i];

    int* sums = device_array<int>(n / 16);
    segment_sums<<<1, n>>>(to_device(x), sums);
    finish();
    return check(to_host(sums, n / 16), want);
}
