// what: a dot product of int8 vectors is accumulated in 16 bits
// expect: wrong
// widths: 32 64
// sanitizer: none
// group: arithmetic
#include <cuda_runtime.h>

#include "check.h"

#ifdef BUG
using sum_t = short;
#else
using sum_t = int;
#endif

using int8 = signed char;

__global__ void gemv(const int8* a, const int8* x, float* y, float scale, int n) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n) return;
    sum_t sum = 0;
    for (int k = 0; k < n; ++k) sum += a[row * n + k] * x[k];
    y[row] = scale * sum;
}

int main() {
    constexpr int n = 64;
    const auto a = numbers<int8>(n * n, 127), x = numbers<int8>(n, 113);
    std::vector<float> want(n);
    for (int i = 0; i < n * n; ++i) want[i / n] += a[i] * x[i % n];
    for (float& value : want) value *= 0.25f;

    float* y = device_array<float>(n);
    gemv<<<2, 32>>>(to_device(a), to_device(x), y, 0.25f, n);
    finish();
    return check(to_host(y, n), want);
}
