// what: a block of 33 x 32 threads has more than 1024
// expect: SX401 | error
// widths: 32 64
// sanitizer: memcheck
// group: launch
#include <cuda_runtime.h>

#include "check.h"

__global__ void add_diagonal(float* x, float value, int n) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < n && row == col) x[row * n + col] += value;
}

int main() {
    constexpr int n = 33;
    const auto x = numbers<float>(n * n);
    auto want = x;
    for (int i = 0; i < n; ++i) want[i * n + i] += 4;

    float* device = to_device(x);
#ifdef BUG
    add_diagonal<<<dim3(1, 2), dim3(33, 32)>>>(device, 4, n);
#else
    add_diagonal<<<dim3(2, 2), dim3(32, 32)>>>(device, 4, n);
#endif
    finish();
    return check(to_host(device, n * n), want);
}
