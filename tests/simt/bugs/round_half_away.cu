// what: values are quantised by roundf, which takes ties away from zero, instead of to even
// expect: wrong
// widths: 32 64
// pitfall: 31
// sanitizer: none
// group: arithmetic
#include <cuda_runtime.h>

#include "check.h"

__global__ void quantise(const float* x, signed char* q, float inverse_scale, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
#ifdef BUG
    const float rounded = roundf(x[i] * inverse_scale);
#else
    const float rounded = rintf(x[i] * inverse_scale);
#endif
    q[i] = static_cast<signed char>(fminf(fmaxf(rounded, -127), 127));
}

int main() {
    constexpr int n = 300;
    auto x = numbers<float>(n, 241);
    for (float& value : x) value -= 120;
    std::vector<signed char> want(n);
    for (int i = 0; i < n; ++i) {
        const int twice = int(x[i]), low = (twice - (twice < 0 && twice % 2)) / 2;
        want[i] = twice % 2 == 0 || low % 2 == 0 ? low : low + 1;
    }
    signed char* q = device_array<signed char>(n);
    quantise<<<3, 128>>>(to_device(x), q, 0.5f, n);
    finish();
    return check(to_host(q, n), want);
}
