// Products of float16 or bfloat16, alone or in a batch, that have too few large tiles to fill a GPU: a
// block is one warpgroup for each 64 rows of its tile of C. One of its threads has the copy engine bring in
// what is needed some steps later. Where tiles are few, several blocks share a tile's depth: those of a
// cluster add up what they have in shared memory, or more of them by way of memory and a second kernel.
#pragma once
#include <portkern/hopper.h>
#include <portkern/shared_depth.h>

namespace tile {
constexpr int DEPTH = 64, PIECE = DEPTH * 64, MOST_SLOTS = 8;
constexpr int64_t LEAST = 1024;  // of a block's depth: a second kernel takes as long

template <int R, int C>
struct Tile {
    static constexpr int ROWS = R, COLUMNS = C, THREADS = 2 * R, PIECES = C / 64;
    static constexpr int A = R * DEPTH, SIZE = A + PIECES * PIECE, SLOT_BYTES = SIZE * sizeof(scalar_t);
    static constexpr int PITCH = C + 8;  // of C in shared memory: no bank conflicts
    static constexpr int PART_BYTES = R * PITCH * (int)sizeof(float);
};

struct Product {
    int64_t batch, m, n, k;
    const scalar_t* scale = nullptr;  // of each column of C
    int64_t width = n;  // of C in memory: less than n where B's rows were made whole packs, C's were not

    int64_t across(int columns) const { return (n + columns - 1) / columns; }
    int64_t down(int rows) const { return (m + rows - 1) / rows; }
    int64_t steps() const { return (k + DEPTH - 1) / DEPTH; }
    int64_t tiles(int rows, int columns) const { return batch * down(rows) * across(columns); }
};

// How tiles and the steps of their depth are divided among blocks, and how many slots each of these has.
struct Division {
    int across, down, tiles, deep, each, slots;
};

// A row of C, of sums in shared memory whose columns are one row there.
template <class T>
__device__ __forceinline__ void store_tile(scalar_t* c, const scalar_t* held, const Product& all, int row0,
                                           int column0) {
    if (all.width < all.n) {  // neighbouring threads write neighbours: rows begin anywhere
#pragma unroll 8
        for (int p = threadIdx.x; p < T::ROWS * T::COLUMNS; p += T::THREADS) {
            const int row = p / T::COLUMNS, column = p % T::COLUMNS;
            if (row0 + row < all.m && column0 + column < all.width)
                c[(row0 + row) * all.width + column0 + column] = held[row * T::PITCH + column];
        }
        return;
    }
#pragma unroll 4
    for (int p = threadIdx.x; p < T::ROWS * T::COLUMNS / VEC; p += T::THREADS) {
        const int row = p / (T::COLUMNS / VEC), column = p % (T::COLUMNS / VEC) * VEC;
        if (row0 + row < all.m && column0 + column < all.n)
            *reinterpret_cast<Pack*>(c + (row0 + row) * all.n + column0 + column) =
                *reinterpret_cast<const Pack*>(held + row * T::PITCH + column);
    }
}

// What the blocks of a cluster have in shared memory is added by each for rows of its own.
template <class T, int SPLITS>
__device__ __forceinline__ void add_tile(scalar_t* c, const float* parts, const Product& all, int row0,
                                         int column0) {
    constexpr int PACKS = T::COLUMNS / VEC, SHARE = T::ROWS / SPLITS;
    const int first = hopper::rank() * SHARE;
    for (int p = threadIdx.x; p < SHARE * PACKS; p += T::THREADS) {
        const int row = first + p / PACKS, column = p % PACKS * VEC;
        if (row0 + row < all.m && column0 + column < all.n) {
            float4 held[SPLITS][VEC / 4];
#pragma unroll
            for (int s = 0; s < SPLITS; ++s)
#pragma unroll
                for (int q = 0; q < VEC / 4; ++q)
                    held[s][q] = hopper::peek_four(parts + row * T::PITCH + column + q * 4, s);
            Pack pack;
#pragma unroll
            for (int q = 0; q < VEC / 4; ++q) {
                float4 total = held[0][q];
#pragma unroll
                for (int s = 1; s < SPLITS; ++s)
                    total = make_float4(total.x + held[s][q].x, total.y + held[s][q].y,
                                        total.z + held[s][q].z, total.w + held[s][q].w);
                const float sums[4] = {total.x, total.y, total.z, total.w};
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const float factor = all.scale ? float(all.scale[column0 + column + q * 4 + j]) : 1.0f;
                    pack.at[q * 4 + j] = scalar_t(sums[j] * factor);
                }
            }
            *reinterpret_cast<Pack*>(c + (row0 + row) * all.n + column0 + column) = pack;
        }
    }
}

