// y = x W' of a layer whose weight has a row for each column of y, and a bias where there is one; accumulated in
// float32. Both operands lie along the depth. Few rows of x, or of W: every row of the other is read once, by
// lanes that lie along it. Else tiles: of matrix units for float16 and bfloat16, or of FMAs; on Hopper wgmma,
// and, of large layers in float32, three products of halves. Too few tiles to fill a GPU: several blocks share
// a tile's depth. FEW_TILES is a knob of the kernel.
#pragma once
#include <portkern/multiprocessors.h>
#include <portkern/unit_product.h>
#ifdef PORTKERN_HOPPER
#define BAND 8
#ifdef PORTKERN_FLOAT32
#define STAGES 3
#define HALVE_FROM 50
#include <portkern/split_product.h>
#include <portkern/tiled_product.h>
#else
#define PIPELINE 4
#include <portkern/tile_product.h>
#include <portkern/wide_product.h>
#endif
#endif

namespace layer {
constexpr int THREADS = 256;
constexpr bool SMALL_TYPE = sizeof(scalar_t) == 2;

struct Layer {
    const scalar_t *x, *weight, *bias;  // the bias of each column, or none
    scalar_t* y;
    int64_t m, n, k;
};

// ---- Few rows on one side

constexpr int MOST_FEW = 8, GROUP = 32, OWN = 2, GROUPS = THREADS / GROUP;
constexpr int64_t FILLING_GROUPS = 2048;

// `few` rows of one operand meet all `many` of the other: where y and its bias have element (few, many).
struct Thin {
    const scalar_t *few, *many, *bias;
    scalar_t* y;
    int64_t count, rows, k, few_step, many_step;
    bool bias_of_many;
};

// OWN neighbouring rows of the many are `deep` groups' of lanes, which divide the depth.
template <int M, int V>
__global__ PORTABLE_LAUNCH_BOUNDS(THREADS, 2) void few_rows(const Thin all, int deep) {
    constexpr int U = M > 2 ? 2 : 4;
    __shared__ float shared[GROUPS][OWN * M];
    const int group = threadIdx.x / GROUP, lane = threadIdx.x % GROUP, part = group % deep;
    const int64_t row0 = ((int64_t)blockIdx.x * (GROUPS / deep) + group / deep) * OWN;
    const int64_t packs = all.k / V, step = (int64_t)deep * GROUP;
    const Some<V> *left[M], *right[OWN];
#pragma unroll
    for (int i = 0; i < M; ++i)
        left[i] = reinterpret_cast<const Some<V>*>(all.few + min((int64_t)i, all.count - 1) * all.k);
#pragma unroll
    for (int r = 0; r < OWN; ++r)
        right[r] = reinterpret_cast<const Some<V>*>(all.many + min(row0 + r, all.rows - 1) * all.k);
    float total[OWN * M] = {};
    const auto take = [&](auto together, int64_t at) {
        constexpr int COUNT = decltype(together)::value;
        Some<V> values[COUNT][OWN];
#pragma unroll
        for (int u = 0; u < COUNT; ++u)
#pragma unroll
            for (int r = 0; r < OWN; ++r) values[u][r] = right[r][at + u * step];
#pragma unroll
        for (int u = 0; u < COUNT; ++u)
#pragma unroll
            for (int i = 0; i < M; ++i) {
                const Some<V> own = left[i][at + u * step];
#pragma unroll
                for (int r = 0; r < OWN; ++r)
#pragma unroll
                    for (int j = 0; j < V; ++j)
                        total[r * M + i] = fmaf(float(own.at[j]), float(values[u][r].at[j]), total[r * M + i]);
            }
    };
    int64_t at = (int64_t)part * GROUP + lane;
    for (; at + (U - 1) * step < packs; at += U * step) take(Constant<U>(), at);
    for (; at < packs; at += step) take(Constant<1>(), at);
#pragma unroll
    for (int e = 0; e < OWN * M; ++e) {
        const float sum = lane_reduce<Sum>(total[e], GROUP);
        if (lane == 0) shared[group][e] = sum;
    }
    __syncthreads();
    const int64_t i = lane % M, row = row0 + lane / M;
    if (part > 0 || lane >= OWN * M || i >= all.count || row >= all.rows) return;
    float sum = 0.0f;
    for (int g = 0; g < deep; ++g) sum += shared[group + g][lane];
    if (all.bias) sum += float(all.bias[all.bias_of_many ? row : i]);
    all.y[i * all.few_step + row * all.many_step] = scalar_t(sum);
}

template <int V, int M = 1>
int launch_few(const Thin& all, cudaStream_t stream) {
    if constexpr (M < MOST_FEW)
        if (all.count > M) return launch_few<V, 2 * M>(all, stream);
    const int64_t sets = (all.rows + OWN - 1) / OWN;
    int deep = 1;
    while (deep < GROUPS && sets * deep < FILLING_GROUPS && all.k / V > 2 * GROUP * deep) deep *= 2;
    const int64_t blocks = (sets * deep + GROUPS - 1) / GROUPS;
    few_rows<M, V><<<(unsigned)blocks, THREADS, 0, stream>>>(all, deep);
    return (int)cudaGetLastError();
}

// ---- Tiles

// Of a block's depth, where several share a tile.
constexpr int LEAST_DEPTH = SMALL_TYPE ? 512 : 128, STEP = 32;
constexpr bool UNITS = SMALL_TYPE && !PORTKERN_AMD;  // as the host knows them
constexpr int FILLING = UNITS ? FEW_TILES / 2 : FEW_TILES;

#ifndef MATRIX_UNIT
// A block computes a square of 16 * T; each of its 16 x 16 threads T x T elements, in groups of 4
// rows and 4 columns that lie 64 apart.
template <int T, bool ALIGNED>
__device__ void multiply(const Matrix<>& x, const Matrix<>& weight, const scalar_t* bias, const Output& c,
                         int64_t row0, int64_t column0, int64_t from, int64_t to) {
    constexpr int SIDE = 16 * T, DEPTH = 64 / T;
    __shared__ alignas(16) float tiles[2][2][DEPTH][SIDE + 4];  // transposed: the depth outside
    const int t = threadIdx.x, ty = t / 16 * 4, tx = t % 16 * 4;
    const int own = t / (DEPTH / VEC), depth_of = t % (DEPTH / VEC) * VEC;
    const bool loads = t < SIDE * DEPTH / VEC;  // two bytes per element keep half the threads busy
    Pack next_a, next_b;
    const auto fetch = [&](int64_t depth) {
        if (!loads) return;
        next_a = load<ALIGNED>(x, row0 + own, depth + depth_of);
        next_b = load<ALIGNED>(weight, column0 + own, depth + depth_of);
    };
    const auto stage = [&](int s) {
        if (!loads) return;
#pragma unroll
        for (int j = 0; j < VEC; ++j) {
            tiles[s][0][depth_of + j][own] = float(next_a.at[j]);
            tiles[s][1][depth_of + j][own] = float(next_b.at[j]);
        }
    };
    float sums[T][T] = {};
    fetch(from);
    stage(0);
    __syncthreads();
    int turn = 0;
    for (int64_t depth = from; depth < to; depth += DEPTH, turn ^= 1) {
        if (depth + DEPTH < to) fetch(depth + DEPTH);
#pragma unroll 2  // all of them at once would take twice the registers
        for (int d = 0; d < DEPTH; ++d) {
            float left[T], right[T];
#pragma unroll
            for (int i = 0; i < T; ++i) {
                left[i] = tiles[turn][0][d][i / 4 * 64 + ty + i % 4];
                right[i] = tiles[turn][1][d][i / 4 * 64 + tx + i % 4];
            }
#pragma unroll
            for (int i = 0; i < T; ++i)
#pragma unroll
                for (int j = 0; j < T; ++j) sums[i][j] = fmaf(left[i], right[j], sums[i][j]);
        }
        if (depth + DEPTH < to) stage(turn ^ 1);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < T; ++i)
#pragma unroll
        for (int j = 0; j < T; ++j) {
            const int64_t row = row0 + i / 4 * 64 + ty + i % 4;
            const int64_t column = column0 + j / 4 * 64 + tx + j % 4;
            if (row >= x.rows || column >= weight.rows) continue;
            c.store(row * weight.rows + column, sums[i][j] + (bias ? float(bias[column]) : 0.0f));
        }
}

#elif defined(TENSOR_CORES)
template <int T, bool ALIGNED>
__device__ void multiply(const Matrix<>& x, const Matrix<>& weight, const scalar_t* bias, const Output& c,
                         int64_t row0, int64_t column0, int64_t from, int64_t to) {
    matrix_unit::Pipeline<16 * T, true>::template multiply<ALIGNED>(x, weight, c, row0, column0, from, to, bias);
}

#else
// A block computes 128 x 128, its 4 waves 64 x 64 each. Tiles are padded by 16 bytes against bank conflicts.
template <int T, bool ALIGNED>
__device__ void multiply(const Matrix<>& x, const Matrix<>& weight, const scalar_t* bias, const Output& c,
                         int64_t row0, int64_t column0, int64_t from, int64_t to) {
    constexpr int SIDE = 16 * T, DEPTH = 32, PITCH = DEPTH + 8, SHARE = SIDE * DEPTH / 8 / THREADS;
    __shared__ alignas(16) scalar_t tile_a[SIDE * PITCH], tile_b[SIDE * PITCH];
    const int t = threadIdx.x, wave_row = t / 128 * (SIDE / 2), wave_column = t / 64 % 2 * (SIDE / 2);
    Pack next_a[SHARE], next_b[SHARE];
    const auto fetch = [&](int64_t depth) {
#pragma unroll
        for (int i = 0; i < SHARE; ++i) {
            const int p = i * THREADS + t;
            next_a[i] = load<ALIGNED>(x, row0 + p / 4, depth + p % 4 * 8);
            next_b[i] = load<ALIGNED>(weight, column0 + p / 4, depth + p % 4 * 8);
        }
    };
    matrix_unit::Quarter<SIDE / 2, SIDE / 2> product;
    fetch(from);
    for (int64_t depth = from; depth < to; depth += DEPTH) {
#pragma unroll
        for (int i = 0; i < SHARE; ++i) {
            const int p = i * THREADS + t, at = p / 4 * PITCH + p % 4 * 8;
            *reinterpret_cast<Pack*>(&tile_a[at]) = next_a[i];
            *reinterpret_cast<Pack*>(&tile_b[at]) = next_b[i];
        }
        __syncthreads();
        if (depth + DEPTH < to) fetch(depth + DEPTH);
        product.template add<DEPTH, PITCH, PITCH>(tile_a + wave_row * PITCH, tile_b + wave_column * PITCH);
        __syncthreads();
    }
#pragma unroll
    for (int e = 0; e < product.COUNT; ++e) {
        const int64_t row = row0 + wave_row + product.row(e);
        const int64_t column = column0 + wave_column + product.column(e);
        if (row >= x.rows || column >= weight.rows) continue;
        c.store(row * weight.rows + column, product.value(e) + (bias ? float(bias[column]) : 0.0f));
    }
}
#endif

template <int T, bool ALIGNED>
__global__ PORTABLE_LAUNCH_BOUNDS(THREADS, SMALL_TYPE && ALIGNED ? 2 : 0) void tiles_kernel(
    const Layer all, const Output every_y, int64_t across, int64_t tiles, int64_t each) {
    let_next_begin();
    const int64_t tile = blockIdx.x % tiles, split = blockIdx.x / tiles;
    const int64_t row0 = tile / across * (16 * T), column0 = tile % across * (16 * T);
    const int64_t from = split * each, to = all.k - from < each ? all.k : from + each;
    multiply<T, ALIGNED>({all.x, all.m, all.k}, {all.weight, all.n, all.k}, split == 0 ? all.bias : nullptr,
                         every_y.from(split, 0), row0, column0, from, to);
}

// Small layers, or too few blocks to fill a GPU: smaller ones, where the host knows what a block computes.
template <bool ALIGNED, int T = 8>
int launch_tiles(const Layer& all, cudaStream_t stream) {
    const int64_t across = (all.n + 16 * T - 1) / (16 * T), down = (all.m + 16 * T - 1) / (16 * T);
    if constexpr (T == 8 && (UNITS || !SMALL_TYPE))
        if (across * down < FILLING || all.m <= 64 || all.n <= 64) return launch_tiles<ALIGNED, 4>(all, stream);
    const auto kernel = tiles_kernel<T, ALIGNED>;
#ifdef TENSOR_CORES  // so much shared memory has to be asked for on NVIDIA
    constexpr int BYTES = matrix_unit::Pipeline<16 * T, true>::bytes;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
#else
    constexpr int BYTES = 0;
#endif
    const Depths depths(across * down, all.k, STEP, 2 * FILLING, LEAST_DEPTH);
    return share_depth(depths.splits, all.y, all.m * all.n, stream, [&](const Output& to) {
        kernel<<<(unsigned)(across * down * depths.splits), THREADS, BYTES, stream>>>(
            all, to, across, across * down, depths.each);
    });
}

#if defined(PORTKERN_HOPPER) && defined(PORTKERN_FLOAT32)
constexpr int SIDE = 32;

// The weight with the depth outside, as products of halves take it.
__global__ __launch_bounds__(THREADS) void turn(const float* __restrict__ from, float* __restrict__ to,
                                                int64_t rows, int64_t columns, int64_t across) {
    __shared__ float tile[SIDE][SIDE + 1];
    const int64_t row0 = blockIdx.x / across * SIDE, column0 = blockIdx.x % across * SIDE;
    const int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
#pragma unroll
    for (int i = y; i < SIDE; i += THREADS / SIDE)
        if (row0 + i < rows && column0 + x < columns) tile[i][x] = from[(row0 + i) * columns + column0 + x];
    __syncthreads();
#pragma unroll
    for (int i = y; i < SIDE; i += THREADS / SIDE)
        if (column0 + i < columns && row0 + x < rows) to[(column0 + i) * rows + row0 + x] = tile[x][i];
}

__global__ __launch_bounds__(THREADS) void add_bias(float* y, const float* __restrict__ bias, int64_t count,
                                                    int64_t n) {
    const int64_t at = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * 4;
    if (at >= count) return;
    float4 values = *reinterpret_cast<float4*>(y + at);
    const float4 more = *reinterpret_cast<const float4*>(bias + at % n);
    *reinterpret_cast<float4*>(y + at) =
        make_float4(values.x + more.x, values.y + more.y, values.z + more.z, values.w + more.w);
}

inline int launch_halves(const Layer& all, cudaStream_t stream) {
    Scratch<float> turned(all.n * all.k, stream);
    if (turned.error) return (int)turned.error;
    const int64_t across = (all.k + SIDE - 1) / SIDE, blocks = across * ((all.n + SIDE - 1) / SIDE);
    turn<<<(unsigned)blocks, THREADS, 0, stream>>>(all.weight, turned.data, all.n, all.k, across);
    const int wrong = split::launch(all.x, turned.data, all.y, 1, all.m, all.n, all.k, stream, [&](const Odd& odd) {
        return tiled::launch<tiled::Large, true, true>(all.x, turned.data, all.y, 1, all.m, all.n, all.k, stream, odd);
    });
    const int64_t count = all.m * all.n;
    if (all.bias && !wrong)
        add_bias<<<(unsigned)((count / 4 + THREADS - 1) / THREADS), THREADS, 0, stream>>>(all.y, all.bias, count, all.n);
    return wrong ? wrong : (int)cudaGetLastError();
}
#endif

// Multiplications that are worth preparing operands for, in millions; and results that fill a GPU with the
// largest tiles.
constexpr double HALVES_FROM = 500e6;
constexpr int64_t WIDE_RESULTS = 96 * 128 * 128;

inline int launch(const Layer& all, cudaStream_t stream) {
    const auto [x, weight, bias, y, m, n, k] = all;
    if (m == 0 || n == 0) return 0;
    const bool aligned = are_whole((uintptr_t)x | (uintptr_t)weight, k);
    if (m <= MOST_FEW || n <= MOST_FEW) {
        const bool few_inputs = m <= n;
        const Thin thin = few_inputs ? Thin{x, weight, bias, y, m, n, k, n, 1, true}
                                     : Thin{weight, x, bias, y, n, m, k, 1, n, false};
        return aligned ? launch_few<VEC>(thin, stream) : launch_few<1>(thin, stream);
    }
    const bool results = (uintptr_t)y % 16 == 0;
    [[maybe_unused]] const bool whole = results && aligned && n % VEC == 0;
#ifdef PORTKERN_HOPPER
#ifdef PORTKERN_FLOAT32
    if (whole && double(m) * n * k >= HALVES_FROM && split::suits(1, m, n, k) && (uintptr_t)bias % 16 == 0)
        return launch_halves(all, stream);
#else
    const tile::Product product = {1, m, (n + VEC - 1) / VEC * VEC, k, nullptr, n, bias};
    if (aligned && results && tile::suits(product)) {
        if (whole && m * n >= WIDE_RESULTS && !tile::one_each(product) && wide::suits(1, m, n, k))
            return wide::launch<true>(x, weight, y, 1, m, n, k, stream, nullptr, bias);
        return tile::launch<true>(x, weight, y, product, stream);
    }
#endif
#endif
    return aligned && results ? launch_tiles<true>(all, stream) : launch_tiles<false>(all, stream);
}
}  // namespace layer
