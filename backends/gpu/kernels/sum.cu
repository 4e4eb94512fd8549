// Sum over the middle axis of three. inner == 1: one block per row, 16-byte loads, a block
// reduction. inner > 1: a block takes 128 bytes of columns and all rows, rows spread over its
// threads, so every access is a full line and the partial sums meet in shared memory.
#include <portkern/portable.h>

#define BLOCK 256  // knob: 128 256 512 (hip: 512)
#define UNROLL 8  // knob: 1 2 4 8 (hip: 4)

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
    value = 0.0f;
    for (int w = 0; w < blockDim.x / WARP_SIZE; ++w) value += partial[w];
    return value;
}

template <int V>
__global__ __launch_bounds__(BLOCK) void sum_rows(const scalar_t* __restrict__ x,
                                                  scalar_t* __restrict__ y, int64_t reduce) {
    const Pack<V>* in = reinterpret_cast<const Pack<V>*>(x + blockIdx.x * reduce);
    const int64_t packs = reduce / V, threads = blockDim.x;
    float total[UNROLL] = {};
    for (int64_t i = threadIdx.x; i < packs; i += threads * UNROLL) {
        Pack<V> values[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (i + u * threads < packs) values[u] = in[i + u * threads];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
#pragma unroll
            for (int j = 0; j < V; ++j)
                if (i + u * threads < packs) total[u] += float(values[u].at[j]);
    }
    for (int u = 1; u < UNROLL; ++u) total[0] += total[u];
    const float all = block_sum(total[0]);
    if (threadIdx.x == 0) y[blockIdx.x] = scalar_t(all);
}

template <int V>
constexpr int ACROSS = V == 1 ? 32 : 8;  // packs of columns per block

template <int V>
__global__ __launch_bounds__(BLOCK) void sum_columns(const scalar_t* __restrict__ x,
                                                     scalar_t* __restrict__ y, int64_t reduce,
                                                     int64_t inner, int64_t tiles) {
    constexpr int WIDE = ACROSS<V>, TALL = BLOCK / WIDE;
    __shared__ float partial[TALL][WIDE * V];
    const int64_t outer = blockIdx.x / tiles, width = inner / V;
    const int64_t column = blockIdx.x % tiles * WIDE + threadIdx.x;
    const Pack<V>* in = reinterpret_cast<const Pack<V>*>(x + outer * reduce * inner) + column;
    float total[V] = {};
    for (int64_t row = threadIdx.y; column < width && row < reduce; row += TALL * UNROLL) {
        Pack<V> values[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
            if (row + u * TALL < reduce) values[u] = in[(row + u * TALL) * width];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
#pragma unroll
            for (int j = 0; j < V; ++j)
                if (row + u * TALL < reduce) total[j] += float(values[u].at[j]);
    }
#pragma unroll
    for (int j = 0; j < V; ++j) partial[threadIdx.y][threadIdx.x * V + j] = total[j];
    for (int half = TALL / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y >= half) continue;  // it still meets the others at the next barrier
        for (int j = 0; j < V; ++j)
            partial[threadIdx.y][threadIdx.x * V + j] +=
                partial[threadIdx.y + half][threadIdx.x * V + j];
    }
    if (threadIdx.y > 0 || column >= width) return;
    Pack<V> result;
#pragma unroll
    for (int j = 0; j < V; ++j) result.at[j] = scalar_t(partial[0][threadIdx.x * V + j]);
    reinterpret_cast<Pack<V>*>(y + outer * inner)[column] = result;
}

template <int V>
int launch(const scalar_t* x, scalar_t* y, int64_t outer, int64_t reduce, int64_t inner,
           cudaStream_t stream) {
    if (inner == 1) {
        unsigned threads = WARP_SIZE_MAX;  // short rows would leave most of a large block idle
        while (threads < BLOCK && threads * UNROLL < reduce / V) threads *= 2;
        sum_rows<V><<<(unsigned)outer, threads, 0, stream>>>(x, y, reduce);
    } else {
        const int64_t tiles = (inner / V + ACROSS<V> - 1) / ACROSS<V>;
        const dim3 block(ACROSS<V>, BLOCK / ACROSS<V>);
        sum_columns<V><<<(unsigned)(outer * tiles), block, 0, stream>>>(x, y, reduce, inner, tiles);
    }
    return (int)cudaGetLastError();
}

extern "C" int sum(const scalar_t* x, scalar_t* y, int64_t outer, int64_t reduce, int64_t inner,
                   cudaStream_t stream) {
    if (outer == 0 || inner == 0) return 0;
    const int64_t contiguous = inner == 1 ? reduce : inner;
    const bool aligned = ((uintptr_t)x | (inner == 1 ? 0 : (uintptr_t)y)) % 16 == 0;
    if (aligned && contiguous % VEC == 0) return launch<VEC>(x, y, outer, reduce, inner, stream);
    return launch<1>(x, y, outer, reduce, inner, stream);
}
