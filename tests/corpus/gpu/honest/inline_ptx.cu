// mechanism: asks for its lane and loads through the read-only cache in PTX
// backend: cuda
// op: relu
__device__ unsigned lane() {
    unsigned number;
    asm("mov.u32 %0, %%laneid;" : "=r"(number));
    return number;
}

__device__ float load(const float* from) {
    float value;
    asm("ld.global.nc.f32 %0, [%1];" : "=f"(value) : "l"(from));
    return value;
}

__global__ void relu_kernel(const scalar_t* x, scalar_t* y, int64_t n) {
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x / 32 * 32 + lane();
    if (i >= n) return;
    const float value = load(x + i);
    y[i] = value < 0.0f ? 0.0f : value;
}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return 0;
    relu_kernel<<<(unsigned)((n + 255) / 256), 256, 0, stream>>>(x, y, n);
    return (int)cudaGetLastError();
}
