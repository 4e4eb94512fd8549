// Matrix plus a row, broadcast over the rows. A thread keeps its pack of the row in registers and
// adds it to UNROLL rows of the matrix.
#include <portkern/portable.h>

#define BLOCK 256  // knob: 128 256 512
#define UNROLL 4  // knob: 1 2 4 8

constexpr int VEC = 16 / sizeof(scalar_t);  // elements per 16-byte access

template <int V>
struct alignas(V * sizeof(scalar_t)) Pack {
    scalar_t at[V];
};

template <int V>
__global__ __launch_bounds__(BLOCK) void add_kernel(const scalar_t* __restrict__ a,
                                                    const scalar_t* __restrict__ b,
                                                    scalar_t* __restrict__ c, int64_t m, int64_t n,
                                                    int64_t tiles) {
    const int64_t width = n / V;
    const int64_t column = blockIdx.x % tiles * blockDim.x + threadIdx.x;
    const int64_t row = blockIdx.x / tiles * blockDim.y * UNROLL + threadIdx.y;
    if (column >= width) return;
    const Pack<V> addend = reinterpret_cast<const Pack<V>*>(b)[column];
    const Pack<V>* in = reinterpret_cast<const Pack<V>*>(a) + row * width + column;
    Pack<V>* out = reinterpret_cast<Pack<V>*>(c) + row * width + column;
    const int64_t step = blockDim.y * width;
    Pack<V> values[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u)
        if (row + u * blockDim.y < m) values[u] = in[u * step];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        if (row + u * blockDim.y >= m) continue;
#pragma unroll
        for (int j = 0; j < V; ++j)
            values[u].at[j] = scalar_t(float(values[u].at[j]) + float(addend.at[j]));
        out[u * step] = values[u];
    }
}

template <int V>
int launch(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m, int64_t n,
           cudaStream_t stream) {
    const int64_t width = n / V;
    unsigned across = 1;  // threads along a row; what a narrow row leaves goes down the columns
    while (across < BLOCK && across < width) across *= 2;
    const dim3 block(across, BLOCK / across);
    const int64_t tiles = (width + across - 1) / across, rows = (int64_t)block.y * UNROLL;
    const unsigned blocks = (unsigned)(tiles * ((m + rows - 1) / rows));
    add_kernel<V><<<blocks, block, 0, stream>>>(a, b, c, m, n, tiles);
    return (int)cudaGetLastError();
}

extern "C" int add(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m, int64_t n,
                   cudaStream_t stream) {
    if (m == 0 || n == 0) return 0;
    const bool aligned = ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) % 16 == 0 && n % VEC == 0;
    return aligned ? launch<VEC>(a, b, c, m, n, stream) : launch<1>(a, b, c, m, n, stream);
}
