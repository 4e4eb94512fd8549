// what: the kernel counts on denormal products being flushed to zero, as -use_fast_math did
// expect: wrong
// widths: 32 64
// pitfall: 33
// sanitizer: none
// group: arithmetic
#include <hip/hip_runtime.h>

#include "check.h"

// Marks weights whose square is negligible: below the smallest normal float.
__global__ void prune(const float* weights, int* pruned, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float square = weights[i] * weights[i];
#ifdef BUG
    pruned[i] = square == 0;
#else
    pruned[i] = square < 1.17549435e-38f;
#endif
}

int main() {
    constexpr int n = 128;
    std::vector<float> weights(n);
    std::vector<int> want(n);
    for (int i = 0; i < n; ++i) {
        weights[i] = std::ldexp(1.0f, -i);
        want[i] = 2 * i > 126;
    }
    int* pruned = device_array<int>(n);
    prune<<<1, n>>>(to_device(weights), pruned, n);
    finish();
    return check(to_host(pruned, n), want);
}
