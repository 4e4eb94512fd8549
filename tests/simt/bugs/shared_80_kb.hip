// what: a tile of 80 KB of dynamic LDS, where a block of this device has 64 KB
// expect: SX402 | SX401 | error
// widths: 32 64
// pitfall: 22
// sanitizer: none
// group: launch
#include <hip/hip_runtime.h>

#include "check.h"

#ifdef BUG
constexpr int tile = 20 * 1024;
#else
constexpr int tile = 10 * 1024;
#endif

// The number of pairs (i, i + gap) within a tile that are out of order.
__global__ void inversions(const float* x, int* count, int n, int gap) {
    extern __shared__ float s[];
    const int first = blockIdx.x * tile, held = min(tile, n - first);
    for (int i = threadIdx.x; i < held; i += blockDim.x) s[i] = x[first + i];
    __syncthreads();
    int own = 0;
    for (int i = threadIdx.x; i + gap < held; i += blockDim.x) own += s[i] > s[i + gap];
    atomicAdd(count, own);
}

int main() {
    constexpr int n = 2 * tile, gap = 1000;
    const auto x = numbers<float>(n, 9973);
    std::vector<int> want(1);
    for (int i = 0; i < n; ++i)
        if (i % tile + gap < tile) want[0] += x[i] > x[i + gap];

    int* count = device_zeros<int>(1);
    inversions<<<2, 256, tile * sizeof(float)>>>(to_device(x), count, n, gap);
    finish();
    return check(to_host(count, 1), want);
}
