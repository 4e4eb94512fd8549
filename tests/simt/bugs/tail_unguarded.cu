// what: threads of the last block past the end add without a guard
// expect: SX101
// widths: 32 64
// sanitizer: memcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

__global__ void add(const float* a, const float* b, float* c, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifndef BUG
    if (i < n)
#endif
        c[i] = a[i] + b[i];
}

int main() {
    constexpr int n = 1000;
    const auto a = numbers<float>(n), b = numbers<float>(n, 53);
    std::vector<float> want(n);
    for (int i = 0; i < n; ++i) want[i] = a[i] + b[i];

    float* c = device_array<float>(n);
    add<<<(n + 255) / 256, 256>>>(to_device(a), to_device(b), c, n);
    finish();
    return check(to_host(c, n), want);
}
