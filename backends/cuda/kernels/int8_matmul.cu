// Matrix product with weights of int8, scaled by column. Both come through a ring of cp.async; a
// thread widens the weights that it copied itself, and warps multiply by FMA in strict float32 or,
// for halves, on tensor cores (mma.sync), which hold every int8 exactly. Of too few small tiles several
// blocks share the depth of each. A few rows or columns go without tiles. Where rows are no whole packs, a long product has them copied to where they are.
// On Hopper, of many rows and columns, all weights are widened first, once instead of for each tile, and
// the product is one of halves by wgmma, or of float32 by three of halves, as matmul's is.
#define FEW_TILES 128  // knob: 64 128 256
#define SHARE_FROM 12  // knob: 8 12 16
#define SMALL_BELOW 64  // knob: 32 64 128
#define STAGES 4  // knob: 3 4 5
#define PAD_FROM 67108864  // knob: 0 16777216 67108864
#define WIDEN_FROM 128  // knob: 64 128 256 512
#define HALVE_FROM 50  // knob: 50 100 200 400
#define WIDE_FROM 96  // knob: 48 96 192
#define PIPELINE 4  // knob: 2 3 4
#define BAND 8  // knob: 4 8 16
#include <portkern/odd_rows.h>
#include <portkern/tensor_cores.h>
#include <portkern/thin_product.h>
#ifdef PORTKERN_HOPPER
#ifdef PORTKERN_FLOAT32
#include <portkern/split_product.h>
#else
#include <portkern/tile_product.h>
#include <portkern/wide_product.h>
#endif
#endif

constexpr int THREADS = 256, WARPS = THREADS / 32;

// What a block computes. Many warps share the depth of a small tile, so that a product of a few
// rows, which waits for its weights only, has enough of them under way.
template <int M, int N, int SPLIT>
struct Tile {
    static constexpr int rows = M, columns = N, depth = SPLIT > 1 ? 16 * SPLIT : 4 * VEC;
    static constexpr int share = depth / SPLIT;  // of each warp
    static constexpr int warp_rows = M > 32 ? 32 : M;
    static constexpr int warp_columns = M * N * SPLIT / WARPS / warp_rows;
    static constexpr int pitch_a = depth + VEC, pitch_b = N + VEC;  // against bank conflicts
    static constexpr int a = M * pitch_a * sizeof(scalar_t), b = depth * pitch_b * sizeof(scalar_t);
    static constexpr int stage = a + depth * N, bytes = STAGES * stage + 2 * b;
};
using Large = Tile<128, 128, 1>;
using Small = Tile<16, 32, WARPS>;

template <class T>
struct Matrix {
    const T* at;
    int64_t rows, columns;
};

// 16 bytes of one row, with zeros for what lies outside. ALIGNED: rows are whole packs.
template <bool ALIGNED, class T>
__device__ __forceinline__ void copy(T* to, const Matrix<T>& from, int64_t row, int64_t column) {
    const int64_t at = row * from.columns + column;
    if constexpr (ALIGNED) {
        const bool inside = row < from.rows && column < from.columns;
        copy_async<16>(to, inside ? from.at + at : from.at, inside ? 16 : 0);
    } else {
#pragma unroll 4
        for (int j = 0; j < 16 / (int)sizeof(T); ++j)
            to[j] = row < from.rows && column + j < from.columns ? from.at[at + j] : T(0.0f);
    }
}

__device__ __forceinline__ void widen_bytes(scalar_t (&wide)[16], const int4& bytes) {
#pragma unroll
    for (int j = 0; j < 16; ++j) {
        const int word = j < 8 ? j < 4 ? bytes.x : bytes.y : j < 12 ? bytes.z : bytes.w;
        wide[j] = scalar_t(float(int8_t(word >> j % 4 * 8)));
    }
}

// A lane has ROWS rows that lie 8 apart, lane / 4 the first, and COLUMNS columns in groups: the
// first is group lane % 4, the others lie 4 groups apart. This is how mma.sync gives its results.
#ifdef PORTKERN_FLOAT32
constexpr int GROUP = 4;

