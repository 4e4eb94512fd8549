// what: cudaMemset is meant to set every int to 1 and sets every byte to 1
// expect: wrong
// widths: 32 64
// sanitizer: none
// group: memory
#include <cuda_runtime.h>

#include "check.h"

__global__ void raise(int* power, const int* exponent, int base, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    for (int k = 0; k < exponent[i]; ++k) power[i] *= base;
}

int main() {
    constexpr int n = 100;
    const auto exponent = numbers<int>(n, 5);
    std::vector<int> ones(n, 1), want(n, 1);
    for (int i = 0; i < n; ++i)
        for (int k = 0; k < exponent[i]; ++k) want[i] *= 3;

#ifdef BUG
    int* power = device_array<int>(n);
    CHECK_CUDA(cudaMemset(power, 1, n * sizeof(int)));
#else
    int* power = to_device(ones);
#endif
    raise<<<2, 64>>>(power, to_device(exponent), 3, n);
    finish();
    return check(to_host(power, n), want);
}
