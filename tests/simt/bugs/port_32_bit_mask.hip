// what: a shuffle keeps CUDA's 32-bit mask literal, where HIP wants 64 bits
// expect: build
// widths: 32 64
// pitfall: 3
// sanitizer: none
// group: porting
#include <hip/hip_runtime.h>

#include "check.h"

#ifdef BUG
#define FULL_MASK 0xffffffff
#else
#define FULL_MASK 0xffffffffffffffffull
#endif

__global__ void dot(const float* a, const float* b, float* sum, int n) {
    float value = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        value += a[i] * b[i];
    for (int d = warpSize / 2; d > 0; d /= 2) value += __shfl_down_sync(FULL_MASK, value, d);
    if (threadIdx.x % warpSize == 0) atomicAdd(sum, value);
}

int main() {
    constexpr int n = 1000;
    const auto a = numbers<float>(n, 31), b = numbers<float>(n, 37);
    std::vector<float> want(1);
    for (int i = 0; i < n; ++i) want[0] += a[i] * b[i];

    float* sum = device_zeros<float>(1);
    dot<<<3, 128>>>(to_device(a), to_device(b), sum, n);
    finish();
    return check(to_host(sum, 1), want);
}
