// what: a static tile of 80 KB is more than the 64 KB of LDS that a block can have
// expect: build | build SX402 | SX402
// widths: 32 64
// pitfall: 22
// sanitizer: none
// group: porting
#include <hip/hip_runtime.h>

#include "check.h"

#ifdef BUG
constexpr int most = 20 * 1024;
#else
constexpr int most = 8 * 1024;
#endif

__global__ void mirrored(const float* x, float* y, int n) {
    __shared__ float s[most];
    for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = x[i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i] + s[n - 1 - i];
}

int main() {
    constexpr int n = 6000;
    const auto x = numbers<float>(n);
    std::vector<float> want(n);
    for (int i = 0; i < n; ++i) want[i] = x[i] + x[n - 1 - i];

    float* y = device_array<float>(n);
    mirrored<<<1, 256>>>(to_device(x), y, n);
    finish();
    return check(to_host(y, n), want);
}
