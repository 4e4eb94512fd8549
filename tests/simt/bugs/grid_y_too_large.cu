// what: one block in y per row, where a grid has at most 65535 in y
// expect: SX401 | error
// widths: 32 64
// sanitizer: memcheck
// group: launch
#include <cuda_runtime.h>

#include "check.h"

__global__ void row_parity(const unsigned char* x, unsigned char* parity, int rows, int cols) {
    for (int row = blockIdx.y; row < rows; row += gridDim.y) {
        int odd = 0;
        for (int i = threadIdx.x; i < cols; i += blockDim.x) odd ^= x[row * cols + i] & 1;
        odd = __syncthreads_count(odd) & 1;
        if (threadIdx.x == 0) parity[row] = odd;
    }
}

int main() {
    constexpr int rows = 70000, cols = 3;
    const auto x = numbers<unsigned char>(rows * cols, 251);
    std::vector<unsigned char> want(rows);
    for (int i = 0; i < rows * cols; ++i) want[i / cols] ^= x[i] & 1;

    unsigned char* parity = device_array<unsigned char>(rows);
#ifdef BUG
    const dim3 grid(1, rows);
#else
    const dim3 grid(1, std::min(rows, 100));
#endif
    row_parity<<<grid, 2>>>(to_device(x), parity, rows, cols);
    finish();
    return check(to_host(parity, rows), want);
}
