// what: cg::reduce comes from a header that HIP lacks
// expect: build | build SX005
// widths: 32 64
// pitfall: 17
// sanitizer: none
// group: porting
#include <hip/hip_cooperative_groups.h>
#include <hip/hip_runtime.h>
#ifdef BUG
#include <cooperative_groups/reduce.h>
#endif

#include "check.h"

namespace cg = cooperative_groups;

// A tile of 16 threads per row.
__global__ void row_sums(const float* x, float* sums, int cols) {
    auto tile = cg::tiled_partition<16>(cg::this_thread_block());
    const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 16;
    float sum = 0;
    for (int i = tile.thread_rank(); i < cols; i += tile.size()) sum += x[row * cols + i];
#ifdef BUG
    sum = cg::reduce(tile, sum, cg::plus<float>());
#else
    for (int d = tile.size() / 2; d > 0; d /= 2) sum += tile.shfl_xor(sum, d);
#endif
    if (tile.thread_rank() == 0) sums[row] = sum;
}

int main() {
    constexpr int rows = 16, cols = 50;
    const auto x = numbers<float>(rows * cols);
    std::vector<float> want(rows);
    for (int i = 0; i < rows * cols; ++i) want[i / cols] += x[i];

    float* sums = device_array<float>(rows);
    row_sums<<<2, 128>>>(to_device(x), sums, cols);
    finish();
    return check(to_host(sums, rows), want);
}
