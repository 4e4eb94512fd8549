// what: partial sums of the variance overwrite the sum that other warps still read for the mean
// expect: SX201
// widths: 32 64
// pitfall: 16
// sanitizer: racecheck
// group: races
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include "check.h"

namespace cg = cooperative_groups;

// The sum over the block, for all of its threads; it stands in partial[0] at the end.
__device__ float block_sum(cg::thread_block block, float* partial, float value) {
    auto warp = cg::tiled_partition<32>(block);
    for (int d = warp.size() / 2; d > 0; d /= 2) value += warp.shfl_down(value, d);
    if (warp.thread_rank() == 0) partial[warp.meta_group_rank()] = value;
    block.sync();
    if (block.thread_rank() == 0)
        for (unsigned w = 1; w < warp.meta_group_size(); ++w) partial[0] += partial[w];
    block.sync();
    return partial[0];
}

__global__ void layernorm(const float* x, float* y, int cols) {
    __shared__ float partial[32];
    auto block = cg::this_thread_block();
    x += blockIdx.x * cols;
    const float value = threadIdx.x < cols ? x[threadIdx.x] : 0;
    const float mean = block_sum(block, partial, value) / cols;
    const float centred = threadIdx.x < cols ? value - mean : 0;
#ifndef BUG
    block.sync();
#endif
    const float variance = block_sum(block, partial, centred * centred) / cols;
    if (threadIdx.x < cols) y[blockIdx.x * cols + threadIdx.x] = centred * rsqrtf(variance + 1e-5f);
}

int main() {
    constexpr int rows = 4, cols = 90;
    const auto x = numbers<float>(rows * cols);
    std::vector<float> want(rows * cols);
    for (int r = 0; r < rows; ++r) {
        double mean = 0, variance = 0;
        for (int i = 0; i < cols; ++i) mean += x[r * cols + i] / cols;
        for (int i = 0; i < cols; ++i) variance += std::pow(x[r * cols + i] - mean, 2) / cols;
        for (int i = 0; i < cols; ++i)
            want[r * cols + i] = (x[r * cols + i] - mean) / std::sqrt(variance + 1e-5);
    }
    float* y = device_array<float>(rows * cols);
    layernorm<<<rows, 96>>>(to_device(x), y, cols);
    finish();
    return check(to_host(y, rows * cols), want, 1e-4);
}
