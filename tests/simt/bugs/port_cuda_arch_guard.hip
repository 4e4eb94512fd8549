// what: the kernel's body is guarded by __CUDA_ARCH__, so that on AMD it is empty
// expect: wrong | SX108
// widths: 32 64
// pitfall: 26
// sanitizer: none
// group: porting
#include <hip/hip_runtime.h>

#include "check.h"

__global__ void leaky_relu(const float* x, float* y, float slope, int n) {
#ifdef BUG
#if __CUDA_ARCH__ >= 600
#define BODY 1
#else
#define BODY 0
#endif
#else
#define BODY 1
#endif
#if BODY
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] > 0 ? x[i] : slope * x[i];
#endif
}

int main() {
    constexpr int n = 160;
    auto x = numbers<float>(n);
    for (float& value : x) value -= 50;
    std::vector<float> want(n);
    for (int i = 0; i < n; ++i) want[i] = x[i] > 0 ? x[i] : 0.25f * x[i];

    float* y = device_array<float>(n);
    leaky_relu<<<2, 96>>>(to_device(x), y, 0.25f, n);
    finish();
    return check(to_host(y, n), want);
}
