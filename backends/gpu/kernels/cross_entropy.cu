// Cross-entropy of each row of logits, one block per row, the row read once: a thread keeps the
// maximum of what it has seen and the sum of exponentials relative to it, and the block joins them.
#include <portkern/portable.h>

#define BLOCK 512  // knob: 256 512 1024
#define UNROLL 4  // knob: 2 4

constexpr int VEC = 16 / sizeof(scalar_t);  // elements per 16-byte access

template <int V>
struct alignas(V * sizeof(scalar_t)) Pack {
    scalar_t at[V];
};

constexpr float LOWEST = -3.402823466e38f;  // finite: a maximum of -inf would make inf - inf

// The exponential of a difference, which is small where it matters, so the product is near enough.
__device__ __forceinline__ float power(float difference) {
#if PORTKERN_HIP
    return exp2f(difference * 1.44269504088896341f);
#else  // exp2f is this instruction and three for results below 2^-126, which add nothing here
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(difference * 1.44269504088896341f));
    return result;
#endif
}

// x: the maximum, y: the sum of powers relative to it
__device__ __forceinline__ float2 joined(float2 a, float2 b) {
    const float top = fmaxf(a.x, b.x);
    return make_float2(top, a.y * power(a.x - top) + b.y * power(b.x - top));
}

template <int V>
__global__ __launch_bounds__(BLOCK) void cross_entropy_kernel(const scalar_t* __restrict__ logits,
                                                              const int64_t* __restrict__ target,
                                                              scalar_t* __restrict__ loss,
                                                              int64_t classes) {
    __shared__ float2 partial[BLOCK / WARP_SIZE_MIN];
    const scalar_t* row = logits + blockIdx.x * classes;
    const Pack<V>* in = reinterpret_cast<const Pack<V>*>(row);
    const int64_t packs = classes / V, threads = blockDim.x;
    float chosen = 0.0f;
    if (threadIdx.x == 0) chosen = float(row[target[blockIdx.x]]);
    float2 seen = make_float2(LOWEST, 0.0f);
    for (int64_t i = threadIdx.x; i < packs; i += threads * UNROLL) {
        Pack<V> values[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
#pragma unroll
            for (int j = 0; j < V; ++j) values[u].at[j] = scalar_t(__int_as_float(0xff800000));
            if (i + u * threads < packs) values[u] = in[i + u * threads];  // else -inf adds nothing
        }
        float top = seen.x, total = 0.0f;
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
#pragma unroll
            for (int j = 0; j < V; ++j) top = fmaxf(top, float(values[u].at[j]));
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
#pragma unroll
            for (int j = 0; j < V; ++j) total += power(float(values[u].at[j]) - top);
        seen = make_float2(top, seen.y * power(seen.x - top) + total);
    }
    for (int d = WARP_SIZE / 2; d > 0; d /= 2)
        seen = joined(seen, make_float2(warp_shuffle_xor(seen.x, d), warp_shuffle_xor(seen.y, d)));
    if (threadIdx.x % WARP_SIZE == 0) partial[threadIdx.x / WARP_SIZE] = seen;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int w = 1; w < blockDim.x / WARP_SIZE; ++w) seen = joined(seen, partial[w]);
    loss[blockIdx.x] = scalar_t(logf(seen.y) - (chosen - seen.x));
}

template <int V>
int launch(const scalar_t* logits, const int64_t* target, scalar_t* loss, int64_t rows,
           int64_t classes, cudaStream_t stream) {
    unsigned threads = WARP_SIZE_MAX;  // short rows would leave most of a large block idle
    while (threads < BLOCK && threads * UNROLL < classes / V) threads *= 2;
    cross_entropy_kernel<V><<<(unsigned)rows, threads, 0, stream>>>(logits, target, loss, classes);
    return (int)cudaGetLastError();
}

extern "C" int cross_entropy(const scalar_t* logits, const int64_t* target, scalar_t* loss,
                             int64_t rows, int64_t classes, cudaStream_t stream) {
    if (rows == 0) return 0;
    if ((uintptr_t)logits % 16 == 0 && classes % VEC == 0)
        return launch<VEC>(logits, target, loss, rows, classes, stream);
    return launch<1>(logits, target, loss, rows, classes, stream);
}
