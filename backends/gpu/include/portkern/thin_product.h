// Matrix products of a few rows or columns, or of little depth, alone or in a batch: every element of
// the large operand is read once, in packs, and used for all of them. Where that makes too few blocks,
// several share a sum. Accumulated in float32. B may have elements of its own type, and its columns a
// scale each.
#pragma once
#include <portkern/rows.h>

namespace thin {

// More rows than these are worth a tile of the matrix units, or of registers.
constexpr int MOST_ROWS = sizeof(scalar_t) == 2 ? 4 : 8, MOST_COLUMNS = 4, MOST_DEPTH = 4;
constexpr int THREADS = 256, FILLING = 512;

template <class T>
struct Product {
    const scalar_t* a;
    const T* b;
    scalar_t* c;
    int64_t batch, m, n, k;
    const scalar_t* scale = nullptr;  // of each column

    __device__ __forceinline__ scalar_t scaled(float sum, int64_t column) const {
        return scalar_t(scale ? sum * float(scale[column]) : sum);
    }
};

// What several blocks summed of the elements of C, side by side.
__global__ __launch_bounds__(THREADS) void add_parts(const float* __restrict__ parts, scalar_t* c,
                                                     int64_t count, int64_t splits,
                                                     const scalar_t* __restrict__ scale, int64_t n) {
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    float total = 0.0f;
#pragma unroll 8
    for (int64_t s = 0; s < splits; ++s) total += parts[s * count + i];
    c[i] = scalar_t(scale ? total * float(scale[i % n]) : total);
}

inline void launch_add(const float* parts, scalar_t* c, int64_t count, int64_t splits,
                       cudaStream_t stream, const scalar_t* scale = nullptr, int64_t n = 1) {
    add_parts<<<(unsigned)((count + THREADS - 1) / THREADS), THREADS, 0, stream>>>(parts, c, count, splits,
                                                                               scale, n);
}

// ---- Few rows: threads have columns of B, and meet with those that have other rows of it.

// Of `ROWS` rows of B from `row` on, which are all there: loads without conditions.
template <int ROWS, int M, int V, class T>
__device__ __forceinline__ void add_rows(float (&total)[M][V], const Product<T>& all,
                                         const scalar_t* a, const Some<V, T>* b, int64_t width,
                                         int64_t row) {
    Some<V, T> values[ROWS];
#pragma unroll
    for (int u = 0; u < ROWS; ++u) values[u] = b[(row + u) * width];
#pragma unroll
    for (int i = 0; i < M; ++i) {
        if (i >= all.m) continue;
#pragma unroll
        for (int u = 0; u < ROWS; ++u) {
            const float left = float(a[i * all.k + row + u]);
#pragma unroll
            for (int j = 0; j < V; ++j) total[i][j] = fmaf(left, float(values[u].at[j]), total[i][j]);
        }
    }
}

// Neighbouring rows of B, of which a thread takes all: 64 bytes on their way, or 16 accesses.
template <int V, class T>
struct Deep {
    static constexpr int bytes = V * sizeof(T), rows = bytes >= 16 ? 4 : bytes >= 4 ? 8 : 16;
};

// Bounded by its threads alone, a kernel would get too few registers; so would the others.
template <int M, int V, class T>
__global__ PORTABLE_LAUNCH_BOUNDS(THREADS, 2) void few_rows(const Product<T> all, float* parts,
                                                            unsigned tiles, unsigned splits) {
    constexpr int DEEP = Deep<V, T>::rows;
    __shared__ float sums[M][THREADS * V];
    const int wide = blockDim.x, tall = blockDim.y, x = threadIdx.x, y = threadIdx.y;
    const int64_t batch = blockIdx.x / (tiles * splits), split = blockIdx.x / tiles % splits;
    const int64_t width = all.n / V, column = blockIdx.x % tiles * wide + x;
    const Part part((all.k + DEEP - 1) / DEEP, splits, split);
    const scalar_t* a = all.a + batch * all.m * all.k;
    const auto* b = reinterpret_cast<const Some<V, T>*>(all.b + batch * all.k * all.n) + column;
    float total[M][V] = {};
    for (int64_t group = part.first + y; column < width && group < part.last; group += tall) {
        const int64_t row = group * DEEP;
        if (row + DEEP <= all.k) add_rows<DEEP>(total, all, a, b, width, row);
        else
            for (int64_t one = row; one < all.k; ++one) add_rows<1>(total, all, a, b, width, one);
    }
#pragma unroll
    for (int i = 0; i < M; ++i)
#pragma unroll
        for (int j = 0; j < V; ++j) sums[i][(y * wide + x) * V + j] = total[i][j];
    __syncthreads();
    // Now a thread has an element of C, whoever summed it.
    const int columns = wide * V;
    for (int own = y * wide + x; own < all.m * columns; own += THREADS) {
        const int64_t i = own / columns, at = blockIdx.x % tiles * columns + own % columns;
        if (at >= all.n) continue;
        float one = 0.0f;
        for (int r = 0; r < tall; ++r) one += sums[i][r * columns + own % columns];
        const int64_t place = (batch * all.m + i) * all.n + at;
        if (parts) parts[split * all.batch * all.m * all.n + place] = one;
        else all.c[place] = all.scaled(one, at);
    }
}

template <int M, int V, class T>
int launch_rows(const Product<T>& all, cudaStream_t stream) {
    if constexpr (M < MOST_ROWS)
        if (all.m > M) return launch_rows<2 * M, V>(all, stream);
    int wide = 32;  // fewer where there are fewer columns: the others take rows instead
    while (wide > 1 && wide / 2 * V >= all.n) wide /= 2;
    const int64_t tiles = (all.n / V + wide - 1) / wide, count = all.batch * all.m * all.n;
    const int64_t splits = splits_for(all.batch * tiles, all.k, FILLING, 2 * THREADS / wide * Deep<V, T>::rows);
    Scratch<float> parts(splits > 1 ? splits * count : 0, stream);
    if (parts.error) return (int)parts.error;
    const dim3 block(wide, THREADS / wide);
    few_rows<M, V><<<(unsigned)(all.batch * tiles * splits), block, 0, stream>>>(all, parts.data, tiles, splits);
    if (parts.data) launch_add(parts.data, all.c, count, splits, stream, all.scale, all.n);
    return (int)cudaGetLastError();
}

// ---- Few columns: lanes go along rows of A.

template <int N, class R, class T>
__global__ PORTABLE_LAUNCH_BOUNDS(THREADS, 2) void few_columns(const Product<T> all, float* parts,
                                                               int lanes, unsigned splits) {
    const int64_t rows = all.batch * all.m, group = ((int64_t)blockIdx.x * THREADS + threadIdx.x) / lanes;
    const int lane = threadIdx.x % lanes;
    const int64_t row = group / splits < rows ? group / splits : rows - 1, split = group % splits;
    const R a(all.a, row, all.k);
    const Part part(a.packs, splits, split);
    const T* b = all.b + row / all.m * all.k * all.n;
    float total[N] = {};
    each_pack<2>(a, part, lane, lanes, scalar_t(0.0f), [&](const auto& values, int64_t i) {
        for (const Pack& left : values) {
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                const bool own = a.has(i, j);  // else 0, whatever stands beside the row
                const T* right = b + (own ? a.column(i, j) : 0) * all.n;
#pragma unroll
                for (int e = 0; e < N; ++e) {
                    if (e >= all.n) continue;
                    const float factor = own ? float(right[e]) : 0.0f;
                    total[e] = fmaf(float(left.at[j]), factor, total[e]);
                }
            }
            i += lanes;
        }
    });
    for (int d = lanes / 2; d > 0; d /= 2)
#pragma unroll
        for (int e = 0; e < N; ++e) total[e] += warp_shuffle_xor(total[e], d);
#pragma unroll
    for (int e = 0; e < N; ++e) {
        if (lane > 0 || group >= rows * splits || e >= all.n) continue;
        const int64_t place = row * all.n + e;
        if (parts) parts[split * rows * all.n + place] = total[e];
        else all.c[place] = all.scaled(total[e], e);
    }
}

