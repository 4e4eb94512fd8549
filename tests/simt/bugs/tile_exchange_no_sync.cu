// what: threads of a cooperative-groups tile read each other's cells without tile.sync()
// expect: SX201 | SX204
// widths: 32 64
// pitfall: 16
// sanitizer: racecheck
// group: races
// checks: lockstep
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include "check.h"

namespace cg = cooperative_groups;

constexpr int block = 128, points = 16;

// Each tile of 16 threads correlates its 16 points with themselves, cyclically.
__global__ void autocorrelate(const int* x, int* y) {
    __shared__ int s[block];
    auto tile = cg::tiled_partition<points>(cg::this_thread_block());
    int* mine = s + tile.meta_group_rank() * points;
    const int i = blockIdx.x * block + threadIdx.x, lag = tile.thread_rank();
    mine[lag] = x[i];
#ifndef BUG
    tile.sync();
#endif
    int sum = 0;
    for (int k = 0; k < points; ++k) sum += mine[k] * mine[(k + lag) % points];
    y[i] = sum;
}

int main() {
    constexpr int n = 3 * block;
    const auto x = numbers<int>(n);
    std::vector<int> want(n);
    for (int i = 0; i < n; ++i) {
        const int* mine = &x[i / points * points];
        for (int k = 0; k < points; ++k) want[i] += mine[k] * mine[(k + i % points) % points];
    }
    int* y = device_array<int>(n);
    autocorrelate<<<3, block>>>(to_device(x), y);
    finish();
    return check(to_host(y, n), want);
}
