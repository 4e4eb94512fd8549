// mechanism: one block, whatever the size: only the first tile is computed
// backend: cuda
// op: relu
// expect: wrong
// says: elements are off | NaN or infinity
__global__ void relu_kernel(const scalar_t* x, scalar_t* y, int64_t n) {
    const int64_t i = (int64_t)blockIdx.x * 512 + threadIdx.x;
    if (i < n) y[i] = x[i] < 0.0f ? 0.0f : x[i];
}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return 0;
    relu_kernel<<<1, 512, 0, stream>>>(x, y, n);
    return (int)cudaGetLastError();
}
