// A tensor copied as it lies, 16 bytes at a time.
#pragma once
#include <portkern/rows.h>

constexpr int COPY = 256, AT_ONCE = 4;  // threads, and accesses that each has on its way

template <int V>
__global__ __launch_bounds__(COPY) void copy_kernel(const scalar_t* __restrict__ x,
                                                    scalar_t* __restrict__ y, int64_t count) {
    let_next_begin();
    const int64_t packs = count / V, first = (int64_t)blockIdx.x * COPY * AT_ONCE + threadIdx.x;
    Some<V> values[AT_ONCE];
    if (packs > 0) {
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u)  // without conditions, so that all are on their way together
            values[u] = reinterpret_cast<const Some<V>*>(x)[min(first + u * COPY, packs - 1)];
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u)
            if (first + u * COPY < packs) reinterpret_cast<Some<V>*>(y)[first + u * COPY] = values[u];
    }
    const int64_t rest = packs * V + threadIdx.x;  // of which there are less than V
    if (blockIdx.x == 0 && rest < count) y[rest] = x[rest];
}

inline int copy(const scalar_t* x, scalar_t* y, int64_t count, cudaStream_t stream) {
    const bool packed = ((uintptr_t)x | (uintptr_t)y) % 16 == 0;
    const int64_t accesses = packed ? count / VEC : count, share = COPY * AT_ONCE;
    const unsigned blocks = (unsigned)(accesses / share + 1);
    (packed ? copy_kernel<VEC> : copy_kernel<1>)<<<blocks, COPY, 0, stream>>>(x, y, count);
    return (int)cudaGetLastError();
}
