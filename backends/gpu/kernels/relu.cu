// Rectified linear unit. One pass over memory in 16-byte accesses.
#include <portkern/portable.h>

#define BLOCK 256  // knob: 128 256 512 1024
#define UNROLL 4  // knob: 1 2 4 8

constexpr int VEC = 16 / sizeof(scalar_t);  // elements per 16-byte access

template <int V>
struct alignas(V * sizeof(scalar_t)) Pack {
    scalar_t at[V];
};

// Written so that NaN passes through, as in PyTorch.
__device__ __forceinline__ float relu_of(float v) { return v < 0.0f ? 0.0f : v; }

// Each block owns BLOCK * UNROLL packs, so that a thread has UNROLL loads in flight.
template <int V>
__global__ __launch_bounds__(BLOCK) void relu_kernel(const scalar_t* __restrict__ x,
                                                   scalar_t* __restrict__ y, int64_t n) {
    const int64_t packs = n / V;
    const int64_t first = (int64_t)blockIdx.x * BLOCK * UNROLL + threadIdx.x;
    Pack<V> values[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        const int64_t i = first + u * BLOCK;
        if (i < packs) values[u] = reinterpret_cast<const Pack<V>*>(x)[i];
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        const int64_t i = first + u * BLOCK;
        if (i >= packs) continue;
#pragma unroll
        for (int j = 0; j < V; ++j) values[u].at[j] = scalar_t(relu_of(float(values[u].at[j])));
        reinterpret_cast<Pack<V>*>(y)[i] = values[u];
    }
    const int64_t tail = packs * V + first;  // fewer than V elements: the first threads take them
    if (tail < n) y[tail] = scalar_t(relu_of(float(x[tail])));
}

template <int V>
int launch(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    const int64_t share = (int64_t)BLOCK * UNROLL;
    const int64_t packs = n / V > 0 ? n / V : 1;  // a tail alone still needs a block
    const unsigned blocks = (unsigned)((packs + share - 1) / share);
    relu_kernel<V><<<blocks, BLOCK, 0, stream>>>(x, y, n);
    return (int)cudaGetLastError();
}

extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return 0;
    const bool aligned = ((uintptr_t)x | (uintptr_t)y) % 16 == 0;
    return aligned ? launch<VEC>(x, y, n, stream) : launch<1>(x, y, n, stream);
}
