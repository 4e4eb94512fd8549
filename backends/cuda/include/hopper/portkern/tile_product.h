// Products of float16 or bfloat16, alone or in a batch, that have too few large tiles to fill a GPU: a
// block is one warpgroup and has 64 rows and COLUMNS columns of C. One of its threads has the copy engine
// bring in what is needed some steps later. Several blocks share a tile's depth where tiles are few.
#pragma once
#include <portkern/hopper.h>
#include <portkern/shared_depth.h>

namespace tile {
constexpr int THREADS = 128, ROWS = 64, DEPTH = 64, PIECE = DEPTH * 64, MOST_SLOTS = 8;
constexpr int64_t LEAST = 1024;  // of a block's depth: a second kernel takes as long

template <int COLUMNS>
struct Tile {
    static constexpr int PIECES = COLUMNS / 64, A = ROWS * DEPTH, SIZE = A + PIECES * PIECE;
    static constexpr int PITCH = COLUMNS + 8;  // of C in shared memory: no bank conflicts
    static constexpr int SHARED_BYTES = 1024 + SIZE * (int)sizeof(scalar_t);  // with one slot
};

struct Product {
    int64_t batch, m, n, k;
    const scalar_t* scale = nullptr;  // of each column of C

    int64_t across(int columns) const { return (n + columns - 1) / columns; }
    int64_t down() const { return (m + ROWS - 1) / ROWS; }
    int64_t tiles(int columns) const { return batch * down() * across(columns); }
};

template <int COLUMNS>
__global__ __launch_bounds__(THREADS) void tile_product(const __grid_constant__ CUtensorMap of_a,
                                                        const __grid_constant__ CUtensorMap of_b,
                                                        const Output every_c, const Product all,
                                                        int across, int down, int tiles, int each,
                                                        int slots) {
    using T = Tile<COLUMNS>;
    extern __shared__ unsigned char raw[];
    __shared__ uint64_t full[MOST_SLOTS];
    scalar_t* const held = reinterpret_cast<scalar_t*>(raw + (-hopper::address(raw) & 1023));
    const int number = blockIdx.x % tiles, split = blockIdx.x / tiles, batch = number / across / down;
    const int row0 = number / across % down * ROWS, column0 = number % across * COLUMNS;
    const int first = split * each, lane = threadIdx.x;
    const int steps = min((int)((all.k + DEPTH - 1) / DEPTH) - first, each);
    const auto fetch = [&](int slot, int step) {
        const int depth = (first + step) * DEPTH;
        scalar_t* const to = held + slot * T::SIZE;
        hopper::expect_bytes(&full[slot], T::SIZE * sizeof(scalar_t));
        hopper::load_box(to, &of_a, depth, batch * (int)all.m + row0, &full[slot]);
        for (int p = 0; p < T::PIECES; ++p)
            hopper::load_box(to + T::A + p * PIECE, &of_b, column0 + p * 64, depth, batch, &full[slot]);
    };
    if (lane == 0) {
        for (int s = 0; s < slots; ++s) hopper::init(&full[s], 1);
        hopper::fence_barriers();
        for (int s = 0; s < slots && s < steps; ++s) fetch(s, s);
    }
    __syncthreads();
    float sums[COLUMNS / 2] = {};
    hopper::begin_products();
    int slot = 0, last = 0, phase = 0;
    for (int step = 0; step < steps; ++step) {
        hopper::wait(&full[slot], phase);
        const scalar_t *left = held + slot * T::SIZE, *right = left + T::A;
#pragma unroll
        for (int d = 0; d < DEPTH; d += 16)
            hopper::multiply(sums, hopper::operand(left + d, 1024),
                             hopper::operand(right + d * 64, 1024, PIECE * sizeof(scalar_t)));
        hopper::commit_products();
        hopper::wait_products<1>();
        __syncthreads();  // all warps are done with the step before: its slot is free
        if (lane == 0 && step > 0 && step - 1 + slots < steps) fetch(last, step - 1 + slots);
        last = slot;
        if (++slot == slots) slot = 0, phase ^= 1;
    }
    hopper::wait_products<0>();
    hopper::settle(sums);
    const Output c = every_c.from(split, batch * all.m * all.n);
    const int own_row = lane / 32 * 16 + lane % 32 / 4, own_column = lane % 4 * 2;
    if (c.parts) {
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i += 2) {
            const int64_t row = row0 + own_row + i / 2 % 2 * 8, column = column0 + i / 4 * 8 + own_column;
            if (row < all.m && column < all.n) c.store_pair(row * all.n + column, sums[i], sums[i + 1]);
        }
        return;
    }
    if (all.scale)
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; ++i) {
            const int64_t column = column0 + i / 4 * 8 + own_column + i % 2;
            sums[i] *= column < all.n ? float(all.scale[column]) : 0.0f;
        }
    // By way of shared memory, so that neighbouring threads write whole packs.
    __syncthreads();
    const Output here = {held, nullptr, 0};
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; i += 2)
        here.store_pair((own_row + i / 2 % 2 * 8) * T::PITCH + i / 4 * 8 + own_column, sums[i], sums[i + 1]);
    __syncthreads();
