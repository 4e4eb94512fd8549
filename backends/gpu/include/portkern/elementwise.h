// Each element of the result from the same one of one or two tensors. Many elements: 16 bytes at a
// time, several accesses of a thread on their way. Some: one access, so that there are more threads.
// Few: one element, because then a cold kernel takes as long as its instructions take to arrive.
#pragma once
#include <portkern/packs.h>

constexpr int64_t SOME = 1 << 19;                 // accesses of 16 bytes
constexpr int FEW_BLOCK = 256, SOME_BLOCK = 128;  // threads

// F::of(a) or F::of(a, b): the element; F::INPUTS: of how many tensors.
template <class F>
__device__ __forceinline__ scalar_t element_of(scalar_t a, scalar_t b) {
    if constexpr (F::INPUTS == 1) return F::of(a);
    else return F::of(a, b);
}

template <class F>
__global__ __launch_bounds__(FEW_BLOCK) void each_of_few(const scalar_t* __restrict__ a,
                                                         const scalar_t* __restrict__ b,
                                                         scalar_t* __restrict__ y, int n) {
    const int i = blockIdx.x * FEW_BLOCK + threadIdx.x;
    if (i < n) y[i] = element_of<F>(a[i], F::INPUTS > 1 ? b[i] : a[i]);
}

// A block owns THREADS * SHARE packs, so that a thread has SHARE loads of each tensor in flight.
template <class F, int V, int THREADS, int SHARE>
__global__ __launch_bounds__(THREADS) void each_of_many(const scalar_t* __restrict__ a,
                                                        const scalar_t* __restrict__ b,
                                                        scalar_t* __restrict__ y, int64_t n) {
    const int64_t packs = n / V, first = (int64_t)blockIdx.x * THREADS * SHARE + threadIdx.x;
    Some<V> left[SHARE], right[SHARE];
#pragma unroll
    for (int u = 0; u < SHARE; ++u) {
        const int64_t i = first + u * THREADS;
        if (i >= packs) continue;
        left[u] = reinterpret_cast<const Some<V>*>(a)[i];
        if (F::INPUTS > 1) right[u] = reinterpret_cast<const Some<V>*>(b)[i];
    }
#pragma unroll
    for (int u = 0; u < SHARE; ++u) {
        const int64_t i = first + u * THREADS;
        if (i >= packs) continue;
#pragma unroll
        for (int j = 0; j < V; ++j)
            left[u].at[j] = element_of<F>(left[u].at[j], F::INPUTS > 1 ? right[u].at[j] : left[u].at[j]);
        reinterpret_cast<Some<V>*>(y)[i] = left[u];
    }
    const int64_t tail = packs * V + first;  // fewer than V elements: the first threads take them
    if (tail < n) y[tail] = element_of<F>(a[tail], F::INPUTS > 1 ? b[tail] : a[tail]);
}

template <class F, int V, int THREADS, int SHARE>
int launch_many(const scalar_t* a, const scalar_t* b, scalar_t* y, int64_t n, cudaStream_t stream) {
    constexpr int64_t share = (int64_t)THREADS * SHARE;
    const unsigned blocks = (unsigned)((n / V + share - 1) / share);
    each_of_many<F, V, THREADS, SHARE><<<blocks, THREADS, 0, stream>>>(a, b, y, n);
    return (int)cudaGetLastError();
}

// FEW: elements, about as many as a GPU has threads. THREADS and SHARE: of many elements. `b` is `a`
// where there is one tensor.
template <class F, int FEW, int THREADS, int SHARE>
int each(const scalar_t* a, const scalar_t* b, scalar_t* y, int64_t n, cudaStream_t stream) {
    if (n == 0) return 0;
    if (n <= FEW) {
        const unsigned blocks = (unsigned)((n + FEW_BLOCK - 1) / FEW_BLOCK);
        each_of_few<F><<<blocks, FEW_BLOCK, 0, stream>>>(a, b, y, (int)n);
        return (int)cudaGetLastError();
    }
    if (((uintptr_t)a | (uintptr_t)b | (uintptr_t)y) % 16)
        return launch_many<F, 1, THREADS, SHARE>(a, b, y, n, stream);
    if (n / VEC <= SOME) return launch_many<F, VEC, SOME_BLOCK, 1>(a, b, y, n, stream);
    return launch_many<F, VEC, THREADS, SHARE>(a, b, y, n, stream);
}
