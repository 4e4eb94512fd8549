// what: a shuffle is given a width of 24, which is not a power of two
// expect: SX307
// widths: 32 64
// sanitizer: none
// group: convergence
#include <cuda_runtime.h>

#include "check.h"

// Broadcasts the first value of each segment; the last lanes of a group of 32 may be idle.
template <int Segment, int Width>
__global__ void broadcast_first(const int* x, int* y) {
    const int value = x[threadIdx.x];
    const int first = __shfl_sync(0xffffffff, value, 0, Width);
    y[threadIdx.x] = threadIdx.x % 32 < Segment ? first : 0;
}

int main() {
    constexpr int n = 64, segment = 24;
    const auto x = numbers<int>(n);
    std::vector<int> want(n);
    for (int i = 0; i < n; ++i) want[i] = i % 32 < segment ? x[i / 32 * 32] : 0;

    int* y = device_array<int>(n);
#ifdef BUG
    broadcast_first<segment, 24><<<1, n>>>(to_device(x), y);
#else
    broadcast_first<segment, 32><<<1, n>>>(to_device(x), y);
#endif
    finish();
    return check(to_host(y, n), want);
}
