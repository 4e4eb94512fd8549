// what: partial sums overwrite partial maxima that a slower warp has still to read
// expect: SX201
// widths: 32 64
// pitfall: 16
// sanitizer: racecheck
// group: races
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 256;

// One block per row; every warp folds all partial results itself.
__global__ void softmax(const float* x, float* y, int cols) {
    __shared__ float partial[block / 32];
    const int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
    const int warps = block / warpSize;
    x += blockIdx.x * cols;
    y += blockIdx.x * cols;

    float top = -INFINITY;
    for (int i = threadIdx.x; i < cols; i += block) top = fmaxf(top, x[i]);
    for (int d = warpSize / 2; d > 0; d /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
    if (lane == 0) partial[warp] = top;
    __syncthreads();
    top = partial[0];
    for (int w = 1; w < warps; ++w) top = fmaxf(top, partial[w]);
#ifndef BUG
    __syncthreads();
#endif
    float sum = 0;
    for (int i = threadIdx.x; i < cols; i += block) sum += expf(x[i] - top);
    for (int d = warpSize / 2; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    if (lane == 0) partial[warp] = sum;
    __syncthreads();
    sum = 0;
    for (int w = 0; w < warps; ++w) sum += partial[w];
    for (int i = threadIdx.x; i < cols; i += block) y[i] = expf(x[i] - top) / sum;
}

int main() {
    constexpr int rows = 4, cols = 600;
    auto x = numbers<float>(rows * cols);
    for (float& value : x) value /= 25;
    std::vector<float> want(rows * cols);
    for (int r = 0; r < rows; ++r) {
        const float* row = &x[r * cols];
        const float top = *std::max_element(row, row + cols);
        double sum = 0;
        for (int i = 0; i < cols; ++i) sum += std::exp(double(row[i]) - top);
        for (int i = 0; i < cols; ++i) want[r * cols + i] = std::exp(double(row[i]) - top) / sum;
    }
    float* y = device_array<float>(rows * cols);
    softmax<<<rows, block>>>(to_device(x), y, cols);
    finish();
    return check(to_host(y, rows * cols), want, 1e-5);
}
