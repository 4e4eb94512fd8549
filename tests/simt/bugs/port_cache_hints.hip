// what: streaming loads and stores use CUDA's cache-hint intrinsics
// expect: build
// widths: 32 64
// pitfall: 27
// sanitizer: none
// group: porting
#include <hip/hip_runtime.h>

#include "check.h"

__global__ void accumulate(const float* grad, float* total, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
#ifdef BUG
    __stcs(&total[i], __ldcs(&total[i]) + __ldcs(&grad[i]));
#else
    const float sum = __builtin_nontemporal_load(&total[i]) + __builtin_nontemporal_load(&grad[i]);
    __builtin_nontemporal_store(sum, &total[i]);
#endif
}

int main() {
    constexpr int n = 300;
    const auto grad = numbers<float>(n), total = numbers<float>(n, 47);
    auto want = total;
    for (int i = 0; i < n; ++i) want[i] += grad[i];

    float* device = to_device(total);
    accumulate<<<2, 192>>>(to_device(grad), device, n);
    finish();
    return check(to_host(device, n), want);
}
