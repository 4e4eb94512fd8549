// what: values go round a ring of (lane + 1) & 31, which leaves the upper half of a wide warp out
// expect: wrong
// widths: 64
// pitfall: 2
// sanitizer: none
// group: width
#include <cuda_runtime.h>

#include "check.h"

// All-pairs forces between the bodies of one warp: they pass each other round the ring.
__global__ void forces(const float* position, float* force) {
    const int lane = threadIdx.x % warpSize;
    const float own = position[threadIdx.x];
    float other = own, sum = 0;
    for (int step = 1; step < warpSize; ++step) {
#ifdef BUG
        const int next = (lane + 1) & 31;
#else
        const int next = (lane + 1) % warpSize;
#endif
        other = __shfl_sync(0xffffffff, other, next);
        sum += (other - own) * fabsf(other - own);
    }
    force[threadIdx.x] = sum;
}

int main() {
    constexpr int n = 128;
    const int lanes = lanes_per_warp();
    const auto position = numbers<float>(n, 31);
    std::vector<float> want(n);
    for (int i = 0; i < n; ++i)
        for (int j = i / lanes * lanes; j < (i / lanes + 1) * lanes; ++j)
            want[i] += (position[j] - position[i]) * std::fabs(position[j] - position[i]);

    float* force = device_array<float>(n);
    forces<<<1, n>>>(to_device(position), force);
    finish();
    return check(to_host(force, n), want);
}
