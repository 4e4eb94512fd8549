// what: the mask of the lanes below is made by shifting a 32-bit one
// expect: SX502 | wrong
// widths: 64
// pitfall: 5
// sanitizer: none
// group: width
#include <hip/hip_runtime.h>

#include "check.h"

// Positions of the set flags within each warp, in order.
__global__ void rank_flags(const int* flags, int* ranks) {
    const int lane = threadIdx.x % warpSize, i = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned long long votes = __ballot(flags[i]);
#ifdef BUG
    const unsigned long long below = (1u << lane) - 1;
#else
    const unsigned long long below = (1ull << lane) - 1;
#endif
    ranks[i] = flags[i] ? __popcll(votes & below) : -1;
}

int main() {
    constexpr int n = 256;
    const int lanes = lanes_per_warp();
    auto flags = numbers<int>(n, 5);
    std::vector<int> want(n);
    for (int i = 0, rank = 0; i < n; ++i) {
        if (i % lanes == 0) rank = 0;
        flags[i] = flags[i] > 1;
        want[i] = flags[i] ? rank++ : -1;
    }
    int* ranks = device_array<int>(n);
    rank_flags<<<2, 128>>>(to_device(flags), ranks);
    finish();
    return check(to_host(ranks, n), want);
}
