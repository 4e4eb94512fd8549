// what: a host array with padding is copied whole into a device buffer without it
// expect: SX101 | error
// widths: 32 64
// sanitizer: memcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

__global__ void negate(int* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = -x[i];
}

int main() {
    constexpr int n = 500, padded = 512;
    const auto x = numbers<int>(padded);
    std::vector<int> want(x.begin(), x.begin() + n);
    for (int& value : want) value = -value;

    int* device = device_array<int>(n);
#ifdef BUG
    constexpr size_t bytes = padded * sizeof(int);
#else
    constexpr size_t bytes = n * sizeof(int);
#endif
    CHECK_CUDA(cudaMemcpy(device, x.data(), bytes, cudaMemcpyHostToDevice));
    negate<<<4, 128>>>(device, n);
    finish();
    return check(to_host(device, n), want);
}
