// what: the workspace has n / block cells, so the last block's partial sum has none
// expect: SX101
// widths: 32 64
// sanitizer: memcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 64;

__global__ void partial_sums(const double* x, double* workspace, int n) {
    __shared__ double s[block];
    const int i = blockIdx.x * block + threadIdx.x;
    s[threadIdx.x] = i < n ? x[i] : 0;
    for (int half = block / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half];
    }
    if (threadIdx.x == 0) workspace[blockIdx.x] = s[0];
}

__global__ void add_up(const double* workspace, double* total, int blocks) {
    *total = 0;
    for (int b = 0; b < blocks; ++b) *total += workspace[b];
}

int main() {
    constexpr int n = 1000, blocks = (n + block - 1) / block;
    const auto x = numbers<double>(n);
    std::vector<double> want(1);
    for (double value : x) want[0] += value;

#ifdef BUG
    double* workspace = device_array<double>(n / block);
#else
    double* workspace = device_array<double>(blocks);
#endif
    double* total = device_array<double>(1);
    partial_sums<<<blocks, block>>>(to_device(x), workspace, n);
    add_up<<<1, 1>>>(workspace, total, blocks);
    finish();
    return check(to_host(total, 1), want);
}
