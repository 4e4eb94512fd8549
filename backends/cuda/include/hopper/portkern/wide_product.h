// Large products of float16 or bfloat16 on Hopper, alone or in a batch.
//
// Persistent blocks of three warpgroups: one has the copy engine bring tiles of A and B in, two
// multiply 64 rows each. A tile of C leaves through shared memory, also by the copy engine, while
// the next one's operands arrive. Where tiles are too few for all multiprocessors and deep, several blocks
// share the depth of each. Where B lies ALONG the depth, its rows are the columns of C, which a bias may be added to.
// BAND and PIPELINE are the including source's.
#pragma once
#include <portkern/hopper.h>
#include <portkern/shared_depth.h>

namespace wide {
constexpr int ROWS = 128, COLUMNS = 256, DEPTH = 64, PIECES = COLUMNS / 64;
constexpr int A_TILE = ROWS * DEPTH, B_PIECE = DEPTH * 64, TILE = A_TILE + PIECES * B_PIECE;
constexpr int64_t LEAST = 2048;  // of a block's depth: adding parts of large tiles takes long
constexpr int BUFFER = 64 * 128;  // of C: half the columns of one warpgroup's tile
constexpr int SHARED = (PIPELINE * TILE + 2 * BUFFER) * (int)sizeof(scalar_t) + 1024;

struct Pipeline {
    uint64_t full[PIPELINE], empty[PIPELINE];
};

template <bool ALONG>
__global__ __launch_bounds__(384, 1) void matmul_wgmma(const __grid_constant__ CUtensorMap of_a,
                                                       const __grid_constant__ CUtensorMap of_b,
                                                       const __grid_constant__ CUtensorMap of_c,
                                                       const scalar_t* __restrict__ scale,
                                                       const scalar_t* __restrict__ bias,
                                                       const Output c, int m, int n, int padded, int down,
                                                       int across, int steps, int each, int splits) {
    let_next_begin();
    extern __shared__ unsigned char raw[];
    __shared__ Pipeline pipe;
    scalar_t* tiles = reinterpret_cast<scalar_t*>(raw + (-hopper::address(raw) & 1023));
    const int group = threadIdx.x / 128, lane = threadIdx.x % 128;
    if (threadIdx.x == 0) {
        for (int s = 0; s < PIPELINE; ++s) {
            hopper::init(&pipe.full[s], 1);
            hopper::init(&pipe.empty[s], 2);
        }
        hopper::fence_barriers();
    }
    __syncthreads();
    int slot = 0, phase = 0;
    const auto advance = [&] {
        if (++slot == PIPELINE) slot = 0, phase ^= 1;
    };
    // Tiles come `splits` times, each time with another part of the depth.
    const int count = down * across;
    const auto first = [&](int t) { return min(steps, each * (t / count)); };
    if (group == 0) {
        hopper::fewer_registers<40>();
        for (int t = blockIdx.x; lane == 0 && t < count * splits; t += gridDim.x) {
            const int2 at = hopper::place<BAND, ROWS, COLUMNS>(t % count, down, across);
            const int batch = at.x / padded, row = at.x % padded;
            for (int step = first(t); step < first(t + count); ++step, advance()) {
                hopper::wait(&pipe.empty[slot], phase ^ 1);
                scalar_t* tile = tiles + slot * TILE;
                hopper::expect_bytes(&pipe.full[slot], TILE * sizeof(scalar_t));
                hopper::load_box(tile, &of_a, step * DEPTH, row, batch, &pipe.full[slot]);
                if (ALONG) hopper::load_box(tile + A_TILE, &of_b, step * DEPTH, at.y, &pipe.full[slot]);
                for (int p = 0; p < (ALONG ? 0 : PIECES); ++p)
                    hopper::load_box(tile + A_TILE + p * B_PIECE, &of_b, at.y + p * 64, step * DEPTH, batch,
                                     &pipe.full[slot]);
            }
        }
        return;
    }
    hopper::more_registers<232>();
    scalar_t* buffer = tiles + PIPELINE * TILE + (group - 1) * BUFFER;
    for (int t = blockIdx.x; t < count * splits; t += gridDim.x) {
        const int2 at = hopper::place<BAND, ROWS, COLUMNS>(t % count, down, across);
        const int todo = first(t + count) - first(t), batch = at.x / padded;
        const int top = at.x % padded + (group - 1) * 64;
        float sums[128] = {};
        hopper::begin_products();
        for (int step = 0, last = 0; step < todo; ++step, last = slot, advance()) {
            hopper::wait(&pipe.full[slot], phase);
            const scalar_t* left = tiles + slot * TILE + (group - 1) * 64 * DEPTH;
            const scalar_t* right = tiles + slot * TILE + A_TILE;
#pragma unroll
            for (int d = 0; d < DEPTH; d += 16) {
                const uint64_t a = hopper::operand(left + d, 1024);
                const uint64_t b = ALONG ? hopper::operand(right + d, 1024)
                                         : hopper::operand(right + d * 64, 1024, B_PIECE * sizeof(scalar_t));
                hopper::multiply<ALONG>(sums, a, b);
            }
            hopper::commit_products();
            hopper::wait_products<1>();  // the products of the step before: its tile is free
            if (step > 0 && lane == 0) hopper::arrive(&pipe.empty[last]);
        }
        hopper::wait_products<0>();
        hopper::settle(sums);
        if (lane == 0) hopper::arrive(&pipe.empty[(slot + PIPELINE - 1) % PIPELINE]);
        const int row = lane / 32 * 16 + lane % 32 / 4;
        if (ALONG && bias && t < count)
#pragma unroll
            for (int i = 0; i < 128; ++i) {
                const int column = at.y + i / 4 * 8 + lane % 4 * 2 + i % 2;
                sums[i] += column < n ? float(bias[column]) : 0.0f;
            }
        if (c.parts) {
            float* to = c.parts + t / count * c.count + (int64_t)batch * m * n;
#pragma unroll
            for (int i = 0; i < 128; i += 2) {
                const int own = top + row + i / 2 % 2 * 8, column = at.y + i / 4 * 8 + lane % 4 * 2;
                if (own < m && column < n)
                    *reinterpret_cast<float2*>(to + (int64_t)own * n + column) = make_float2(sums[i], sums[i + 1]);
            }
            continue;
        }
        if (scale)
#pragma unroll
            for (int i = 0; i < 128; ++i) {
                const int column = at.y + i / 4 * 8 + lane % 4 * 2 + i % 2;
                sums[i] *= column < n ? float(scale[column]) : 0.0f;
            }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            if (lane == 0) hopper::wait_stores();
            asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory");
#pragma unroll
            for (int j = 0; j < 16; ++j)
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    struct alignas(4) Pair {
                        scalar_t at[2];
                    };
                    const float* from = sums + half * 64 + j * 4 + r * 2;
                    // Swizzled as the copy engine reads it: piece j of a row lies at j ^ row % 8.
                    const int to = (j / 8 * 64 + row + r * 8) * 64 + ((j ^ row) & 7) * 8 + lane % 4 * 2;
                    *reinterpret_cast<Pair*>(buffer + to) = {scalar_t(from[0]), scalar_t(from[1])};
                }
            hopper::fence_async();
            asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory");
            if (lane == 0) {
                for (int p = 0; p < 2; ++p)
                    hopper::store_box(&of_c, buffer + p * 64 * 64, at.y + half * 128 + p * 64,
                                      top, batch);
                hopper::commit_stores();
            }
        }
    }
    if (lane == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

inline int64_t rows_of_tiles(int64_t m) { return (m + ROWS - 1) / ROWS * ROWS; }

// Whether it is right, of operands whose rows are whole packs, and its tiles have their rows.
inline bool suits(int64_t batch, int64_t m, int64_t n, int64_t k) {
    const int64_t most = 1 << 30;
    return k > 0 && (batch == 1 || rows_of_tiles(m) <= m + m / 4) && batch * (m + ROWS) < most && k < most &&
           n < most;
}

// `scale`, `bias`: of each column of C, where there is one.
template <bool ALONG = false>
int launch(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t batch, int64_t m, int64_t n,
                  int64_t k, cudaStream_t stream, const scalar_t* scale = nullptr, const scalar_t* bias = nullptr) {
    CUtensorMap of_a, of_b, of_c;
    int wrong = hopper::map_matrix(&of_a, hopper::KIND, 2, a, m, k, ROWS, 64, batch);
    wrong = wrong ? wrong
            : ALONG ? hopper::map_matrix(&of_b, hopper::KIND, 2, b, n, k, COLUMNS, 64)
                    : hopper::map_matrix(&of_b, hopper::KIND, 2, b, k, n, DEPTH, 64, batch);
    wrong = wrong ? wrong : hopper::map_matrix(&of_c, hopper::KIND, 2, c, m, n, 64, 64, batch);
    if (wrong) return wrong;
    const int padded = (int)rows_of_tiles(m), down = (int)batch * padded / ROWS;
    const int across = (int)((n + COLUMNS - 1) / COLUMNS), tiles = down * across, at_once = multiprocessors();
    const Depths depths(tiles, k, DEPTH, wanted_at_once(tiles, at_once), LEAST);
    const int blocks = (int)min((int64_t)at_once, tiles * depths.splits);
    cudaFuncSetAttribute(matmul_wgmma<ALONG>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
    return share_depth(depths.splits, c, batch * m * n, stream, [&](const Output& to) {
        matmul_wgmma<ALONG><<<blocks, 384, SHARED, stream>>>(
            of_a, of_b, of_c, scale, bias, to, (int)m, (int)n, padded, down, across,
            (int)((k + DEPTH - 1) / DEPTH), (int)(depths.each / DEPTH), (int)depths.splits);
    }, scale, n);
}

// About how many clocks it takes, counted as tile_product.h counts its own.
inline double clocks(int64_t m, int64_t n, int64_t k) {
    const int64_t tiles = (m + ROWS - 1) / ROWS * ((n + COLUMNS - 1) / COLUMNS), at_once = multiprocessors();
    const Depths depths(tiles, k, DEPTH, wanted_at_once(tiles, at_once), LEAST);
    const double blocks = double(tiles) * depths.splits, steps = double(depths.each / DEPTH);
    const double multiply = ROWS * COLUMNS * DEPTH / 1380.0, bytes = TILE * 2.0;
    const double own = ceil(blocks / at_once) * (steps * max(multiply, bytes / 45.0) + 460.0);
    const double together = blocks / at_once * steps * bytes / 33.0;
    const double parts = 8.0 * depths.splits * m * n / (33.0 * at_once);
    return max(own, together) + (depths.splits > 1 ? 10000.0 + parts : 0.0);
}
}  // namespace wide
