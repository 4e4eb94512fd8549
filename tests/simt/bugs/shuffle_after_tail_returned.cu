// what: a warp sum's full mask names lanes of the tail that have already returned
// expect: SX306 | SX303
// widths: 32 64
// pitfall: 13
// sanitizer: none
// group: convergence
#include <cuda_runtime.h>

#include "check.h"

__global__ void sum_all(const int* x, int* sum, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef BUG
    if (i >= n) return;
    int value = x[i];
#else
    int value = i < n ? x[i] : 0;
#endif
    for (int d = warpSize / 2; d > 0; d /= 2) value += __shfl_down_sync(0xffffffff, value, d);
    if (threadIdx.x % warpSize == 0) atomicAdd(sum, value);
}

int main() {
    constexpr int n = 490;
    const auto x = numbers<int>(n);
    std::vector<int> want(1);
    for (int value : x) want[0] += value;

    int* sum = device_zeros<int>(1);
    sum_all<<<4, 128>>>(to_device(x), sum, n);
    finish();
    return check(to_host(sum, 1), want);
}
