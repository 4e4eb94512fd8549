// what: the halo cell of one shared array is written into the array that follows it
// expect: SX102
// widths: 32 64
// sanitizer: none
// group: memory
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 128;
#ifdef BUG
constexpr int halo = 0;
#else
constexpr int halo = 1;
#endif

// One upwind step: the flux between cells i and i + 1 depends on both.
__global__ void advect(const float* u, const float* speed, float* out, int n) {
    __shared__ float us[block + halo];
    __shared__ float speeds[block + halo];
    const int t = threadIdx.x, i = blockIdx.x * block + t;
    us[t] = i < n ? u[i] : 0;
    speeds[t] = i < n ? speed[i] : 0;
    if (t == block - 1) {
        us[block] = i + 1 < n ? u[i + 1] : 0;
        speeds[block] = i + 1 < n ? speed[i + 1] : 0;
    }
    __syncthreads();
    if (i < n) out[i] = us[t] * speeds[t] - us[t + 1] * speeds[t + 1];
}

int main() {
    constexpr int n = 450;
    const auto u = numbers<float>(n), speed = numbers<float>(n, 13);
    std::vector<float> want(n);
    for (int i = 0; i < n; ++i)
        want[i] = u[i] * speed[i] - (i + 1 < n ? u[i + 1] * speed[i + 1] : 0);

    float* out = device_array<float>(n);
    advect<<<(n + block - 1) / block, block>>>(to_device(u), to_device(speed), out, n);
    finish();
    return check(to_host(out, n), want);
}
