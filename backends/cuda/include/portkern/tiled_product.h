// Products, alone or in a batch, in tiles of A and B that come into shared memory by cp.async, and that
// warps multiply, by FMA in strict float32 or, for halves, on tensor cores (mma.sync). Tiles are of
// 128 x 128, or of less where products are small, or have few columns or rows. Too few tiles to fill a
// GPU: several blocks share a tile's depth. FEW_TILES and STAGES are knobs of the kernel.
#pragma once
#include <portkern/odd_rows.h>
#include <portkern/shared_depth.h>
#include <portkern/tensor_cores.h>

namespace tiled {
// Of a block's depth, where several share a tile: of FMAs so little, because they take longer than adding
// the parts; but where tiles nearly fill a GPU, a second kernel takes longer than what it spares.
constexpr int LEAST_DEPTH = sizeof(scalar_t) == 4 ? 128 : 512, LEAST_DEPTH_FILLED = 1024;

constexpr int DEPTH = 4 * VEC;        // rows of B in shared memory, columns of A
constexpr int PITCH_A = DEPTH + VEC;  // 8 neighbouring rows lie in different banks

// What a block computes, and how many of its warps lie abreast; each has 32 rows.
template <int ROWS, int COLUMNS, int ABREAST>
struct Tile {
    static constexpr int rows = ROWS, columns = COLUMNS, abreast = ABREAST, threads = ROWS * ABREAST;
    static constexpr int warp_columns = COLUMNS / ABREAST, pitch_b = COLUMNS + VEC;
    static constexpr int stage = ROWS * PITCH_A + DEPTH * pitch_b;  // elements
    static constexpr int bytes = STAGES * stage * sizeof(scalar_t);
};
using Large = Tile<128, 128, 2>;
using Small = Tile<64, 64, 2>;
using Narrow = Tile<128, 32, 1>;
using Flat = Tile<32, 128, 4>;

// 16 bytes of a row that has `left` elements more, with zeros for what lies outside. ALIGNED: rows are whole
// packs.
template <bool ALIGNED>
__device__ __forceinline__ void copy(scalar_t* to, const scalar_t* from, int left) {
    if constexpr (ALIGNED) copy_async<16>(to, from, left > 0 ? 16 : 0);
    else
#pragma unroll
        for (int j = 0; j < VEC; ++j) {
            if constexpr (sizeof(scalar_t) == 4) copy_async<4>(to + j, from + j, j < left ? 4 : 0);
            else to[j] = j < left ? from[j] : scalar_t(0.0f);
        }
}

// Brings in rows and columns of one operand that a tile needs: PACKS side by side make one of its rows, of
// PITCH elements in shared memory. A thread has the same place in rows that lie STRIDE apart.
template <int ROWS, int PACKS, int PITCH, int THREADS, bool ALIGNED>
struct Bringer {
    static constexpr int STRIDE = THREADS / PACKS, COUNT = ROWS / STRIDE;
    static_assert(ROWS % STRIDE == 0, "threads take whole packs alike");
    const scalar_t* from;  // the first one's
    int64_t width;  // elements of a row of the operand

