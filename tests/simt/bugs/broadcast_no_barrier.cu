// what: all threads read the row's scale from shared memory while thread 0 computes it
// expect: SX201
// widths: 32 64
// pitfall: 16
// sanitizer: racecheck
// group: races
#include <cuda_runtime.h>

#include "check.h"

__global__ void scale_rows(float* x, const float* scales, int cols) {
    __shared__ float scale;
    if (threadIdx.x == 0) scale = 2 * scales[blockIdx.x];
#ifndef BUG
    __syncthreads();
#endif
    for (int i = threadIdx.x; i < cols; i += blockDim.x) x[blockIdx.x * cols + i] *= scale;
}

int main() {
    constexpr int rows = 7, cols = 300;
    const auto x = numbers<float>(rows * cols), scales = numbers<float>(rows, 19);
    std::vector<float> want(rows * cols);
    for (int i = 0; i < rows * cols; ++i) want[i] = x[i] * 2 * scales[i / cols];

    float* device = to_device(x);
    scale_rows<<<rows, 128>>>(device, to_device(scales), cols);
    finish();
    return check(to_host(device, rows * cols), want);
}
