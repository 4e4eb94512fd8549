// what: the first thread reads the cell before its shared array
// expect: SX102 | SX103
// widths: 32 64
// sanitizer: memcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 160;

// Length of the gap to the previous sorted value, zero at the start of a block.
__global__ void gaps(const unsigned short* x, unsigned short* out) {
    __shared__ unsigned short s[block];
    const int t = threadIdx.x;
    s[t] = x[blockIdx.x * block + t];
    __syncthreads();
    const unsigned short value = s[t];
#ifdef BUG
    const bool has_left = t >= 0;
#else
    const bool has_left = t > 0;
#endif
    out[blockIdx.x * block + t] = has_left ? value - s[t - 1] : 0;
}

int main() {
    constexpr int n = 2 * block;
    auto x = numbers<unsigned short>(n, 60013);
    std::sort(x.begin(), x.end());
    std::vector<unsigned short> want(n);
    for (int i = 0; i < n; ++i) want[i] = i % block ? x[i] - x[i - 1] : 0;

    unsigned short* out = device_array<unsigned short>(n);
    gaps<<<2, block>>>(to_device(x), out);
    finish();
    return check(to_host(out, n), want);
}
