// what: cudaMemcpy is given the number of elements, so most of the input is never copied
// expect: SX108
// widths: 32 64
// sanitizer: initcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

__global__ void cube(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i] * x[i];
}

int main() {
    constexpr int n = 512;
    const auto x = numbers<float>(n);
    std::vector<float> want(n);
    for (int i = 0; i < n; ++i) want[i] = x[i] * x[i] * x[i];

    float *in = device_array<float>(n), *out = device_array<float>(n);
#ifdef BUG
    CHECK_CUDA(cudaMemcpy(in, x.data(), n, cudaMemcpyHostToDevice));
#else
    CHECK_CUDA(cudaMemcpy(in, x.data(), n * sizeof(float), cudaMemcpyHostToDevice));
#endif
    cube<<<4, 128>>>(in, out, n);
    finish();
    return check(to_host(out, n), want);
}
