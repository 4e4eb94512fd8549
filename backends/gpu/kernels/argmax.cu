// Index of each row's largest element, one block per row. A thread finds its first pack with its
// largest element, the block the first pack of all, by keys of which no two are equal; only there
// is looked for the element.
#include <portkern/portable.h>

#define BLOCK 256  // knob: 128 256 512
#define UNROLL 4  // knob: 1 2 4 8

constexpr int VEC = 16 / sizeof(scalar_t);  // elements per 16-byte access

typedef unsigned long long Key;

template <int V>
struct alignas(V * sizeof(scalar_t)) Pack {
    scalar_t at[V];
};

// -inf
__device__ __forceinline__ scalar_t lowest() { return scalar_t(__int_as_float(0xff800000)); }

// Rises with the value, a NaN above all.
__device__ __forceinline__ unsigned ordered(float value) {
    const unsigned bits = __float_as_uint(value + 0.0f);  // -0 becomes +0
    return value != value ? ~0u : bits >> 31 ? ~bits : bits | 0x80000000u;
}

template <int V>
__global__ __launch_bounds__(BLOCK) void argmax_kernel(const scalar_t* __restrict__ x,
                                                       int64_t* __restrict__ index, int64_t cols) {
    __shared__ Key partial[BLOCK / WARP_SIZE_MIN];
    const Pack<V>* in = reinterpret_cast<const Pack<V>*>(x + blockIdx.x * cols);
    const int64_t packs = cols / V, threads = blockDim.x;
    float best = float(lowest());
    unsigned place = threadIdx.x;  // all may be -inf; past the row it loses to everybody's
    for (int64_t i = threadIdx.x; i < packs; i += threads * UNROLL) {
        Pack<V> values[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
#pragma unroll
            for (int j = 0; j < V; ++j) values[u].at[j] = lowest();
            if (i + u * threads < packs) values[u] = in[i + u * threads];
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            scalar_t most = values[u].at[0];
#pragma unroll
            for (int j = 1; j < V; ++j) most = max_nan(most, values[u].at[j]);
            const float top = float(most);
            if (top > best || (top != top && best == best)) {
                best = top;
                place = i + u * threads;
            }
        }
    }
    Key key = (Key)ordered(best) << 32 | ~place;  // of equal values, the first has the larger key
    for (int d = WARP_SIZE / 2; d > 0; d /= 2) key = max(key, warp_shuffle_xor(key, d));
    if (threadIdx.x % WARP_SIZE == 0) partial[threadIdx.x / WARP_SIZE] = key;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int w = 1; w < threads / WARP_SIZE; ++w) key = max(key, partial[w]);
    place = ~(unsigned)key;
    const Pack<V> values = in[place];
    int first = 0;
#pragma unroll
    for (int j = V - 1; j >= 0; --j)
        if (ordered(float(values.at[j])) == key >> 32) first = j;
    index[blockIdx.x] = (int64_t)place * V + first;
}

template <int V>
int launch(const scalar_t* x, int64_t* index, int64_t rows, int64_t cols, cudaStream_t stream) {
    unsigned threads = WARP_SIZE_MAX;  // short rows would leave most of a large block idle
    while (threads < BLOCK && threads * UNROLL < cols / V) threads *= 2;
    argmax_kernel<V><<<(unsigned)rows, threads, 0, stream>>>(x, index, cols);
    return (int)cudaGetLastError();
}

extern "C" int argmax(const scalar_t* x, int64_t* index, int64_t rows, int64_t cols,
                      cudaStream_t stream) {
    if (rows == 0) return 0;
    if (cols >= (int64_t)1 << 31) return (int)cudaErrorInvalidValue;  // a key's place has 32 bits
    if ((uintptr_t)x % 16 == 0 && cols % VEC == 0) return launch<VEC>(x, index, rows, cols, stream);
    return launch<1>(x, index, rows, cols, stream);
}
