// mechanism: a flag read back by the host decides on the kernel; a table goes there in pinned memory
// backend: cuda
// op: relu
__global__ void look(const scalar_t* x, int64_t n, int* negative) {
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < n && !(x[i] >= 0.0f)) atomicOr(negative, 1);
}

__global__ void relu_kernel(const scalar_t* x, const float* floor, scalar_t* y, int64_t n) {
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = x[i] < floor[0] ? scalar_t(floor[0]) : x[i];
}

__global__ void keep_kernel(const scalar_t* x, scalar_t* y, int64_t n) {
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = x[i];
}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return 0;
    static int* flag;
    static float *pinned, *floor;
    if (!flag) {
        if (cudaMalloc((void**)&flag, sizeof(int)) || cudaMalloc((void**)&floor, 64) ||
            cudaMallocHost((void**)&pinned, 64))
            return 1;
        for (int i = 0; i < 16; ++i) pinned[i] = 0.0f;
        cudaMemcpyAsync(floor, pinned, 64, cudaMemcpyHostToDevice, stream);
    }
    const unsigned blocks = (unsigned)((n + 255) / 256);
    int negative = 0;
    cudaMemsetAsync(flag, 0, sizeof(int), stream);
    look<<<blocks, 256, 0, stream>>>(x, n, flag);
    cudaMemcpyAsync(&negative, flag, sizeof(int), cudaMemcpyDeviceToHost, stream);
    cudaStreamSynchronize(stream);
    if (negative) relu_kernel<<<blocks, 256, 0, stream>>>(x, floor, y, n);
    else keep_kernel<<<blocks, 256, 0, stream>>>(x, y, n);
    return (int)cudaGetLastError();
}
