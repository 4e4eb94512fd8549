// what: the first 32 threads fold the partial results with a mask of the whole warp
// expect: SX303 | SX306
// widths: 64
// pitfall: 2
// sanitizer: none
// group: width
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 256;

__device__ float warp_max(float value) {
    for (int d = warpSize / 2; d > 0; d /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, d));
    return value;
}

__global__ void scale_by_max(const float* x, float* y, int cols) {
    __shared__ float partial[32];
    const float* row = x + blockIdx.x * cols;
    float top = 0;
    for (int i = threadIdx.x; i < cols; i += block) top = fmaxf(top, fabsf(row[i]));
    top = warp_max(top);
    if (threadIdx.x % warpSize == 0) partial[threadIdx.x / warpSize] = top;
    __syncthreads();
#ifdef BUG
    if (threadIdx.x < 32) {
#else
    if (threadIdx.x < warpSize) {
#endif
        top = warp_max(threadIdx.x < block / warpSize ? partial[threadIdx.x] : 0);
        if (threadIdx.x == 0) partial[0] = top;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < cols; i += block)
        y[blockIdx.x * cols + i] = row[i] / partial[0];
}

int main() {
    constexpr int rows = 3, cols = 400;
    auto x = numbers<float>(rows * cols);
    for (float& value : x) value -= 60;
    std::vector<float> want(rows * cols);
    for (int r = 0; r < rows; ++r) {
        float top = 0;
        for (int i = 0; i < cols; ++i) top = std::max(top, std::fabs(x[r * cols + i]));
        for (int i = 0; i < cols; ++i) want[r * cols + i] = x[r * cols + i] / top;
    }
    float* y = device_array<float>(rows * cols);
    scale_by_max<<<rows, block>>>(to_device(x), y, cols);
    finish();
    return check(to_host(y, rows * cols), want, 1e-6);
}
