// what: the look-up table in device memory is never copied to
// expect: wrong
// widths: 32 64
// sanitizer: none
// group: memory
#include <cuda_runtime.h>

#include "check.h"

__device__ unsigned char swapped[16];  // each 4-bit number with its bits in reverse

__global__ void reverse_bits(const unsigned char* x, unsigned char* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = swapped[x[i] & 15] << 4 | swapped[x[i] >> 4];
}

int main() {
    constexpr int n = 256;
    unsigned char table[16] = {};
    for (int i = 0; i < 16; ++i)
        for (int b = 0; b < 4; ++b) table[i] |= (i >> b & 1) << (3 - b);
    std::vector<unsigned char> x(n), want(n);
    for (int i = 0; i < n; ++i) x[i] = i;
    for (int i = 0; i < n; ++i)
        for (int b = 0; b < 8; ++b) want[i] |= (i >> b & 1) << (7 - b);

#ifndef BUG
    CHECK_CUDA(cudaMemcpyToSymbol(swapped, table, sizeof(table)));
#endif
    unsigned char* y = device_array<unsigned char>(n);
    reverse_bits<<<2, 128>>>(to_device(x), y, n);
    finish();
    return check(to_host(y, n), want);
}
