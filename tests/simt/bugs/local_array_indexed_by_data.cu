// what: a thread's counters are indexed by a value that can equal their number
// expect: SX103
// widths: 32 64
// sanitizer: none
// group: memory
#include <cuda_runtime.h>

#include "check.h"

#ifdef BUG
constexpr int grades = 5;
#else
constexpr int grades = 6;  // 0 … 5
#endif

// The most frequent grade of each row, the lowest of several.
__global__ void modes(const unsigned char* x, int* mode, int rows, int cols) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    unsigned short seen[grades] = {};
    for (int i = 0; i < cols; ++i) ++seen[x[row * cols + i]];
    int best = 0;
    for (int g = 1; g < grades; ++g)
        if (seen[g] > seen[best]) best = g;
    mode[row] = best;
}

int main() {
    constexpr int rows = 90, cols = 33;
    auto x = numbers<unsigned char>(rows * cols, 241);
    for (unsigned char& value : x) value %= 6;
    std::vector<int> want(rows);
    for (int r = 0; r < rows; ++r) {
        int seen[6] = {};
        for (int i = 0; i < cols; ++i) ++seen[x[r * cols + i]];
        want[r] = int(std::max_element(seen, seen + 6) - seen);
    }
    int* mode = device_array<int>(rows);
    modes<<<2, 64>>>(to_device(x), mode, rows, cols);
    finish();
    return check(to_host(mode, rows), want);
}