// By one of SPLITS blocks of a cluster; where that is 1, alone or by way of parts in memory.
template <class T, int SPLITS>
__device__ __forceinline__ void multiply_tile(const CUtensorMap& of_a, const CUtensorMap& of_b,
                                              const Output& every_c, const Product& all, const Division& by) {
    extern __shared__ unsigned char raw[];
    __shared__ uint64_t full[MOST_SLOTS];
    scalar_t* const held = reinterpret_cast<scalar_t*>(raw + (-hopper::address(raw) & 1023));
    const int number = SPLITS > 1 ? blockIdx.x / SPLITS : blockIdx.x % by.tiles;
    const int split = SPLITS > 1 ? blockIdx.x % SPLITS : blockIdx.x / by.tiles;
    const int batch = number / by.across / by.down;
    const int row0 = number / by.across % by.down * T::ROWS, column0 = number % by.across * T::COLUMNS;
    const int deep = by.deep, slots = by.slots;
    const int first = SPLITS > 1 ? (int)((int64_t)deep * split / SPLITS) : split * by.each;
    const int steps = SPLITS > 1 ? (int)((int64_t)deep * (split + 1) / SPLITS) - first : min(deep - first, by.each);
    const int lane = threadIdx.x % 128, group_row = threadIdx.x / 128 * 64;
    const auto fetch = [&](int slot, int step) {
        const int depth = (first + step) * DEPTH;
        scalar_t* const to = held + slot * T::SIZE;
        hopper::expect_bytes(&full[slot], T::SLOT_BYTES);
        hopper::load_box(to, &of_a, depth, batch * (int)all.m + row0, &full[slot]);
        for (int p = 0; p < T::PIECES; ++p)
            hopper::load_box(to + T::A + p * PIECE, &of_b, column0 + p * 64, depth, batch, &full[slot]);
    };
    if (threadIdx.x == 0) {
        for (int s = 0; s < slots; ++s) hopper::init(&full[s], 1);
        hopper::fence_barriers();
        for (int s = 0; s < slots && s < steps; ++s) fetch(s, s);
    }
    __syncthreads();
    float sums[T::COLUMNS / 2] = {};
    hopper::begin_products();
    int slot = 0, last = 0, phase = 0;
    for (int step = 0; step < steps; ++step) {
        hopper::wait(&full[slot], phase);
        const scalar_t *left = held + slot * T::SIZE + group_row * DEPTH, *right = held + slot * T::SIZE + T::A;
#pragma unroll
        for (int d = 0; d < DEPTH; d += 16)
            hopper::multiply(sums, hopper::operand(left + d, 1024),
                             hopper::operand(right + d * 64, 1024, PIECE * sizeof(scalar_t)));
        hopper::commit_products();
        hopper::wait_products<1>();
        __syncthreads();  // all warps are done with the step before: its slot is free
        if (threadIdx.x == 0 && step > 0 && step - 1 + slots < steps) fetch(last, step - 1 + slots);
        last = slot;
        if (++slot == slots) slot = 0, phase ^= 1;
    }
    hopper::wait_products<0>();
    hopper::settle(sums);
    const Output c = every_c.from(split, batch * all.m * all.width);
    const int own_row = group_row + lane / 32 * 16 + lane % 32 / 4, own_column = lane % 4 * 2;
    if (SPLITS > 1) {
        float* const parts = reinterpret_cast<float*>(held);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < T::COLUMNS / 2; i += 2)
            *reinterpret_cast<float2*>(parts + (own_row + i / 2 % 2 * 8) * T::PITCH + i / 4 * 8 + own_column) =
                make_float2(sums[i], sums[i + 1]);
        hopper::arrive_cluster();
        hopper::wait_cluster();
        add_tile<T, SPLITS>(c.whole, parts, all, row0, column0);
        __syncwarp();
        hopper::arrive_cluster();  // others may be reading what this block has
        hopper::wait_cluster();
        return;
    }
    if (c.parts) {
#pragma unroll
        for (int i = 0; i < T::COLUMNS / 2; i += 2) {
            const int64_t row = row0 + own_row + i / 2 % 2 * 8, column = column0 + i / 4 * 8 + own_column;
            if (row < all.m && column < all.n) c.store_pair(row * all.n + column, sums[i], sums[i + 1]);
        }
        return;
    }
    if (all.scale)
