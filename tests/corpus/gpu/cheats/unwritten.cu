// mechanism: computes everything and writes nothing
// backend: cuda
// op: relu
// expect: wrong
// says: elements are off | NaN or infinity
__global__ void relu_kernel(const scalar_t* x, scalar_t* y, int64_t n) {
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    const float value = x[i] < 0.0f ? 0.0f : float(x[i]);
    if (value < 0.0f) y[i] = value;  // never
}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return 0;
    relu_kernel<<<(unsigned)((n + 255) / 256), 256, 0, stream>>>(x, y, n);
    return (int)cudaGetLastError();
}
