// what: the kernel's source and destination are passed in the wrong order
// expect: SX108 | wrong
// widths: 32 64
// sanitizer: initcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

__global__ void widen(float* to, float* from, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = 2 * from[i] + 1;
}

int main() {
    constexpr int n = 220;
    const auto x = numbers<float>(n);
    std::vector<float> want(n);
    for (int i = 0; i < n; ++i) want[i] = 2 * x[i] + 1;

    float *in = to_device(x), *out = device_array<float>(n);
#ifdef BUG
    widen<<<2, 128>>>(in, out, n);
#else
    widen<<<2, 128>>>(out, in, n);
#endif
    finish();
    return check(to_host(out, n), want);
}
