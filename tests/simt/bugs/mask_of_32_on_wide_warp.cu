// what: a full mask of 32 bits names the lower half of a warp of 64 lanes
// expect: SX310 | SX304 | SX306
// widths: 64
// pitfall: 3
// sanitizer: none
// group: width
// checks: strict
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include "check.h"

namespace cg = cooperative_groups;

__global__ void group_sums(const int* x, int* sums) {
    auto tile = cg::tiled_partition<32>(cg::this_thread_block());
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    int value = x[i];
    for (int d = 16; d > 0; d /= 2) {
#ifdef BUG
        value += __shfl_xor_sync(0xffffffff, value, d);
#else
        value += tile.shfl_xor(value, d);
#endif
    }
    if (tile.thread_rank() == 0) sums[i / 32] = value;
}

int main() {
    constexpr int n = 384;
    const auto x = numbers<int>(n);
    std::vector<int> want(n / 32);
    for (int i = 0; i < n; ++i) want[i / 32] += x[i];

    int* sums = device_array<int>(n / 32);
    group_sums<<<3, 128>>>(to_device(x), sums);
    finish();
    return check(to_host(sums, n / 32), want);
}
