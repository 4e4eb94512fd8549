// what: lanes exchange items through the warp's shared slice without __syncwarp
// expect: SX201 | SX204
// widths: 32 64
// pitfall: 16
// sanitizer: racecheck
// group: races
// checks: lockstep
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 128, items = 4;

// A lane computes on four neighbouring items and stores them a warp apart, for coalescing.
__global__ void differences(const int* in, int* out) {
    __shared__ int exchange[block * items];
    const int lane = threadIdx.x % warpSize;
    const int first = (threadIdx.x - lane) * items;  // of this warp
    int* slice = exchange + first;
    const int* from = in + blockIdx.x * block * items + first + lane * items;
    for (int k = 0; k < items; ++k) slice[lane * items + k] = from[k] - (k > 0 ? from[k - 1] : 0);
#ifndef BUG
    __syncwarp();
#endif
    int* to = out + blockIdx.x * block * items + first + lane;
    for (int k = 0; k < items; ++k) to[k * warpSize] = slice[k * warpSize + lane];
}

int main() {
    constexpr int n = 3 * block * items;
    const auto in = numbers<int>(n);
    std::vector<int> want(n);
    for (int i = 0; i < n; ++i) want[i] = in[i] - (i % items ? in[i - 1] : 0);

    int* out = device_array<int>(n);
    differences<<<3, block>>>(to_device(in), out);
    finish();
    return check(to_host(out, n), want);
}
