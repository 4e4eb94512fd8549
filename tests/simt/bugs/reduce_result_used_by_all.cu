// what: all threads use the result of cub::BlockReduce, which only thread 0 is given
// expect: wrong
// widths: 32 64
// sanitizer: none
// group: convergence
#include <cub/cub.cuh>
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 128;

__global__ void centre(const float* x, float* y) {
    using Reduce = cub::BlockReduce<float, block>;
    __shared__ typename Reduce::TempStorage storage;
    const int i = blockIdx.x * block + threadIdx.x;
    float sum = Reduce(storage).Sum(x[i]);
#ifndef BUG
    __shared__ float total;
    if (threadIdx.x == 0) total = sum;
    __syncthreads();
    sum = total;
#endif
    y[i] = x[i] - sum / block;
}

int main() {
    constexpr int n = 3 * block;
    const auto x = numbers<float>(n);
    std::vector<float> sums(n / block), want(n);
    for (int i = 0; i < n; ++i) sums[i / block] += x[i];
    for (int i = 0; i < n; ++i) want[i] = x[i] - sums[i / block] / block;

    float* y = device_array<float>(n);
    centre<<<3, block>>>(to_device(x), y);
    finish();
    return check(to_host(y, n), want, 1e-5);
}
