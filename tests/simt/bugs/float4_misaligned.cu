// what: rows of odd length are read as float4 although they begin anywhere
// expect: SX106
// widths: 32 64
// sanitizer: memcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

// Sums of rows of `cols` floats; four at a time where the row allows it.
__global__ void row_sums(const float* x, float* sums, int rows, int cols) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float* p = x + row * cols;
    float sum = 0;
    int i = 0;
#ifdef BUG
    const bool aligned = true;
#else
    const bool aligned = reinterpret_cast<uintptr_t>(p) % sizeof(float4) == 0;
#endif
    for (; aligned && i + 4 <= cols; i += 4) {
        const float4 v = *reinterpret_cast<const float4*>(p + i);
        sum += v.x + v.y + v.z + v.w;
    }
    for (; i < cols; ++i) sum += p[i];
    sums[row] = sum;
}

int main() {
    constexpr int rows = 50, cols = 21;
    const auto x = numbers<float>(rows * cols);
    std::vector<float> want(rows);
    for (int i = 0; i < rows * cols; ++i) want[i / cols] += x[i];

    float* sums = device_array<float>(rows);
    row_sums<<<1, 64>>>(to_device(x), sums, rows, cols);
    finish();
    return check(to_host(sums, rows), want);
}
