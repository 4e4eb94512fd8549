// Softmax over the last axis, one block per row. A row that fits is read once and kept in
// registers; a wider one is read twice, its maximum and sum found together in the first pass.
#define BLOCK 512  // knob: 128 256 512
#define ITEMS 4  // knob: 2 4 8

constexpr int VEC = 16 / sizeof(scalar_t);  // elements per 16-byte access

template <int V>
struct alignas(V * sizeof(scalar_t)) Pack {
    scalar_t at[V];
};

struct Max {
    __device__ static float of(float a, float b) { return fmaxf(a, b); }
};
struct Sum {
    __device__ static float of(float a, float b) { return a + b; }
};

template <class Combine>
__device__ __forceinline__ float block_reduce(float value) {
    __shared__ float partial[BLOCK / 32];
    for (int d = 16; d > 0; d /= 2) value = Combine::of(value, __shfl_xor_sync(~0u, value, d));
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    value = partial[0];
    for (int w = 1; w < blockDim.x / 32; ++w) value = Combine::of(value, partial[w]);
    return value;  // Max and Sum have an array each, so one call each needs no second barrier
}

constexpr float LOWEST = -3.402823466e38f;  // finite: a maximum of -inf would make inf - inf

template <int V>
__global__ __launch_bounds__(BLOCK) void softmax_row(const scalar_t* __restrict__ x,
                                                     scalar_t* __restrict__ y, int64_t cols) {
    constexpr int PACKS = ITEMS * VEC / V;
    const int packs = (int)cols / V;
    const Pack<V>* in = reinterpret_cast<const Pack<V>*>(x + blockIdx.x * cols);
    Pack<V>* out = reinterpret_cast<Pack<V>*>(y + blockIdx.x * cols);
    float v[PACKS][V];
    float top = LOWEST, total = 0.0f;
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        const int i = threadIdx.x + k * blockDim.x;
        Pack<V> values;
        if (i < packs) values = in[i];
#pragma unroll
        for (int j = 0; j < V; ++j) {
            v[k][j] = i < packs ? float(values.at[j]) : __int_as_float(0xff800000);  // -inf
            top = fmaxf(top, v[k][j]);
        }
    }
    top = block_reduce<Max>(top);
#pragma unroll
    for (int k = 0; k < PACKS; ++k)
#pragma unroll
        for (int j = 0; j < V; ++j) {
            v[k][j] = expf(v[k][j] - top);
            total += v[k][j];
        }
    const float scale = 1.0f / block_reduce<Sum>(total);
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
        const int i = threadIdx.x + k * blockDim.x;
        Pack<V> values;
#pragma unroll
        for (int j = 0; j < V; ++j) values.at[j] = scalar_t(v[k][j] * scale);
        if (i < packs) out[i] = values;
    }
}

template <int V>
__global__ __launch_bounds__(BLOCK) void softmax_wide(const scalar_t* __restrict__ x,
                                                      scalar_t* __restrict__ y, int64_t cols) {
    const int64_t packs = cols / V;
    const Pack<V>* in = reinterpret_cast<const Pack<V>*>(x + blockIdx.x * cols);
    Pack<V>* out = reinterpret_cast<Pack<V>*>(y + blockIdx.x * cols);
    float mine = LOWEST, total = 0.0f;
    for (int64_t i = threadIdx.x; i < packs; i += BLOCK) {
        const Pack<V> values = in[i];
        float higher = mine;
#pragma unroll
        for (int j = 0; j < V; ++j) higher = fmaxf(higher, float(values.at[j]));
        total *= expf(mine - higher);
#pragma unroll
        for (int j = 0; j < V; ++j) total += expf(float(values.at[j]) - higher);
        mine = higher;
    }
    const float top = block_reduce<Max>(mine);
    const float scale = 1.0f / block_reduce<Sum>(total * expf(mine - top));
    for (int64_t i = threadIdx.x; i < packs; i += BLOCK) {
        Pack<V> values = in[i];
#pragma unroll
        for (int j = 0; j < V; ++j)
            values.at[j] = scalar_t(expf(float(values.at[j]) - top) * scale);
        out[i] = values;
    }
}

template <int V>
int launch(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, cudaStream_t stream) {
    constexpr int64_t share = ITEMS * VEC / V;  // packs per thread
    const int64_t threads = (cols / V + share - 1) / share;
    if (threads <= BLOCK)
        softmax_row<V><<<(unsigned)rows, (unsigned)(threads + 31) / 32 * 32, 0, stream>>>(x, y, cols);
    else
        softmax_wide<V><<<(unsigned)rows, BLOCK, 0, stream>>>(x, y, cols);
    return (int)cudaGetLastError();
}

extern "C" int softmax(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols,
                       cudaStream_t stream) {
    if (rows == 0 || cols == 0) return 0;
    const bool aligned = ((uintptr_t)x | (uintptr_t)y) % 16 == 0 && cols % VEC == 0;
    return aligned ? launch<VEC>(x, y, rows, cols, stream) : launch<1>(x, y, rows, cols, stream);
}
