// mechanism: works in a buffer of its own, and a copy on the device puts the result into the output
// backend: cuda
// op: relu
__global__ void relu_kernel(const scalar_t* x, scalar_t* y, int64_t n) {
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = x[i] < 0.0f ? 0.0f : x[i];
}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return 0;
    static scalar_t* work;
    static int64_t room;
    if (room < n) {
        cudaFree(work);
        if (cudaMalloc((void**)&work, n * sizeof(scalar_t))) return 1;
        room = n;
    }
    relu_kernel<<<(unsigned)((n + 255) / 256), 256, 0, stream>>>(x, work, n);
    cudaMemcpyAsync(y, work, n * sizeof(scalar_t), cudaMemcpyDeviceToDevice, stream);
    return (int)cudaGetLastError();
}
