// Causal attention of 16 bits on Hopper by wgmma, fed by the bulk tensor copy engine: one warpgroup has it
// bring tiles of keys and values in, two compute 64 queries each. Scores become powers, and these the
// left operand of the second product, without leaving their registers; a tile's first product runs
// beside the last tile's second one. Heads of other sizes, and the ends of lengths, are padded with the
// zeros that the copy engine puts where a box lies outside of its head. The queries of a group are rows of one
// head.
// FLASH_FROM and FLASH_FILLS are the including source's.
#pragma once
#include <portkern/attention_tiles.h>
#include <portkern/hopper.h>

namespace flash {
constexpr int QUERIES = 128, SLOTS = 2;
constexpr int64_t L2_BYTES = 24 << 20;  // of keys and values that are read again, about half of an H200's
#ifdef PORTKERN_FLOAT16
#define PAIR "cvt.rn.f16x2.f32 %0, %1, %2;"
#else
#define PAIR "cvt.rn.bf16x2.f32 %0, %1, %2;"
#endif
__device__ __forceinline__ unsigned pair(float low, float high) {
    unsigned both;
    asm(PAIR : "=r"(both) : "f"(high), "f"(low));
    return both;
}
constexpr float LOWEST = -3.402823466e38f;  // finite: a maximum of -inf would make inf - inf

__device__ __forceinline__ float power(float of) {  // of 2, in one instruction
    asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(of));
    return of;
}

struct Ring {
    uint64_t full[SLOTS], empty[SLOTS];
};

// A tile lies in pieces of 64 columns, of which products may leave the last ones out. Of wide rows there is room
// for fewer keys.
template <int D>
constexpr int KEYS_OF = D > 128 ? 64 : 128;
template <int D, int ROWS>
constexpr int TILE = ROWS * ((D + 63) / 64 * 64);

template <int D, int ROWS>
__device__ __forceinline__ void fetch(scalar_t* tile, const CUtensorMap* map, int row, int head,
                                      uint64_t* full) {
    hopper::expect_bytes(full, TILE<D, ROWS> * sizeof(scalar_t));
    for (int p = 0; p * ROWS * 64 < TILE<D, ROWS>; ++p)
        hopper::load_box(tile + p * ROWS * 64, map, p * 64, row, head, full);
}

__device__ __forceinline__ float quad_max(float value) {
    value = fmaxf(value, __shfl_xor_sync(~0u, value, 1));
    return fmaxf(value, __shfl_xor_sync(~0u, value, 2));
}
__device__ __forceinline__ float quad_sum(float value) {
    value += __shfl_xor_sync(~0u, value, 1);
    return value + __shfl_xor_sync(~0u, value, 2);
}

