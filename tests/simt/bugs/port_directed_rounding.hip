// what: a bound is added up with __fadd_ru, which HIP does not have by default
// expect: build
// widths: 32 64
// pitfall: 30
// sanitizer: none
// group: porting
#include <hip/hip_runtime.h>

#include "check.h"

// An upper bound of the sum of a row, and no more than a few units in the last place above it.
__global__ void upper_bounds(const float* x, float* bounds, int rows, int cols) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float bound = 0;
    for (int i = 0; i < cols; ++i) {
#ifdef BUG
        bound = __fadd_ru(bound, x[row * cols + i]);
#else
        bound = nextafterf(bound + x[row * cols + i], INFINITY);
#endif
    }
    bounds[row] = bound;
}

int main() {
    constexpr int rows = 40, cols = 30;
    auto x = numbers<float>(rows * cols, 997);
    for (float& value : x) value = 1 / (value + 1);

    float* bounds = device_array<float>(rows);
    upper_bounds<<<1, 64>>>(to_device(x), bounds, rows, cols);
    finish();
    const auto got = to_host(bounds, rows);
    std::vector<int> holds(rows);
    for (int r = 0; r < rows; ++r) {
        double sum = 0;
        for (int i = 0; i < cols; ++i) sum += x[r * cols + i];
        holds[r] = got[r] >= sum && got[r] < sum * (1 + 1e-5);
    }
    return check(holds, std::vector<int>(rows, 1));
}
