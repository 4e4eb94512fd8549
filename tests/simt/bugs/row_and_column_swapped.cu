// what: a non-square matrix is indexed with row and column exchanged
// expect: SX101
// widths: 32 64
// sanitizer: memcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

__global__ void add_bias(float* x, const float* bias, int rows, int cols) {
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= rows || col >= cols) return;
#ifdef BUG
    x[col * cols + row] += bias[col];
#else
    x[row * cols + col] += bias[col];
#endif
}

int main() {
    constexpr int rows = 20, cols = 50;
    const auto x = numbers<float>(rows * cols), bias = numbers<float>(cols, 7);
    auto want = x;
    for (int i = 0; i < rows * cols; ++i) want[i] += bias[i % cols];

    float* device = to_device(x);
    add_bias<<<dim3(4, 3), dim3(16, 8)>>>(device, to_device(bias), rows, cols);
    finish();
    return check(to_host(device, rows * cols), want);
}
