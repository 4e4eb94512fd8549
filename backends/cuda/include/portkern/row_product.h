// Products of up to sixteen rows in 16 bits, alone: a warp has 64 columns and a part of the depth, and takes
// B from memory into the registers of its tensor cores' operands (mma.sync), without shared memory: which
// rows and columns of B these say they are is free, as long as A's and C's say the same. Warps of a block add
// their sums, and blocks theirs where they share the depth.
#pragma once
#include <portkern/shared_depth.h>
#include <portkern/tensor_cores.h>

namespace row_product {
constexpr int WARPS = 8, THREADS = 32 * WARPS, ROWS = 16, COLUMNS = 64, DEPTH = 16, PITCH = COLUMNS + 4;

// Of each 16 rows of B a lane has four neighbours, from lane % 4 * 4 on, and of them 8 columns, from
// lane / 4 * 8 on. U such loads of B are on their way.
template <int U>
__global__ __launch_bounds__(THREADS) void few_rows_mma(const scalar_t* __restrict__ a,
                                                        const scalar_t* __restrict__ b, const Output all,
                                                        int m, int n, int k, int across, int each) {
    let_next_begin();
    __shared__ __align__(16) float held[WARPS][ROWS][PITCH];
    const int split = blockIdx.x / across, column0 = blockIdx.x % across * COLUMNS;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int first = split * each, end = min(first + each, k);
    const scalar_t* from = b + (int64_t)(t * 4) * n + min(column0 + g * 8, n - 8);
    const scalar_t* left[2] = {a + (int64_t)min(g, m - 1) * k + t * 4, a + (int64_t)min(g + 8, m - 1) * k + t * 4};
    float sums[8][4] = {};
    const auto multiply = [&](const Bits (&packs)[4], const uint2 (&rows)[2]) {
        const unsigned four[4] = {rows[0].x, rows[1].x, rows[0].y, rows[1].y};
        const auto take = [&](int pair, unsigned w0, unsigned w1, unsigned w2, unsigned w3) {
#pragma unroll
            for (int odd = 0; odd < 2; ++odd) {
                const unsigned select = odd ? 0x7632 : 0x5410;  // the upper or the lower halves of both
                const unsigned right[2] = {__byte_perm(w0, w1, select), __byte_perm(w2, w3, select)};
                mma(sums[pair * 2 + odd], sums[pair * 2 + odd] + 2, four, right);
            }
        };
        take(0, packs[0].x, packs[1].x, packs[2].x, packs[3].x);
        take(1, packs[0].y, packs[1].y, packs[2].y, packs[3].y);
        take(2, packs[0].z, packs[1].z, packs[2].z, packs[3].z);
        take(3, packs[0].w, packs[1].w, packs[2].w, packs[3].w);
    };
    int row = first + warp * DEPTH * U;
    for (; row + DEPTH * U <= end; row += WARPS * DEPTH * U) {
        Bits packs[U][4];
        uint2 rows[U][2];
#pragma unroll
        for (int u = 0; u < U; ++u)
#pragma unroll
            for (int r = 0; r < 4; ++r)
                packs[u][r] = *reinterpret_cast<const Bits*>(from + (int64_t)(row + u * DEPTH + r) * n);
#pragma unroll
        for (int u = 0; u < U; ++u)
#pragma unroll
            for (int h = 0; h < 2; ++h) rows[u][h] = *reinterpret_cast<const uint2*>(left[h] + row + u * DEPTH);
#pragma unroll
        for (int u = 0; u < U; ++u) multiply(packs[u], rows[u]);
    }
    for (const int stop = min(row + DEPTH * U, end); row < stop; row += DEPTH) {  // what is left of a warp's part
        Bits packs[4] = {};
        uint2 rows[2] = {};
#pragma unroll
        for (int r = 0; r < 4; ++r)
            if (row + t * 4 + r < end) packs[r] = *reinterpret_cast<const Bits*>(from + (int64_t)(row + r) * n);
#pragma unroll
        for (int h = 0; h < 2; ++h)
            if (row + t * 4 < end) rows[h] = *reinterpret_cast<const uint2*>(left[h] + row);
        multiply(packs, rows);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int e = 0; e < 2; ++e)
#pragma unroll
            for (int j = 0; j < 8; j += 4)
                *reinterpret_cast<float4*>(&held[warp][g + h * 8][t * 16 + e * 8 + j]) =
                    make_float4(sums[j][h * 2 + e], sums[j + 1][h * 2 + e], sums[j + 2][h * 2 + e],
                                sums[j + 3][h * 2 + e]);
    __syncthreads();
    const Output c = all.from(split, 0);
#pragma unroll
    for (int p = 0; p < ROWS * COLUMNS / 2 / THREADS; ++p) {
        const int at = p * THREADS + threadIdx.x, r = at / (COLUMNS / 2), x = at % (COLUMNS / 2) * 2;
        float2 total = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
            const float2 one = *reinterpret_cast<const float2*>(&held[w][r][x]);
            total.x += one.x, total.y += one.y;
        }
        if (r < m && column0 + x < n) c.store_pair((int64_t)r * n + column0 + x, total.x, total.y);
    }
}

template <int U>
int launch_parts(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m, int64_t n, int64_t k, int64_t splits,
                 cudaStream_t stream) {
    const int64_t across = (n + COLUMNS - 1) / COLUMNS, step = DEPTH * WARPS;
    const int64_t each = (k + splits * step - 1) / (splits * step) * step, parts = (k + each - 1) / each;
    return share_depth(parts, c, m * n, stream, [&](const Output& to) {
        few_rows_mma<U><<<(unsigned)(across * parts), THREADS, 0, stream>>>(a, b, to, (int)m, (int)n, (int)k,
                                                                           (int)across, (int)each);
    });
}

// Whether it pays, of operands whose rows are whole packs: what is read of B is what counts.
inline bool suits(int64_t m, int64_t n, int64_t k) {
    constexpr int64_t LEAST_ROWS = 2, LEAST_DEPTH = 1024, MOST = 1 << 30;
    return m >= LEAST_ROWS && m <= ROWS && k >= LEAST_DEPTH && n >= 8 * COLUMNS && k < MOST && n < MOST;
}

inline int launch(const scalar_t* a, const scalar_t* b, scalar_t* c, int64_t m, int64_t n, int64_t k,
                  cudaStream_t stream) {
    constexpr int64_t WANTED = 264, STEP = DEPTH * WARPS;  // blocks; rows of B that a block's warps have at once
    const int64_t tiles = (n + COLUMNS - 1) / COLUMNS, parts = min(WANTED / tiles, k / STEP);
    const int64_t splits = max(parts, (int64_t)1);
    const auto start = k / splits >= 4 * STEP ? launch_parts<4> : launch_parts<2>;
    return start(a, b, c, m, n, k, splits, stream);
}
}  // namespace row_product
