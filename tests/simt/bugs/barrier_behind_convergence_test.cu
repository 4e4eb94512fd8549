// what: each thread leaves the iteration when its own cell has converged, past the others' barrier
// expect: SX302 | SX301
// widths: 32 64
// pitfall: 15
// sanitizer: synccheck
// group: convergence
#include <cuda_runtime.h>

#include "check.h"

constexpr int n = 64;

// Longest path lengths: cell i follows from its two predecessors, until nothing changes.
__global__ void relax(const int* weight, int* length) {
    __shared__ int s[n];
    const int t = threadIdx.x;
    s[t] = weight[t];
    __syncthreads();
    for (bool changed = true; changed;) {
        const int best = weight[t] + (t > 0 ? s[t - 1] : 0);
        const int skip = weight[t] + (t > 1 ? s[t - 2] : 0);
        const int next = max(best, skip);
        changed = next != s[t];
#ifdef BUG
        __syncthreads();
        s[t] = next;
        __syncthreads();
#else
        changed = __syncthreads_or(changed);
        s[t] = next;
        __syncthreads();
#endif
    }
    length[t] = s[t];
}

int main() {
    const auto weight = numbers<int>(n, 9);
    std::vector<int> want(weight);
    for (int i = 1; i < n; ++i) want[i] += std::max(want[i - 1], i > 1 ? want[i - 2] : 0);

    int* length = device_array<int>(n);
    relax<<<1, n>>>(to_device(weight), length);
    finish();
    return check(to_host(length, n), want);
}
