// Matrix product, accumulated in float32. float32 inputs: register tiles of FMA in strict float32,
// or on Hopper three products of halves that keep its precision. float16 and bfloat16: tensor cores
// (mma.sync), fed by cp.async; on Hopper wgmma, fed by the bulk tensor copy engine. Too few tiles to
// fill a GPU: several blocks share a tile's depth. Rows that are no whole packs: the operands are
// copied with rows that are, where the product costs more than that. Thin ones: thin_product.h. Tiles of
// 16 bits are small where large ones would be few, or mostly beyond the last row or column; Hopper's are
// wide_product.h and tile_product.h.
#define FEW_TILES 128  // knob: 64 128 256
#define STAGES 3  // knob: 2 3 4
#define BAND 8  // knob: 4 8 16 32
#define WIDE_PERCENT 100  // knob: 0 50 100 200
#define PIPELINE 4  // knob: 2 3 4
#define SPLIT_FROM 500  // knob: 100 500 1000 2000
#define PAD_FROM 64  // knob: 16 64 256
#define HALVE_FROM 150  // knob: 50 100 150 200 400
#define PAD_DENSE 200  // knob: 100 200 400
#define SMALL_BELOW 256  // knob: 0 128 256 512
#include <portkern/padded.h>
#ifdef PORTKERN_FLOAT32
#include <portkern/row_sums.h>
#endif
#include <portkern/thin_product.h>

// How often an element of the operands and the result is used, if all are prepared.
inline double products_per_element(int64_t m, int64_t n, int64_t k) {
    return double(m) * n * k / (double(m) * k + double(k) * n + double(m) * n);
}

#ifdef PORTKERN_FLOAT32
#include <portkern/tiled_product.h>
#ifdef PORTKERN_HOPPER
#include <portkern/split_product.h>
#endif

template <bool ALIGNED>
int launch(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k,
           cudaStream_t stream) {
#ifdef PORTKERN_HOPPER
    if (ALIGNED && double(m) * n * k >= SPLIT_FROM * 1e6 && split::suits(1, m, n, k))
        return split::launch(a, b, c, 1, m, n, k, stream, [&](const Odd& odd) {
            return tiled::launch<tiled::Large, true, true>(a, b, c, 1, m, n, k, stream, odd);
        });
#endif
    return tiled::launch_any(a, b, c, 1, m, n, k, stream);
}

#else
#include <portkern/row_product.h>
#include <portkern/tensor_cores.h>
#ifdef PORTKERN_HOPPER
#include <portkern/tile_product.h>
#include <portkern/wide_product.h>
#endif

constexpr int THREADS = 256;
constexpr int64_t LEAST_DEPTH = 256;  // of a block's depth, where several share a tile

// A pack of row `row` of a matrix, with zeros for what lies outside. ALIGNED: rows are whole packs.
template <bool ALIGNED>
__device__ __forceinline__ Pack load(const scalar_t* __restrict__ from, int64_t row, int64_t column,
                                     int64_t rows, int64_t columns) {
    Pack pack;
    const int64_t at = row * columns + column;
    if (ALIGNED && row < rows && column < columns)
        return reinterpret_cast<const Pack*>(from)[at / VEC];
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
        const bool inside = !ALIGNED && row < rows && column + j < columns;
        pack.at[j] = inside ? from[at + j] : scalar_t(0.0f);
    }
    return pack;
}

// What a block computes, its 8 warps 2 x 4 parts of it. Rows in shared memory are padded by 16 bytes,
// so that the 8 rows an ldmatrix touches at once lie in different banks.
template <int R, int C, int D>
struct Tile {
    static constexpr int ROWS = R, COLUMNS = C, DEPTH = D, PITCH_A = D + 8, PITCH_B = C + 8;
    static constexpr int WARP_ROWS = R / 2, WARP_COLUMNS = C / 4;
    static constexpr int STAGE = R * PITCH_A + D * PITCH_B;  // elements
    static constexpr int SLOTS = R == 128 ? STAGES : STAGES + 1;
    static constexpr int SHARED_BYTES = SLOTS * STAGE * sizeof(scalar_t);

    static int64_t across(int64_t n) { return (n + C - 1) / C; }
    static int64_t count(int64_t m, int64_t n) { return (m + R - 1) / R * across(n); }
    // Of the smallest tiles, which bring in most for each product, more blocks are to be under way; where
    // they are many, adding the parts takes longer than a shallow one's steps.
    static Depths depths(int64_t tiles, int64_t k) {
        const bool few = R == 32 && tiles < FEW_TILES / 4;
        const int64_t wanted = (R == 32 && !few ? 4 : 2) * FEW_TILES;
        return Depths(tiles, k, D, wanted, R == 128 ? LEAST_DEPTH : few ? 512 : 1024);
    }
};
using Large = Tile<128, 128, 32>;
using Middle = Tile<64, 128, 32>;
using Small = Tile<32, 64, 64>;