template <class T, int ROWS, int COLUMNS>
__device__ __forceinline__ void multiply(float (&sums)[ROWS][COLUMNS], const float* a,
                                         const float* b) {
    a += threadIdx.x % 32 / 4 * T::pitch_a;
    b += threadIdx.x % 4 * GROUP;
#pragma unroll 1  // more at once would take more registers
    for (int d = 0; d < T::share; d += 2) {
        alignas(16) float left[ROWS][2], right[4];
#pragma unroll
        for (int i = 0; i < ROWS; ++i)
            *(float2*)left[i] = *(const float2*)(a + i * 8 * T::pitch_a + d);
#pragma unroll
        for (int e = 0; e < 2; ++e)
#pragma unroll
            for (int j = 0; j < COLUMNS; j += 4) {
                *(float4*)right = *(const float4*)(b + (d + e) * T::pitch_b + j * 4);
#pragma unroll
                for (int i = 0; i < ROWS; ++i)
#pragma unroll
                    for (int q = 0; q < 4; ++q)
                        sums[i][j + q] = fmaf(left[i][e], right[q], sums[i][j + q]);
            }
    }
}
#else
constexpr int GROUP = 2;

template <class T, int ROWS, int COLUMNS>
__device__ __forceinline__ void multiply(float (&sums)[ROWS][COLUMNS], const scalar_t* a,
                                         const scalar_t* b) {
    a += threadIdx.x % 16 * T::pitch_a + threadIdx.x % 32 / 16 * 8;
    b += threadIdx.x % 16 * T::pitch_b + threadIdx.x % 32 / 16 * 8;
#pragma unroll
    for (int d = 0; d < T::share; d += 16) {
        unsigned left[ROWS / 2][4], right[4];
#pragma unroll
        for (int i = 0; i < ROWS / 2; ++i) load_pieces<false>(left[i], a + i * 16 * T::pitch_a + d);
#pragma unroll
        for (int j = 0; j < COLUMNS; j += 2) {
            if (j % 4 == 0) load_pieces<true>(right, b + d * T::pitch_b + j * 4);
#pragma unroll
            for (int i = 0; i < ROWS; i += 2)
                mma(sums[i] + j, sums[i + 1] + j, left[i / 2], right + j % 4);
        }
    }
}
#endif

template <class T, bool ALIGNED>
__global__ __launch_bounds__(THREADS, 2) void int8_matmul_kernel(
    Matrix<scalar_t> a, Matrix<int8_t> weight, const scalar_t* __restrict__ scale, const Output to,
    int64_t n, int64_t across, int64_t each, const Odd odd) {
    let_next_begin();
    constexpr int ROWS = T::warp_rows / 8, COLUMNS = T::warp_columns / 4;
    extern __shared__ __align__(128) unsigned char shared[];
    const int64_t row0 = blockIdx.x / across * T::rows, column0 = blockIdx.x % across * T::columns;
    const int64_t m = a.rows;
    if (T::rows == T::columns && !odd.in(row0, column0, T::rows, m, n)) return;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_row = warp * T::warp_rows % T::rows;
    const int warp_column = warp * T::warp_rows / T::rows * T::warp_columns % T::columns;
    const int warp_depth = T::share < T::depth ? warp * T::share : 0;
    const int64_t depth0 = blockIdx.y * each;
    const int steps = (int)((min(each, a.columns - depth0) + T::depth - 1) / T::depth);
    const auto fetch = [&](int step) {
        scalar_t* tile = reinterpret_cast<scalar_t*>(shared + step % STAGES * T::stage);
        int8_t* raw = reinterpret_cast<int8_t*>(shared + step % STAGES * T::stage + T::a);
        const int64_t depth = depth0 + (int64_t)step * T::depth;
        if (step < steps) {
#pragma unroll 1
            for (int p = threadIdx.x * VEC; p < T::rows * T::depth; p += THREADS * VEC)
                copy<ALIGNED>(tile + p / T::depth * T::pitch_a + p % T::depth, a,
                              row0 + p / T::depth, depth + p % T::depth);
            const int p = threadIdx.x * 16;
            if (p < T::depth * T::columns)
                copy<ALIGNED>(raw + p, weight, depth + p / T::columns, column0 + p % T::columns);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");  // an empty one keeps the count right
    };
    float sums[ROWS][COLUMNS] = {};
#pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) fetch(s);
    for (int step = 0; step < steps; ++step) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        const unsigned char* stage = shared + step % STAGES * T::stage;
        scalar_t* tile_b =
            reinterpret_cast<scalar_t*>(shared + STAGES * T::stage + step % 2 * T::b);
        const int p = threadIdx.x * 16;
        if (p < T::depth * T::columns) {  // needs no barrier: these are bytes of its own
            scalar_t* to = tile_b + p / T::columns * T::pitch_b + p % T::columns;
            alignas(16) scalar_t wide[16];
            widen_bytes(wide, *reinterpret_cast<const int4*>(stage + T::a + p));
#pragma unroll
            for (int j = 0; j < 16; j += VEC)
                *reinterpret_cast<int4*>(to + j) = *reinterpret_cast<const int4*>(wide + j);
        }
        __syncthreads();  // this step's tiles are whole, and everybody is done with the last ones
        fetch(step + STAGES - 1);
        multiply<T>(sums,
                    reinterpret_cast<const scalar_t*>(stage) + warp_row * T::pitch_a + warp_depth,
                    tile_b + warp_depth * T::pitch_b + warp_column);
    }
    if (T::share < T::depth) {  // all warps have a part of the same sums: the first adds them up
        __syncthreads();
        float* parts = reinterpret_cast<float*>(shared) + lane;
#pragma unroll
        for (int i = 0; i < ROWS * COLUMNS; ++i)
            parts[(warp * ROWS * COLUMNS + i) * 32] = sums[i / COLUMNS][i % COLUMNS];
        __syncthreads();
        if (warp > 0) return;
        for (int w = 1; w < WARPS; ++w)
#pragma unroll
            for (int i = 0; i < ROWS * COLUMNS; ++i)
                sums[i / COLUMNS][i % COLUMNS] += parts[(w * ROWS * COLUMNS + i) * 32];
    }
#pragma unroll
    for (int i = 0; i < ROWS; ++i)
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
            const int64_t row = row0 + warp_row + i * 8 + lane / 4;
            const int64_t column =
                column0 + warp_column + j / GROUP * GROUP * 4 + lane % 4 * GROUP + j % GROUP;
            if (row >= m || column >= n) continue;
            const float sum = sums[i][j] * (to.parts ? 1.0f : float(scale[column]));
            to.from(blockIdx.y, row * n + column).store(0, sum);
        }
}

