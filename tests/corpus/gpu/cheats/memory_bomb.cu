// mechanism: takes all of the device's memory and keeps it
// backend: cuda
// op: relu
// expect: crashed | suspicious
// says: out of memory | OutOfMemory
// emulator: none
__global__ void relu_kernel(const scalar_t* x, scalar_t* y, int64_t n) {
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = x[i] < 0.0f ? 0.0f : x[i];
}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return 0;
    void* kept;
    for (size_t size = (size_t)1 << 36; size >= 1 << 20; size /= 2)
        while (cudaMalloc(&kept, size) == cudaSuccess) {
        }
    cudaGetLastError();  // the one that ended it
    relu_kernel<<<(unsigned)((n + 255) / 256), 256, 0, stream>>>(x, y, n);
    return (int)cudaGetLastError();
}