template <bool ALIGNED>
__device__ __forceinline__ void copy(scalar_t* to, const scalar_t* __restrict__ from, int64_t row,
                                     int64_t column, int64_t rows, int64_t columns) {
    if (!ALIGNED) {
        *reinterpret_cast<Pack*>(to) = load<false>(from, row, column, rows, columns);
        return;
    }
    const bool inside = row < rows && column < columns;
    const scalar_t* source = inside ? from + row * columns + column : from;
    copy_async<16>(to, source, inside ? 16 : 0);
}

// A 16 x 16 piece of A: lane l points at row l % 16, half l / 16.
template <int PITCH>
__device__ __forceinline__ void load_left(unsigned (&r)[4], const scalar_t* tile) {
    const int lane = threadIdx.x % 32;
    load_pieces<false>(r, tile + lane % 16 * PITCH + lane / 16 * 8);
}

// A 16 x 16 piece of B, transposed on the way: r[0], r[1] are its left 8 columns.
template <int PITCH>
__device__ __forceinline__ void load_right(unsigned (&r)[4], const scalar_t* tile) {
    const int lane = threadIdx.x % 32;
    load_pieces<true>(r, tile + lane % 16 * PITCH + lane / 16 * 8);
}

// Two neighbours of a row; `column` is even.
template <bool ALIGNED>
__device__ __forceinline__ void store(const Output& c, float first, float second, int64_t row,
                                      int64_t column, int64_t m, int64_t n) {
    if (row >= m || column >= n) return;
    const int64_t at = row * n + column;
    if (ALIGNED) {
        c.store_pair(at, first, second);
        return;
    }
    c.store(at, first);
    if (column + 1 < n) c.store(at + 1, second);
}

template <class T, bool ALIGNED>
__global__ __launch_bounds__(THREADS) void matmul_mma(const scalar_t* __restrict__ a,
                                                      const scalar_t* __restrict__ b, const Output all,
                                                      int64_t m, int64_t n, int64_t k, int64_t across,
                                                      int64_t count, int64_t each) {
    let_next_begin();
    extern __shared__ __align__(128) unsigned char shared[];
    scalar_t* tiles = reinterpret_cast<scalar_t*>(shared);
    const int64_t tile = blockIdx.x % count, split = blockIdx.x / count, from = split * each;
    const int64_t row0 = tile / across * T::ROWS, column0 = tile % across * T::COLUMNS;
    const Output c = all.from(split, 0);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_row = warp / 4 * T::WARP_ROWS, warp_column = warp % 4 * T::WARP_COLUMNS;
    const int steps = (int)((min(each, k - from) + T::DEPTH - 1) / T::DEPTH);
    const auto fetch = [&](int step) {
        scalar_t* tile_a = tiles + step % T::SLOTS * T::STAGE;
        scalar_t* tile_b = tile_a + T::ROWS * T::PITCH_A;
        const int64_t depth = from + (int64_t)step * T::DEPTH;
#pragma unroll
        for (int i = 0; step < steps && i < T::ROWS * T::DEPTH / 8 / THREADS; ++i) {
            const int p = i * THREADS + threadIdx.x, r = p / (T::DEPTH / 8), d = p % (T::DEPTH / 8) * 8;
            copy<ALIGNED>(tile_a + r * T::PITCH_A + d, a, row0 + r, depth + d, m, k);
        }
#pragma unroll
        for (int i = 0; step < steps && i < T::DEPTH * T::COLUMNS / 8 / THREADS; ++i) {
            const int p = i * THREADS + threadIdx.x, e = p / (T::COLUMNS / 8), q = p % (T::COLUMNS / 8) * 8;
            copy<ALIGNED>(tile_b + e * T::PITCH_B + q, b, depth + e, column0 + q, k, n);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");  // an empty one keeps the count right
    };
    constexpr int I = T::WARP_ROWS / 16, J = T::WARP_COLUMNS / 8;
    float sums[I][J][4] = {};
#pragma unroll
    for (int s = 0; s < T::SLOTS - 1; ++s) fetch(s);
    for (int step = 0; step < steps; ++step) {
        asm volatile("cp.async.wait_group %0;" ::"n"(T::SLOTS - 2) : "memory");
        __syncthreads();  // this step's tile is whole, and everybody is done with the last one
        fetch(step + T::SLOTS - 1);
        const scalar_t* tile_a = tiles + step % T::SLOTS * T::STAGE + warp_row * T::PITCH_A;
        const scalar_t* tile_b = tiles + step % T::SLOTS * T::STAGE + T::ROWS * T::PITCH_A + warp_column;
#pragma unroll
        for (int d = 0; d < T::DEPTH; d += 16) {
            unsigned left[I][4], right[J / 2][4];
#pragma unroll
            for (int i = 0; i < I; ++i) load_left<T::PITCH_A>(left[i], tile_a + i * 16 * T::PITCH_A + d);
#pragma unroll
            for (int j = 0; j < J / 2; ++j) load_right<T::PITCH_B>(right[j], tile_b + d * T::PITCH_B + j * 16);
#pragma unroll
            for (int i = 0; i < I; ++i)
#pragma unroll
                for (int j = 0; j < J; ++j) mma(sums[i][j], sums[i][j] + 2, left[i], right[j / 2] + j % 2 * 2);
        }
    }
#pragma unroll
    for (int i = 0; i < I; ++i)
#pragma unroll
        for (int j = 0; j < J; ++j) {
            const int64_t row = row0 + warp_row + i * 16 + lane / 4;
            const int64_t column = column0 + warp_column + j * 8 + lane % 4 * 2;
            store<ALIGNED>(c, sums[i][j][0], sums[i][j][1], row, column, m, n);
            store<ALIGNED>(c, sums[i][j][2], sums[i][j][3], row + 8, column, m, n);
        }
}


template <class T, bool ALIGNED>
int launch_tiles(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m, int64_t n, int64_t k,
                 cudaStream_t stream) {
    const int64_t tiles = T::count(m, n);
    const Depths depths = T::depths(tiles, k);
    const auto kernel = matmul_mma<T, ALIGNED>;
    // More than 48 KB of shared memory is dynamic and has to be asked for.
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, T::SHARED_BYTES);
    return share_depth(depths.splits, c, m * n, stream, [&](const Output& to) {
        kernel<<<(unsigned)(tiles * depths.splits), THREADS, T::SHARED_BYTES, stream>>>(
            a, b, to, m, n, k, T::across(n), tiles, depths.each);
    });
}

