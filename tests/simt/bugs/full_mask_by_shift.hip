// what: the mask of a segment is (1 << width) - 1, which is 0 for a width of 64
// expect: SX502 | wrong
// widths: 64
// pitfall: 5
// sanitizer: none
// group: width
#include <hip/hip_runtime.h>

#include "check.h"

// Whether any flag of the caller's segment is set; segments are 1, 2, 4 … lanes wide.
__device__ bool any_in_segment(bool flag, int width) {
    const int lane = threadIdx.x % warpSize, first = lane & ~(width - 1);
#ifdef BUG
    const unsigned long long segment = (1ull << width) - 1;
#else
    const unsigned long long segment = ~0ull >> (64 - width);
#endif
    return (__ballot(flag) >> first & segment) != 0;
}

__global__ void spread(const int* x, int* y, int wanted) {
    int found = 0;
    for (int width = 1; width <= warpSize; width *= 2)
        found += any_in_segment(x[threadIdx.x] == wanted, width);
    y[threadIdx.x] = found;
}

int main() {
    constexpr int n = 128, wanted = 4;
    const int lanes = lanes_per_warp();
    const auto x = numbers<int>(n, 23);
    std::vector<int> want(n);
    for (int i = 0; i < n; ++i)
        for (int width = 1; width <= lanes; width *= 2) {
            const auto first = x.begin() + i / width * width;
            want[i] += std::count(first, first + width, wanted) > 0;
        }
    int* y = device_array<int>(n);
    spread<<<1, n>>>(to_device(x), y, wanted);
    finish();
    return check(to_host(y, n), want);
}
