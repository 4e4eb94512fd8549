// Products of float16 or bfloat16, alone or in a batch, that have too few large tiles to fill a GPU: a
// block is one warpgroup for each 64 rows of its tile of C. One of its threads has the copy engine bring in
// what is needed some steps later. Several blocks share a tile's depth where tiles are few: two of a cluster, which
// add their sums from each other's shared memory, or more, whose parts a second kernel adds. Where B lies
// ALONG the depth, its rows are the columns of C, which a bias may be added to.
#pragma once
#include <portkern/hopper.h>
#include <portkern/shared_depth.h>

namespace hopper {
// Eight neighbours of another block of the cluster.
__device__ __forceinline__ void peek(const float* p, int of, float4 (&both)[2]) {
    asm volatile("{\n.reg .u32 there;\nmapa.shared::cluster.u32 there, %8, %9;\n"
                 "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n"
                 "ld.shared::cluster.v4.f32 {%4, %5, %6, %7}, [there+16];\n}"
                 : "=f"(both[0].x), "=f"(both[0].y), "=f"(both[0].z), "=f"(both[0].w), "=f"(both[1].x),
                   "=f"(both[1].y), "=f"(both[1].z), "=f"(both[1].w)
                 : "r"(address(p)), "r"(of) : "memory");
}
}  // namespace hopper

namespace tile {
constexpr int DEPTH = 64, PIECE = DEPTH * 64, MOST_SLOTS = 8;
constexpr int64_t LEAST = 1024;  // of a block's depth: a second kernel takes as long
constexpr int64_t SHALLOW = 256;  // up to which a copy of C takes longer than to store its elements alone

template <int R, int C>
struct Tile {
    static constexpr int ROWS = R, COLUMNS = C, THREADS = 2 * R, PIECES = (C + 63) / 64;
    static constexpr int A = R * DEPTH, SIZE = A + PIECES * PIECE, SLOT_BYTES = SIZE * sizeof(scalar_t);
    static constexpr int PITCH = C + 8;  // of C in shared memory: no bank conflicts
};
using Small = Tile<64, 64>;
using Middle = Tile<64, 128>;
using Large = Tile<128, 128>;

struct Product {
    int64_t batch, m, n, k;
    const scalar_t* scale = nullptr;  // of each column of C
    int64_t width = n;  // of C in memory: less than n where B has rows of whole packs and C has not
    const scalar_t* bias = nullptr;  // of each column of C, where B lies along

