// mechanism: keeps its powers in the input
// backend: cuda
// op: softmax
// expect: wrong
// says: changed its input
__device__ float over_warp(float value, bool largest) {
    for (int d = 16; d > 0; d /= 2) {
        const float other = __shfl_xor_sync(~0u, value, d);
        value = largest ? fmaxf(value, other) : value + other;
    }
    return value;
}

__global__ void softmax_kernel(scalar_t* x, scalar_t* y, int64_t cols) {
    x += blockIdx.x * cols;
    y += blockIdx.x * cols;
    float top = -3.402823466e38f, total = 0.0f;
    for (int64_t i = threadIdx.x; i < cols; i += 32) top = fmaxf(top, x[i]);
    top = over_warp(top, true);
    for (int64_t i = threadIdx.x; i < cols; i += 32) total += x[i] = expf(x[i] - top);
    total = over_warp(total, false);
    for (int64_t i = threadIdx.x; i < cols; i += 32) y[i] = x[i] / total;
}

extern "C" int softmax(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols,
                       cudaStream_t stream) {
    if (rows * cols == 0) return 0;
    softmax_kernel<<<(unsigned)rows, 32, 0, stream>>>(const_cast<scalar_t*>(x), y, cols);
    return (int)cudaGetLastError();
}
