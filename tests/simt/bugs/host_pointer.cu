// what: a pointer to host memory is passed to a kernel
// expect: SX104
// widths: 32 64
// sanitizer: memcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

__global__ void axpy(float a, const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}

int main() {
    constexpr int n = 300;
    const auto x = numbers<float>(n), y = numbers<float>(n, 41);
    auto want = y;
    for (int i = 0; i < n; ++i) want[i] += 3 * x[i];

    float* device = to_device(y);
#ifdef BUG
    const float* source = x.data();
#else
    const float* source = to_device(x);
#endif
    axpy<<<3, 128>>>(3, source, device, n);
    finish();
    return check(to_host(device, n), want);
}
