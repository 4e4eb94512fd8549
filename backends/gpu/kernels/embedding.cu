// Rows of a table by index. As many threads as a row needs copy it, each UNROLL packs of 16 bytes;
// what a short row leaves of the block takes other rows.
#include <portkern/portable.h>

#define BLOCK 256  // knob: 128 256 512
#define UNROLL 4  // knob: 1 2 4 8

constexpr int VEC = 16 / sizeof(scalar_t);  // elements per 16-byte access

template <int V>
struct alignas(V * sizeof(scalar_t)) Pack {
    scalar_t at[V];
};

template <int V>
__global__ __launch_bounds__(BLOCK) void embedding_kernel(const scalar_t* __restrict__ table,
                                                          const int64_t* __restrict__ index,
                                                          scalar_t* __restrict__ y, int64_t dim,
                                                          int64_t n, unsigned tiles) {
    const int64_t row = blockIdx.x / tiles * blockDim.y + threadIdx.y, step = blockDim.x;
    const int64_t width = dim / V, first = blockIdx.x % tiles * step * UNROLL + threadIdx.x;
    if (row >= n) return;
    const Pack<V>* in = reinterpret_cast<const Pack<V>*>(table) + index[row] * width;
    Pack<V>* out = reinterpret_cast<Pack<V>*>(y) + row * width;
    Pack<V> values[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        const int64_t i = first + u * step;
        // HIP would take what is loaded under a condition by way of memory: past the row, its last.
        if (PORTKERN_AMD || i < width) values[u] = in[PORTKERN_AMD ? min(i, width - 1) : i];
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u)
        if (first + u * step < width) out[first + u * step] = values[u];
}

template <int V>
int launch(const scalar_t* table, const int64_t* index, scalar_t* y, int64_t dim, int64_t n,
           cudaStream_t stream) {
    const int64_t width = dim / V;
    unsigned across = 1;  // threads along a row
    while (across < BLOCK && across * UNROLL < width) across *= 2;
    const dim3 block(across, BLOCK / across);
    const int64_t share = (int64_t)across * UNROLL, tiles = (width + share - 1) / share;
    const unsigned blocks = (unsigned)(tiles * ((n + block.y - 1) / block.y));
    embedding_kernel<V><<<blocks, block, 0, stream>>>(table, index, y, dim, n, (unsigned)tiles);
    return (int)cudaGetLastError();
}

extern "C" int embedding(const scalar_t* table, const int64_t* index, scalar_t* y, int64_t vocab,
                         int64_t dim, int64_t n, cudaStream_t stream) {
    if (n == 0 || dim == 0) return 0;
    const bool aligned = ((uintptr_t)table | (uintptr_t)y) % 16 == 0 && dim % VEC == 0;
    if (aligned) return launch<VEC>(table, index, y, dim, n, stream);
    return launch<1>(table, index, y, dim, n, stream);
}
