// what: the next tiles are loaded while other threads still multiply with the last ones
// expect: SX201
// widths: 32 64
// pitfall: 16
// sanitizer: racecheck
// group: races
#include <cuda_runtime.h>

#include "check.h"

// Each thread makes two rows of a 16 x 16 tile of c; edges are padded with zeros.
template <int Tile>
__global__ void matmul(const float* a, const float* b, float* c, int m, int n, int depth) {
    __shared__ float as[Tile][Tile + 1];
    __shared__ float bs[Tile][Tile];
    const int x = threadIdx.x, y = threadIdx.y;
    const int row = blockIdx.y * Tile + y, col = blockIdx.x * Tile + x;
    float sum[2] = {0, 0};
    for (int k = 0; k < depth; k += Tile) {
        for (int i = 0; i < Tile; i += Tile / 2) {
            as[y + i][x] = row + i < m && k + x < depth ? a[(row + i) * depth + k + x] : 0;
            bs[y + i][x] = k + y + i < depth && col < n ? b[(k + y + i) * n + col] : 0;
        }
        __syncthreads();
        for (int i = 0; i < Tile; ++i) {
            sum[0] += as[y][i] * bs[i][x];
            sum[1] += as[y + Tile / 2][i] * bs[i][x];
        }
#ifndef BUG
        __syncthreads();
#endif
    }
    for (int i = 0; i < 2; ++i)
        if (row + i * Tile / 2 < m && col < n) c[(row + i * Tile / 2) * n + col] = sum[i];
}

int main() {
    constexpr int m = 40, n = 27, depth = 61, tile = 16;
    const auto a = numbers<float>(m * depth), b = numbers<float>(depth * n, 13);
    std::vector<float> want(m * n);
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j)
            for (int k = 0; k < depth; ++k) want[i * n + j] += a[i * depth + k] * b[k * n + j];

    float* c = device_array<float>(m * n);
    const dim3 grid((n + tile - 1) / tile, (m + tile - 1) / tile);
    matmul<tile><<<grid, dim3(tile, tile / 2)>>>(to_device(a), to_device(b), c, m, n, depth);
    finish();
    return check(to_host(c, m * n), want);
}
