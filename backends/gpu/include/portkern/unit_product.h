// Products of tiles of two matrices in shared memory: what a quarter of a block's 256 threads multiplies on
// matrix units, and, for tensor cores, how tiles come there while others are multiplied.
#pragma once
#include <portkern/matrix_unit.h>
#include <portkern/shared_depth.h>

template <class T = scalar_t>
struct Matrix {
    const T* at;
    int64_t rows, columns;
};

// A pack of one row, with zeros for what lies outside. ALIGNED: rows are whole packs.
template <bool ALIGNED>
__device__ __forceinline__ Pack load(const Matrix<>& from, int64_t row, int64_t column) {
    const int64_t at = row * from.columns + column;
    if (ALIGNED) {
        uint4 bits = make_uint4(0, 0, 0, 0);  // as one value: clang puts a struct into scratch here
        if (row < from.rows && column < from.columns)
            bits = reinterpret_cast<const uint4*>(from.at)[at / VEC];
        return __builtin_bit_cast(Pack, bits);
    }
    Pack pack;
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
        const bool inside = row < from.rows && column + j < from.columns;
        pack.at[j] = inside ? from.at[at + j] : scalar_t(0.0f);
    }
    return pack;
}

#ifdef MATRIX_UNIT
namespace matrix_unit {

// ROWS x COLUMNS in pieces of 16 x 16: one wave's part, or two warps' with half of the columns each. A lies
// with the depth inside; B for MFMA as well, for tensor cores with the depth outside unless it lies ALONG it.
template <int ROWS, int COLUMNS, bool ALONG = false>
struct Quarter {
    static constexpr int EACH = 256 / LANES;  // of a piece's sums, a lane's
    static constexpr int M = ROWS / 16, N = COLUMNS / 16 * LANES / 64, COUNT = M * N * EACH;
    Sums sums[M][N] = {};

    static __device__ __forceinline__ int own() {  // the first column of the wave
        return LANES == 32 ? threadIdx.x / 32 % 2 * (COLUMNS / 2) : 0;
    }
    // Both point at the quarter's first row and column.
    template <int DEPTH, int PITCH_A, int PITCH_B>
    __device__ __forceinline__ void add(const scalar_t* a, const scalar_t* b) {
#pragma unroll
        for (int d = 0; d < DEPTH; d += 16) {
            Fragment left[M], right[N];
#pragma unroll
            for (int i = 0; i < M; ++i) left[i] = fragment(a + i * 16 * PITCH_A + d, PITCH_A);
#pragma unroll
            for (int j = 0; j < N; ++j)
#ifdef TENSOR_CORES
                right[j] = ALONG ? fragment(b + (own() + j * 16) * PITCH_B + d, PITCH_B)
                                 : fragment_turned(b + d * PITCH_B + own() + j * 16, PITCH_B);
#else
                right[j] = fragment(b + j * 16 * PITCH_B + d, PITCH_B);
#endif
#pragma unroll
            for (int i = 0; i < M; ++i)
#pragma unroll
                for (int j = 0; j < N; ++j) multiply(sums[i][j], left[i], right[j]);
        }
    }
    // Element e of this lane: its value, row and column.
    __device__ __forceinline__ float value(int e) const {
        return sums[e / EACH / N][e / EACH % N][e % EACH];
    }
    __device__ __forceinline__ int row(int e) const {
        return e / EACH / N * 16 + matrix_unit::row(e % EACH);
    }
    __device__ __forceinline__ int column(int e) const {
        return own() + e / EACH % N * 16 + matrix_unit::column(e % EACH);
    }
};

#ifdef TENSOR_CORES
// A block of 256 computes SIDE x SIDE of a product, of the depths from `from` to `to`. Tiles come by
// cp.async, ahead of their use by two, or three of the smaller ones. Where B lies ALONG the depth, its rows are
// the result's columns, which a `bias` is added to, if there is one.
template <int SIDE, bool ALONG = false>
struct Pipeline {
    static constexpr int THREADS = 256, AHEAD = SIDE > 64 ? 3 : 4, DEPTH = 32;
    static constexpr int PITCH_A = DEPTH + 8, PITCH_B = ALONG ? PITCH_A : SIDE + 8;  // against bank conflicts
    static constexpr int STAGE = SIDE * PITCH_A + (ALONG ? SIDE : DEPTH) * PITCH_B;
    static constexpr int bytes = AHEAD * STAGE * sizeof(scalar_t);

