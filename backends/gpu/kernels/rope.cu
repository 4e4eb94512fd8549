// Rotary embedding. A thread keeps its pack of a token's cosines and sines in registers and turns
// the same place of up to HEADS heads with it.
#include <portkern/portable.h>

#define BLOCK 256  // knob: 128 256 512
#define HEADS 4  // knob: 1 2 4

constexpr int VEC = 16 / sizeof(scalar_t);  // elements per 16-byte access

template <class T, int V>
struct alignas(V * sizeof(T) < 16 ? V * sizeof(T) : 16) Pack {
    T at[V];
};

template <int V>
__global__ __launch_bounds__(BLOCK) void rope_kernel(const scalar_t* __restrict__ x,
                                                     const float* __restrict__ cosines,
                                                     const float* __restrict__ sines,
                                                     scalar_t* __restrict__ y, int64_t tokens,
                                                     int64_t heads, int64_t half, int64_t tiles) {
    typedef Pack<scalar_t, V> Values;
    typedef Pack<float, V> Angles;
    const int64_t width = half / V;
    const int64_t groups = (heads + HEADS - 1) / HEADS;  // of heads, a stride of `groups` apart
    const int64_t column = blockIdx.x % tiles * blockDim.x + threadIdx.x;
    const int64_t row = blockIdx.x / tiles * blockDim.y + threadIdx.y;
    const int64_t token = row / groups, group = row % groups;
    if (column >= width || token >= tokens) return;
    const Angles cosine = reinterpret_cast<const Angles*>(cosines)[token * width + column];
    const Angles sine = reinterpret_cast<const Angles*>(sines)[token * width + column];
    const int64_t start = (token * heads + group) * 2 * width + column, step = groups * 2 * width;
    const Values* in = reinterpret_cast<const Values*>(x) + start;
    Values* out = reinterpret_cast<Values*>(y) + start;
    Values first[HEADS], second[HEADS];
#pragma unroll
    for (int h = 0; h < HEADS; ++h) {
        if (group + h * groups >= heads) continue;
        first[h] = in[h * step];
        second[h] = in[h * step + width];
    }
#pragma unroll
    for (int h = 0; h < HEADS; ++h) {
        if (group + h * groups >= heads) continue;
#pragma unroll
        for (int j = 0; j < V; ++j) {
            const float a = float(first[h].at[j]), b = float(second[h].at[j]);
            first[h].at[j] = scalar_t(a * cosine.at[j] - b * sine.at[j]);
            second[h].at[j] = scalar_t(b * cosine.at[j] + a * sine.at[j]);
        }
        out[h * step] = first[h];
        out[h * step + width] = second[h];
    }
}

template <int V>
int launch(const scalar_t* x, const float* cosines, const float* sines, scalar_t* y,
           int64_t tokens, int64_t heads, int64_t half, cudaStream_t stream) {
    const int64_t width = half / V, rows = tokens * ((heads + HEADS - 1) / HEADS);
    unsigned across = 1;  // threads along a head; what a short one leaves takes other heads
    while (across < BLOCK && across < width) across *= 2;
    const dim3 block(across, BLOCK / across);
    const int64_t tiles = (width + across - 1) / across;
    const unsigned blocks = (unsigned)(tiles * ((rows + block.y - 1) / block.y));
    rope_kernel<V><<<blocks, block, 0, stream>>>(x, cosines, sines, y, tokens, heads, half, tiles);
    return (int)cudaGetLastError();
}

extern "C" int rope(const scalar_t* x, const float* cos, const float* sin, scalar_t* y,
                    int64_t tokens, int64_t heads, int64_t half, cudaStream_t stream) {
    if (tokens == 0 || heads == 0 || half == 0) return 0;
    const uintptr_t pointers = (uintptr_t)x | (uintptr_t)cos | (uintptr_t)sin | (uintptr_t)y;
    if (pointers % 16 == 0 && half % VEC == 0)
        return launch<VEC>(x, cos, sin, y, tokens, heads, half, stream);
    return launch<1>(x, cos, sin, y, tokens, heads, half, stream);
}