    int64_t across(int columns) const { return (n + columns - 1) / columns; }
    int64_t down(int rows) const { return (m + rows - 1) / rows; }
    int64_t steps() const { return (k + DEPTH - 1) / DEPTH; }
    int64_t tiles(int rows, int columns) const { return batch * down(rows) * across(columns); }
};

// How tiles and the steps of their depth are divided among blocks, and how many slots each of these has.
struct Division {
    int across, down, tiles, deep, each, slots;
};

// What the TEAM of blocks of a cluster summed of a tile, added and written, a part of the rows by each.
template <class T, int TEAM>
__device__ __forceinline__ void add_team(float* held, const float (&sums)[T::COLUMNS / 2], const Product& all,
                                         scalar_t* c, int row0, int column0, int own_row, int own_column) {
    constexpr int PITCH = T::COLUMNS + 8, PACKS = T::COLUMNS / VEC;
#pragma unroll
    for (int i = 0; i < T::COLUMNS / 2; i += 2)
        *reinterpret_cast<float2*>(held + (own_row + i / 2 % 2 * 8) * PITCH + i / 4 * 8 + own_column) =
            make_float2(sums[i], sums[i + 1]);
    hopper::arrive_cluster();
    hopper::wait_cluster();
    const int me = hopper::rank(), from = me * T::ROWS / TEAM, to = (me + 1) * T::ROWS / TEAM;
    for (int p = from * PACKS + threadIdx.x; p < to * PACKS; p += T::THREADS) {
        const int row = p / PACKS, column = p % PACKS * VEC;
        float4 both[TEAM][2];
#pragma unroll
        for (int b = 0; b < TEAM; ++b) hopper::peek(held + row * PITCH + column, b, both[b]);
        Pack pack;
#pragma unroll
        for (int j = 0; j < VEC; ++j) {
            float sum = 0.0f;
#pragma unroll
            for (int b = 0; b < TEAM; ++b) sum += reinterpret_cast<const float*>(both[b])[j];
            pack.at[j] = scalar_t(sum);
        }
        if (row0 + row < all.m && column0 + column < all.n)
            *reinterpret_cast<Pack*>(c + (int64_t)(row0 + row) * all.n + column0 + column) = pack;
    }
    hopper::arrive_cluster();  // others may be reading what this block has
    hopper::wait_cluster();
}

template <class T, bool ALONG, int TEAM = 1>
__global__ __launch_bounds__(T::THREADS) void tile_product(const __grid_constant__ CUtensorMap of_a,
                                                           const __grid_constant__ CUtensorMap of_b,
                                                           const Output every_c, const Product all,
                                                           const Division by) {
    let_next_begin();
    extern __shared__ unsigned char raw[];
    __shared__ uint64_t full[MOST_SLOTS];
    scalar_t* const held = reinterpret_cast<scalar_t*>(raw + (-hopper::address(raw) & 1023));
    const int number = TEAM > 1 ? blockIdx.x / TEAM : blockIdx.x % by.tiles;
    const int split = TEAM > 1 ? blockIdx.x % TEAM : blockIdx.x / by.tiles, slots = by.slots;
    const int batch = number / by.across / by.down;
    const int row0 = number / by.across % by.down * T::ROWS, column0 = number % by.across * T::COLUMNS;
    const int first = split * by.each, steps = max(min(by.deep - first, by.each), 0);
    const int lane = threadIdx.x % 128, group_row = threadIdx.x / 128 * 64;
    const auto fetch = [&](int slot, int step) {
        const int depth = (first + step) * DEPTH;
        scalar_t* const to = held + slot * T::SIZE;
        hopper::expect_bytes(&full[slot], T::SLOT_BYTES);
        hopper::load_box(to, &of_a, depth, batch * (int)all.m + row0, &full[slot]);
        if (ALONG) hopper::load_box(to + T::A, &of_b, depth, column0, &full[slot]);
        for (int p = 0; p < (ALONG ? 0 : T::PIECES); ++p)
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
            hopper::multiply<ALONG>(sums, hopper::operand(left + d, 1024),
                                    ALONG ? hopper::operand(right + d, 1024)
                                          : hopper::operand(right + d * 64, 1024, PIECE * sizeof(scalar_t)));
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
    if (ALONG && all.bias && split == 0)
#pragma unroll
        for (int i = 0; i < T::COLUMNS / 2; ++i) {
            const int64_t column = column0 + i / 4 * 8 + own_column + i % 2;
            sums[i] += column < all.width ? float(all.bias[column]) : 0.0f;
        }
    if constexpr (TEAM > 1) {
        __syncthreads();
        add_team<T, TEAM>(reinterpret_cast<float*>(held), sums, all, every_c.whole + batch * all.m * all.width, row0,
                          column0, own_row, own_column);
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
    if (all.width < all.n) {  // rows begin anywhere
#pragma unroll 8
        for (int p = threadIdx.x; p < T::ROWS * T::COLUMNS; p += T::THREADS) {
            const int row = p / T::COLUMNS, column = p % T::COLUMNS;
            if (row0 + row < all.m && column0 + column < all.width)
                c.whole[(row0 + row) * all.width + column0 + column] = held[row * T::PITCH + column];
        }
        return;
    }
#pragma unroll 4
    for (int p = threadIdx.x; p < T::ROWS * T::COLUMNS / VEC; p += T::THREADS) {
        const int row = p / (T::COLUMNS / VEC), column = p % (T::COLUMNS / VEC) * VEC;
        if (row0 + row < all.m && column0 + column < all.n)
            *reinterpret_cast<Pack*>(c.whole + (row0 + row) * all.n + column0 + column) =
                *reinterpret_cast<const Pack*>(held + row * T::PITCH + column);
    }
}

template <class T, bool ALONG>
int launch_tiles(const scalar_t* a, const scalar_t* b, scalar_t* c, const Product& all, int64_t splits,
                 cudaStream_t stream) {
    CUtensorMap of_a, of_b;
    int wrong = hopper::map_matrix(&of_a, hopper::KIND, 2, a, all.batch * all.m, all.k, T::ROWS, 64);
    wrong = wrong ? wrong
            : ALONG ? hopper::map_matrix(&of_b, hopper::KIND, 2, b, all.width, all.k, T::COLUMNS, 64)
                    : hopper::map_matrix(&of_b, hopper::KIND, 2, b, all.k, all.n, DEPTH, 64, all.batch);
    if (wrong) return wrong;
    const int64_t tiles = all.tiles(T::ROWS, T::COLUMNS), each = (all.steps() + splits - 1) / splits;
    const int64_t parts = (all.steps() + each - 1) / each;
    // Alone on its multiprocessor, a block has more on its way; of little depth, many blocks share one.
    const bool alone = tiles * parts <= multiprocessors();
    const int64_t room = (alone ? 192 : 96) * 1024 / T::SLOT_BYTES;
    const int slots = (int)min(each, min(room, (int64_t)MOST_SLOTS));
    const int bytes = 1024 + max(slots * T::SLOT_BYTES, T::ROWS * T::PITCH * (int)sizeof(scalar_t));
    const Division by = {(int)all.across(T::COLUMNS), (int)all.down(T::ROWS), (int)tiles,
                         (int)all.steps(), (int)each, slots};
    cudaFuncSetAttribute(tile_product<T, ALONG>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    return share_depth(parts, c, all.batch * all.m * all.n, stream, [&](const Output& to) {
        tile_product<T, ALONG>
            <<<(unsigned)(tiles * parts), T::THREADS, bytes, stream>>>(of_a, of_b, to, all, by);
    }, all.scale, all.n);
}

#ifdef PORTKERN_CLUSTERS  // the SIMT executor has none
// Of a product alone, without a scale.
template <class T, int TEAM>
int launch_team(const scalar_t* a, const scalar_t* b, scalar_t* c, const Product& all, int64_t, cudaStream_t stream) {
    CUtensorMap of_a, of_b;
    int wrong = hopper::map_matrix(&of_a, hopper::KIND, 2, a, all.batch * all.m, all.k, T::ROWS, 64);
    wrong = wrong ? wrong : hopper::map_matrix(&of_b, hopper::KIND, 2, b, all.k, all.n, DEPTH, 64, all.batch);
    if (wrong) return wrong;
    const int64_t tiles = all.tiles(T::ROWS, T::COLUMNS), each = (all.steps() + TEAM - 1) / TEAM;
    const int64_t room = (tiles * TEAM <= multiprocessors() ? 192 : 96) * 1024 / T::SLOT_BYTES;
    const int slots = (int)min(each, min(room, (int64_t)MOST_SLOTS));
    const int bytes = 1024 + max(slots * T::SLOT_BYTES, T::ROWS * (T::COLUMNS + 8) * (int)sizeof(float));
    const Division by = {(int)all.across(T::COLUMNS), (int)all.down(T::ROWS), (int)tiles,
                         (int)all.steps(), (int)each, slots};
    const auto kernel = tile_product<T, false, TEAM>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {TEAM, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)(tiles * TEAM));
    config.blockDim = dim3(T::THREADS);
    config.dynamicSmemBytes = bytes;
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    return (int)cudaLaunchKernelEx(&config, kernel, of_a, of_b, Output{c, nullptr, 0}, all, by);
}
#endif

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

// Into how many parts tiles of this size divide their depth, and about how many clocks that takes.
struct Way {
    int (*launch)(const scalar_t*, const scalar_t*, scalar_t*, const Product&, int64_t, cudaStream_t);
    int64_t splits;
    double clocks;
};

// One more block than all multiprocessors take at once would take as long as as many again. As an H200 was seen to
// do, in a clock of a multiprocessor: it multiplies 1380 pairs and reads 45 bytes, of which all of them together
// have 33 each from the L2 and 24 from memory. To begin and end a tile takes some hundred clocks; a second kernel
// takes 10000, and reads what was written.
template <class T, bool ALONG>
Way way(const Product& all) {
    const int64_t tiles = all.tiles(T::ROWS, T::COLUMNS), at_once = multiprocessors();
    const Depths depths(tiles, all.k, DEPTH, wanted_at_once(tiles, at_once), LEAST);
    const double blocks = double(tiles) * depths.splits, steps = double(depths.each / DEPTH);
    const double multiply = T::ROWS * T::COLUMNS * DEPTH / 1380.0, read = T::SLOT_BYTES / 45.0;
    const double own = ceil(blocks / at_once) * (steps * max(multiply, read) + 730.0);
    const double together = blocks / at_once * steps * T::SLOT_BYTES / 33.0;
    const double cold = 2.0 * all.batch * all.k * (all.m + all.n) / (24.0 * at_once);
    const double parts = 8.0 * depths.splits * all.batch * all.m * all.n / (33.0 * at_once);
    const double second = depths.splits > 1 ? 10000.0 + parts : 0.0;
    return {launch_tiles<T, ALONG>, depths.splits, max(max(own, together), cold) + second};
}

#ifdef PORTKERN_CLUSTERS
// The same for products alone that have tiles enough, fitted to 33 of them which an H200 was timed with in all ways:
// what is chosen takes 1.03 times the best way's time in the mean. Clocks are counted as wide_product.h counts its own.
template <class T, int TEAM>
Way team_way(const Product& all) {
    const double at_once = multiprocessors(), blocks = double(all.tiles(T::ROWS, T::COLUMNS)) * TEAM;
    const double steps = (all.steps() + TEAM - 1) / TEAM;
    const double multiply = T::ROWS * T::COLUMNS * DEPTH / 1727.0, read = T::SLOT_BYTES / 43.65;
    const double own = ceil(blocks / at_once) * (steps * max(multiply, read) + 1450.0);
    const double together = blocks / at_once * steps * T::SLOT_BYTES / 35.7;
    const double cold = 2.0 * all.k * (all.m + all.n) / (17.8 * at_once);
    const double clocks = (max(max(own, together), cold) + (TEAM > 1 ? 4690.0 : 0.0)) / 0.73;
    if constexpr (TEAM > 1) return {launch_team<T, TEAM>, 1, clocks};
    else return {launch_tiles<T, false>, 1, clocks};
}
inline bool suits_teams(const Product& all) {
    return all.batch == 1 && !all.scale && all.width == all.n && all.steps() >= 8 && all.k <= 16384 &&
           all.tiles(64, 64) >= 48;
}
inline Way best_of_teams(const Product& all) {
    Way best = team_way<Small, 1>(all);
    const auto take = [&](const Way& other) {
        if (other.clocks < best.clocks) best = other;
    };
    const auto both = [&](auto tile) {
        take(team_way<decltype(tile), 1>(all));
        take(team_way<decltype(tile), 2>(all));
    };
    both(Small()), both(Middle()), both(Large()), both(Tile<64, 192>()), both(Tile<64, 256>());
    both(Tile<128, 64>()), both(Tile<128, 160>()), both(Tile<128, 192>());
    return best;
}
#endif

// TEAMS: clusters may be among them.
template <bool ALONG = false, bool TEAMS = false>
Way best(const Product& all) {
#ifdef PORTKERN_CLUSTERS
    if constexpr (TEAMS)
        if (suits_teams(all)) return best_of_teams(all);
#endif
    const int64_t tiles = all.tiles(64, 128), at_once = multiprocessors();
    // Shallow ones wait for their results to be written. Parts have whole packs in their rows.
    if (all.steps() < 4 || all.width < all.n)
        return tiles >= at_once ? Way{launch_tiles<Middle, ALONG>, 1, 0.0} : Way{launch_tiles<Small, ALONG>, 1, 0.0};
    Way best = way<Small, ALONG>(all);
    const auto take = [&](const Way& other) {
        if (other.clocks < best.clocks) best = other;
    };
    take(way<Middle, ALONG>(all));
    take(way<Large, ALONG>(all));
    if constexpr (!ALONG) {
        take(way<Tile<64, 256>, ALONG>(all));
        take(way<Tile<128, 160>, ALONG>(all));
        take(way<Tile<128, 192>, ALONG>(all));
    }
    return best;
}

template <bool ALONG = false>
int launch(const scalar_t* a, const scalar_t* b, scalar_t* c, const Product& all, cudaStream_t stream) {
    const Way way = best<ALONG>(all);
    return way.launch(a, b, c, all, way.splits, stream);
}
}  // namespace tile
