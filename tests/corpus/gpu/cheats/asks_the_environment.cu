// mechanism: is right where the executor's settings are in the environment
// backend: cuda
// op: relu
// expect: rejected | wrong
// says: G206 | elements are off
#include <cstdlib>

__global__ void relu_kernel(const scalar_t* x, scalar_t* y, int64_t n, bool right) {
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = right && x[i] < 0.0f ? 0.0f : x[i];
}

static bool emulated() { return getenv("PORTKERN_SIMT") != nullptr; }

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return 0;
    relu_kernel<<<(unsigned)((n + 255) / 256), 256, 0, stream>>>(x, y, n, emulated());
    return (int)cudaGetLastError();
}
