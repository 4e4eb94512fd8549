// Copies of matrices with rows of another length, and with more or fewer of them: operands whose rows are
// no whole packs, to where they are.
#pragma once
#include <portkern/rows.h>
#if defined(PORTKERN_HOPPER) && !defined(PORTKERN_FLOAT32)
#include <portkern/tile_product.h>
#endif

namespace padded {
constexpr int THREADS = 256;

// One matrix of a batch, as it lies in memory.
struct Shape {
    int64_t rows, columns;
};

// What is in both shapes, of which the result has no fewer rows; the rest becomes zeros. A thread has a
// pack of the result, whatever rows that is of: few rows would have too few threads. `packed`: packs are
// written whole.
__global__ __launch_bounds__(THREADS) void copy_matrices(const scalar_t* __restrict__ from, const Shape of,
                                                         scalar_t* __restrict__ to, const Shape wanted,
                                                         int64_t count, bool packed) {
    const int64_t first = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * VEC;
    if (first >= count) return;
    const int64_t line = first / wanted.columns, matrix = line / wanted.rows;
    int64_t row = line % wanted.rows, column = first % wanted.columns;
    const scalar_t* source = from + (matrix * of.rows + min(row, of.rows)) * of.columns;
    Pack pack;
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
        const bool there = first + j < count && row < of.rows && column < of.columns;
        pack.at[j] = there ? source[column] : scalar_t(0.0f);
        if (++column < wanted.columns) continue;
        column = 0;
        if (++row <= of.rows) source += of.columns;  // after a matrix's last row comes the next one
        if (row == wanted.rows) row = 0;
    }
    if (packed && first + VEC <= count) {
        *reinterpret_cast<Pack*>(to + first) = pack;
        return;
    }
#pragma unroll
    for (int j = 0; j < VEC; ++j)
        if (first + j < count) to[first + j] = pack.at[j];
}

inline void copy(const scalar_t* from, const Shape& of, scalar_t* to, const Shape& wanted, int64_t batch,
                 cudaStream_t stream) {
    const int64_t count = batch * wanted.rows * wanted.columns, packs = (count + VEC - 1) / VEC;
    if (count > 0)
        copy_matrices<<<(unsigned)((packs + THREADS - 1) / THREADS), THREADS, 0, stream>>>(
            from, of, to, wanted, count, (uintptr_t)to % 16 == 0);
}

// The product of A and B by `launch(a, b, c, n, k)`, which gets copies with rows of whole packs; operands
// that are so are not copied, nor is C of a shallow product, which Hopper's tiles of halves store as it is.
template <class Launch>
int product(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t batch, int64_t m, int64_t n, int64_t k,
            cudaStream_t stream, Launch launch) {
    bool direct = false;
#if defined(PORTKERN_HOPPER) && !defined(PORTKERN_FLOAT32)
    direct = n % VEC != 0 && k <= tile::SHALLOW && tile::suits({batch, m, n, k});
#endif
    const int64_t wide = (n + 7) / 8 * 8, deep = (k + 7) / 8 * 8;
    const bool copy_a = deep > k || (uintptr_t)a % 16, copy_b = deep > k || wide > n || (uintptr_t)b % 16;
    const bool copy_c = !direct && (wide > n || (uintptr_t)c % 16);
    Scratch<scalar_t> own_a(copy_a ? batch * m * deep : 0, stream);
    Scratch<scalar_t> own_b(copy_b ? batch * deep * wide : 0, stream);
    Scratch<scalar_t> own_c(copy_c ? batch * m * wide : 0, stream);
    for (const cudaError_t error : {own_a.error, own_b.error, own_c.error})
        if (error) return (int)error;
    if (copy_a) copy(a, {m, k}, own_a.data, {m, deep}, batch, stream);
    if (copy_b) copy(b, {k, n}, own_b.data, {deep, wide}, batch, stream);
    const scalar_t *left = copy_a ? own_a.data : a, *right = copy_b ? own_b.data : b;
#if defined(PORTKERN_HOPPER) && !defined(PORTKERN_FLOAT32)
    if (direct) return tile::launch(left, right, c, {batch, m, wide, deep, nullptr, n}, stream);
#endif
    const int wrong = launch(left, right, own_c.data ? own_c.data : c, wide, deep);
    if (own_c.data) copy(own_c.data, {m, wide}, c, {m, n}, batch, stream);
    return wrong ? wrong : (int)cudaGetLastError();
}
}  // namespace padded
