// Each element of a matrix with the one of a row that is below it. Of rows of whole packs a thread
// keeps its pack of the row in registers and uses it for several rows of the matrix. Other rows are
// packs of the matrix as it lies, whose elements of the row are in the cache; of few elements a thread
// has one, for then instructions have to arrive first.
#pragma once
#include <portkern/elementwise.h>

// F::of(element of the matrix, element of the row)
template <class F>
__global__ __launch_bounds__(FEW_BLOCK) void row_to_few(const scalar_t* __restrict__ x,
                                                        const scalar_t* __restrict__ row,
                                                        scalar_t* __restrict__ y, unsigned cols,
                                                        unsigned count) {
    const unsigned i = blockIdx.x * FEW_BLOCK + threadIdx.x;
    if (i < count) y[i] = F::of(x[i], row[i % cols]);
}

template <class F>
__global__ __launch_bounds__(SOME_BLOCK) void row_to_packs(const scalar_t* __restrict__ x,
                                                           const scalar_t* __restrict__ row,
                                                           scalar_t* __restrict__ y, unsigned cols,
                                                           unsigned count) {
    const unsigned i = blockIdx.x * SOME_BLOCK + threadIdx.x, packs = count / VEC;
    if (i >= packs) {  // fewer than VEC elements are left, and as many threads
        const unsigned last = packs * VEC + i - packs;
        if (last < count) y[last] = F::of(x[last], row[last % cols]);
        return;
    }
    Pack values = reinterpret_cast<const Pack*>(x)[i];
    unsigned column = i * VEC % cols;
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
        values.at[j] = F::of(values.at[j], row[column]);
        column = column + 1 < cols ? column + 1 : 0;
    }
    reinterpret_cast<Pack*>(y)[i] = values;
}

template <class F, int V, int THREADS, int SHARE>
__global__ __launch_bounds__(THREADS) void row_to_rows(const scalar_t* __restrict__ x,
                                                       const scalar_t* __restrict__ row,
                                                       scalar_t* __restrict__ y, int64_t rows,
                                                       int64_t cols, unsigned tiles) {
    const int64_t width = cols / V;
    const int64_t column = (int64_t)(blockIdx.x % tiles) * blockDim.x + threadIdx.x;
    const int64_t first = (int64_t)(blockIdx.x / tiles) * blockDim.y * SHARE + threadIdx.y;
    if (column >= width) return;
    const Some<V> of_row = reinterpret_cast<const Some<V>*>(row)[column];
    const Some<V>* in = reinterpret_cast<const Some<V>*>(x) + first * width + column;
    Some<V>* out = reinterpret_cast<Some<V>*>(y) + first * width + column;
    const int64_t step = blockDim.y * width;
    Some<V> values[SHARE];
#pragma unroll
    for (int u = 0; u < SHARE; ++u)
        if (first + u * blockDim.y < rows) values[u] = in[u * step];
#pragma unroll
    for (int u = 0; u < SHARE; ++u) {
        if (first + u * blockDim.y >= rows) continue;
#pragma unroll
        for (int j = 0; j < V; ++j) values[u].at[j] = F::of(values[u].at[j], of_row.at[j]);
        out[u * step] = values[u];
    }
}

template <class F, int V, int THREADS, int SHARE>
int launch_rows(const scalar_t* x, const scalar_t* row, scalar_t* y, int64_t rows, int64_t cols,
                cudaStream_t stream) {
    const int64_t width = cols / V;
    unsigned across = 1;  // threads along a row; what a narrow row leaves goes down the columns
    while (across < THREADS && across < width) across *= 2;
    const dim3 block(across, THREADS / across);
    const int64_t tiles = (width + across - 1) / across, tall = (int64_t)block.y * SHARE;
    const unsigned blocks = (unsigned)(tiles * ((rows + tall - 1) / tall));
    row_to_rows<F, V, THREADS, SHARE>
        <<<blocks, block, 0, stream>>>(x, row, y, rows, cols, (unsigned)tiles);
    return (int)cudaGetLastError();
}

// FEW: elements, about as many as a GPU has threads. THREADS and SHARE: of rows of whole packs.
template <class F, int FEW, int THREADS, int SHARE>
int each_with_row(const scalar_t* x, const scalar_t* row, scalar_t* y, int64_t rows, int64_t cols,
                  cudaStream_t stream) {
    const int64_t count = rows * cols;
    if (count == 0) return 0;
    if (count <= FEW) {
        const unsigned blocks = (unsigned)((count + FEW_BLOCK - 1) / FEW_BLOCK);
        row_to_few<F><<<blocks, FEW_BLOCK, 0, stream>>>(x, row, y, (unsigned)cols, (unsigned)count);
        return (int)cudaGetLastError();
    }
    const bool aligned = ((uintptr_t)x | (uintptr_t)y) % 16 == 0;
    if (aligned && (uintptr_t)row % 16 == 0 && cols % VEC == 0)
        return launch_rows<F, VEC, THREADS, SHARE>(x, row, y, rows, cols, stream);
    if (!aligned || count >= (int64_t)1 << 31)
        return launch_rows<F, 1, THREADS, SHARE>(x, row, y, rows, cols, stream);
    const int64_t threads = count / VEC + VEC;  // the last for elements that make no pack
    const unsigned blocks = (unsigned)((threads + SOME_BLOCK - 1) / SOME_BLOCK);
    row_to_packs<F><<<blocks, SOME_BLOCK, 0, stream>>>(x, row, y, (unsigned)cols, (unsigned)count);
    return (int)cudaGetLastError();
}
