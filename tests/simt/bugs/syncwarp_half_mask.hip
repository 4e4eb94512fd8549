// what: a mask of the 32 lower lanes is passed to __syncwarp by all lanes of a wide warp
// expect: SX310 | SX304
// widths: 64
// pitfall: 12
// sanitizer: none
// group: width
#include <hip/hip_runtime.h>

#include "check.h"

constexpr int block = 128;

// Minimum of the cell and its two neighbours on each side, within a warp, via shared memory.
__global__ void erode(const int* x, int* y) {
    __shared__ int s[block];
    const int t = threadIdx.x, lane = t % warpSize;
    s[t] = x[blockIdx.x * block + t];
#ifdef BUG
    __syncwarp(0xffffffffull);
#else
    __syncwarp();
#endif
    int low = s[t];
    for (int d = -2; d <= 2; ++d)
        if (lane + d >= 0 && lane + d < warpSize) low = min(low, s[t + d]);
    y[blockIdx.x * block + t] = low;
}

int main() {
    constexpr int n = 2 * block;
    const int lanes = lanes_per_warp();
    const auto x = numbers<int>(n);
    std::vector<int> want(x);
    for (int i = 0; i < n; ++i)
        for (int j = std::max(i - 2, 0); j <= std::min(i + 2, n - 1); ++j)
            if (j / lanes == i / lanes) want[i] = std::min(want[i], x[j]);

    int* y = device_array<int>(n);
    erode<<<2, block>>>(to_device(x), y);
    finish();
    return check(to_host(y, n), want);
}
