// mechanism: asks the device for its limits and the compiler for its target, in device code
// backend: cuda
// op: relu
__device__ float positive(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    return fmaxf(value, 0.0f) + (value != value ? value : 0.0f);
#else
    return value < 0.0f ? 0.0f : value;
#endif
}

__global__ void relu_kernel(const scalar_t* x, scalar_t* y, int64_t n) {
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        y[i] = scalar_t(positive(float(x[i])));
}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return 0;
    int device = 0, units = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, device);
    const int64_t blocks = (n + 255) / 256;
    relu_kernel<<<(unsigned)(blocks < 4 * units ? blocks : 4 * units), 256, 0, stream>>>(x, y, n);
    return (int)cudaGetLastError();
}