#pragma unroll
        for (int i = 0; i < T::COLUMNS / 2; ++i) {
            const int64_t column = column0 + i / 4 * 8 + own_column + i % 2;
            sums[i] *= column < all.n ? float(all.scale[column]) : 0.0f;
        }
    // By way of shared memory, so that neighbouring threads write whole packs.
    __syncthreads();
    const Output here = {held, nullptr, 0};
#pragma unroll
    for (int i = 0; i < T::COLUMNS / 2; i += 2)
        here.store_pair((own_row + i / 2 % 2 * 8) * T::PITCH + i / 4 * 8 + own_column, sums[i], sums[i + 1]);
    __syncthreads();
    store_tile<T>(c.whole, held, all, row0, column0);
}

template <class T>
__global__ __launch_bounds__(T::THREADS) void tile_product(const __grid_constant__ CUtensorMap of_a,
                                                           const __grid_constant__ CUtensorMap of_b,
                                                           const Output c, const Product all,
                                                           const Division by) {
    multiply_tile<T, 1>(of_a, of_b, c, all, by);
}

template <class T, int SPLITS>
__global__ __launch_bounds__(T::THREADS) __cluster_dims__(SPLITS, 1, 1) void tile_cluster(
    const __grid_constant__ CUtensorMap of_a, const __grid_constant__ CUtensorMap of_b, const Output c,
    const Product all, const Division by) {
    multiply_tile<T, SPLITS>(of_a, of_b, c, all, by);
}