    template <bool ALIGNED>
    static __device__ __forceinline__ void copy(scalar_t* to, const Matrix<>& from, int64_t row,
                                                int64_t column) {
        if constexpr (ALIGNED) {
            const bool inside = row < from.rows && column < from.columns;
            copy_async(to, inside ? from.at + row * from.columns + column : from.at, inside);
        } else {
            *reinterpret_cast<Pack*>(to) = load<false>(from, row, column);
        }
    }
    template <bool ALIGNED>
    static __device__ __forceinline__ void multiply(const Matrix<>& a, const Matrix<>& b, const Output& c,
                                                    int64_t row0, int64_t column0, int64_t from,
                                                    int64_t to, const scalar_t* bias = nullptr) {
        extern __shared__ __align__(128) unsigned char shared[];
        scalar_t* tiles = reinterpret_cast<scalar_t*>(shared);
        const int t = threadIdx.x, steps = (int)((to - from + DEPTH - 1) / DEPTH);
        const auto fetch = [&](int step) {
            scalar_t* tile = tiles + step % AHEAD * STAGE;
            const int64_t depth = from + (int64_t)step * DEPTH;
#pragma unroll
            for (int p = t * VEC; step < steps && p < SIDE * DEPTH; p += THREADS * VEC) {
                const int r = p / DEPTH, d = p % DEPTH;
                copy<ALIGNED>(tile + r * PITCH_A + d, a, row0 + r, depth + d);
                if (ALONG) copy<ALIGNED>(tile + SIDE * PITCH_A + r * PITCH_B + d, b, column0 + r, depth + d);
                else copy<ALIGNED>(tile + SIDE * PITCH_A + p / SIDE * PITCH_B + p % SIDE, b, depth + p / SIDE,
                                   column0 + p % SIDE);
            }
            commit_copies();  // an empty group keeps the count right
        };
        const int at_row = t / 128 * (SIDE / 2), at_column = t / 64 % 2 * (SIDE / 2);
        Quarter<SIDE / 2, SIDE / 2, ALONG> product;
#pragma unroll
        for (int s = 0; s < AHEAD - 1; ++s) fetch(s);
        for (int step = 0; step < steps; ++step) {
            wait_copies<AHEAD - 2>();
            __syncthreads();  // this step's tile is whole, and everybody is done with the last one
            fetch(step + AHEAD - 1);
            const scalar_t* tile = tiles + step % AHEAD * STAGE;
            product.template add<DEPTH, PITCH_A, PITCH_B>(
                tile + at_row * PITCH_A, tile + SIDE * PITCH_A + at_column * (ALONG ? PITCH_B : 1));
        }
        const int64_t columns = ALONG ? b.rows : b.columns;
        const bool pairs = ALIGNED && (!ALONG || columns % 2 == 0);
#pragma unroll
        for (int e = 0; e < product.COUNT; e += 2) {
            const int64_t row = row0 + at_row + product.row(e);
            const int64_t column = column0 + at_column + product.column(e);
            if (row >= a.rows || column >= columns) continue;
            const bool both = column + 1 < columns;
            const int64_t at = row * columns + column;
            float first = product.value(e), second = product.value(e + 1);
            if (ALONG && bias) first += float(bias[column]), second += both ? float(bias[column + 1]) : 0.0f;
            if (pairs) {
                c.store_pair(at, first, second);
                continue;
            }
            c.store(at, first);
            if (both) c.store(at + 1, second);
        }
    }
};
#endif

}  // namespace matrix_unit
#endif