template <int N, class R, class T>
int launch_columns(const Product<T>& all, cudaStream_t stream) {
    if constexpr (N < MOST_COLUMNS)
        if (all.n > N) return launch_columns<2 * N, R>(all, stream);
    const int64_t packs = R::most(all.k), rows = all.batch * all.m;
    const int lanes = lanes_for(packs, 2);
    const int64_t splits = splits_for((rows * lanes + THREADS - 1) / THREADS, packs, FILLING, 4 * 32);
    const int64_t blocks = (rows * splits * lanes + THREADS - 1) / THREADS;
    Scratch<float> parts(splits > 1 ? splits * rows * all.n : 0, stream);
    if (parts.error) return (int)parts.error;
    few_columns<N, R><<<(unsigned)blocks, THREADS, 0, stream>>>(all, parts.data, lanes, splits);
    if (parts.data) launch_add(parts.data, all.c, rows * all.n, splits, stream, all.scale, all.n);
    return (int)cudaGetLastError();
}

// ---- Little depth: what is written counts, and a thread has a pack of C, whatever rows that is of.

template <int K, class T>
__global__ PORTABLE_LAUNCH_BOUNDS(THREADS, 2) void shallow(const Product<T> all, bool packed) {
    const int64_t count = all.batch * all.m * all.n;
    const int64_t first = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * VEC;
    if (first >= count) return;
    const int64_t row = first / all.n;
    int64_t column = first % all.n, within = row % all.m;
    const scalar_t* a = all.a + row * all.k;
    const T* b = all.b + row / all.m * all.k * all.n;
    Pack results;
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
        float total = 0.0f;
        if (first + j < count)
#pragma unroll
            for (int u = 0; u < K; ++u)
                if (u < all.k) total = fmaf(float(a[u]), float(b[u * all.n + column]), total);
        results.at[j] = first + j < count ? all.scaled(total, column) : scalar_t(0.0f);
        if (++column < all.n) continue;
        column = 0;
        a += all.k;
        if (++within < all.m) continue;
        within = 0;
        b += all.k * all.n;
    }
    if (packed && first + VEC <= count) {
        *reinterpret_cast<Pack*>(all.c + first) = results;
        return;
    }
