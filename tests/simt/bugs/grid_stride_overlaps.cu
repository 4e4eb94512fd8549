// what: a grid-stride loop steps by one block, so blocks update the same elements
// expect: SX203
// widths: 32 64
// sanitizer: none
// group: races
#include <cuda_runtime.h>

#include "check.h"

__global__ void sgd_step(float* weights, const float* grad, float rate, int n) {
#ifdef BUG
    const int step = blockDim.x;
#else
    const int step = blockDim.x * gridDim.x;
#endif
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        weights[i] -= rate * grad[i];
}

int main() {
    constexpr int n = 1200;
    const auto weights = numbers<float>(n), grad = numbers<float>(n, 16);
    auto want = weights;
    for (int i = 0; i < n; ++i) want[i] -= 0.5f * grad[i];

    float* device = to_device(weights);
    sgd_step<<<4, 128>>>(device, to_device(grad), 0.5f, n);
    finish();
    return check(to_host(device, n), want);
}
