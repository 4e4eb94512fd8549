// Matrix product with weights of int8, scaled by column and accumulated in float32. Weights are
// widened on their way to shared memory; products are FMA or, for halves on CDNA and NVIDIA, of matrix
// units, where a half holds every int8 exactly. A few rows or columns go without tiles. Too few tiles to
// fill a GPU: several blocks share a tile's depth.
#include <portkern/thin_product.h>
#include <portkern/unit_product.h>

#define FEW_TILES 256  // knob: 64 128 256 512

constexpr int THREADS = 256;

// What a block computes. Of a large tile, each quarter of the threads has a quarter; of a small
// one, all of it at a quarter of the depths, so that a product of a few rows, which waits for its
// weights only, has more of them under way.
template <int M, int N, int DEPTH, int SPLIT>
struct Tile {
    static constexpr int rows = M, columns = N, depth = DEPTH;
    static constexpr int own_rows = SPLIT > 1 ? M : M / 2, own_columns = SPLIT > 1 ? N : N / 2;
    static constexpr int own_depth = depth / SPLIT, count = own_rows * own_columns / 64;
};
using Large = Tile<128, 128, 4 * VEC, 1>;
using Middle = Tile<64, 64, 8 * VEC, 1>;
using Small = Tile<16, 32, 128, 4>;
// Of a block's depth, where several share a tile: its least, and what it is a multiple of.
constexpr int LEAST_DEPTH = sizeof(scalar_t) == 4 ? 256 : 512, STEP = 128;
#ifdef TENSOR_CORES
constexpr int FILLING = FEW_TILES / 2;  // tiles
#else
constexpr int FILLING = FEW_TILES;
#endif

#ifdef PORTKERN_FLOAT32
typedef uint32_t Bytes;  // VEC weights
#else
typedef uint64_t Bytes;
#endif

// VEC elements of one row, with zeros for what lies outside. ALIGNED: rows are whole packs.
template <bool ALIGNED>
__device__ __forceinline__ Bytes load(const Matrix<int8_t>& from, int64_t row, int64_t column) {
    const int64_t at = row * from.columns + column;
    Bytes bytes = 0;
    if (row >= from.rows || column >= from.columns) return bytes;
    if (ALIGNED) return reinterpret_cast<const Bytes*>(from.at)[at / VEC];
#pragma unroll
    for (int j = 0; j < VEC; ++j)
        if (column + j < from.columns) bytes |= (Bytes)(uint8_t)from.at[at + j] << j * 8;
    return bytes;
}

#ifdef MATRIX_UNIT
// Tiles lie with the depth inside, B's for tensor cores with the depth outside; all are padded by 16 bytes
// against bank conflicts.
template <class T>
struct Product : matrix_unit::Quarter<T::own_rows, T::own_columns> {
    typedef scalar_t Staged;
    static constexpr int pitch = T::depth + 8, a = T::rows * pitch;

    static __device__ void stage_a(Staged* tile, int row, int depth, const Pack& pack) {
        *reinterpret_cast<Pack*>(tile + row * pitch + depth) = pack;
    }
#ifdef TENSOR_CORES
    static constexpr int pitch_b = T::columns + 8, b = T::depth * pitch_b;

    static __device__ void stage_b(Staged* tile, int depth, int column, Bytes bytes) {
        Pack pack;
#pragma unroll
        for (int j = 0; j < VEC; ++j) pack.at[j] = scalar_t(float(int8_t(bytes >> j * 8)));
        *reinterpret_cast<Pack*>(tile + depth * pitch_b + column) = pack;
    }
    static __device__ int b_depth(int p) { return p * VEC / T::columns; }
    static __device__ int b_column(int p) { return p * VEC % T::columns; }
    static __device__ int place_b(int depth, int column) { return depth * pitch_b + column; }
#else
    static constexpr int pitch_b = pitch, b = T::columns * pitch;

    static __device__ void stage_b(Staged* tile, int depth, int column, Bytes bytes) {
#pragma unroll
        for (int j = 0; j < VEC; ++j)
            tile[(column + j) * pitch + depth] = scalar_t(float(int8_t(bytes >> j * 8)));
    }
    // Pack p of B: neighbouring lanes write neighbouring depths, which lie in different banks.
    static __device__ int b_depth(int p) { return p % T::depth; }
    static __device__ int b_column(int p) { return p / T::depth * VEC; }
    static __device__ int place_b(int depth, int column) { return column * pitch + depth; }
#endif
    __device__ void add(const Staged* tile_a, const Staged* tile_b, int row, int column, int depth) {
        matrix_unit::Quarter<T::own_rows, T::own_columns>::template add<T::own_depth, pitch, pitch_b>(
            tile_a + row * pitch + depth, tile_b + place_b(depth, column));
    }
};

