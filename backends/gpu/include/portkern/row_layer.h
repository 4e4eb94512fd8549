// Layers, in the ways of linear.h. Of few rows of x in 16 bits a warp has 16 rows of the weight and a part of the
// depth, and takes both operands from memory into the registers of its tensor cores (mma.sync), the weight as the
// left one, without shared memory: which part of the depth a lane's 16 bytes are said to be is free, as long as both
// operands say the same. Warps of a block add their sums.
#pragma once
#include <portkern/linear.h>

namespace row_layer {
#ifdef TENSOR_CORES
constexpr int SIDE = 16, EIGHT = 8;  // rows of the weight, and of x

// N times eight rows of x, and U loads of each row on their way.
template <int WARPS, int N, int U>
__global__ PORTABLE_LAUNCH_BOUNDS(32 * WARPS, 16 / WARPS) void few_rows_by_units(const layer::Layer all) {
    constexpr int THREADS = 32 * WARPS, COUNT = EIGHT * N, PITCH = SIDE + 4;
    __shared__ float held[WARPS][COUNT][PITCH];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int64_t column0 = (int64_t)blockIdx.x * SIDE;
    const int packs = (int)(all.k / VEC);
    const auto row_of = [&](const scalar_t* matrix, int64_t row, int64_t rows) {
        return reinterpret_cast<const Bits*>(matrix + min(row, rows - 1) * all.k);
    };
    const Bits* const left[2] = {row_of(all.weight, column0 + g, all.n), row_of(all.weight, column0 + g + 8, all.n)};
    const Bits* right[N];
#pragma unroll
    for (int j = 0; j < N; ++j) right[j] = row_of(all.x, g + j * EIGHT, all.m);
    float sums[N][4] = {};
    const auto take = [&](auto together, int at) {
        constexpr int LOADS = decltype(together)::value;
        Bits w[LOADS][2] = {}, x[LOADS][N] = {};
        if (LOADS > 1 || at < packs)  // of several all are there
#pragma unroll
            for (int u = 0; u < LOADS; ++u) {
#pragma unroll
                for (int i = 0; i < 2; ++i) w[u][i] = left[i][at + u * 4];
#pragma unroll
                for (int j = 0; j < N; ++j) x[u][j] = right[j][at + u * 4];
            }
#pragma unroll
        for (int u = 0; u < LOADS; ++u) {
            const unsigned a[2][4] = {{w[u][0].x, w[u][1].x, w[u][0].y, w[u][1].y},
                                      {w[u][0].z, w[u][1].z, w[u][0].w, w[u][1].w}};
#pragma unroll
            for (int j = 0; j < N; ++j) {
                const unsigned b[2][2] = {{x[u][j].x, x[u][j].y}, {x[u][j].z, x[u][j].w}};
                mma(sums[j], sums[j] + 2, a[0], b[0]);
                mma(sums[j], sums[j] + 2, a[1], b[1]);
            }
        }
    };
    int at = warp * 4 * U;
    for (; at + 4 * U <= packs; at += WARPS * 4 * U) take(Constant<U>(), at + t);
    for (const int end = min(at + 4 * U, packs); at < end; at += 4) take(Constant<1>(), at + t);
#pragma unroll
    for (int j = 0; j < N; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) held[warp][j * EIGHT + t * 2 + e % 2][g + e / 2 * 8] = sums[j][e];
    __syncthreads();
    for (int p = threadIdx.x; p < COUNT * SIDE; p += THREADS) {
        const int row = p / SIDE, own = p % SIDE;
        const int64_t column = column0 + own;
        if (row >= all.m || column >= all.n) continue;
        float sum = all.bias ? float(all.bias[column]) : 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) sum += held[w][row][own];
        all.y[row * all.n + column] = scalar_t(sum);
    }
}

template <int WARPS, int U, int N = 1>
int launch_units(const layer::Layer& all, cudaStream_t stream) {
    if constexpr (N < 4)
        if (all.m > EIGHT * N) return launch_units<WARPS, U, 2 * N>(all, stream);
    few_rows_by_units<WARPS, N, U><<<(unsigned)((all.n + SIDE - 1) / SIDE), 32 * WARPS, 0, stream>>>(all);
    return (int)cudaGetLastError();
}

// Whether it pays: FMAs keep up with memory where there is one long row, and larger tiles where there are more than
// sixteen and many columns.
inline bool suits(const layer::Layer& all) {
    constexpr int64_t LONG = 2048, MOST_COLUMNS = 4096;
    const bool many = all.m > 16 && all.n > MOST_COLUMNS, one = all.m == 1 && all.k >= LONG;
    return all.m <= 32 && all.n > layer::MOST_FEW && all.k < (int64_t)1 << 31 && !many && !one &&
           are_whole((uintptr_t)all.x | (uintptr_t)all.weight, all.k);
}
#endif

inline int launch(const layer::Layer& all, cudaStream_t stream) {
#ifdef TENSOR_CORES
    constexpr int64_t FILLING = 2048, DEEP = 2048, SHALLOW = 1024;  // columns, and depths
    if (all.m > 0 && suits(all)) {
        if (all.n <= FILLING) return all.k < DEEP ? launch_units<16, 2>(all, stream) : launch_units<16, 4>(all, stream);
        return all.k < SHALLOW ? launch_units<8, 2>(all, stream) : launch_units<8, 4>(all, stream);
    }
#endif
    return layer::launch(all, stream);
}
}  // namespace row_layer
