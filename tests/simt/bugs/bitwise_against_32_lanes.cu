// what: a float sum is compared bit by bit with the order in which 32 lanes would add
// expect: wrong
// widths: 64
// pitfall: 37
// sanitizer: none
// group: width
#include <cuda_runtime.h>

#include "check.h"

__global__ void sum_by_one_warp(const float* x, float* sum, int n) {
    float value = 0;
    for (int i = threadIdx.x; i < n; i += warpSize) value += x[i];
    for (int d = warpSize / 2; d > 0; d /= 2) value += __shfl_xor_sync(0xffffffff, value, d);
    if (threadIdx.x == 0) *sum = value;
}

int main() {
    constexpr int n = 3000;
    auto x = numbers<float>(n, 997);
    for (float& value : x) value = 1 / (value + 1);

    float* sum = device_array<float>(1);
    sum_by_one_warp<<<1, lanes_per_warp()>>>(to_device(x), sum, n);
    finish();
#ifdef BUG
    std::vector<float> lanes(32);
    for (int i = 0; i < n; ++i) lanes[i % 32] += x[i];
    for (int d = 16; d > 0; d /= 2)
        for (int lane = 0; lane < d; ++lane) lanes[lane] += lanes[lane + d];
    return check(to_host(sum, 1), std::vector<float>{lanes[0]});
#else
    double exact = 0;
    for (float value : x) exact += value;
    return check(to_host(sum, 1), std::vector<float>{float(exact)}, 1e-5);
#endif
}
