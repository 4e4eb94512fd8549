// what: a maximum is kept by testing and then storing, instead of in a compare-and-swap loop
// expect: SX202 | SX203
// widths: 32 64
// sanitizer: none
// group: races
#include <cuda_runtime.h>

#include "check.h"

__device__ void keep_max(float* cell, float value) {
#ifdef BUG
    if (*cell < value) *cell = value;
#else
    int* bits = reinterpret_cast<int*>(cell);
    int seen = atomicCAS(bits, 0, 0), expected;
    do {
        if (__int_as_float(seen) >= value) return;
        expected = seen;
        seen = atomicCAS(bits, expected, __float_as_int(value));
    } while (seen != expected);
#endif
}

__global__ void column_max(const float* x, float* top, int rows, int cols) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows * cols) keep_max(&top[i % cols], x[i]);
}

int main() {
    constexpr int rows = 60, cols = 25;
    const auto x = numbers<float>(rows * cols, 1511);
    std::vector<float> want(cols, -1);
    for (int i = 0; i < rows * cols; ++i) want[i % cols] = std::max(want[i % cols], x[i]);

    float* top = to_device(std::vector<float>(cols, -1));
    column_max<<<6, 256>>>(to_device(x), top, rows, cols);
    finish();
    return check(to_host(top, cols), want);
}
