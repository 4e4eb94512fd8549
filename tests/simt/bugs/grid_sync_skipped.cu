// what: blocks without work return before the grid-wide barrier of the others
// expect: SX309
// widths: 32 64
// sanitizer: none
// group: convergence
// checks: cooperative hangs
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include "check.h"

namespace cg = cooperative_groups;

// Subtracts the maximum from all values.
__global__ void shift_by_max(int* x, int* top, int n) {
    cg::grid_group grid = cg::this_grid();
    const int i = grid.thread_rank();
#ifdef BUG
    if (blockIdx.x * blockDim.x >= n) return;
#endif
    if (i < n) atomicMax(top, x[i]);
    grid.sync();
    if (i < n) x[i] -= *top;
}

int main() {
    int n = 170;
    const auto x = numbers<int>(n);
    auto want = x;
    for (int& value : want) value -= *std::max_element(x.begin(), x.end());

    int *device = to_device(x), *top = device_zeros<int>(1);
    void* arguments[] = {&device, &top, &n};
    CHECK_CUDA(cudaLaunchCooperativeKernel((void*)shift_by_max, 4, 64, arguments, 0, 0));
    finish();
    return check(to_host(device, n), want);
}
