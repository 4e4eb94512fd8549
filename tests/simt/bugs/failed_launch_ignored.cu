// what: a launch with too many threads fails and nobody asks, so the old output is taken for new
// expect: SX401 | wrong
// widths: 32 64
// sanitizer: memcheck
// group: launch
#include <cuda_runtime.h>

#include "check.h"

__global__ void step(const float* now, float* next, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) next[i] = 0.5f * (now[i] + now[(i + 1) % n]);
}

int main() {
    constexpr int n = 1500;
    auto want = numbers<float>(n);
    float *now = to_device(want), *next = device_zeros<float>(n);
#ifdef BUG
    const int block = 2048;
#else
    const int block = 512;
#endif
    for (int k = 0; k < 2; ++k) {
        step<<<(n + block - 1) / block, block>>>(now, next, n);
        std::swap(now, next);
        const auto last = want;
        for (int i = 0; i < n; ++i) want[i] = 0.5f * (last[i] + last[(i + 1) % n]);
    }
    return check(to_host(now, n), want);
}