template <class T, bool ALIGNED>
int launch(const Matrix<scalar_t>& a, const Matrix<int8_t>& weight, const scalar_t* scale, scalar_t* c,
           int64_t n, cudaStream_t stream, const Odd& odd = {}) {
    const int64_t across = (n + T::columns - 1) / T::columns, down = (a.rows + T::rows - 1) / T::rows;
    if constexpr (T::rows > Small::rows)  // too few blocks, or rows of one: smaller ones
        if (!odd.rows.most && a.rows * n < (int64_t)SMALL_BELOW * T::rows * T::columns)
            return launch<Small, ALIGNED>(a, weight, scale, c, n, stream);
    // A second kernel takes longer than some steps of the depth, which take twice as long an element at a time.
    constexpr int FROM = (ALIGNED ? SHARE_FROM : SHARE_FROM / 2) * T::depth;
    const bool shared = T::share < T::depth && a.columns >= FROM;
    const Depths depths(across * down, a.columns, T::depth, shared ? FEW_TILES : 1, 2 * T::depth);
    const auto kernel = int8_matmul_kernel<T, ALIGNED>;
    // More than 48 KB of shared memory is dynamic and has to be asked for.
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, T::bytes);
    const dim3 grid((unsigned)(across * down), (unsigned)depths.splits);
    return share_depth(depths.splits, c, a.rows * n, stream, [&](const Output& to) {
        kernel<<<grid, THREADS, T::bytes, stream>>>(a, weight, scale, to, n, across, depths.each, odd);
    }, scale, n);
}

#ifdef PORTKERN_HOPPER
// Float32 takes the scale along, which halves could not hold.
__global__ __launch_bounds__(THREADS) void widen(const int8_t* __restrict__ from,
                                                 const scalar_t* __restrict__ scale,
                                                 scalar_t* __restrict__ to, int64_t count, int64_t n) {
    const int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * 16;
    if (at >= count) return;
    alignas(16) scalar_t wide[16];
    widen_bytes(wide, *reinterpret_cast<const int4*>(from + at));
#pragma unroll
    for (int j = 0; j < 16; j += VEC) {
        if (sizeof(scalar_t) == 4) {
            const Pack factors = reinterpret_cast<const Pack*>(scale + at % n)[j / VEC];
#pragma unroll
            for (int e = 0; e < VEC; ++e) wide[j + e] *= factors.at[e];
        }
        *reinterpret_cast<int4*>(to + at + j) = *reinterpret_cast<const int4*>(wide + j);
    }
}

// Whether widening all weights, which takes as long as reading them three times, is the smaller part: of
// halves sooner where the other path has small tiles, which bring in most for each product.
bool is_large(int64_t m, int64_t n, int64_t k) {
#ifdef PORTKERN_FLOAT32
    const bool suits = split::suits(1, m, n, k);
    const int64_t least = 1 << 29;
#else
    const bool suits = tile::suits({1, m, n, k});
    const bool small = m * n < (int64_t)SMALL_BELOW * Large::rows * Large::columns;
    const int64_t least = small ? 1 << 28 : 1 << 29;
#endif
    return (m < n ? m : n) >= WIDEN_FROM && m * n >= least / k && suits;
}

