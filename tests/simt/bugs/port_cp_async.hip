// what: tiles are still fetched by CUDA's asynchronous copies
// expect: build | build SX005
// widths: 32 64
// pitfall: 18
// sanitizer: none
// group: porting
#ifdef BUG
#include <cuda_pipeline.h>
#endif
#include <hip/hip_runtime.h>

#include "check.h"

constexpr int block = 64;

__global__ void reverse_blocks(const float* x, float* y) {
    __shared__ float s[block];
    const int t = threadIdx.x, first = blockIdx.x * block;
#ifdef BUG
    __pipeline_memcpy_async(&s[t], &x[first + t], sizeof(float));
    __pipeline_commit();
    __pipeline_wait_prior(0);
#else
    s[t] = x[first + t];
#endif
    __syncthreads();
    y[first + t] = s[block - 1 - t];
}

int main() {
    constexpr int n = 5 * block;
    const auto x = numbers<float>(n);
    std::vector<float> want(n);
    for (int i = 0; i < n; ++i) want[i] = x[i / block * block + block - 1 - i % block];

    float* y = device_array<float>(n);
    reverse_blocks<<<5, block>>>(to_device(x), y);
    finish();
    return check(to_host(y, n), want);
}
