// what: a one-warp kernel is compiled for at most 32 threads and launched with warpSize
// expect: SX403
// widths: 64
// pitfall: 10
// sanitizer: none
// group: width
#include <cuda_runtime.h>

#include "check.h"

#ifdef BUG
constexpr int most = 32;
#else
constexpr int most = 64;
#endif

__global__ void __launch_bounds__(most) cross_sums(const int* x, int* y, int rows, int cols) {
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        int sum = 0;
        for (int i = threadIdx.x; i < cols; i += blockDim.x) sum += x[row * cols + i];
        for (int d = warpSize / 2; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffff, sum, d);
        for (int i = threadIdx.x; i < cols; i += blockDim.x)
            y[row * cols + i] = sum - x[row * cols + i];
    }
}

int main() {
    constexpr int rows = 11, cols = 90;
    const auto x = numbers<int>(rows * cols);
    std::vector<int> sums(rows), want(rows * cols);
    for (int i = 0; i < rows * cols; ++i) sums[i / cols] += x[i];
    for (int i = 0; i < rows * cols; ++i) want[i] = sums[i / cols] - x[i];

    int* y = device_array<int>(rows * cols);
    cross_sums<<<4, lanes_per_warp()>>>(to_device(x), y, rows, cols);
    finish();
    return check(to_host(y, rows * cols), want);
}
