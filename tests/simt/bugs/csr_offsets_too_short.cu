// what: the row offsets of a sparse matrix lack the last one, which ends the last row
// expect: SX101
// widths: 32 64
// sanitizer: memcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

__global__ void spmv(const int* offsets, const int* cols, const float* values, const float* x,
                     float* y, int rows) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0;
    for (int k = offsets[row]; k < offsets[row + 1]; ++k) sum += values[k] * x[cols[k]];
    y[row] = sum;
}

int main() {
    constexpr int rows = 80;
    std::vector<int> offsets = {0}, cols;
    std::vector<float> values, want(rows);
    const auto x = numbers<float>(rows);
    for (int r = 0; r < rows; ++r) {
        for (int c = r % 5; c < rows; c += 3 + r % 4) {
            cols.push_back(c);
            values.push_back(float(c % 7));
            want[r] += values.back() * x[c];
        }
        offsets.push_back(int(cols.size()));
    }
#ifdef BUG
    offsets.pop_back();
#endif
    float* y = device_array<float>(rows);
    spmv<<<2, 64>>>(to_device(offsets), to_device(cols), to_device(values), to_device(x), y, rows);
    finish();
    return check(to_host(y, rows), want);
}
