// silu(gate) * up, gate / (1 + exp(-gate)) times up, in 16-byte accesses.
#include <portkern/portable.h>

#define BLOCK 256  // knob: 128 256 512 1024
#define UNROLL 2  // knob: 1 2 4

constexpr int VEC = 16 / sizeof(scalar_t);  // elements per 16-byte access

template <int V>
struct alignas(V * sizeof(scalar_t)) Pack {
    scalar_t at[V];
};

// Where the exponential overflows, the quotient is the 0 that it should be. An exact division would
// cost more than all the rest; this one errs by two roundoffs of float32.
__device__ __forceinline__ scalar_t gated(scalar_t gate, scalar_t up) {
    const float g = float(gate);
    return scalar_t(__fdividef(g, 1.0f + expf(-g)) * float(up));
}

// Each block owns BLOCK * UNROLL packs of either input, so a thread has 2 * UNROLL loads in flight.
template <int V>
__global__ __launch_bounds__(BLOCK) void silu_mul_kernel(const scalar_t* __restrict__ gate,
                                                         const scalar_t* __restrict__ up,
                                                         scalar_t* __restrict__ y, int64_t n) {
    const int64_t packs = n / V;
    const int64_t first = (int64_t)blockIdx.x * BLOCK * UNROLL + threadIdx.x;
    Pack<V> gates[UNROLL], ups[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        const int64_t i = first + u * BLOCK;
        if (i >= packs) continue;
        gates[u] = reinterpret_cast<const Pack<V>*>(gate)[i];
        ups[u] = reinterpret_cast<const Pack<V>*>(up)[i];
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
        const int64_t i = first + u * BLOCK;
        if (i >= packs) continue;
#pragma unroll
        for (int j = 0; j < V; ++j) ups[u].at[j] = gated(gates[u].at[j], ups[u].at[j]);
        reinterpret_cast<Pack<V>*>(y)[i] = ups[u];
    }
    const int64_t tail = packs * V + first;  // fewer than V elements: the first threads take them
    if (tail < n) y[tail] = gated(gate[tail], up[tail]);
}

template <int V>
int launch(const scalar_t* gate, const scalar_t* up, scalar_t* y, int64_t n, cudaStream_t stream) {
    const int64_t share = (int64_t)BLOCK * UNROLL;
    const int64_t packs = n / V > 0 ? n / V : 1;  // a tail alone still needs a block
    const unsigned blocks = (unsigned)((packs + share - 1) / share);
    silu_mul_kernel<V><<<blocks, BLOCK, 0, stream>>>(gate, up, y, n);
    return (int)cudaGetLastError();
}

extern "C" int silu_mul(const scalar_t* gate, const scalar_t* up, scalar_t* y, int64_t n,
                        cudaStream_t stream) {
    if (n == 0) return 0;
    const bool aligned = ((uintptr_t)gate | (uintptr_t)up | (uintptr_t)y) % 16 == 0;
    if (aligned) return launch<VEC>(gate, up, y, n, stream);
    return launch<1>(gate, up, y, n, stream);
}
