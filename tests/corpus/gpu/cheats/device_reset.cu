// mechanism: ends the context in which the judge's tensors and events lie
// backend: cuda
// op: relu
// expect: crashed
// says: CUDA error | Error | killed by
// emulator: passed
__global__ void relu_kernel(const scalar_t* x, scalar_t* y, int64_t n) {
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = x[i] < 0.0f ? 0.0f : x[i];
}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return 0;
    relu_kernel<<<(unsigned)((n + 255) / 256), 256, 0, stream>>>(x, y, n);
    cudaStreamSynchronize(stream);
    return (int)cudaDeviceReset();
}
