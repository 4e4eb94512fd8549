// Inclusive running sum along the last axis, one block per row. A thread sums its 16 bytes, warps
// scan by shuffles, and a carry joins the chunks of BLOCK packs, compensated so that long rows lose
// nothing to it; the next chunk loads meanwhile.
#include <portkern/portable.h>

#define BLOCK 256  // knob: 128 256 512

constexpr int VEC = 16 / sizeof(scalar_t);  // elements per 16-byte access

template <int V>
struct alignas(V * sizeof(scalar_t)) Pack {
    scalar_t at[V];
};

template <int V>
__global__ __launch_bounds__(BLOCK) void cumsum_kernel(const scalar_t* __restrict__ x,
                                                       scalar_t* __restrict__ y, int64_t cols) {
    // Two sets, used in turn: one barrier per chunk keeps writers off what others still read.
    __shared__ float totals[2][BLOCK / WARP_SIZE_MIN];
    const int lane = threadIdx.x % WARP_SIZE, warp = threadIdx.x / WARP_SIZE;
    const int warps = blockDim.x / WARP_SIZE;
    const int64_t packs = cols / V, step = blockDim.x;
    const Pack<V>* in = reinterpret_cast<const Pack<V>*>(x + blockIdx.x * cols);
    Pack<V>* out = reinterpret_cast<Pack<V>*>(y + blockIdx.x * cols);
    float carry = 0.0f, lost = 0.0f;
    int turn = 0;
    Pack<V> next;
    if (threadIdx.x < packs) next = in[threadIdx.x];
    for (int64_t first = 0; first < packs; first += step, turn ^= 1) {
        const int64_t i = first + threadIdx.x;
        Pack<V> values = next;
        if (i + step < packs) next = in[i + step];
        float v[V];
        float mine = 0.0f;
#pragma unroll
        for (int j = 0; j < V; ++j) {
            mine += i < packs ? float(values.at[j]) : 0.0f;
            v[j] = mine;
        }
        float scan = mine;
        for (int d = 1; d < WARP_SIZE; d *= 2) {
            const float below = warp_shuffle_up(scan, d);
            if (lane >= d) scan += below;
        }
        float before = warp_shuffle_up(scan, 1);  // of this warp; scan - mine would round
        if (lane == 0) before = 0.0f;
        if (lane == WARP_SIZE - 1) totals[turn][warp] = scan;
        __syncthreads();
        float chunk = 0.0f;  // its own sum is small, so it keeps digits that the carry would drop
        for (int w = 0; w < warps; ++w) {
            if (w == warp) before += chunk;
            chunk += totals[turn][w];
        }
        if (i < packs) {
#pragma unroll
            for (int j = 0; j < V; ++j) values.at[j] = scalar_t(carry + (lost + (before + v[j])));
            out[i] = values;
        }
        const float add = chunk + lost, sum = carry + add, part = sum - carry;
        lost = (carry - (sum - part)) + (add - part);  // what the rounding of sum has dropped
        if (lost != lost) lost = 0.0f;  // an infinity has nothing to lose
        carry = sum;
    }
}

template <int V>
int launch(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, cudaStream_t stream) {
    unsigned threads = WARP_SIZE_MAX;  // short rows would leave most of a large block idle
    while (threads < BLOCK && threads < cols / V) threads *= 2;
    cumsum_kernel<V><<<(unsigned)rows, threads, 0, stream>>>(x, y, cols);
    return (int)cudaGetLastError();
}

extern "C" int cumsum(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols,
                      cudaStream_t stream) {
    if (rows == 0 || cols == 0) return 0;
    const bool aligned = ((uintptr_t)x | (uintptr_t)y) % 16 == 0 && cols % VEC == 0;
    return aligned ? launch<VEC>(x, y, rows, cols, stream) : launch<1>(x, y, rows, cols, stream);
}
