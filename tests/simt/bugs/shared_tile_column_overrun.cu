// what: a 2-D tile lacks its right halo, so the last row's last read falls behind the array
// expect: SX102
// widths: 32 64
// sanitizer: memcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

constexpr int tile = 8;

#ifdef BUG
constexpr int pitch = tile + 1;
#else
constexpr int pitch = tile + 2;
#endif

// Sum over the left, the own and the right pixel; images are a multiple of the tile's size.
__global__ void blur_rows(const int* in, int* out, int cols) {
    __shared__ int s[tile][pitch];
    const int x = threadIdx.x, y = threadIdx.y, col = blockIdx.x * tile + x;
    const int* row = in + (blockIdx.y * tile + y) * cols;
    s[y][x + 1] = row[col];
    if (x == 0) s[y][0] = col > 0 ? row[col - 1] : 0;
    if (x == tile - 1) s[y][tile + 1] = col + 1 < cols ? row[col + 1] : 0;
    __syncthreads();
    out[(blockIdx.y * tile + y) * cols + col] = s[y][x] + s[y][x + 1] + s[y][x + 2];
}

int main() {
    constexpr int rows = 16, cols = 24;
    const auto in = numbers<int>(rows * cols);
    std::vector<int> want(in);
    for (int i = 0; i < rows * cols; ++i) {
        if (i % cols > 0) want[i] += in[i - 1];
        if (i % cols < cols - 1) want[i] += in[i + 1];
    }
    int* out = device_array<int>(rows * cols);
    blur_rows<<<dim3(cols / tile, rows / tile), dim3(tile, tile)>>>(to_device(in), out, cols);
    finish();
    return check(to_host(out, rows * cols), want);
}