    __device__ __forceinline__ static int row() { return threadIdx.x / PACKS; }
    __device__ __forceinline__ static int column() { return threadIdx.x % PACKS * VEC; }
    __device__ __forceinline__ Bringer(const scalar_t* base, int64_t row0, int64_t column0, int64_t width)
        : from(base + (row0 + row()) * width + column0 + column()), width(width) {}
    // From `ahead` elements on; there are `rows` and `columns` left of the tile's first place.
    __device__ __forceinline__ void bring(scalar_t* tile, int64_t ahead, int rows, int columns) const {
        const scalar_t* source = from + ahead;
#pragma unroll
        for (int i = 0; i < COUNT; ++i, source += width * STRIDE)
            copy<ALIGNED>(tile + (row() + i * STRIDE) * PITCH + column(), source,
                          row() + i * STRIDE < rows ? columns - column() : 0);
    }
};

// A lane has 4 rows that lie 8 apart, lane / 4 the first, and COLUMNS columns in groups: lane % 4
// is the first group, the others lie 4 groups apart. This is how mma.sync gives its results.
#ifdef PORTKERN_FLOAT32
constexpr int GROUP = 4;

template <int COLUMNS, int PITCH_B>
__device__ __forceinline__ void multiply(float (&sums)[4][COLUMNS], const float* a,
                                         const float* b) {
    // Loads of the next rows go ahead of products, as far as there are registers for them.
    constexpr int TURNS = COLUMNS <= 8 ? DEPTH / 2 : 1;
    a += threadIdx.x % 32 / 4 * PITCH_A;
    b += threadIdx.x % 4 * GROUP;
#pragma unroll TURNS
    for (int d = 0; d < DEPTH; d += 2) {
        alignas(16) float left[4][2], right[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
            *(float2*)left[i] = *(const float2*)(a + i * 8 * PITCH_A + d);
#pragma unroll
        for (int e = 0; e < 2; ++e)
#pragma unroll
            for (int j = 0; j < COLUMNS; j += 4) {
                *(float4*)right = *(const float4*)(b + (d + e) * PITCH_B + j * 4);
#pragma unroll
                for (int i = 0; i < 4; ++i)
#pragma unroll
                    for (int q = 0; q < 4; ++q)
                        sums[i][j + q] = fmaf(left[i][e], right[q], sums[i][j + q]);
            }
    }
}
#else
constexpr int GROUP = 2;

template <int COLUMNS, int PITCH_B>
__device__ __forceinline__ void multiply(float (&sums)[4][COLUMNS], const scalar_t* a,
                                         const scalar_t* b) {
    a += threadIdx.x % 16 * PITCH_A + threadIdx.x % 32 / 16 * 8;
    b += threadIdx.x % 16 * PITCH_B + threadIdx.x % 32 / 16 * 8;
#pragma unroll
    for (int d = 0; d < DEPTH; d += 16) {
        unsigned left[2][4], right[4];
#pragma unroll
        for (int i = 0; i < 2; ++i) load_pieces<false>(left[i], a + i * 16 * PITCH_A + d);
#pragma unroll
        for (int j = 0; j < COLUMNS; j += 2) {
            if (j % 4 == 0) load_pieces<true>(right, b + d * PITCH_B + j * 4);
#pragma unroll
            for (int i = 0; i < 4; i += 2) mma(sums[i] + j, sums[i + 1] + j, left[i / 2], right + j % 4);
        }
    }
}
#endif

// How C is divided: its tiles abreast, below each other, and of all products, and a block's part of the depth.
struct Division {
    unsigned across, down, count;
    int64_t each;
};

// LEFT, RIGHT: whether rows of A, and those of B and C, are whole packs.
template <class T, bool LEFT, bool RIGHT>
__global__ __launch_bounds__(T::threads, 2) void tiled_product(
    const scalar_t* __restrict__ every_a, const scalar_t* __restrict__ every_b,
    const Output every_c, int64_t m, int64_t n, int64_t k, const Division by, const Odd odd) {
    let_next_begin();
    constexpr int PITCH_B = T::pitch_b, COLUMNS = T::warp_columns / 4;
    extern __shared__ __align__(128) unsigned char shared[];
    scalar_t* tiles = reinterpret_cast<scalar_t*>(shared);
    const unsigned number = blockIdx.x % by.count, split = blockIdx.x / by.count;
    const int64_t batch = number / by.across / by.down;
    const int64_t row0 = (int64_t)(number / by.across % by.down) * T::rows;
    const int64_t column0 = (int64_t)(number % by.across) * T::columns;
    if (T::rows == T::columns && !odd.of(batch, m, n).in(row0, column0, T::rows, m, n)) return;
    const int first = (int)(split * by.each / DEPTH);
    const int end = (int)((min(k, (split + 1) * by.each) + DEPTH - 1) / DEPTH);
    const int rows = (int)min(m - row0, (int64_t)T::rows), columns = (int)min(n - column0, (int64_t)T::columns);
    const Bringer<T::rows, DEPTH / VEC, PITCH_A, T::threads, LEFT> of_a(every_a + batch * m * k, row0, 0, k);
    const Bringer<DEPTH, T::columns / VEC, PITCH_B, T::threads, RIGHT> of_b(every_b + batch * k * n, 0, column0, n);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_row = warp / T::abreast * 32, warp_column = warp % T::abreast * T::warp_columns;
    const auto fetch = [&](int step) {
        scalar_t* tile = tiles + step % STAGES * T::stage;
        const int64_t depth = (int64_t)step * DEPTH;
        if (step < end) {
            const int deep = (int)min(k - depth, (int64_t)DEPTH);
            of_a.bring(tile, depth, rows, deep);
            of_b.bring(tile + T::rows * PITCH_A, depth * n, deep, columns);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");  // an empty one keeps the count right
    };
    float sums[4][COLUMNS] = {};
#pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) fetch(first + s);
    for (int step = first; step < end; ++step) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();  // this step's tile is whole, and everybody is done with the last one
        fetch(step + STAGES - 1);
        const scalar_t* tile = tiles + step % STAGES * T::stage;
        multiply<COLUMNS, PITCH_B>(sums, tile + warp_row * PITCH_A, tile + T::rows * PITCH_A + warp_column);
    }
    const Output c = every_c.from(split, batch * m * n);
    struct alignas(GROUP * sizeof(scalar_t)) Group {
        scalar_t at[GROUP];
    };
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < COLUMNS; j += GROUP) {
            const int64_t row = row0 + warp_row + i * 8 + lane / 4;
            const int64_t column = column0 + warp_column + j * 4 + lane % 4 * GROUP;
            if (row >= m || column >= n) continue;
            Group group;
#pragma unroll
            for (int e = 0; e < GROUP; ++e) group.at[e] = scalar_t(sums[i][j + e]);
            if (RIGHT && !c.parts) {
                *reinterpret_cast<Group*>(c.whole + row * n + column) = group;
                continue;
            }
#pragma unroll
            for (int e = 0; e < GROUP; ++e)
                if (column + e < n) c.store(row * n + column + e, sums[i][j + e]);
        }
}

template <class T, bool LEFT, bool RIGHT>
int launch(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t batch, int64_t m, int64_t n,
           int64_t k, cudaStream_t stream, const Odd& odd = {}) {
    const int64_t across = (n + T::columns - 1) / T::columns, down = (m + T::rows - 1) / T::rows;
    const int64_t blocks = batch * across * down;
    // More than 48 KB of shared memory is dynamic and has to be asked for.
    cudaFuncSetAttribute(tiled_product<T, LEFT, RIGHT>, cudaFuncAttributeMaxDynamicSharedMemorySize, T::bytes);
    const int64_t wanted = T::threads > 128 ? 2 * FEW_TILES : 4 * FEW_TILES;
    const Depths depths(odd.rows.most ? wanted : blocks, k, DEPTH, wanted,
                        blocks < FEW_TILES ? LEAST_DEPTH : LEAST_DEPTH_FILLED);
    const Division by = {(unsigned)across, (unsigned)down, (unsigned)blocks, depths.each};
    return share_depth(depths.splits, c, batch * m * n, stream, [&](const Output& to) {
        tiled_product<T, LEFT, RIGHT><<<(unsigned)(blocks * depths.splits), T::threads, T::bytes, stream>>>(
            a, b, to, m, n, k, by, odd);
    });
}

// Small products, or so few blocks that some multiprocessors would have one more than others, which are half
// of all: smaller tiles. Few columns or rows: not half of one.
template <bool LEFT, bool RIGHT>
int launch_tiles(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t batch, int64_t m, int64_t n,
                 int64_t k, cudaStream_t stream) {
    const int64_t large = batch * ((m + 127) / 128) * ((n + 127) / 128);
    const int64_t few = sizeof(scalar_t) == 4 ? 4 * FEW_TILES : FEW_TILES;
    const auto start = n <= Narrow::columns && m > n               ? launch<Narrow, LEFT, RIGHT>
                       : m <= Flat::rows                           ? launch<Flat, LEFT, RIGHT>
                       : large < few || m <= 64 || n <= 64         ? launch<Small, LEFT, RIGHT>
                                                                   : launch<Large, LEFT, RIGHT>;
    return start(a, b, c, batch, m, n, k, stream, {});
}

// Of operands whose rows may begin anywhere.
inline int launch_any(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t batch, int64_t m, int64_t n,
                      int64_t k, cudaStream_t stream) {
    const bool left = are_whole((uintptr_t)a, k), right = are_whole((uintptr_t)b | (uintptr_t)c, n);
    const auto start = left && right ? launch_tiles<true, true>
                       : left        ? launch_tiles<true, false>
                                     : launch_tiles<false, false>;
    return start(a, b, c, batch, m, n, k, stream);
}
}  // namespace tiled