#else

// The part of 8 x 8 threads: each has M x N elements, in groups of neighbouring rows and columns.
// Both tiles lie with the depth outside.
template <class T>
struct Product {
    static constexpr int M = T::own_rows / 8, N = T::own_columns / 8, GROUP = M < 4 ? M : 4;
    static constexpr int pitch_a = T::rows + 4, pitch_b = T::columns;
    static constexpr int a = T::depth * pitch_a, b = T::depth * pitch_b;
    typedef float Staged;
    float sums[M][N] = {};

    static __device__ void stage_a(Staged* tile, int row, int depth, const Pack& pack) {
#pragma unroll
        for (int j = 0; j < VEC; ++j) tile[(depth + j) * pitch_a + row] = float(pack.at[j]);
    }
    static __device__ void stage_b(Staged* tile, int depth, int column, Bytes bytes) {
#pragma unroll
        for (int j = 0; j < VEC; ++j)
            tile[depth * pitch_b + column + j] = float(int8_t(bytes >> j * 8));
    }
    static __device__ int b_depth(int p) { return p * VEC / T::columns; }
    static __device__ int b_column(int p) { return p * VEC % T::columns; }
    __device__ void add(const Staged* tile_a, const Staged* tile_b, int at_row, int at_column,
                        int depth) {
#pragma unroll 2  // all of them at once would take twice the registers
        for (int d = depth; d < depth + T::own_depth; ++d) {
            float left[M], right[N];
#pragma unroll
            for (int i = 0; i < M; ++i) left[i] = tile_a[d * pitch_a + at_row + row(i * N)];
#pragma unroll
            for (int j = 0; j < N; ++j) right[j] = tile_b[d * pitch_b + at_column + column(j)];
#pragma unroll
            for (int i = 0; i < M; ++i)
#pragma unroll
                for (int j = 0; j < N; ++j) sums[i][j] = fmaf(left[i], right[j], sums[i][j]);
        }
    }
    // Element e of this thread: its value, row and column.
    __device__ float value(int e) const { return sums[e / N][e % N]; }
    __device__ int row(int e) const {
        return e / N / GROUP * 8 * GROUP + threadIdx.x % 64 / 8 * GROUP + e / N % GROUP;
    }
    __device__ int column(int e) const { return e % N / 4 * 32 + threadIdx.x % 8 * 4 + e % 4; }
};

#endif

// Blocks of a multiprocessor that registers are to be kept for.
template <class T, bool ALIGNED>
constexpr int RESIDENT = sizeof(scalar_t) == 4 ? 0 : ALIGNED || T::rows < Large::rows ? 2 : 1;

