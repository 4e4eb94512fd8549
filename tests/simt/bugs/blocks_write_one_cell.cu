// what: every block stores its row sum to the cell of its thread, not of its row
// expect: SX203
// widths: 32 64
// sanitizer: none
// group: races
#include <cuda_runtime.h>

#include "check.h"

constexpr int rows_per_block = 16, cols = 24;

__global__ void row_sums(const float* x, float* sums, int rows) {
    const int row = blockIdx.x * rows_per_block + threadIdx.x;
    if (row >= rows) return;
    float sum = 0;
    for (int i = 0; i < cols; ++i) sum += x[row * cols + i];
#ifdef BUG
    sums[threadIdx.x] = sum;
#else
    sums[row] = sum;
#endif
}

int main() {
    constexpr int rows = 100;
    const auto x = numbers<float>(rows * cols);
    std::vector<float> want(rows);
    for (int i = 0; i < rows * cols; ++i) want[i / cols] += x[i];

    float* sums = device_zeros<float>(rows);
    const int blocks = (rows + rows_per_block - 1) / rows_per_block;
    row_sums<<<blocks, rows_per_block>>>(to_device(x), sums, rows);
    finish();
    return check(to_host(sums, rows), want);
}
