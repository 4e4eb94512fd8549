// what: a shuffle with a full mask stands in each branch of a condition that differs by lane
// expect: SX303 | SX306 | SX301
// widths: 32 64
// pitfall: 13
// sanitizer: none
// group: convergence
#include <cuda_runtime.h>

#include "check.h"

__global__ void upwind(const float* speed, const float* u, float* flux) {
    const int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    const float own = u[i], wind = speed[i];
    float value;
#ifdef BUG
    if (wind > 0) value = __shfl_up_sync(0xffffffff, own, 1);
    else value = __shfl_down_sync(0xffffffff, own, 1);
#else
    const float left = __shfl_up_sync(0xffffffff, own, 1);
    const float right = __shfl_down_sync(0xffffffff, own, 1);
    value = wind > 0 ? left : right;
#endif
    const int lane = t % warpSize;
    if (lane > 0 && lane < warpSize - 1) flux[i] = wind * value;
}

int main() {
    constexpr int n = 256;
    const int lanes = lanes_per_warp();
    auto speed = numbers<float>(n, 7);
    for (float& value : speed) value -= 3;
    const auto u = numbers<float>(n);
    std::vector<float> want(n);
    for (int i = 0; i < n; ++i)
        if (i % lanes > 0 && i % lanes < lanes - 1)
            want[i] = speed[i] * (speed[i] > 0 ? u[i - 1] : u[i + 1]);

    float* flux = device_zeros<float>(n);
    upwind<<<2, 128>>>(to_device(speed), to_device(u), flux);
    finish();
    return check(to_host(flux, n), want);
}
