// Of the rows that a token's indices name the sum, each times its gate. A thread has a pack of a token's row, of which
// four experts' are on their way at once.
#define BLOCK 128  // knob: 64 128 256
#define AHEAD 4  // knob: 2 4 8
#include <portkern/packs.h>

template <int V>
__global__ __launch_bounds__(BLOCK) void combine(const scalar_t* x, const int64_t* index, const scalar_t* gates,
                                                 scalar_t* y, int64_t dim, int k, unsigned tiles) {
    const int64_t token = blockIdx.x / tiles;
    const int64_t at = ((int64_t)(blockIdx.x % tiles) * blockDim.x + threadIdx.x) * V;
    if (at >= dim) return;
    const int64_t* own = index + token * k;
    float sums[V] = {};
    for (int first = 0; first < k; first += AHEAD) {
        Some<V> values[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; ++u)
            values[u] = *reinterpret_cast<const Some<V>*>(x + own[min(first + u, k - 1)] * dim + at);
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            const bool there = first + u < k;
            const float gate = there ? float(gates[token * k + first + u]) : 0.0f;
#pragma unroll
            for (int j = 0; j < V; ++j) sums[j] = there ? fmaf(gate, float(values[u].at[j]), sums[j]) : sums[j];
        }
    }
    Some<V> result;
#pragma unroll
    for (int j = 0; j < V; ++j) result.at[j] = scalar_t(sums[j]);
    *reinterpret_cast<Some<V>*>(y + token * dim + at) = result;
}

template <int V>
int launch(const scalar_t* x, const int64_t* index, const scalar_t* gates, scalar_t* y, int64_t dim, int64_t tokens,
           int64_t k, cudaStream_t stream) {
    unsigned threads = 64;
    while (threads < BLOCK && threads * V < dim) threads *= 2;
    const int64_t tiles = (dim + threads * V - 1) / (threads * V);
    combine<V><<<(unsigned)(tokens * tiles), threads, 0, stream>>>(x, index, gates, y, dim, (int)k, (unsigned)tiles);
    return (int)cudaGetLastError();
}

extern "C" int moe_combine(const scalar_t* x, const int64_t* index, const scalar_t* gates, scalar_t* y, int64_t rows,
                           int64_t dim, int64_t tokens, int64_t k, cudaStream_t stream) {
    if (tokens == 0 || dim == 0) return 0;
    if (((uintptr_t)x | (uintptr_t)y) % 16 == 0 && dim % VEC == 0)
        return launch<VEC>(x, index, gates, y, dim, tokens, k, stream);
    return launch<1>(x, index, gates, y, dim, tokens, k, stream);
}