#pragma unroll 4
    for (int p = lane; p < ROWS * COLUMNS / VEC; p += THREADS) {
        const int row = p / (COLUMNS / VEC), column = p % (COLUMNS / VEC) * VEC;
        if (row0 + row < all.m && column0 + column < all.n)
            *reinterpret_cast<Pack*>(c.whole + (row0 + row) * all.n + column0 + column) =
                *reinterpret_cast<const Pack*>(held + row * T::PITCH + column);
    }
}

template <int COLUMNS>
int launch_tiles(const scalar_t* a, const scalar_t* b, scalar_t* c, const Product& all, cudaStream_t stream) {
    using T = Tile<COLUMNS>;
    CUtensorMap of_a, of_b;
    int wrong = hopper::map_matrix(&of_a, hopper::KIND, 2, a, all.batch * all.m, all.k, ROWS, 64);
    wrong = wrong ? wrong : hopper::map_matrix(&of_b, hopper::KIND, 2, b, all.k, all.n, DEPTH, 64, all.batch);
    if (wrong) return wrong;
    // One more block than all multiprocessors take at once would take as long as as many again. Alone on
    // its multiprocessor, a block has more on its way; of little depth, many blocks share one.
    const int64_t tiles = all.tiles(COLUMNS), at_once = multiprocessors();
    const bool alone = tiles <= at_once;
    const Depths depths(tiles, all.k, DEPTH, alone ? at_once - tiles + 1 : 1, LEAST);
    const int64_t each = depths.each / DEPTH, most = alone ? MOST_SLOTS : COLUMNS == 64 ? 6 : 4;
    const int slots = (int)(each < most ? each : most);
    const int bytes = T::SHARED_BYTES + (slots - 1) * T::SIZE * (int)sizeof(scalar_t);
    const auto kernel = tile_product<COLUMNS>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    return share_depth(depths.splits, c, all.batch * all.m * all.n, stream, [&](const Output& to) {
        kernel<<<(unsigned)(tiles * depths.splits), THREADS, bytes, stream>>>(
            of_a, of_b, to, all, (int)all.across(COLUMNS), (int)all.down(), (int)tiles, (int)each, slots);
    }, all.scale, all.n);
}

// Whether it is right, of operands whose rows are whole packs.
inline bool suits(const Product& all) {
    const int64_t most = 1 << 30;
    return all.k > 0 && all.batch * all.m < most && all.k < most && all.n < most && all.tiles(64) < most;
}

inline int launch(const scalar_t* a, const scalar_t* b, scalar_t* c, const Product& all, cudaStream_t stream) {
    return all.tiles(128) >= multiprocessors() ? launch_tiles<128>(a, b, c, all, stream)
                                                       : launch_tiles<64>(a, b, c, all, stream);
}
}  // namespace tile
