// what: the last thread reads the right neighbour that it does not have
// expect: SX101
// widths: 32 64
// sanitizer: memcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

__global__ void local_maxima(const double* x, int* peaks, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const bool above_left = i == 0 || x[i] > x[i - 1];
#ifdef BUG
    const bool above_right = i == n || x[i] > x[i + 1];
#else
    const bool above_right = i == n - 1 || x[i] > x[i + 1];
#endif
    if (above_left && above_right) atomicAdd(peaks, 1);
}

int main() {
    constexpr int n = 259;
    const auto x = numbers<double>(n, 10);
    std::vector<int> want(1);
    for (int i = 0; i < n; ++i)
        want[0] += (i == 0 || x[i] > x[i - 1]) && (i == n - 1 || x[i] > x[i + 1]);

    int* peaks = device_zeros<int>(1);
    local_maxima<<<3, 96>>>(to_device(x), peaks, n);
    finish();
    return check(to_host(peaks, 1), want);
}
