// mechanism: stores four elements at a time and leaves out those at the end
// backend: cuda
// op: softmax
// expect: wrong
// says: elements are off | NaN or infinity
__device__ float over_warp(float value, bool largest) {
    for (int d = 16; d > 0; d /= 2) {
        const float other = __shfl_xor_sync(~0u, value, d);
        value = largest ? fmaxf(value, other) : value + other;
    }
    return value;
}

__global__ void softmax_kernel(const scalar_t* x, scalar_t* y, int64_t cols) {
    x += blockIdx.x * cols;
    y += blockIdx.x * cols;
    float top = -3.402823466e38f, total = 0.0f;
    for (int64_t i = threadIdx.x; i < cols; i += 32) top = fmaxf(top, x[i]);
    top = over_warp(top, true);
    for (int64_t i = threadIdx.x; i < cols; i += 32) total += expf(x[i] - top);
    total = over_warp(total, false);
    for (int64_t i = threadIdx.x; i < cols / 4; i += 32)
        for (int j = 0; j < 4; ++j) y[4 * i + j] = expf(x[4 * i + j] - top) / total;
}

extern "C" int softmax(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols,
                       cudaStream_t stream) {
    if (rows * cols == 0) return 0;
    softmax_kernel<<<(unsigned)rows, 32, 0, stream>>>(x, y, cols);
    return (int)cudaGetLastError();
}
