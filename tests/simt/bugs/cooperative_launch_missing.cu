// what: a kernel with a grid-wide barrier is launched like any other
// expect: SX309 | SX303 | SX408 | error
// widths: 32 64
// sanitizer: none
// group: convergence
// checks: cooperative
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include "check.h"

namespace cg = cooperative_groups;

// y = the average of x, then x = x - average: one launch instead of two.
__global__ void centre(float* x, float* total, int n) {
    cg::grid_group grid = cg::this_grid();
    float sum = 0;
    for (int i = grid.thread_rank(); i < n; i += grid.size()) sum += x[i];
    atomicAdd(total, sum);
    cg::sync(grid);
    for (int i = grid.thread_rank(); i < n; i += grid.size()) x[i] -= *total / n;
}

int main() {
    int n = 512;
    auto x = numbers<float>(n);
    auto want = x;
    float sum = 0;
    for (float value : x) sum += value;
    for (float& value : want) value -= sum / n;

    float *device = to_device(x), *total = device_zeros<float>(1);
#ifdef BUG
    centre<<<3, 96>>>(device, total, n);
#else
    void* arguments[] = {&device, &total, &n};
    CHECK_CUDA(cudaLaunchCooperativeKernel((void*)centre, dim3(3), dim3(96), arguments));
#endif
    finish();
    return check(to_host(device, n), want, 1e-5);
}
