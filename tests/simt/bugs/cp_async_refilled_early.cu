// what: a stage is refilled by cp.async before the barrier that ends its last use
// expect: SX201
// widths: 32 64
// arch: sm_80
// sanitizer: racecheck
// group: races
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include "check.h"

constexpr int tile = 8, n = 32;

// c = a b^T, with the tiles of a and b double-buffered.
__global__ void matmul_nt(const float* a, const float* b, float* c) {
    __shared__ float as[2][tile][tile], bs[2][tile][tile];
    const int x = threadIdx.x, y = threadIdx.y;
    const float* a_row = a + (blockIdx.y * tile + y) * n + x;
    const float* b_row = b + (blockIdx.x * tile + y) * n + x;
    auto load = [&](int k) {
        if (k < n / tile) {
            __pipeline_memcpy_async(&as[k % 2][y][x], a_row + k * tile, sizeof(float));
            __pipeline_memcpy_async(&bs[k % 2][y][x], b_row + k * tile, sizeof(float));
        }
        __pipeline_commit();
    };
    load(0);
    float sum = 0;
    for (int k = 0; k < n / tile; ++k) {
#ifdef BUG
        load(k + 1);
        __pipeline_wait_prior(1);
        __syncthreads();
#else
        __pipeline_wait_prior(0);
        __syncthreads();
        load(k + 1);
#endif
        for (int i = 0; i < tile; ++i) sum += as[k % 2][y][i] * bs[k % 2][x][i];
    }
    c[(blockIdx.y * tile + y) * n + blockIdx.x * tile + x] = sum;
}

int main() {
    const auto a = numbers<float>(n * n), b = numbers<float>(n * n, 43);
    std::vector<float> want(n * n);
    for (int i = 0; i < n; ++i)
        for (int j = 0; j < n; ++j)
            for (int k = 0; k < n; ++k) want[i * n + j] += a[i * n + k] * b[j * n + k];

    float* c = device_array<float>(n * n);
    matmul_nt<<<dim3(n / tile, n / tile), dim3(tile, tile)>>>(to_device(a), to_device(b), c);
    finish();
    return check(to_host(c, n * n), want);
}
