// what: lanes read the offset that their leader reserves without waiting for it
// expect: SX201 | SX204 | SX107
// widths: 32 64
// pitfall: 16
// sanitizer: racecheck
// group: races
// checks: lockstep
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 96;

__global__ void append(const int* x, int* out, unsigned* used, int n) {
    __shared__ unsigned offsets[block / 32];
    const int i = blockIdx.x * block + threadIdx.x;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;  // groups of 32, on any device
    if (lane == 0) offsets[warp] = atomicAdd(used, 32u);
#ifndef BUG
    __syncwarp();
#endif
    if (i < n) out[offsets[warp] + lane] = x[i];
}

int main() {
    constexpr int n = 2 * block;
    const auto x = numbers<int>(n);
    int* out = device_array<int>(n);
    append<<<n / block, block>>>(to_device(x), out, device_zeros<unsigned>(1), n);
    finish();
    auto got = to_host(out, n), want = x;  // groups land in any order
    std::sort(got.begin(), got.end());
    std::sort(want.begin(), want.end());
    return check(got, want);
}
