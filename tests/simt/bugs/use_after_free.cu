// what: the workspace is freed before the kernel that still reads it
// expect: SX105
// widths: 32 64
// sanitizer: memcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

__global__ void squares(const int* x, int* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] * x[i];
}

__global__ void total(const int* x, int* sum, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(sum, x[i]);
}

int main() {
    constexpr int n = 500;
    const auto x = numbers<int>(n);
    std::vector<int> want(1);
    for (int value : x) want[0] += value * value;

    int *workspace = device_array<int>(n), *sum = device_zeros<int>(1);
    squares<<<4, 128>>>(to_device(x), workspace, n);
    finish();
#ifdef BUG
    CHECK_CUDA(cudaFree(workspace));
#endif
    total<<<1, 64>>>(workspace, sum, n);
    finish();
#ifndef BUG
    CHECK_CUDA(cudaFree(workspace));
#endif
    return check(to_host(sum, 1), want);
}
