// what: a cyclic shift to the left takes the remainder of a negative number for an index
// expect: SX101
// widths: 32 64
// sanitizer: memcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

// Fourth-order difference on a ring of n points.
__global__ void ring_difference(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    auto at = [&](int k) {
#ifdef BUG
        return x[k % n];
#else
        return x[(k + n) % n];
#endif
    };
    y[i] = at(i - 2) - 8 * at(i - 1) + 8 * at(i + 1) - at(i + 2);
}

int main() {
    constexpr int n = 120;
    const auto x = numbers<float>(n);
    std::vector<float> want(n);
    for (int i = 0; i < n; ++i)
        want[i] = x[(i + n - 2) % n] - 8 * x[(i + n - 1) % n] + 8 * x[(i + 1) % n] - x[(i + 2) % n];

    float* y = device_array<float>(n);
    ring_difference<<<1, 128>>>(to_device(x), y, n);
    finish();
    return check(to_host(y, n), want);
}
