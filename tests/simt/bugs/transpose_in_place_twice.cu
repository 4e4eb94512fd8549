// what: both ends of each pair swap it in an in-place transpose
// expect: SX202 | SX203
// widths: 32 64
// sanitizer: none
// group: races
#include <cuda_runtime.h>

#include "check.h"

__global__ void transpose(int* x, int n) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || col >= n) return;
#ifdef BUG
    if (row != col) {
#else
    if (row < col) {
#endif
        const int value = x[row * n + col];
        x[row * n + col] = x[col * n + row];
        x[col * n + row] = value;
    }
}

int main() {
    constexpr int n = 37;
    const auto x = numbers<int>(n * n, 1361);
    std::vector<int> want(n * n);
    for (int i = 0; i < n; ++i)
        for (int j = 0; j < n; ++j) want[j * n + i] = x[i * n + j];

    int* device = to_device(x);
    transpose<<<dim3(3, 3), dim3(16, 16)>>>(device, n);
    finish();
    return check(to_host(device, n * n), want);
}