// Of the depth, `each` is a block's. Several that share a tile leave it unscaled.
template <class T, bool ALIGNED>
__global__ PORTABLE_LAUNCH_BOUNDS(THREADS, (RESIDENT<T, ALIGNED>)) void int8_matmul_kernel(
    Matrix<> a, Matrix<int8_t> weight, const scalar_t* __restrict__ scale, const Output every,
    int64_t across, int64_t tiles, int64_t each) {
    using Part = Product<T>;
    constexpr bool SPLIT = T::own_depth < T::depth;
    constexpr int SHARE_B = T::columns * T::depth / VEC / THREADS;  // packs per thread and step
    constexpr int SHARE_A = (T::rows * T::depth / VEC + THREADS - 1) / THREADS;
    __shared__ alignas(16) typename Part::Staged tile_a[Part::a], tile_b[Part::b];
    __shared__ float others[SPLIT ? THREADS * T::count : 1];
    const int64_t tile = blockIdx.x % tiles, split = blockIdx.x / tiles;
    const int64_t row0 = tile / across * T::rows, column0 = tile % across * T::columns;
    const int64_t from = split * each, to = a.columns - from < each ? a.columns : from + each;
    const Output c = every.from(split, 0);
    const int t = threadIdx.x, quarter = t / 64;
    const int at_row = SPLIT ? 0 : quarter / 2 * T::own_rows;
    const int at_column = SPLIT ? 0 : quarter % 2 * T::own_columns;
    Pack next_a[SHARE_A];
    Bytes next_b[SHARE_B];
    const auto fetch = [&](int64_t depth) {
#pragma unroll
        for (int i = 0; i < SHARE_A; ++i) {
            const int p = (i * THREADS + t) * VEC;
            next_a[i] = load<ALIGNED>(a, row0 + p / T::depth, depth + p % T::depth);
        }
#pragma unroll
        for (int i = 0; i < SHARE_B; ++i) {
            const int p = i * THREADS + t;
            const int d = Part::b_depth(p), q = Part::b_column(p);
            next_b[i] = load<ALIGNED>(weight, depth + d, column0 + q);
        }
    };
    Part product;
    fetch(from);
    for (int64_t depth = from; depth < to; depth += T::depth) {
#pragma unroll
        for (int i = 0; i < SHARE_A; ++i) {
            const int p = (i * THREADS + t) * VEC, row = p / T::depth;
            if (row < T::rows) Part::stage_a(tile_a, row, p % T::depth, next_a[i]);
        }
#pragma unroll
        for (int i = 0; i < SHARE_B; ++i) {
            const int p = i * THREADS + t;
            Part::stage_b(tile_b, Part::b_depth(p), Part::b_column(p), next_b[i]);
        }
        __syncthreads();
        if (depth + T::depth < to) fetch(depth + T::depth);
        product.add(tile_a, tile_b, at_row, at_column, SPLIT ? quarter * T::own_depth : 0);
        __syncthreads();
    }
    if (SPLIT) {
#pragma unroll
        for (int e = 0; e < T::count; ++e) others[e * THREADS + t] = product.value(e);
        __syncthreads();
        if (quarter > 0) return;
    }
#pragma unroll
    for (int e = 0; e < T::count; ++e) {
        float sum = product.value(e);
        for (int q = 1; SPLIT && q < 4; ++q) sum += others[e * THREADS + q * 64 + t];
        const int64_t row = row0 + at_row + product.row(e);
        const int64_t column = column0 + at_column + product.column(e);
        if (row < a.rows && column < weight.columns)
            c.store(row * weight.columns + column, c.parts ? sum : sum * float(scale[column]));
    }
}

template <class T, bool ALIGNED>
int launch(const scalar_t* a, const int8_t* weight, const scalar_t* scale, scalar_t* c, int64_t m,
           int64_t n, int64_t k, hipStream_t stream) {
    const int64_t across = (n + T::columns - 1) / T::columns, down = (m + T::rows - 1) / T::rows;
    const Depths depths(across * down, k, STEP, 2 * FILLING, LEAST_DEPTH);
    // Too few blocks to fill a GPU, or rows to fill a tile: smaller ones.
    const bool few = across * down * depths.splits < FILLING || 2 * m <= T::rows;
    if constexpr (T::rows == Large::rows)
        if (few) return launch<Middle, ALIGNED>(a, weight, scale, c, m, n, k, stream);
    if constexpr (T::rows == Middle::rows)
        if (few) return launch<Small, ALIGNED>(a, weight, scale, c, m, n, k, stream);
    const Matrix<> left = {a, m, k};
    const Matrix<int8_t> right = {weight, k, n};
    return share_depth(
        depths.splits, c, m * n, stream,
        [&](const Output& to) {
            int8_matmul_kernel<T, ALIGNED><<<(unsigned)(across * down * depths.splits), THREADS, 0, stream>>>(
                left, right, scale, to, across, across * down, depths.each);
        },
        scale, n);
}

extern "C" int int8_matmul(const scalar_t* a, const int8_t* weight, const scalar_t* scale,
                           scalar_t* c, int64_t m, int64_t n, int64_t k, hipStream_t stream) {
    if (m == 0 || n == 0) return 0;
    if (thin::is_thin(m, n, k))
        return thin::launch<int8_t>({a, weight, c, 1, m, n, k, scale}, stream);
    const bool pointers = (uintptr_t)a % 16 == 0 && (uintptr_t)weight % sizeof(Bytes) == 0;
    const bool aligned = pointers && n % VEC == 0 && k % VEC == 0;
    return aligned ? launch<Large, true>(a, weight, scale, c, m, n, k, stream)
                   : launch<Large, false>(a, weight, scale, c, m, n, k, stream);
}