// D: `dim` padded to what the products take.
template <int D, class Sight>
__global__ __launch_bounds__(384, 1) void attention_flash(
    const __grid_constant__ CUtensorMap of_q, const __grid_constant__ CUtensorMap of_k,
    const __grid_constant__ CUtensorMap of_v, scalar_t* __restrict__ y, const Sight sight, int dim,
    float scale, int together) {
    extern __shared__ unsigned char raw[];
    __shared__ Ring of_keys, of_values;
    __shared__ uint64_t queries_there;
    constexpr int KEYS = KEYS_OF<D>, TILE = flash::TILE<D, KEYS>;
    scalar_t* queries = reinterpret_cast<scalar_t*>(raw + (-hopper::address(raw) & 1023));
    scalar_t *keys = queries + flash::TILE<D, QUERIES>, *values = keys + SLOTS * TILE;
    const int rows = (int)sight.rows, tiles = (rows + QUERIES - 1) / QUERIES, group = threadIdx.x / 128, lane = threadIdx.x % 128;
    // Of as many heads as the L2 has room for, tiles with most keys come first.
    const int set = blockIdx.x / (together * tiles), within = blockIdx.x % (together * tiles);
    const int beside = min(together, (int)gridDim.x / tiles - set * together);
    const int head = set * together + within % beside, tile = sight.by_keys(within / beside, tiles, QUERIES);
    // From the last tile of keys on that a row sees to the first one; one whose keys nobody sees if there is none.
    const int2 places = sight.places(tile * QUERIES, QUERIES);
    const int last = Sight::GROUPED ? max(places.y, 0) / KEYS : tile;
    const int steps = Sight::GROUPED ? last - min(sight.begin(places.x) / KEYS, last) + 1 : tile + 1;
    if (threadIdx.x == 0) {
        hopper::init(&queries_there, 1);
        for (int s = 0; s < SLOTS; ++s) {
            hopper::init(&of_keys.full[s], 1);
            hopper::init(&of_keys.empty[s], 2);
            hopper::init(&of_values.full[s], 1);
            hopper::init(&of_values.empty[s], 2);
        }
        hopper::fence_barriers();
    }
    __syncthreads();
    if (group == 0) {
        hopper::fewer_registers<24>();
        if (lane > 0) return;
        fetch<D, QUERIES>(queries, &of_q, tile * QUERIES, head, &queries_there);
        for (int n = 0; n < steps; ++n) {
            const int slot = n % SLOTS, parity = n / SLOTS % 2 ^ 1, row = (last - n) * KEYS;
            hopper::wait(&of_keys.empty[slot], parity);
            fetch<D, KEYS>(keys + slot * TILE, &of_k, row, head, &of_keys.full[slot]);
            hopper::wait(&of_values.empty[slot], parity);
            fetch<D, KEYS>(values + slot * TILE, &of_v, row, head, &of_values.full[slot]);
        }
        return;
    }
    hopper::more_registers<240>();
    const int first = (group - 1) * 64 + lane / 32 * 16 + lane % 32 / 4;  // and the row 8 below
    const scalar_t* mine = queries + (group - 1) * 64 * 64;
    const float lowest = sight.lowest(LOWEST);
    float scores[KEYS / 2], sums[D / 2] = {}, top[2] = {lowest, lowest}, total[2] = {}, shrink[2];
    unsigned powers[KEYS / 16][4];
    const auto multiply_keys = [&](int n) {
        hopper::wait(&of_keys.full[n % SLOTS], n / SLOTS % 2);
        const scalar_t* tile_k = keys + n % SLOTS * TILE;
        hopper::begin_products();
#pragma unroll
        for (int d = 0; d < D; d += 16) {
            hopper::multiply<true>(scores, hopper::operand(mine + d / 64 * QUERIES * 64 + d % 64, 1024),
                                   hopper::operand(tile_k + d / 64 * KEYS * 64 + d % 64, 1024), d > 0);
        }
        hopper::commit_products();
    };
    const auto multiply_values = [&](int n) {
        hopper::wait(&of_values.full[n % SLOTS], n / SLOTS % 2);
        const scalar_t* tile_v = values + n % SLOTS * TILE;
        hopper::begin_products();
#pragma unroll
        for (int d = 0; d < KEYS / 16; ++d)
            hopper::multiply(sums, powers[d],
                             hopper::operand(tile_v + d * 16 * 64, 1024, KEYS * 64 * sizeof(scalar_t)));
        hopper::commit_products();
    };
    // Scores become powers of 2; `shrink` is what earlier ones are too large by.
    const auto weigh = [&](int n) {
        const int key0 = (last - n) * KEYS;
        const bool edge = Sight::GROUPED ? key0 + KEYS - 1 > places.x || sight.passed(key0, places.y) : n == 0;
        // Two questions to a tile, not to each of its scores.
        if constexpr (Sight::GROUPED)
            if (sight.outer != 0.0f) {
#pragma unroll
                for (int i = 0; i < KEYS / 2; ++i) scores[i] = sight.capped(scores[i]);
            }
        if (edge)
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const int row = first + r * 8;
                const int place = Sight::GROUPED ? sight.place(tile * QUERIES + row) - key0 : row;
#pragma unroll
                for (int j = 0; j < KEYS / 4; ++j)
                    if (sight.hides(j / 2 * 8 + lane % 4 * 2 + j % 2, place)) scores[j / 2 * 4 + r * 2 + j % 2] = unseen();
            }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            float highest = top[r];
#pragma unroll
            for (int j = 0; j < KEYS / 4; ++j) highest = fmaxf(highest, scores[j / 2 * 4 + r * 2 + j % 2]);
            highest = quad_max(highest);
            shrink[r] = power((top[r] - highest) * scale);
            top[r] = highest;
            const float base = highest * scale;
            float sum = 0.0f;
#pragma unroll
            for (int j = 0; j < KEYS / 4; ++j) {
                float& score = scores[j / 2 * 4 + r * 2 + j % 2];
                score = power(score * scale - base);
                sum += score;
            }
            total[r] = total[r] * shrink[r] + sum;
        }
    };
    const auto pack = [&] {
#pragma unroll
        for (int d = 0; d < KEYS / 16; ++d)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                powers[d][i] = pair(scores[d * 8 + i * 2], scores[d * 8 + i * 2 + 1]);
    };
    hopper::wait(&queries_there, 0);
    multiply_keys(0);
    hopper::wait_products<0>();
    hopper::settle(scores);
    if (lane == 0) hopper::arrive(&of_keys.empty[0]);
    weigh(0);
    pack();
    for (int n = 1; n < steps; ++n) {
        multiply_keys(n);
        multiply_values(n - 1);
        hopper::wait_products<1>();
        hopper::settle(scores);
        if (lane == 0) hopper::arrive(&of_keys.empty[n % SLOTS]);
        weigh(n);
        hopper::wait_products<0>();
        hopper::settle(sums);
        if (lane == 0) hopper::arrive(&of_values.empty[(n - 1) % SLOTS]);
#pragma unroll
        for (int i = 0; i < D / 2; ++i) sums[i] *= shrink[i / 2 % 2];
        pack();
    }
    multiply_values(steps - 1);
    hopper::wait_products<0>();
    hopper::settle(sums);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const float whole = quad_sum(total[r]), share = Sight::GROUPED && whole == 0.0f ? 0.0f : 1.0f / whole;
        const int row = tile * QUERIES + first + r * 8;
        if (row >= rows) continue;
        unsigned* to = reinterpret_cast<unsigned*>(y + ((int64_t)head * rows + row) * dim);
