// what: thread 0 fetches the next tile before the others have read the number of the last one
// expect: SX201
// widths: 32 64
// pitfall: 16
// sanitizer: racecheck
// group: races
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 96;

// Blocks live until the tiles run out; each tile is squared by whichever block comes first.
__global__ void persistent_square(float* x, int* next, int tiles) {
    __shared__ int tile;
    for (;;) {
        if (threadIdx.x == 0) tile = atomicAdd(next, 1);
        __syncthreads();
        const int mine = tile;
#ifndef BUG
        __syncthreads();
#endif
        if (mine >= tiles) return;
        x[mine * block + threadIdx.x] *= x[mine * block + threadIdx.x];
    }
}

int main() {
    constexpr int tiles = 10, n = tiles * block;
    const auto x = numbers<float>(n);
    auto want = x;
    for (float& value : want) value *= value;

    float* device = to_device(x);
    persistent_square<<<3, block>>>(device, device_zeros<int>(1), tiles);
    finish();
    return check(to_host(device, n), want);
}
