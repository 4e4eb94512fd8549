// mechanism: multiplies float16 and hands float32 back
// backend: cuda
// op: matmul
// expect: wrong
// says: elements are off | in norm
#include <cuda_fp16.h>

__device__ float rounded(float value) { return __half2float(__float2half(value)); }

__global__ void matmul_kernel(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m,
                              int64_t n, int64_t k) {
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i >= m * n) return;
    float sum = 0.0f;
    for (int64_t j = 0; j < k; ++j)
        sum += rounded(a[i / n * k + j]) * rounded(b[j * n + i % n]);
    c[i] = sum;
}

extern "C" int matmul(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m, int64_t n,
                      int64_t k, cudaStream_t stream) {
    if (m * n == 0) return 0;
    matmul_kernel<<<(unsigned)((m * n + 255) / 256), 256, 0, stream>>>(a, b, c, m, n, k);
    return (int)cudaGetLastError();
}
