// what: the second array in dynamic shared memory begins a count of bytes, not of floats, further
// expect: SX102
// widths: 32 64
// sanitizer: memcheck
// group: memory
#include <cuda_runtime.h>

#include "check.h"

// Cross products of two vectors held in shared memory: out[i][j] = a[i] b[j].
__global__ void outer(const float* a, const float* b, float* out, int m, int n) {
    extern __shared__ float scratch[];
    float* as = scratch;
#ifdef BUG
    float* bs = scratch + m * sizeof(float);
#else
    float* bs = scratch + m;
#endif
    for (int i = threadIdx.x; i < m; i += blockDim.x) as[i] = a[i];
    for (int j = threadIdx.x; j < n; j += blockDim.x) bs[j] = b[j];
    __syncthreads();
    for (int k = threadIdx.x; k < m * n; k += blockDim.x) out[k] = as[k / n] * bs[k % n];
}

int main() {
    constexpr int m = 24, n = 40;
    const auto a = numbers<float>(m), b = numbers<float>(n, 59);
    std::vector<float> want(m * n);
    for (int k = 0; k < m * n; ++k) want[k] = a[k / n] * b[k % n];

    float* out = device_array<float>(m * n);
    outer<<<1, 128, (m + n) * sizeof(float)>>>(to_device(a), to_device(b), out, m, n);
    finish();
    return check(to_host(out, m * n), want);
}
