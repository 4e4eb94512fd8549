// what: a named barrier waits for more threads than ever come to it
// expect: SX303
// widths: 32 64
// sanitizer: synccheck
// group: convergence
// checks: hangs
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 256;

#ifdef BUG
#define COUNT "192"
#else
#define COUNT "128"
#endif

// The two halves of a block work on their own rows, each with a barrier of its own.
__global__ void reverse_rows(const int* x, int* y) {
    __shared__ int s[block];
    const int t = threadIdx.x, half = t / 128, last = half * 128 + 127;
    s[t] = x[blockIdx.x * block + t];
    if (half == 0) asm volatile("bar.sync 1, " COUNT ";" ::: "memory");
    else asm volatile("bar.sync 2, 128;" ::: "memory");
    y[blockIdx.x * block + t] = s[last - t % 128];
}

int main() {
    constexpr int n = 2 * block;
    const auto x = numbers<int>(n);
    std::vector<int> want(n);
    for (int i = 0; i < n; ++i) want[i] = x[i / 128 * 128 + 127 - i % 128];

    int* y = device_array<int>(n);
    reverse_rows<<<2, block>>>(to_device(x), y);
    finish();
    return check(to_host(y, n), want);
}
