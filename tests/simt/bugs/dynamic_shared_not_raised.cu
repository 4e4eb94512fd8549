// what: more than 48 KB of dynamic shared memory is used without asking for it first
// expect: SX402 | SX401 | error
// widths: 32
// sanitizer: memcheck
// group: launch
#include <cuda_runtime.h>

#include "check.h"

__global__ void rank_of_each(const float* x, int* rank, int n) {
    extern __shared__ float cached[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) cached[i] = x[i];
    __syncthreads();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    int below = 0;
    for (int k = 0; k < n; k += 100) below += cached[k] < cached[i];
    rank[i] = below;
}

int main() {
    constexpr int n = 12800, bytes = n * sizeof(float);  // 50 KB
    const auto x = numbers<float>(n, 9973);
    std::vector<int> want(256);
    for (int i = 0; i < 256; ++i)
        for (int k = 0; k < n; k += 100) want[i] += x[k] < x[i];

    int* rank = device_array<int>(256);
#ifndef BUG
    CHECK_CUDA(
        cudaFuncSetAttribute(rank_of_each, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
#endif
    rank_of_each<<<2, 128, bytes>>>(to_device(x), rank, n);
    finish();
    return check(to_host(rank, 256), want);
}
