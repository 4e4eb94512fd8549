// what: each thread counts in a local array of a megabyte, twice what a GPU gives a thread
// expect: SX404 | error
// widths: 32 64
// sanitizer: none
// group: launch
#include <cuda_runtime.h>

#include "check.h"

constexpr int most = 262144;  // distinct values, of which a row has few

__global__ void distinct(const unsigned* x, int* counts, unsigned char* seen, int cols) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef BUG
    int mine[most];
    for (int i = 0; i < most; ++i) mine[i] = 0;
#else
    unsigned char* mine = seen + row * most;
#endif
    int count = 0;
    for (int i = 0; i < cols; ++i) count += mine[x[row * cols + i]]++ == 0;
    counts[row] = count;
}

int main() {
    constexpr int rows = 8, cols = 50;
    auto x = numbers<unsigned>(rows * cols, 262139);
    for (int i = 0; i < rows * cols; ++i) x[i] = x[i / cols * cols + i % (20 + i / cols)];
    std::vector<int> want(rows);
    for (int r = 0; r < rows; ++r) {
        std::vector<unsigned> row(&x[r * cols], &x[r * cols] + cols);
        std::sort(row.begin(), row.end());
        want[r] = int(std::unique(row.begin(), row.end()) - row.begin());
    }
    int* counts = device_array<int>(rows);
    unsigned char* seen = device_zeros<unsigned char>(rows * most);
    distinct<<<2, 4>>>(to_device(x), counts, seen, cols);
    finish();
    return check(to_host(counts, rows), want);
}
