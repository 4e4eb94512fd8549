// gelu(x + bias) with the exact error function. A thread keeps its pack of the bias in registers
// and uses it for UNROLL rows.
#include <portkern/portable.h>

#define BLOCK 256  // knob: 128 256 512
#define UNROLL 4  // knob: 1 2 4 8

constexpr int VEC = 16 / sizeof(scalar_t);  // elements per 16-byte access

template <int V>
struct alignas(V * sizeof(scalar_t)) Pack {
    scalar_t at[V];
};

__device__ __forceinline__ float gelu_of(float v) {
    return 0.5f * v * (1.0f + erff(v * 0.70710678118654752f));
}

template <int V>
__global__ __launch_bounds__(BLOCK) void bias_gelu_kernel(const scalar_t* __restrict__ x,
                                                          const scalar_t* __restrict__ bias,
                                                          scalar_t* __restrict__ y, int64_t rows,
                                                          int64_t cols, int64_t tiles) {
    const int64_t width = cols / V;
    const int64_t column = blockIdx.x % tiles * blockDim.x + threadIdx.x;
    const int64_t row = blockIdx.x / tiles * blockDim.y * UNROLL + threadIdx.y;
    if (column >= width) return;
    const Pack<V> addend = reinterpret_cast<const Pack<V>*>(bias)[column];
    const Pack<V>* in = reinterpret_cast<const Pack<V>*>(x) + row * width + column;
    Pack<V>* out = reinterpret_cast<Pack<V>*>(y) + row * width + column;
    const int64_t step = blockDim.y * width;
    Pack<V> values[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u)
        if (row + u * blockDim.y < rows) values[u] = in[u * step];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        if (row + u * blockDim.y >= rows) continue;
#pragma unroll
        for (int j = 0; j < V; ++j)
            values[u].at[j] = scalar_t(gelu_of(float(values[u].at[j]) + float(addend.at[j])));
        out[u * step] = values[u];
    }
}

template <int V>
int launch(const scalar_t* x, const scalar_t* bias, scalar_t* y, int64_t rows, int64_t cols,
           cudaStream_t stream) {
    const int64_t width = cols / V;
    unsigned across = 1;  // threads along a row; what a narrow row leaves goes down the columns
    while (across < BLOCK && across < width) across *= 2;
    const dim3 block(across, BLOCK / across);
    const int64_t tiles = (width + across - 1) / across, tall = (int64_t)block.y * UNROLL;
    const unsigned blocks = (unsigned)(tiles * ((rows + tall - 1) / tall));
    bias_gelu_kernel<V><<<blocks, block, 0, stream>>>(x, bias, y, rows, cols, tiles);
    return (int)cudaGetLastError();
}

extern "C" int bias_gelu(const scalar_t* x, const scalar_t* bias, scalar_t* y, int64_t rows,
                         int64_t cols, cudaStream_t stream) {
    if (rows == 0 || cols == 0) return 0;
    const bool aligned = ((uintptr_t)x | (uintptr_t)bias | (uintptr_t)y) % 16 == 0;
    if (aligned && cols % VEC == 0) return launch<VEC>(x, bias, y, rows, cols, stream);
    return launch<1>(x, bias, y, rows, cols, stream);
}
