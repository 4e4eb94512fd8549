// mechanism: one warp per row and shuffles, with the largest and the sum found in one pass
// backend: cuda
// op: softmax
__global__ void softmax_kernel(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols) {
    const int64_t row = (int64_t)blockIdx.x * 4 + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (row >= rows) return;
    x += row * cols;
    y += row * cols;
    float top = -3.402823466e38f, total = 0.0f;
    for (int64_t i = lane; i < cols; i += 32) {
        const float value = float(x[i]), higher = fmaxf(top, value);
        total = total * expf(top - higher) + expf(value - higher);
        top = higher;
    }
    for (int d = 16; d > 0; d /= 2) {
        const float other = __shfl_down_sync(~0u, top, d), more = __shfl_down_sync(~0u, total, d);
        const float higher = fmaxf(top, other);
        total = total * expf(top - higher) + more * expf(other - higher);
        top = higher;
    }
    top = __shfl_sync(~0u, top, 0);
    const float scale = 1.0f / __shfl_sync(~0u, total, 0);
    for (int64_t i = lane; i < cols; i += 32) y[i] = scalar_t(expf(float(x[i]) - top) * scale);
}

extern "C" int softmax(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols,
                       cudaStream_t stream) {
    if (rows * cols == 0) return 0;
    softmax_kernel<<<(unsigned)((rows + 3) / 4), 128, 0, stream>>>(x, y, rows, cols);
    return (int)cudaGetLastError();
}
