// Causal attention of 16 bits on Hopper by wgmma, fed by the bulk tensor copy engine: one warpgroup has it
// bring tiles of keys and values in, two compute 64 queries each. Scores become powers, and these the
// left operand of the second product, without leaving their registers; a tile's first product runs
// beside the last tile's second one. Heads of other sizes, and the ends of lengths, are padded with the
// zeros that the copy engine puts where a box lies outside of its head.
// FLASH_FROM is the including source's.
#pragma once
#include <portkern/hopper.h>

namespace flash {
constexpr int QUERIES = 128, KEYS = 128, SLOTS = 2;
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

// A tile of 128 rows lies in pieces of 64 columns, of which products may leave the last ones out.
template <int D>
constexpr int TILE = 128 * ((D + 63) / 64 * 64);

template <int D>
__device__ __forceinline__ void fetch(scalar_t* tile, const CUtensorMap* map, int row, int head,
                                      uint64_t* full) {
    hopper::expect_bytes(full, TILE<D> * sizeof(scalar_t));
    for (int p = 0; p * 128 * 64 < TILE<D>; ++p)
        hopper::load_box(tile + p * 128 * 64, map, p * 64, row, head, full);
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
template <int D>
__global__ __launch_bounds__(384, 1) void attention_flash(
    const __grid_constant__ CUtensorMap of_q, const __grid_constant__ CUtensorMap of_k,
    const __grid_constant__ CUtensorMap of_v, scalar_t* __restrict__ y, int length, int dim,
    float scale) {
    extern __shared__ unsigned char raw[];
    __shared__ Ring of_keys, of_values;
    __shared__ uint64_t queries_there;
    constexpr int TILE = flash::TILE<D>;
    scalar_t* queries = reinterpret_cast<scalar_t*>(raw + (-hopper::address(raw) & 1023));
    scalar_t *keys = queries + TILE, *values = keys + SLOTS * TILE;
    const int tiles = (length + QUERIES - 1) / QUERIES, group = threadIdx.x / 128, lane = threadIdx.x % 128;
    const int tile = tiles - 1 - blockIdx.x % tiles;  // those with most keys come first
    const int head = blockIdx.x / tiles, steps = tile + 1;
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
        fetch<D>(queries, &of_q, tile * QUERIES, head, &queries_there);
        for (int n = 0; n < steps; ++n) {  // from the diagonal on
            const int slot = n % SLOTS, parity = n / SLOTS % 2 ^ 1, row = (tile - n) * KEYS;
            hopper::wait(&of_keys.empty[slot], parity);
            fetch<D>(keys + slot * TILE, &of_k, row, head, &of_keys.full[slot]);
            hopper::wait(&of_values.empty[slot], parity);
            fetch<D>(values + slot * TILE, &of_v, row, head, &of_values.full[slot]);
        }
        return;
    }
    hopper::more_registers<240>();
    const int first = (group - 1) * 64 + lane / 32 * 16 + lane % 32 / 4;  // and the row 8 below
    const scalar_t* mine = queries + (group - 1) * 64 * 64;
    float scores[64], sums[D / 2] = {}, top[2] = {LOWEST, LOWEST}, total[2] = {}, shrink[2];
    unsigned powers[KEYS / 16][4];
    const auto multiply_keys = [&](int n) {
        hopper::wait(&of_keys.full[n % SLOTS], n / SLOTS % 2);
        const scalar_t* tile_k = keys + n % SLOTS * TILE;
        hopper::begin_products();
#pragma unroll
        for (int d = 0; d < D; d += 16) {
            const int at = d / 64 * 128 * 64 + d % 64;
            hopper::multiply<true>(scores, hopper::operand(mine + at, 1024),
                                   hopper::operand(tile_k + at, 1024), d > 0);
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
                             hopper::operand(tile_v + d * 16 * 64, 1024, 128 * 64 * sizeof(scalar_t)));
        hopper::commit_products();
    };
    // Scores become powers of 2; `shrink` is what earlier ones are too large by.
    const auto weigh = [&](bool diagonal) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            float highest = top[r];
#pragma unroll
            for (int j = 0; j < 32; ++j) {
                float& score = scores[j / 2 * 4 + r * 2 + j % 2];
                const int key = j / 2 * 8 + lane % 4 * 2 + j % 2;
                if (diagonal && key > first + r * 8) score = __int_as_float(0xff800000);  // -inf
                highest = fmaxf(highest, score);
            }
            highest = quad_max(highest);
            shrink[r] = power((top[r] - highest) * scale);
            top[r] = highest;
            const float base = highest * scale;
            float sum = 0.0f;
#pragma unroll
            for (int j = 0; j < 32; ++j) {
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
    weigh(true);
    pack();
    for (int n = 1; n < steps; ++n) {
        multiply_keys(n);
        multiply_values(n - 1);
        hopper::wait_products<1>();
        hopper::settle(scores);
        if (lane == 0) hopper::arrive(&of_keys.empty[n % SLOTS]);
        weigh(false);
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
        const float share = 1.0f / quad_sum(total[r]);
        const int row = tile * QUERIES + first + r * 8;
        if (row >= length) continue;
        unsigned* to = reinterpret_cast<unsigned*>(y + ((int64_t)head * length + row) * dim);
#pragma unroll
        for (int j = 0; j < D / 8; ++j)
            if (j * 8 < dim)
                to[j * 4 + lane % 4] = pair(sums[j * 4 + r * 2] * share, sums[j * 4 + r * 2 + 1] * share);
    }
}

template <int D>
int launch(const scalar_t* q, const scalar_t* k, const scalar_t* v, scalar_t* y, int64_t heads,
           int64_t length, int64_t dim, cudaStream_t stream) {
    constexpr int bytes = (1 + 2 * SLOTS) * TILE<D> * (int)sizeof(scalar_t) + 1024;
    const int64_t tiles = (length + QUERIES - 1) / QUERIES;
    CUtensorMap of_q, of_k, of_v;
    int wrong = hopper::map_matrix(&of_q, hopper::KIND, 2, q, length, dim, 128, 64, heads);
    wrong = wrong ? wrong : hopper::map_matrix(&of_k, hopper::KIND, 2, k, length, dim, 128, 64, heads);
    wrong = wrong ? wrong : hopper::map_matrix(&of_v, hopper::KIND, 2, v, length, dim, 128, 64, heads);
    if (wrong) return wrong;
    cudaFuncSetAttribute(attention_flash<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    attention_flash<D><<<(unsigned)(heads * tiles), 384, bytes, stream>>>(
        of_q, of_k, of_v, y, (int)length, (int)dim, 1.44269504f / sqrtf((float)dim));
    return (int)cudaGetLastError();
}

// Heads of 64 or 128 in whole tiles, or of other sizes and lengths, where most of a tile is there and
// there are tiles for all multiprocessors: the other kernel has smaller ones, and parts of the keys.
inline bool takes(const scalar_t* q, const scalar_t* k, const scalar_t* v, const scalar_t* y, int64_t heads,
                  int64_t length, int64_t dim) {
    const uintptr_t pointers = (uintptr_t)q | (uintptr_t)k | (uintptr_t)v | (uintptr_t)y;
    const int64_t tiles = (length + QUERIES - 1) / QUERIES;
    if (pointers % 16 != 0 || length < FLASH_FROM || heads * length >= 1ll << 31) return false;
    if ((dim == 64 || dim == 128) && length % QUERIES == 0) return true;
    return dim % 8 == 0 && dim > 32 && dim <= 128 && tiles * QUERIES <= length + length / 4 &&
           heads * tiles >= multiprocessors();
}

inline int start(const scalar_t* q, const scalar_t* k, const scalar_t* v, scalar_t* y, int64_t heads,
                 int64_t length, int64_t dim, cudaStream_t stream) {
    const auto start = dim <= 64 ? launch<64> : dim <= 80 ? launch<80> : dim <= 96 ? launch<96> : launch<128>;
    return start(q, k, v, y, heads, length, dim, stream);
}
}  // namespace flash
