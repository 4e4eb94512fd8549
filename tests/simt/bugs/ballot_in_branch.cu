// what: only the lanes that pass a test take the ballot for which they name the whole warp
// expect: SX303 | SX306
// widths: 32 64
// pitfall: 13
// sanitizer: none
// group: convergence
// checks: hangs
#include <cuda_runtime.h>

#include "check.h"

// 1 for each value above the threshold, 2 where its whole warp is.
__global__ void mark_above(const float* x, float threshold, int* marks) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const bool above = x[i] > threshold;
#ifdef BUG
    if (above) {
        const bool all = __all_sync(0xffffffff, above);
        if (all) marks[i] = 2;
        else marks[i] = 1;
    }
    __syncwarp();
#else
    const bool all = __all_sync(0xffffffff, above);
    if (above) marks[i] = all ? 2 : 1;
#endif
}

int main() {
    constexpr int n = 192;
    const int lanes = lanes_per_warp();
    auto x = numbers<float>(n);
    std::fill(x.begin(), x.begin() + 64, 90.0f);
    std::vector<int> want(n);
    for (int i = 0; i < n; ++i) {
        const auto first = x.begin() + i / lanes * lanes;
        const bool all = *std::min_element(first, first + lanes) > 60;
        want[i] = x[i] > 60 ? 1 + all : 0;
    }
    int* marks = device_zeros<int>(n);
    mark_above<<<3, 64>>>(to_device(x), 60, marks);
    finish();
    return check(to_host(marks, n), want);
}