// `parts`: how many blocks share a tile's depth by way of memory, where SPLITS is 1.
template <class T, int SPLITS>
int launch_tiles(const scalar_t* a, const scalar_t* b, scalar_t* c, const Product& all, int64_t parts,
                 cudaStream_t stream) {
    CUtensorMap of_a, of_b;
    int wrong = hopper::map_matrix(&of_a, hopper::KIND, 2, a, all.batch * all.m, all.k, T::ROWS, 64);
    wrong = wrong ? wrong : hopper::map_matrix(&of_b, hopper::KIND, 2, b, all.k, all.n, DEPTH, 64, all.batch);
    if (wrong) return wrong;
    const int64_t tiles = all.tiles(T::ROWS, T::COLUMNS), steps = all.steps(), blocks = tiles * SPLITS;
    const int64_t each = SPLITS > 1 ? (steps + SPLITS - 1) / SPLITS : (steps + parts - 1) / parts;
    // Alone on its multiprocessor, a block has more on its way; of little depth, many blocks share one. A
    // cluster's blocks are next to each other, so that of many clusters some are to share one, too.
    const bool alone = SPLITS > 1 ? blocks * 3 <= 2 * multiprocessors() : blocks <= multiprocessors();
    const int64_t room = (alone ? 192 : 96) * 1024 / T::SLOT_BYTES, most = min(room, (int64_t)MOST_SLOTS);
    const int slots = (int)min(each, most), least = SPLITS > 1 ? T::PART_BYTES : 0;
    const int bytes = 1024 + max(max(slots, 1) * T::SLOT_BYTES, least);
    const Division by = {(int)all.across(T::COLUMNS), (int)all.down(T::ROWS), (int)tiles, (int)steps,
                         (int)each, slots};
    if constexpr (SPLITS > 1) {
        const auto kernel = tile_cluster<T, SPLITS>;
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
        kernel<<<(unsigned)blocks, T::THREADS, bytes, stream>>>(of_a, of_b, Output{c, nullptr, 0}, all, by);
        return (int)cudaGetLastError();
    } else {
        const int64_t splits = (steps + each - 1) / each;
        cudaFuncSetAttribute(tile_product<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
        return share_depth(splits, c, all.batch * all.m * all.n, stream, [&](const Output& to) {
            tile_product<T><<<(unsigned)(tiles * splits), T::THREADS, bytes, stream>>>(of_a, of_b, to, all, by);
        }, all.scale, all.n);
    }
}

using Small = Tile<64, 64>;
using Middle = Tile<64, 128>;
using Large = Tile<128, 128>;

// Whether it is right, of operands whose rows are whole packs.
inline bool suits(const Product& all) {
    const int64_t most = 1 << 30;
    return all.k > 0 && all.batch * all.m < most && all.k < most && all.n < most && all.tiles(64, 64) < most;
}

// Whether every large tile gets a multiprocessor of its own, so that tiles twice as large take longer; deep
// ones of those share their depth.
inline bool one_each(const Product& all) {
    return all.tiles(128, 128) <= multiprocessors() && all.k < 4096;
}

// About how many clocks the steps take of so many blocks for each tile: a multiprocessor multiplies 2048
// pairs a clock and reads 64 bytes, all of them together read 29 each from the L2.
template <class T>
double clocks(const Product& all, int64_t splits) {
    const double blocks = double(all.tiles(T::ROWS, T::COLUMNS)) * splits, at_once = multiprocessors();
    const double steps = double((all.steps() + splits - 1) / splits);
    const double multiply = T::ROWS * T::COLUMNS * DEPTH / 2048.0, read = T::SLOT_BYTES / 64.0;
    const double own = ceil(blocks / at_once) * (multiply > read ? multiply : read);
    const double together = blocks / at_once * T::SLOT_BYTES / 29.0;
    return steps * (own > together ? own : together);
}

// The fastest of the ways tried, which starts with what is known.
struct Choice {
    const Product& all;
    using Launch = int (*)(const scalar_t*, const scalar_t*, scalar_t*, const Product&, int64_t, cudaStream_t);
    Launch launch = nullptr;
    int64_t parts = 1;
    double best = 0.0;

    void compare(Launch other, int64_t by, double time) {
        if (launch && time >= best) return;
        launch = other, parts = by, best = time;
    }
    // One block for each tile, or a cluster, which takes that long to meet and to add.
    template <class T>
    void compare_all() {
        compare(launch_tiles<T, 1>, 1, clocks<T>(all, 1));
        if (all.width < all.n) return;
        compare_cluster<T, 2>();
        compare_cluster<T, 4>();
        compare_cluster<T, 8>();
    }
    template <class T, int SPLITS>
    void compare_cluster() {
        if (all.steps() >= 2 * SPLITS && all.tiles(T::ROWS, T::COLUMNS) * SPLITS <= multiprocessors())
            compare(launch_tiles<T, SPLITS>, 1, clocks<T>(all, SPLITS) + 2500.0 + 100.0 * SPLITS);
    }
    // More blocks than a cluster has: a second kernel, and parts that are written and read.
    void compare_parts() {
        const int64_t tiles = all.tiles(64, 64), at_once = multiprocessors();
        if (tiles > at_once || all.width < all.n) return;
        const Depths depths(tiles, all.k, DEPTH, at_once - tiles + 1, LEAST);
        const double bytes = 8.0 * depths.splits * all.batch * all.m * all.n;
        if (depths.splits > 1)
            compare(launch_tiles<Small, 1>, depths.splits,
                    clocks<Small>(all, depths.splits) + 5000.0 + bytes / (29.0 * at_once));
    }
};

inline int launch(const scalar_t* a, const scalar_t* b, scalar_t* c, const Product& all, cudaStream_t stream) {
    const int64_t tiles = all.tiles(64, 128), at_once = multiprocessors();
    // Shallow ones wait for their results to be written; of many tiles, all multiprocessors have some.
    if (all.steps() < 4 || tiles > 2 * at_once)
        return tiles >= at_once ? launch_tiles<Middle, 1>(a, b, c, all, 1, stream)
                                : launch_tiles<Small, 1>(a, b, c, all, 1, stream);
    Choice choice = {all};
    choice.compare_parts();
    choice.compare_all<Small>();
    choice.compare_all<Middle>();
    choice.compare_all<Large>();
    return choice.launch(a, b, c, all, choice.parts, stream);
}
}  // namespace tile
