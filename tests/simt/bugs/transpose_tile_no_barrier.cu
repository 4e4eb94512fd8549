// what: a transposed tile is read before it has been written
// expect: SX201
// widths: 32 64
// pitfall: 16
// sanitizer: racecheck
// group: races
#include <cuda_runtime.h>

#include "check.h"

constexpr int tile = 32, rows_per_block = 8;

__global__ void transpose(const int* in, int* out, int rows, int cols) {
    __shared__ int s[tile][tile + 1];
    const int x = threadIdx.x, y = threadIdx.y;
    int col = blockIdx.x * tile + x, row = blockIdx.y * tile + y;
    for (int i = 0; i < tile; i += rows_per_block)
        if (row + i < rows && col < cols) s[y + i][x] = in[(row + i) * cols + col];
#ifndef BUG
    __syncthreads();
#endif
    col = blockIdx.y * tile + x;
    row = blockIdx.x * tile + y;
    for (int i = 0; i < tile; i += rows_per_block)
        if (row + i < cols && col < rows) out[(row + i) * rows + col] = s[x][y + i];
}

int main() {
    constexpr int rows = 70, cols = 45;
    const auto in = numbers<int>(rows * cols, 10007);
    std::vector<int> want(rows * cols);
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < cols; ++j) want[j * rows + i] = in[i * cols + j];

    int* out = device_array<int>(rows * cols);
    const dim3 grid((cols + tile - 1) / tile, (rows + tile - 1) / tile);
    transpose<<<grid, dim3(tile, rows_per_block)>>>(to_device(in), out, rows, cols);
    finish();
    return check(to_host(out, rows * cols), want);
}
