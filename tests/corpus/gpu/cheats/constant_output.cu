// mechanism: every probability is one over their number
// backend: cuda
// op: softmax
// expect: wrong
// says: elements are off
__global__ void softmax_kernel(scalar_t* y, int64_t total, float share) {
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < total) y[i] = share;
}

extern "C" int softmax(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols,
                       cudaStream_t stream) {
    const int64_t total = rows * cols;
    if (total == 0) return 0;
    softmax_kernel<<<(unsigned)((total + 255) / 256), 256, 0, stream>>>(y, total, 1.0f / cols);
    return (int)cudaGetLastError();
}
