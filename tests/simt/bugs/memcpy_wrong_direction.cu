// what: the result is copied with the direction of the input
// expect: SX104 | error
// widths: 32 64
// sanitizer: memcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

__global__ void prefix_parity(const unsigned* x, unsigned* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __popc(x[i]) & 1;
}

int main() {
    constexpr int n = 130;
    const auto x = numbers<unsigned>(n, 4093);
    std::vector<unsigned> got(n), want(n);
    for (int i = 0; i < n; ++i)
        for (unsigned bits = x[i]; bits; bits &= bits - 1) want[i] ^= 1;

    unsigned* y = device_array<unsigned>(n);
    prefix_parity<<<2, 96>>>(to_device(x), y, n);
    finish();
#ifdef BUG
    constexpr cudaMemcpyKind kind = cudaMemcpyHostToDevice;
#else
    constexpr cudaMemcpyKind kind = cudaMemcpyDeviceToHost;
#endif
    CHECK_CUDA(cudaMemcpy(got.data(), y, n * sizeof(unsigned), kind));
    return check(got, want);
}