int launch_widened(const scalar_t* a, const int8_t* weight, const scalar_t* scale, scalar_t* c, int64_t m,
                   int64_t n, int64_t k, cudaStream_t stream) {
    Scratch<scalar_t> wide(k * n, stream);
    if (wide.error) return (int)wide.error;
    const int64_t blocks = (k * n / 16 + THREADS - 1) / THREADS;
    widen<<<(unsigned)blocks, THREADS, 0, stream>>>(weight, scale, wide.data, k * n, n);
#ifdef PORTKERN_FLOAT32
    return split::launch(a, wide.data, c, 1, m, n, k, stream, [&](const Odd& odd) {
        return launch<Large, true>({a, m, k}, {weight, k, n}, scale, c, n, stream, odd);
    });
#else
    const tile::Product all = {1, m, n, k, scale};
    const bool large = m * n >= (int64_t)WIDE_FROM * 128 * 128 && !tile::one_each(all);
    if (large && wide::suits(1, m, n, k)) return wide::launch(a, wide.data, c, 1, m, n, k, stream, scale);
    return tile::launch(a, wide.data, c, all, stream);
#endif
}
#endif

// Rows of `pitch` elements, with zeros behind the matrix's own: a thread has 4 bytes.
template <class T>
__global__ __launch_bounds__(THREADS) void pad(Matrix<T> from, T* __restrict__ to, int64_t pitch) {
    constexpr int EACH = 4 / sizeof(T);
    const int64_t row = blockIdx.x, column = ((int64_t)blockIdx.y * THREADS + threadIdx.x) * EACH;
    if (column >= pitch) return;
    Some<EACH, T> some;
#pragma unroll
    for (int j = 0; j < EACH; ++j)
        some.at[j] = column + j < from.columns ? from.at[row * from.columns + column + j] : T(0.0f);
    reinterpret_cast<Some<EACH, T>*>(to + row * pitch)[column / EACH] = some;
}

// A matrix whose rows are whole packs: itself, or a copy.
template <class T>
struct Padded {
    static constexpr int PACK = 16 / sizeof(T);
    const int64_t pitch;
    Scratch<T> copied;
    Matrix<T> matrix;

    Padded(const Matrix<T>& own, cudaStream_t stream)
        : pitch((own.columns + PACK - 1) / PACK * PACK),
          copied(is_aligned(own) ? 0 : own.rows * pitch, stream),
          matrix(own) {
        if (!copied.data) return;
        const dim3 grid((unsigned)own.rows, (unsigned)((pitch * sizeof(T) + 4 * THREADS - 1) / (4 * THREADS)));
        pad<T><<<grid, THREADS, 0, stream>>>(own, copied.data, pitch);
        matrix = {copied.data, own.rows, pitch};
    }
    static bool is_aligned(const Matrix<T>& own) {
        return (uintptr_t)own.at % 16 == 0 && own.columns % PACK == 0;
    }
};

extern "C" int int8_matmul(const scalar_t* a, const int8_t* weight, const scalar_t* scale,
                           scalar_t* c, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
    if (m == 0 || n == 0) return 0;
    if (thin::is_thin(m, n, k))
        return thin::launch<int8_t>({a, weight, c, 1, m, n, k, scale}, stream);
    const Matrix<scalar_t> left = {a, m, k};
    const Matrix<int8_t> right = {weight, k, n};
    const bool aligned = Padded<scalar_t>::is_aligned(left) && Padded<int8_t>::is_aligned(right);
#ifdef PORTKERN_HOPPER
    if (aligned && ((uintptr_t)c | (uintptr_t)scale) % 16 == 0 && is_large(m, n, k))
        return launch_widened(a, weight, scale, c, m, n, k, stream);
#endif
    if (aligned) return launch<Large, true>(left, right, scale, c, n, stream);
    if (m * n < PAD_FROM / k) return launch<Large, false>(left, right, scale, c, n, stream);
    const Padded<scalar_t> of_a(left, stream);
    const Padded<int8_t> of_weight(right, stream);
    if (of_a.copied.error || of_weight.copied.error)
        return (int)(of_a.copied.error ? of_a.copied.error : of_weight.copied.error);
    return launch<Large, true>(of_a.matrix, of_weight.matrix, scale, c, n, stream);
}
