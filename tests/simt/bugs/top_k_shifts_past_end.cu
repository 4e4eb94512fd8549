// what: inserting into a thread's list of the k best pushes the last one past its array
// expect: SX103
// widths: 32 64
// sanitizer: none
// group: memory
#include <cuda_runtime.h>

#include "check.h"

constexpr int k = 4;

__global__ void row_top_k(const int* x, int* top, int rows, int cols) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    int best[k], held = 0;
    for (int i = 0; i < cols; ++i) {
        const int value = x[row * cols + i];
        int at = held;
#ifdef BUG
        for (; at > 0 && best[at - 1] < value; --at) best[at] = best[at - 1];
#else
        for (; at > 0 && best[at - 1] < value; --at)
            if (at < k) best[at] = best[at - 1];
#endif
        if (at < k) best[at] = value;
        held = min(held + 1, k);
    }
    for (int i = 0; i < k; ++i) top[row * k + i] = best[i];
}

int main() {
    constexpr int rows = 40, cols = 25;
    const auto x = numbers<int>(rows * cols, 1009);
    std::vector<int> want;
    for (int r = 0; r < rows; ++r) {
        std::vector<int> row(&x[r * cols], &x[r * cols] + cols);
        std::sort(row.rbegin(), row.rend());
        want.insert(want.end(), row.begin(), row.begin() + k);
    }
    int* top = device_array<int>(rows * k);
    row_top_k<<<1, 64>>>(to_device(x), top, rows, cols);
    finish();
    return check(to_host(top, rows * k), want);
}
