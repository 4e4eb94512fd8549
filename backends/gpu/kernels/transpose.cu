// Transpose through a padded tile in shared memory: 16-byte accesses on both sides.
#include <portkern/portable.h>

#define BLOCK 256  // knob: 128 256 512
#define TILE 64  // knob: 32 64

constexpr int VEC = 16 / sizeof(scalar_t);  // elements per 16-byte access

template <int V>
struct alignas(V * sizeof(scalar_t)) Pack {
    scalar_t at[V];
};

template <int V>
__global__ __launch_bounds__(BLOCK) void transpose_kernel(const scalar_t* __restrict__ x,
                                                          scalar_t* __restrict__ y, int64_t rows,
                                                          int64_t cols, int64_t tiles) {
    constexpr int PACKS = TILE * TILE / V, ROUNDS = (PACKS + BLOCK - 1) / BLOCK;
    // Padded by 4 bytes, so that a column's elements lie in different banks.
    __shared__ scalar_t tile[TILE][TILE + 4 / sizeof(scalar_t)];
    const int64_t row0 = blockIdx.x / tiles * TILE, col0 = blockIdx.x % tiles * TILE;
#pragma unroll
    for (int k = 0; k < ROUNDS; ++k) {
        const int p = k * BLOCK + threadIdx.x, r = p / (TILE / V), c = p % (TILE / V) * V;
        if (p >= PACKS || row0 + r >= rows || col0 + c >= cols) continue;
        const Pack<V> values = *reinterpret_cast<const Pack<V>*>(x + (row0 + r) * cols + col0 + c);
#pragma unroll
        for (int j = 0; j < V; ++j) tile[r][c + j] = values.at[j];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < ROUNDS; ++k) {
        const int p = k * BLOCK + threadIdx.x, c = p / (TILE / V), r = p % (TILE / V) * V;
        if (p >= PACKS || row0 + r >= rows || col0 + c >= cols) continue;
        Pack<V> values;
#pragma unroll
        for (int j = 0; j < V; ++j) values.at[j] = tile[r + j][c];
        // Counted in packs: compilers merge the stores only where the type shows the alignment.
        reinterpret_cast<Pack<V>*>(y)[((col0 + c) * rows + row0 + r) / V] = values;
    }
}

template <int V>
int launch(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, cudaStream_t stream) {
    const int64_t across = (cols + TILE - 1) / TILE, down = (rows + TILE - 1) / TILE;
    transpose_kernel<V><<<(unsigned)(across * down), BLOCK, 0, stream>>>(x, y, rows, cols, across);
    return (int)cudaGetLastError();
}

extern "C" int transpose(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols,
                         cudaStream_t stream) {
    if (rows == 0 || cols == 0) return 0;
    const bool aligned = ((uintptr_t)x | (uintptr_t)y) % 16 == 0;
    if (aligned && rows % VEC == 0 && cols % VEC == 0) return launch<VEC>(x, y, rows, cols, stream);
    return launch<1>(x, y, rows, cols, stream);
}
