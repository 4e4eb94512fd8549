// what: with beta = 0 the output is still read and multiplied, although it holds nothing yet
// expect: SX108
// widths: 32 64
// sanitizer: initcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

// y = alpha A x + beta y, one thread per row
__global__ void gemv(float alpha, const float* a, const float* x, float beta, float* y, int n) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n) return;
    float sum = 0;
    for (int k = 0; k < n; ++k) sum += a[row * n + k] * x[k];
#ifdef BUG
    y[row] = alpha * sum + beta * y[row];
#else
    y[row] = beta == 0 ? alpha * sum : alpha * sum + beta * y[row];
#endif
}

int main() {
    constexpr int n = 70;
    const auto a = numbers<float>(n * n, 19), x = numbers<float>(n, 17);
    std::vector<float> want(n);
    for (int i = 0; i < n * n; ++i) want[i / n] += 2 * a[i] * x[i % n];

    float* y = device_array<float>(n);
    gemv<<<3, 32>>>(2, to_device(a), to_device(x), 0, y, n);
    finish();
    return check(to_host(y, n), want);
}
