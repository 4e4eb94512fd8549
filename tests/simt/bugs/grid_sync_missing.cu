// what: blocks read each other's results of the last sweep without a grid-wide barrier
// expect: SX203
// widths: 32 64
// sanitizer: none
// group: races
// checks: cooperative
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include "check.h"

namespace cg = cooperative_groups;

// Sweeps of x[i] = x[i - 1] + x[i + 1] on a ring, from one array to the other and back.
__global__ void sweeps(int* a, int* b, int n, int count) {
    cg::grid_group grid = cg::this_grid();
    for (int sweep = 0; sweep < count; ++sweep) {
        for (int i = grid.thread_rank(); i < n; i += grid.size())
            b[i] = a[(i + n - 1) % n] + a[(i + 1) % n];
#ifndef BUG
        grid.sync();
#endif
        int* other = a;
        a = b;
        b = other;
    }
}

int main() {
    int n = 500, count = 6;
    auto want = numbers<int>(n, 11), last = want;
    int *a = to_device(want), *b = device_array<int>(n);
    for (int sweep = 0; sweep < count; ++sweep) {
        for (int i = 0; i < n; ++i) last[i] = want[(i + n - 1) % n] + want[(i + 1) % n];
        std::swap(want, last);
    }
    void* arguments[] = {&a, &b, &n, &count};
    CHECK_CUDA(cudaLaunchCooperativeKernel((void*)sweeps, dim3(4), dim3(64), arguments, 0, 0));
    finish();
    return check(to_host(a, n), want);
}
