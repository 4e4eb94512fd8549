// what: a cooperative launch has a block per row, more than can be resident at once
// expect: SX401 | error
// widths: 32 64
// pitfall: 49
// sanitizer: none
// group: launch
// checks: cooperative
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include "check.h"

namespace cg = cooperative_groups;

// Rows relative to the largest row sum.
__global__ void scale_rows(int* sums, int* top, int rows) {
    cg::grid_group grid = cg::this_grid();
    for (int row = grid.thread_rank(); row < rows; row += grid.size()) atomicMax(top, sums[row]);
    grid.sync();
    for (int row = grid.thread_rank(); row < rows; row += grid.size()) sums[row] -= *top;
}

int main() {
    int rows = 100000, resident = 0, units = 0;
    CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, scale_rows, 64, 0));
    CHECK_CUDA(cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, 0));
#ifdef BUG
    const int blocks = rows;
#else
    const int blocks = std::min(resident * units, 16);
#endif
    const auto sums = numbers<int>(rows, 9973);
    auto want = sums;
    for (int& value : want) value -= 9972;

    int *device = to_device(sums), *top = device_zeros<int>(1);
    void* arguments[] = {&device, &top, &rows};
    CHECK_CUDA(cudaLaunchCooperativeKernel((void*)scale_rows, blocks, 64, arguments, 0, 0));
    finish();
    return check(to_host(device, rows), want);
}