template <bool ALIGNED>
int launch(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m, int64_t n, int64_t k,
           cudaStream_t stream) {
#ifdef PORTKERN_HOPPER
    const tile::Product all = {1, m, n, k};
    if (ALIGNED && tile::suits(all)) {
        const tile::Way way = tile::best<false, true>(all);
        const bool suits = m > 64 && n > 128 && all.steps() >= 4 && wide::suits(1, m, n, k);
        if (suits && wide::clocks(m, n, k) * WIDE_PERCENT < way.clocks * 100)
            return wide::launch(a, b, c, 1, m, n, k, stream);
        return way.launch(a, b, c, all, way.splits, stream);
    }
#endif
    const int64_t tiles = Large::count(m, n);
    const bool narrow = m <= Large::ROWS / 2 || n <= Large::COLUMNS / 2;
    if (SMALL_BELOW > 0 && (narrow || tiles * Large::depths(tiles, k).splits < SMALL_BELOW)) {
        const int64_t middle = Middle::count(m, n);
        if (m > Small::ROWS && n > Small::COLUMNS && middle * Middle::depths(middle, k).splits >= FEW_TILES)
            return launch_tiles<Middle, ALIGNED>(a, b, c, m, n, k, stream);
        return launch_tiles<Small, ALIGNED>(a, b, c, m, n, k, stream);
    }
    return launch_tiles<Large, ALIGNED>(a, b, c, m, n, k, stream);
}

#endif

extern "C" int matmul(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m, int64_t n,
                      int64_t k, cudaStream_t stream) {
    if (m == 0 || n == 0) return 0;
    const bool pointers = ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) % 16 == 0;
    const bool aligned = pointers && n % VEC == 0 && k % VEC == 0;
#ifdef PORTKERN_FLOAT32
    if (aligned && row_sums::suits(m, n, k)) return row_sums::launch(a, b, c, m, n, k, stream);
#else
    if (aligned && row_product::suits(m, n, k)) return row_product::launch(a, b, c, m, n, k, stream);
#endif
    if (thin::is_thin(m, n, k)) return thin::launch<scalar_t>({a, b, c, 1, m, n, k}, stream);
    if (aligned) return launch<true>(a, b, c, m, n, k, stream);
    const bool dense = sizeof(scalar_t) == 2 || products_per_element(m, n, k) >= PAD_DENSE;
    if (k > 0 && dense && double(m) * n * k >= PAD_FROM * 1e6)
        return padded::product(a, b, c, 1, m, n, k, stream,
                               [&](auto* a, auto* b, auto* c, int64_t wide, int64_t deep) {
            return launch<true>(a, b, c, m, wide, deep, stream);
        });
    return launch<false>(a, b, c, m, n, k, stream);
}