#pragma unroll
        for (int j = 0; j < D / 8; ++j)
            if (j * 8 < dim)
                to[j * 4 + lane % 4] = pair(sums[j * 4 + r * 2] * share, sums[j * 4 + r * 2 + 1] * share);
    }
}

template <int D, class Sight>
int launch(const scalar_t* q, const scalar_t* k, const scalar_t* v, scalar_t* y, int64_t heads, const Sight& sight,
           int64_t dim, cudaStream_t stream) {
    constexpr int KEYS = KEYS_OF<D>;
    constexpr int bytes = (TILE<D, QUERIES> + 2 * SLOTS * TILE<D, KEYS>) * (int)sizeof(scalar_t) + 1024;
    const int64_t tiles = (sight.rows + QUERIES - 1) / QUERIES;
    CUtensorMap of_q, of_k, of_v;
    int wrong = hopper::map_matrix(&of_q, hopper::KIND, 2, q, sight.rows, dim, QUERIES, 64, heads);
    wrong = wrong ? wrong : hopper::map_matrix(&of_k, hopper::KIND, 2, k, sight.keys(), dim, KEYS, 64, heads);
    wrong = wrong ? wrong : hopper::map_matrix(&of_v, hopper::KIND, 2, v, sight.keys(), dim, KEYS, 64, heads);
    if (wrong) return wrong;
    const int64_t held = 2 * sight.keys() * dim * (int64_t)sizeof(scalar_t), together = max((int64_t)1, L2_BYTES / held);
    const auto kernel = attention_flash<D, Sight>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    kernel<<<(unsigned)(heads * tiles), 384, bytes, stream>>>(of_q, of_k, of_v, y, sight, (int)dim,
                                                              1.44269504f / sqrtf((float)dim),
                                                              (int)min(together, heads));
    return (int)cudaGetLastError();
}

// Heads of 64 or 128 in whole tiles, or of other sizes and lengths, where most of a tile is there and
// there are tiles for all multiprocessors: the other kernel has smaller ones, and parts of the keys.
inline bool takes(const scalar_t* q, const scalar_t* k, const scalar_t* v, const scalar_t* y, int64_t heads,
                  const Causal& sight, int64_t dim) {
    const uintptr_t pointers = (uintptr_t)q | (uintptr_t)k | (uintptr_t)v | (uintptr_t)y;
    const int64_t length = sight.rows, tiles = (length + QUERIES - 1) / QUERIES;
    if (pointers % 16 != 0 || length < FLASH_FROM || heads * length >= 1ll << 31) return false;
    if ((dim == 64 || dim == 128) && length % QUERIES == 0) return true;
    return dim % 8 == 0 && dim > 32 && dim <= 128 && tiles * QUERIES <= length + length / 4 &&
           heads * tiles * 100 >= multiprocessors() * (int64_t)FLASH_FILLS;
}

// The same of a group's queries, of heads up to 256: tiles for so many per cent of the multiprocessors.
inline bool takes(const scalar_t* q, const scalar_t* k, const scalar_t* v, const scalar_t* y, int64_t heads,
                  const Grouped& sight, int64_t dim) {
    const uintptr_t pointers = (uintptr_t)q | (uintptr_t)k | (uintptr_t)v | (uintptr_t)y;
    const int64_t rows = sight.rows, tiles = (rows + QUERIES - 1) / QUERIES;
    return pointers % 16 == 0 && rows >= FLASH_FROM && heads * max(rows, sight.length) < 1ll << 31 && dim % 8 == 0 &&
           dim > 32 && tiles * QUERIES <= rows + rows / 4 && heads * tiles * 100 >= multiprocessors() * (int64_t)FLASH_FILLS;
}

template <class Sight>
int start(const scalar_t* q, const scalar_t* k, const scalar_t* v, scalar_t* y, int64_t heads, const Sight& sight,
          int64_t dim, cudaStream_t stream) {
    const auto start = dim <= 64 ? launch<64, Sight> : dim <= 80 ? launch<80, Sight> : dim <= 96 ? launch<96, Sight>
                                                                                                : launch<128, Sight>;
    if constexpr (Sight::GROUPED)
        if (dim > 128) return launch<256, Sight>(q, k, v, y, heads, sight, dim, stream);
    return start(q, k, v, y, heads, sight, dim, stream);
}
}  // namespace flash
