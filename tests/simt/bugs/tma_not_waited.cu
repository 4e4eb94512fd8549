// what: a box of a tensor is read behind a barrier, but nobody waits for the copy itself
// expect: SX107 | wrong
// widths: 32
// arch: sm_90
// sanitizer: none
// group: races
#include <cuda_runtime.h>

#include "async.h"
#include "check.h"

constexpr int size = 16;

// What lies outside comes as zeros.
__global__ void transpose(const __grid_constant__ CUtensorMap in, float* out, int rows, int columns) {
    __shared__ alignas(128) float tile[size][size];
    __shared__ uint64_t full;
    const int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * size, column = blockIdx.x * size;
    if (x == 0 && y == 0) {
        init(&full, 1);
        expect(&full, sizeof tile);
        load_box(tile, &in, column, row, &full);
    }
    __syncthreads();
#ifndef BUG
    wait(&full, 0);
#endif
    if (column + y < columns && row + x < rows) out[(column + y) * rows + row + x] = tile[x][y];
}

int main() {
    constexpr int rows = 40, columns = 24;
    const auto in = numbers<float>(rows * columns);
    std::vector<float> want(rows * columns);
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < columns; ++j) want[j * rows + i] = in[i * columns + j];
    float* out = device_array<float>(rows * columns);
    const CUtensorMap map = map_of(to_device(in), rows, columns, size, size);
    transpose<<<dim3(2, 3), dim3(size, size)>>>(map, out, rows, columns);
    finish();
    return check(to_host(out, rows * columns), want);
}
