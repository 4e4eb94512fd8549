// what: the product of row and stride is formed in 32 bits before it is reduced
// expect: SX501 | wrong
// widths: 32 64
// sanitizer: none
// group: arithmetic
#include <cuda_runtime.h>

#include "check.h"

// Rows of a virtual matrix of 60000 columns live in a ring buffer of `capacity` elements.
__global__ void gather_first(const int* ring, int* out, int rows, int stride, int capacity) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const int numbered = 500 * row;
#ifdef BUG
    out[row] = ring[unsigned(numbered * stride) % capacity];
#else
    out[row] = ring[(long long)numbered * stride % capacity];
#endif
}

int main() {
    constexpr int rows = 200, stride = 60000, capacity = 1009;
    const auto ring = numbers<int>(capacity, 9973);
    std::vector<int> want(rows);
    for (int r = 0; r < rows; ++r) want[r] = ring[500ll * r * stride % capacity];

    int* out = device_array<int>(rows);
    gather_first<<<2, 128>>>(to_device(ring), out, rows, stride, capacity);
    finish();
    return check(to_host(out, rows), want);
}
