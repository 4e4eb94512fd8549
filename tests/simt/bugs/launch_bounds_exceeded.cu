// what: a kernel bounded to 128 threads per block is launched with 256
// expect: SX403 | error
// widths: 32 64
// sanitizer: memcheck
// group: launch
#include <cuda_runtime.h>

#include "check.h"

template <int Threads>
__global__ void __launch_bounds__(Threads) horner(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float value = 0;
    for (int power = 4; power >= 0; --power) value = value * x[i] + power;
    y[i] = value;
}

int main() {
    constexpr int n = 700;
    const auto x = numbers<float>(n, 11);
    std::vector<float> want(n);
    for (int i = 0; i < n; ++i)
        for (int power = 4; power >= 0; --power) want[i] = want[i] * x[i] + power;

    float* y = device_array<float>(n);
#ifdef BUG
    constexpr int bound = 128;
#else
    constexpr int bound = 256;
#endif
    horner<bound><<<(n + 255) / 256, 256>>>(to_device(x), y, n);
    finish();
    return check(to_host(y, n), want);
}
