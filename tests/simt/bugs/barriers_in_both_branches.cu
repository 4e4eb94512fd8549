// what: the two branches of an if meet at a barrier each, instead of at one
// expect: SX301
// widths: 32 64
// sanitizer: synccheck
// group: convergence
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 128;

// Even threads compute, odd threads load: roles by parity within every warp.
__global__ void interleave(const int* evens, const int* odds, int* out) {
    __shared__ int s[block];
    const int t = threadIdx.x, pair = blockIdx.x * block / 2 + t / 2;
    if (t % 2 == 0) {
        s[t] = evens[pair] * 2;
#ifdef BUG
        __syncthreads();
#endif
    } else {
        s[t] = odds[pair];
#ifdef BUG
        __syncthreads();
#endif
    }
#ifndef BUG
    __syncthreads();
#endif
    out[blockIdx.x * block + t] = s[t] - s[t ^ 1];
}

int main() {
    constexpr int n = 2 * block;
    const auto evens = numbers<int>(n / 2), odds = numbers<int>(n / 2, 47);
    std::vector<int> want(n);
    for (int i = 0; i < n; ++i) {
        const int difference = 2 * evens[i / 2] - odds[i / 2];
        want[i] = i % 2 == 0 ? difference : -difference;
    }
    int* out = device_array<int>(n);
    interleave<<<2, block>>>(to_device(evens), to_device(odds), out);
    finish();
    return check(to_host(out, n), want);
}
