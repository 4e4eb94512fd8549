// what: the grid is n / block, which is 0 blocks for a small input
// expect: SX401 | error
// widths: 32 64
// sanitizer: memcheck
// group: launch
#include <cuda_runtime.h>

#include "check.h"

__global__ void complement(unsigned* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = ~x[i];
}

int main() {
    constexpr int n = 100, block = 256;
    const auto x = numbers<unsigned>(n);
    std::vector<unsigned> want(x);
    for (unsigned& value : want) value = ~value;

    unsigned* device = to_device(x);
#ifdef BUG
    complement<<<n / block, block>>>(device, n);
#else
    complement<<<(n + block - 1) / block, block>>>(device, n);
#endif
    finish();
    return check(to_host(device, n), want);
}
