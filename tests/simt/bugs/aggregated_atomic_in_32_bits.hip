// what: a warp-aggregated atomic keeps the active lanes in 32 bits, so the upper lanes share slots
// expect: wrong | SX306 | SX203 | SX202 | SX204
// widths: 64
// pitfall: 4
// sanitizer: none
// group: width
#include <hip/hip_runtime.h>

#include "check.h"

#ifdef BUG
using lane_mask = unsigned;
#else
using lane_mask = unsigned long long;
#endif

// One atomic for all lanes of the warp that are here; each gets a slot of its own.
__device__ int reserve(int* used) {
    const int lane = threadIdx.x % warpSize;
    const lane_mask active = __ballot(1);
    const int leader = __ffsll((unsigned long long)active) - 1;
    const int rank = __popcll(active & ((1ull << lane) - 1));
    int first = 0;
    if (lane == leader) first = atomicAdd(used, __popcll(active));
    return __shfl(first, leader) + rank;
}

__global__ void keep_multiples(const int* x, int* out, int* used) {
    const int value = x[blockIdx.x * blockDim.x + threadIdx.x];
    if (value % 3 == 0) out[reserve(used)] = value;
}

int main() {
    constexpr int n = 512;
    const auto x = numbers<int>(n);
    std::vector<int> want;
    for (int value : x)
        if (value % 3 == 0) want.push_back(value);
    int *out = to_device(std::vector<int>(n, -1)), *used = device_zeros<int>(1);
    keep_multiples<<<2, 256>>>(to_device(x), out, used);
    finish();
    auto got = to_host(out, want.size());
    std::sort(got.begin(), got.end());
    std::sort(want.begin(), want.end());
    return check(got, want);
}
