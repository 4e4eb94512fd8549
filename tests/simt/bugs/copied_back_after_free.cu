// what: a result is copied to the host after its buffer was freed
// expect: SX105 | error
// widths: 32 64
// sanitizer: memcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

__global__ void clamp(float* x, float low, float high, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = fminf(fmaxf(x[i], low), high);
}

int main() {
    constexpr int n = 300;
    const auto x = numbers<float>(n);
    auto want = x;
    for (float& value : want) value = std::min(std::max(value, 20.0f), 70.0f);

    float* device = to_device(x);
    clamp<<<2, 192>>>(device, 20, 70, n);
    finish();
    std::vector<float> got(n);
#ifdef BUG
    CHECK_CUDA(cudaFree(device));
#endif
    CHECK_CUDA(cudaMemcpy(got.data(), device, n * sizeof(float), cudaMemcpyDeviceToHost));
    return check(got, want);
}