#pragma unroll
    for (int j = 0; j < VEC; ++j)
        if (first + j < count) all.c[first + j] = results.at[j];
}

template <int K, class T>
int launch_shallow(const Product<T>& all, cudaStream_t stream) {
    if constexpr (K < MOST_DEPTH)
        if (all.k > K) return launch_shallow<2 * K>(all, stream);
    const int64_t packs = (all.batch * all.m * all.n + VEC - 1) / VEC;
    shallow<K><<<(unsigned)((packs + THREADS - 1) / THREADS), THREADS, 0, stream>>>(
        all, (uintptr_t)all.c % 16 == 0);
    return (int)cudaGetLastError();
}

inline bool is_thin(int64_t m, int64_t n, int64_t k) {
    return m <= MOST_ROWS || n <= MOST_COLUMNS || k <= MOST_DEPTH;
}

template <class T>
int launch(const Product<T>& all, cudaStream_t stream) {
    constexpr int WIDE = sizeof(T) == 1 ? 4 : VEC;  // sums of a thread, of each row
    if (all.k <= MOST_DEPTH) return launch_shallow<1>(all, stream);
    if (all.n <= MOST_COLUMNS && (all.m > MOST_ROWS || all.n < all.m))
        return are_whole((uintptr_t)all.a, all.k) ? launch_columns<1, Whole>(all, stream)
                                                  : launch_columns<1, Ragged>(all, stream);
    const bool packed = (uintptr_t)all.b % (WIDE * sizeof(T)) == 0 && all.n % WIDE == 0;
    return packed ? launch_rows<1, WIDE>(all, stream) : launch_rows<1, 1>(all, stream);
}

}  // namespace thin
