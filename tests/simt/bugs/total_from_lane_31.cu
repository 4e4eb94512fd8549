// what: a warp scan takes lane 31's prefix for the warp's total
// expect: wrong
// widths: 64
// pitfall: 2
// sanitizer: none
// group: width
#include <cuda_runtime.h>

#include "check.h"

// One warp scans an array of any length, a warp's width at a time.
__global__ void scan_by_one_warp(const int* x, int* y, int n) {
    const int lane = threadIdx.x;
    int carry = 0;
    for (int first = 0; first < n; first += warpSize) {
        int value = first + lane < n ? x[first + lane] : 0;
        for (int d = 1; d < warpSize; d *= 2) {
            const int below = __shfl_up_sync(0xffffffff, value, d);
            if (lane >= d) value += below;
        }
        if (first + lane < n) y[first + lane] = carry + value;
#ifdef BUG
        carry += __shfl_sync(0xffffffff, value, 31);
#else
        carry += __shfl_sync(0xffffffff, value, warpSize - 1);
#endif
    }
}

int main() {
    constexpr int n = 330;
    const auto x = numbers<int>(n);
    std::vector<int> want(x);
    for (int i = 1; i < n; ++i) want[i] += want[i - 1];

    int* y = device_array<int>(n);
    scan_by_one_warp<<<1, lanes_per_warp()>>>(to_device(x), y, n);
    finish();
    return check(to_host(y, n), want);
}
