// what: bfloat16 comes from CUDA's header under CUDA's names
// expect: build
// widths: 32 64
// pitfall: 44
// sanitizer: none
// group: porting
#ifdef BUG
#include <cuda_bf16.h>
using bf16 = __nv_bfloat16;
#else
#include <hip/hip_bf16.h>
using bf16 = __hip_bfloat16;
#endif
#include <hip/hip_runtime.h>

#include "check.h"

__global__ void scale(const bf16* x, bf16* y, float factor, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __float2bfloat16(factor * __bfloat162float(x[i]));
}

int main() {
    constexpr int n = 220;
    const auto values = numbers<float>(n);  // up to 100, so that they and their halves are exact
    std::vector<bf16> x(n);
    std::vector<float> got(n), want(n);
    for (int i = 0; i < n; ++i) {
        x[i] = __float2bfloat16(values[i]);
        want[i] = values[i] / 2;
    }
    bf16* y = device_array<bf16>(n);
    scale<<<2, 128>>>(to_device(x), y, 0.5f, n);
    finish();
    const auto halves = to_host(y, n);
    for (int i = 0; i < n; ++i) got[i] = __bfloat162float(halves[i]);
    return check(got, want);
}
