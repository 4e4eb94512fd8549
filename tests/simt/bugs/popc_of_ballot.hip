// what: survivors are placed by __popc of a 64-bit ballot, which counts the lower half
// expect: wrong | SX203 | SX202 | SX204
// widths: 64
// pitfall: 6
// sanitizer: none
// group: width
#include <hip/hip_runtime.h>

#include "check.h"

__global__ void keep_large(const int* x, int* out, int* used, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % warpSize;
    const bool keep = i < n && x[i] >= 40;
    const unsigned long long votes = __ballot(keep), below = votes & ((1ull << lane) - 1);
    int first = 0;
    if (lane == 0) first = atomicAdd(used, __popcll(votes));
    first = __shfl(first, 0);
#ifdef BUG
    if (keep) out[first + __popc(below)] = x[i];
#else
    if (keep) out[first + __popcll(below)] = x[i];
#endif
}

int main() {
    constexpr int n = 600;
    const auto x = numbers<int>(n);
    std::vector<int> want;
    for (int value : x)
        if (value >= 40) want.push_back(value);
    int *out = to_device(std::vector<int>(n, -1)), *used = device_zeros<int>(1);
    keep_large<<<5, 128>>>(to_device(x), out, used, n);
    finish();
    auto got = to_host(out, want.size());
    std::sort(got.begin(), got.end());
    std::sort(want.begin(), want.end());
    return check(got, want) | check(to_host(used, 1), std::vector<int>{int(want.size())});
}
