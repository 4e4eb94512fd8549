// what: the first warp adds up the warps' partial sums before they are all there
// expect: SX201 | SX107
// widths: 32 64
// pitfall: 16
// sanitizer: racecheck
// group: races
#include <cuda_runtime.h>

#include "check.h"

__device__ float warp_sum(float value) {
    for (int d = warpSize / 2; d > 0; d /= 2) value += __shfl_down_sync(0xffffffff, value, d);
    return value;
}

__global__ void row_sums(const float* x, float* sums, int cols) {
    __shared__ float partial[32];
    const float* row = x + blockIdx.x * cols;
    float value = 0;
    for (int i = threadIdx.x; i < cols; i += blockDim.x) value += row[i];
    value = warp_sum(value);
    const int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
    if (lane == 0) partial[warp] = value;
#ifndef BUG
    __syncthreads();
#endif
    if (warp == 0) {
        value = warp_sum(lane < blockDim.x / warpSize ? partial[lane] : 0);
        if (lane == 0) sums[blockIdx.x] = value;
    }
}

int main() {
    constexpr int rows = 6, cols = 700;
    const auto x = numbers<float>(rows * cols);
    std::vector<float> want(rows);
    for (int i = 0; i < rows * cols; ++i) want[i / cols] += x[i];

    float* sums = device_array<float>(rows);
    row_sums<<<rows, 256>>>(to_device(x), sums, cols);
    finish();
    return check(to_host(sums, rows), want);
}
