// what: the host launches a warp per row on the assumption of 32 lanes, so wide warps miss rows
// expect: wrong
// widths: 64
// pitfall: 9
// sanitizer: none
// group: width
#include <cuda_runtime.h>

#include "check.h"

__global__ void argmin_rows(const float* x, int* where, int rows, int cols) {
    const int row = (blockIdx.x * blockDim.x + threadIdx.x) / warpSize;
    const int lane = threadIdx.x % warpSize;
    float low = INFINITY;
    int at = 0;
    for (int i = lane; row < rows && i < cols; i += warpSize) {
        if (x[row * cols + i] >= low) continue;
        low = x[row * cols + i];
        at = i;
    }
    for (int d = warpSize / 2; d > 0; d /= 2) {
        const float other = __shfl_xor_sync(0xffffffff, low, d);
        const int index = __shfl_xor_sync(0xffffffff, at, d);
        if (other < low || (other == low && index < at)) {
            low = other;
            at = index;
        }
    }
    if (row < rows && lane == 0) where[row] = at;
}

int main() {
    constexpr int rows = 30, cols = 80, block = 128;
    const auto x = numbers<float>(rows * cols, 2003);
    std::vector<int> want(rows);
    for (int r = 0; r < rows; ++r) {
        const float* row = &x[r * cols];
        want[r] = int(std::min_element(row, row + cols) - row);
    }
#ifdef BUG
    const int lanes = 32;
#else
    const int lanes = lanes_per_warp();
#endif
    int* where = to_device(std::vector<int>(rows, -1));
    argmin_rows<<<(rows * lanes + block - 1) / block, block>>>(to_device(x), where, rows, cols);
    finish();
    return check(to_host(where, rows), want);
}
