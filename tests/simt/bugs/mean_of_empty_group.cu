// what: the mean of a group without members divides by zero
// expect: SX503
// widths: 32 64
// sanitizer: none
// group: arithmetic
#include <cuda_runtime.h>

#include "check.h"

__global__ void group_means(const int* sums, const int* counts, int* means, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
#ifdef BUG
    means[i] = sums[i] / counts[i];
#else
    means[i] = counts[i] > 0 ? sums[i] / counts[i] : 0;
#endif
}

int main() {
    constexpr int n = 100;
    const auto sums = numbers<int>(n, 997), counts = numbers<int>(n, 6);
    std::vector<int> want(n);
    for (int i = 0; i < n; ++i) want[i] = counts[i] ? sums[i] / counts[i] : 0;

    int* means = device_array<int>(n);
    group_means<<<1, 128>>>(to_device(sums), to_device(counts), means, n);
    finish();
    return check(to_host(means, n), want);
}
