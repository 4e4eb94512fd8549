// what: threads past the end return before a barrier that the rest of their warp meets
// expect: SX302 | SX301
// widths: 32 64
// pitfall: 14
// sanitizer: synccheck
// group: convergence
#include <cuda_runtime.h>

#include "check.h"

constexpr int block = 64;

__global__ void dot(const float* a, const float* b, float* sum, int n) {
    __shared__ float s[block];
    const int i = blockIdx.x * block + threadIdx.x;
#ifdef BUG
    s[threadIdx.x] = 0;
    if (i >= n) return;
    s[threadIdx.x] = a[i] * b[i];
#else
    s[threadIdx.x] = i < n ? a[i] * b[i] : 0;
#endif
    __syncthreads();
    for (int half = block / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(sum, s[0]);
}

int main() {
    constexpr int n = 5 * block + 50;
    const auto a = numbers<float>(n, 31), b = numbers<float>(n, 29);
    std::vector<float> want(1);
    for (int i = 0; i < n; ++i) want[0] += a[i] * b[i];

    float* sum = device_zeros<float>(1);
    dot<<<6, block>>>(to_device(a), to_device(b), sum, n);
    finish();
    return check(to_host(sum, 1), want);
}
