// what: after two buffers were swapped, one of them is freed twice
// expect: SX113 | error
// widths: 32 64
// sanitizer: memcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

__global__ void halve(const float* in, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] / 2;
}

int main() {
    constexpr int n = 256;
    const auto x = numbers<float>(n);
    auto want = x;
    for (float& value : want) value /= 8;

    float *now = to_device(x), *next = device_array<float>(n), *const spare = next;
    for (int step = 0; step < 3; ++step) {
        halve<<<2, 128>>>(now, next, n);
        finish();
        std::swap(now, next);
    }
    const auto got = to_host(now, n);
    CHECK_CUDA(cudaFree(now));
#ifdef BUG
    CHECK_CUDA(cudaFree(spare));
#else
    CHECK_CUDA(cudaFree(now == spare ? next : spare));
#endif
    return check(got, want);
}
