// what: a row belongs to 32 threads but is summed over a whole warp
// expect: wrong
// widths: 64
// pitfall: 2
// sanitizer: none
// group: width
#include <cuda_runtime.h>

#include "check.h"

__global__ void row_means(const float* x, float* means, int rows, int cols) {
#ifdef BUG
    const int lanes = 32;
#else
    const int lanes = warpSize;
#endif
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = thread / lanes, lane = thread % lanes;
    float sum = 0;
    for (int i = lane; row < rows && i < cols; i += lanes) sum += x[row * cols + i];
    for (int d = warpSize / 2; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffff, sum, d);
    if (row < rows && lane == 0) means[row] = sum / cols;
}

int main() {
    constexpr int rows = 13, cols = 100;
    const auto x = numbers<float>(rows * cols);
    std::vector<float> want(rows);
    for (int i = 0; i < rows * cols; ++i) want[i / cols] += x[i];
    for (float& value : want) value /= cols;

    float* means = device_array<float>(rows);
    row_means<<<7, 128>>>(to_device(x), means, rows, cols);
    finish();
    return check(to_host(means, rows), want, 1e-6);
}
