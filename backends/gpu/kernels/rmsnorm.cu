// Root-mean-square normalisation over the last axis, one block per row. A row that fits is read
// once and kept in registers; a wider one is read twice.
#include <portkern/portable.h>

#define BLOCK 512  // knob: 128 256 512
#define ITEMS 4  // knob: 2 4 8

constexpr int VEC = 16 / sizeof(scalar_t);  // elements per 16-byte access

template <int V>
struct alignas(V * sizeof(scalar_t)) Pack {
    scalar_t at[V];
};

__device__ __forceinline__ float block_sum(float value) {
    __shared__ float partial[BLOCK / WARP_SIZE_MIN];
    for (int d = WARP_SIZE / 2; d > 0; d /= 2) value += warp_shuffle_xor(value, d);
    if (threadIdx.x % WARP_SIZE == 0) partial[threadIdx.x / WARP_SIZE] = value;
    __syncthreads();
    value = partial[0];
    for (int w = 1; w < blockDim.x / WARP_SIZE; ++w) value += partial[w];
    return value;
}

template <int V>
__device__ __forceinline__ Pack<V> scaled(Pack<V> values, float scale, Pack<V> weight) {
    Pack<V> result;
#pragma unroll
    for (int j = 0; j < V; ++j)
        result.at[j] = scalar_t(float(values.at[j]) * scale * float(weight.at[j]));
    return result;
}

template <int V>
__global__ __launch_bounds__(BLOCK) void rmsnorm_row(const scalar_t* __restrict__ x,
                                                     const scalar_t* __restrict__ weight,
                                                     scalar_t* __restrict__ y, int64_t cols,
                                                     float eps) {
    constexpr int PACKS = ITEMS * VEC / V;
    const int packs = (int)cols / V;
    const Pack<V>* in = reinterpret_cast<const Pack<V>*>(x + blockIdx.x * cols);
    Pack<V> values[PACKS];
    float total = 0.0f;
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        const int i = threadIdx.x + k * blockDim.x;
        if (i < packs) values[k] = in[i];
    }
#pragma unroll
    for (int k = 0; k < PACKS; ++k)
#pragma unroll
        for (int j = 0; j < V; ++j) {
            const float v = threadIdx.x + k * blockDim.x < packs ? float(values[k].at[j]) : 0.0f;
            total += v * v;
        }
    const float scale = rsqrtf(block_sum(total) / cols + eps);
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        const int i = threadIdx.x + k * blockDim.x;
        if (i >= packs) continue;
        reinterpret_cast<Pack<V>*>(y + blockIdx.x * cols)[i] =
            scaled<V>(values[k], scale, reinterpret_cast<const Pack<V>*>(weight)[i]);
    }
}

template <int V>
__global__ __launch_bounds__(BLOCK) void rmsnorm_wide(const scalar_t* __restrict__ x,
                                                      const scalar_t* __restrict__ weight,
                                                      scalar_t* __restrict__ y, int64_t cols,
                                                      float eps) {
    const int64_t packs = cols / V;
    const Pack<V>* in = reinterpret_cast<const Pack<V>*>(x + blockIdx.x * cols);
    float total = 0.0f;
    for (int64_t i = threadIdx.x; i < packs; i += BLOCK) {
        const Pack<V> values = in[i];
#pragma unroll
        for (int j = 0; j < V; ++j) total += float(values.at[j]) * float(values.at[j]);
    }
    const float scale = rsqrtf(block_sum(total) / cols + eps);
    for (int64_t i = threadIdx.x; i < packs; i += BLOCK)
        reinterpret_cast<Pack<V>*>(y + blockIdx.x * cols)[i] =
            scaled<V>(in[i], scale, reinterpret_cast<const Pack<V>*>(weight)[i]);
}

template <int V>
int launch(const scalar_t* x, const scalar_t* weight, scalar_t* y, int64_t rows, int64_t cols,
           float eps, cudaStream_t stream) {
    constexpr int64_t share = ITEMS * VEC / V;  // packs per thread
    const int64_t threads = (cols / V + share - 1) / share;
    const int64_t warps = (threads + WARP_SIZE_MAX - 1) / WARP_SIZE_MAX;
    if (threads <= BLOCK)
        rmsnorm_row<V><<<(unsigned)rows, (unsigned)warps * WARP_SIZE_MAX, 0, stream>>>(
            x, weight, y, cols, eps);
    else
        rmsnorm_wide<V><<<(unsigned)rows, BLOCK, 0, stream>>>(x, weight, y, cols, eps);
    return (int)cudaGetLastError();
}

extern "C" int rmsnorm(const scalar_t* x, const scalar_t* weight, scalar_t* y, int64_t rows,
                       int64_t cols, float eps, cudaStream_t stream) {
    if (rows == 0 || cols == 0) return 0;
    const bool aligned = ((uintptr_t)x | (uintptr_t)weight | (uintptr_t)y) % 16 == 0;
    if (aligned && cols % VEC == 0) return launch<VEC>(x, weight, y, rows, cols, eps, stream);
    return launch<1>(x, weight, y, rows, cols, eps, stream);
}
