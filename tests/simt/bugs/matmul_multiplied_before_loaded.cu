// what: the tiles are multiplied before all threads have loaded them
// expect: SX201
// widths: 32 64
// pitfall: 16
// sanitizer: racecheck
// group: races
#include <cuda_runtime.h>

#include "check.h"

constexpr int tile = 16;

__global__ void matmul(const float* a, const float* b, float* c, int n) {
    __shared__ float as[tile][tile], bs[tile][tile];
    int row = blockIdx.y * tile + threadIdx.y, col = blockIdx.x * tile + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < n; k += tile) {
        as[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
        bs[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + col];
#ifndef BUG
        __syncthreads();
#endif
        for (int i = 0; i < tile; ++i) sum += as[threadIdx.y][i] * bs[i][threadIdx.x];
        __syncthreads();
    }
    c[row * n + col] = sum;
}

int main() {
    constexpr int n = 48;
    const auto a = numbers<float>(n * n), b = numbers<float>(n * n, 17);
    std::vector<float> want(n * n);
    for (int i = 0; i < n; ++i)
        for (int j = 0; j < n; ++j)
            for (int k = 0; k < n; ++k) want[i * n + j] += a[i * n + k] * b[k * n + j];

    float* c = device_array<float>(n * n);
    matmul<<<dim3(n / tile, n / tile), dim3(tile, tile)>>>(to_device(a), to_device(b), c, n);
    finish();
    return check(to_host(c, n * n), want);
}
