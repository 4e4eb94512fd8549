// mechanism: the steps of a scan come from constant memory
// backend: cuda
// op: cumsum
__constant__ int steps[5] = {1, 2, 4, 8, 16};

__global__ void cumsum_kernel(const scalar_t* x, scalar_t* y, int64_t cols) {
    x += blockIdx.x * cols;
    y += blockIdx.x * cols;
    float before = 0.0f;
    for (int64_t first = 0; first < cols; first += 32) {
        const int64_t i = first + threadIdx.x;
        float value = i < cols ? float(x[i]) : 0.0f;
        for (int s = 0; s < 5; ++s) {
            const float left = __shfl_up_sync(~0u, value, steps[s]);
            if ((int)threadIdx.x >= steps[s]) value += left;
        }
        if (i < cols) y[i] = scalar_t(before + value);
        before += __shfl_sync(~0u, value, 31);
    }
}

extern "C" int cumsum(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols,
                      cudaStream_t stream) {
    if (rows * cols == 0) return 0;
    cumsum_kernel<<<(unsigned)rows, 32, 0, stream>>>(x, y, cols);
    return (int)cudaGetLastError();
}
