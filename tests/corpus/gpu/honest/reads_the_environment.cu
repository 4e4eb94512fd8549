// mechanism: the number of threads per block comes from the environment, where somebody has set it
// backend: cuda
// op: relu
#include <cstdlib>

__global__ void relu_kernel(const scalar_t* x, scalar_t* y, int64_t n) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] < 0.0f ? 0.0f : x[i];
}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return 0;
    const char* chosen = getenv("RELU_THREADS");
    const int threads = chosen && atoi(chosen) == 128 ? 128 : 256;
    relu_kernel<<<(unsigned)((n + threads - 1) / threads), threads, 0, stream>>>(x, y, n);
    return (int)cudaGetLastError();
}
