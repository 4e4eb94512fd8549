// mechanism: four elements at a time, and the rest one by one
// backend: cuda
// op: relu
// workloads: ci edge
__device__ float positive(float value) { return value < 0.0f ? 0.0f : value; }

__global__ void relu_kernel(const scalar_t* x, scalar_t* y, int64_t n, int64_t packs) {
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (i < packs) {
        const float4 in = reinterpret_cast<const float4*>(x)[i];
        reinterpret_cast<float4*>(y)[i] =
            make_float4(positive(in.x), positive(in.y), positive(in.z), positive(in.w));
    }
    const int64_t single = 4 * packs + i;
    if (single < n) y[single] = positive(x[single]);
}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return 0;
    const int64_t packs = ((uintptr_t)x | (uintptr_t)y) % 16 == 0 ? n / 4 : 0;
    const int64_t threads = packs > n - 4 * packs ? packs : n - 4 * packs;
    relu_kernel<<<(unsigned)((threads + 255) / 256), 256, 0, stream>>>(x, y, n, packs);
    return (int)cudaGetLastError();
}
