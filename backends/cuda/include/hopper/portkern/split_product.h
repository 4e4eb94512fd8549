// Strict float32 on tensor cores, alone or in a batch: x = (high + low / 2^11) / 2^s with halves high and low, which keep
// 22 bits and their signs, so that a product of two x takes three of halves (low * low is below the
// rounding). s is one number per row of A and column of B, so that halves have room for the largest
// element; what is 2^-26 times as large still has all its bits. Tensor cores round sums towards zero,
// so they add 64 products at most before an ordinary addition takes over.
// BAND and HALVE_FROM are the including source's.
#pragma once
#include <cuda_fp16.h>
#include <portkern/hopper.h>
#include <portkern/odd_rows.h>
#include <portkern/shared_depth.h>

namespace split {
constexpr int ROWS = 128, COLUMNS = 128, DEPTH = 64, SLOTS = 3, EXTRA = 11;
constexpr int A_TILE = ROWS * DEPTH, B_PIECE = DEPTH * 64, B_TILE = 2 * B_PIECE;
constexpr int64_t LEAST = 256;  // of a block's depth, where several share a tile
constexpr int TILE = 2 * (A_TILE + B_TILE), SHARED = SLOTS * TILE * (int)sizeof(half) + 1024;

__device__ __forceinline__ int shift(unsigned most) {
    const float largest = __uint_as_float(most);
    return isfinite(largest) && largest > 0.0f ? 13 - ilogbf(largest) : 0;
}
// x * 2^e, which takes one instruction where 2^e is a normal float.
__device__ __forceinline__ float scale(float x, int e) {
    return e >= -126 && e <= 127 ? x * __int_as_float((e + 127) << 23) : scalbnf(x, e);
}
__device__ __forceinline__ void widen(unsigned& most, unsigned& least, float x) {
    const unsigned bits = __float_as_uint(x) & 0x7fffffff;
    most = max(most, bits);
    if (bits) least = max(least, ~bits);
}
// Nothing where there is none: zeros widen no range.
__device__ __forceinline__ float4 pack_of(const float* from, bool there) {
    return there ? *reinterpret_cast<const float4*>(from) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}

// What is prepared of A and B, by blocks of which the first `left` have A's part.
constexpr int PREPARING = 256;
struct Operand {
    const float* from;
    int64_t batch, rows, columns;
    Range range;
    half *high, *low;

    __host__ __device__ int64_t count() const { return batch * rows * columns; }
};
struct Operands {
    Operand a, b;
    unsigned left;
};

// `wide` threads to a row, whole warps.
__device__ __forceinline__ void range_of_rows(const Operand& x, unsigned block, int wide) {
    unsigned most = 0, least = 0;
    const int64_t row = (int64_t)block * (PREPARING / wide) + threadIdx.x / wide;
    if (row >= x.batch * x.rows) return;
    const float* from = x.from + row * x.columns;
    constexpr int AHEAD = 4;
    for (int64_t i = threadIdx.x % wide * 4; i < x.columns; i += AHEAD * 4 * wide) {
        float4 v[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) v[u] = pack_of(from + i + u * 4 * wide, i + u * 4 * wide < x.columns);
#pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            widen(most, least, v[u].x), widen(most, least, v[u].y);
            widen(most, least, v[u].z), widen(most, least, v[u].w);
        }
    }
    most = __reduce_max_sync(~0u, most), least = __reduce_max_sync(~0u, least);
    if (threadIdx.x % 32 == 0) {
        atomicMax(x.range.most + row, most);
        atomicMax(x.range.least + row, least);
    }
}

// 128 columns and 64 rows to a block: 32 threads of four columns, 8 rows at once.
constexpr int BAND_COLUMNS = 128, BAND_ROWS = 64;
__device__ __forceinline__ void range_of_columns(const Operand& x, unsigned block) {
    const unsigned across = (unsigned)((x.columns + BAND_COLUMNS - 1) / BAND_COLUMNS);
    const unsigned down = (unsigned)((x.rows + BAND_ROWS - 1) / BAND_ROWS), batch = block / across / down;
    const int64_t column = block % across * BAND_COLUMNS + threadIdx.x % 32 * 4;
    const int64_t top = (int64_t)(block / across % down) * BAND_ROWS;
    const float* from = x.from + batch * x.rows * x.columns + column;
    unsigned most[4] = {}, least[4] = {};
    float4 v[8];
#pragma unroll
    for (int r = 0; r < 8; ++r) {
        const int64_t row = top + r * 8 + threadIdx.x / 32;
        v[r] = pack_of(from + row * x.columns, column < x.columns && row < x.rows);
    }
#pragma unroll
    for (int r = 0; r < 8; ++r) {
        widen(most[0], least[0], v[r].x), widen(most[1], least[1], v[r].y);
        widen(most[2], least[2], v[r].z), widen(most[3], least[3], v[r].w);
    }
    // Of the block's warps together: an atomic operation for each of them would take longer than the loads.
    __shared__ uint4 told[2][PREPARING / 32][32];
    told[0][threadIdx.x / 32][threadIdx.x % 32] = make_uint4(most[0], most[1], most[2], most[3]);
    told[1][threadIdx.x / 32][threadIdx.x % 32] = make_uint4(least[0], least[1], least[2], least[3]);
    __syncthreads();
    const int side = threadIdx.x / BAND_COLUMNS, own = threadIdx.x % BAND_COLUMNS;
    const int64_t of = block % across * BAND_COLUMNS + own;
    unsigned found = 0;
#pragma unroll
    for (int w = 0; w < PREPARING / 32; ++w) found = max(found, reinterpret_cast<const unsigned*>(told[side][w])[own]);
    const Range range = x.range.from(batch * x.columns + of);
    if (of < x.columns) atomicMax(side == 0 ? range.most : range.least, found);
}

__global__ __launch_bounds__(PREPARING, 4) void find_ranges(const Operands of, int wide) {
    let_next_begin();
    if (blockIdx.x < of.left) range_of_rows(of.a, blockIdx.x, wide);
    else range_of_columns(of.b, blockIdx.x - of.left);
}

template <bool BY_ROW>
__device__ __forceinline__ void halve(const Operand& x, unsigned block) {
    const int64_t at = ((int64_t)block * PREPARING + threadIdx.x) * 8;
    if (at >= x.count()) return;
    alignas(16) float v[8];
    *reinterpret_cast<float4*>(v) = *reinterpret_cast<const float4*>(x.from + at);
    *reinterpret_cast<float4*>(v + 4) = *reinterpret_cast<const float4*>(x.from + at + 4);
    const int64_t row = at / x.columns, column = at - row * x.columns;
    const unsigned* most = x.range.most + (BY_ROW ? row : row / x.rows * x.columns + column);
    wait_for_previous();
    alignas(16) half h[8], l[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
        const float scaled = scalbnf(v[j], shift(most[BY_ROW ? 0 : j]));
        h[j] = __float2half_rn(scaled);
        l[j] = __float2half_rn((scaled - __half2float(h[j])) * (1 << EXTRA));
    }
    *reinterpret_cast<uint4*>(x.high + at) = *reinterpret_cast<uint4*>(h);
    *reinterpret_cast<uint4*>(x.low + at) = *reinterpret_cast<uint4*>(l);
}

__global__ __launch_bounds__(PREPARING) void halve_both(const Operands of) {
    let_next_begin();
    if (blockIdx.x < of.left) halve<true>(of.a, blockIdx.x);
    else halve<false>(of.b, blockIdx.x - of.left);
    wait_for_previous();  // also those who had nothing to do, so that the next kernel finds all done
}

struct Maps {
    CUtensorMap high_a, low_a, high_b, low_b;
};
struct Barriers {
    uint64_t full[SLOTS], empty[SLOTS];
};

__device__ __forceinline__ void load(const Maps& maps, half* tile, int row, int column, int depth, int batch,
                                     uint64_t* full) {
    hopper::expect_bytes(full, TILE * sizeof(half));
    hopper::load_box(tile, &maps.high_a, depth, row, batch, full);
    hopper::load_box(tile + A_TILE, &maps.low_a, depth, row, batch, full);
    for (int p = 0; p < 2; ++p) {
        half* to = tile + 2 * A_TILE + p * B_PIECE;
        hopper::load_box(to, &maps.high_b, column + p * 64, depth, batch, full);
        hopper::load_box(to + B_TILE, &maps.low_b, column + p * 64, depth, batch, full);
    }
}

__global__ __launch_bounds__(384, 1) void matmul_split(const __grid_constant__ Maps maps, const Output c,
                                                       const unsigned* most_a, const unsigned* most_b,
                                                       int64_t m, int64_t n, int padded, int down,
                                                       int across, int steps, int each, int splits) {
    let_next_begin();
    extern __shared__ unsigned char raw[];
    __shared__ Barriers pipe;
    __shared__ int of_columns[2][COLUMNS];  // shifts, of each group's tile
    half* tiles = reinterpret_cast<half*>(raw + (-hopper::address(raw) & 1023));
    const int group = threadIdx.x / 128, lane = threadIdx.x % 128;
    if (threadIdx.x == 0) {
        for (int s = 0; s < SLOTS; ++s) {
            hopper::init(&pipe.full[s], 1);
            hopper::init(&pipe.empty[s], 2);
        }
        hopper::fence_barriers();
    }
    wait_for_previous();
    __syncthreads();
    int slot = 0, phase = 0;
    const auto advance = [&] {
        if (++slot == SLOTS) slot = 0, phase ^= 1;
    };
    // Tiles come `splits` times, each time with another part of the depth.
    const int count = down * across;
    const auto first = [&](int t) { return min(steps, each * (t / count)); };
    if (group == 0) {
        hopper::fewer_registers<40>();
        for (int t = blockIdx.x; lane == 0 && t < count * splits; t += gridDim.x)
            for (int step = first(t); step < first(t + count); ++step, advance()) {
                hopper::wait(&pipe.empty[slot], phase ^ 1);
                const int2 at = hopper::place<BAND, ROWS, COLUMNS>(t % count, down, across);
                load(maps, tiles + slot * TILE, at.x % padded, at.y, step * DEPTH, at.x / padded,
                     &pipe.full[slot]);
            }
        return;
    }
    hopper::more_registers<232>();
    for (int t = blockIdx.x; t < count * splits; t += gridDim.x) {
        const int2 at = hopper::place<BAND, ROWS, COLUMNS>(t % count, down, across);
        const int todo = first(t + count) - first(t), batch = at.x / padded;
        asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory");  // the tile before is stored
        of_columns[group - 1][lane] = at.y + lane < n ? shift(most_b[batch * n + at.y + lane]) : 0;
        asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory");
        float* to = (c.parts ? c.parts + t / count * c.count : c.whole) + batch * m * n;
        float total[64] = {}, part[64], small[64];
        for (int step = 0, last = 0; step < todo; ++step, last = slot, advance()) {
            hopper::wait(&pipe.full[slot], phase);
            const half* left = tiles + slot * TILE + (group - 1) * 64 * DEPTH;
            const half* right = tiles + slot * TILE + 2 * A_TILE;
            const auto of_a = [&](int d, int which) { return hopper::operand(left + which * A_TILE + d, 1024); };
            const auto of_b = [&](int d, int which) {
                return hopper::operand(right + which * B_TILE + d * 64, 1024, B_PIECE * sizeof(half));
            };
            hopper::begin_products();
#pragma unroll
            for (int d = 0; d < DEPTH; d += 16) hopper::multiply_f16(part, of_a(d, 0), of_b(d, 0), d > 0);
            hopper::commit_products();
            hopper::wait_products<1>();  // what was left of the step before: its tile is free
            if (step > 0 && lane == 0) hopper::arrive(&pipe.empty[last]);
#pragma unroll
            for (int d = 0; d < DEPTH; d += 16) {
                hopper::multiply_f16(small, of_a(d, 0), of_b(d, 1), step + d > 0);
                hopper::multiply_f16(small, of_a(d, 1), of_b(d, 0));
            }
            hopper::commit_products();
            hopper::wait_products<1>();
            hopper::settle(part);
#pragma unroll
            for (int i = 0; i < 64; ++i) total[i] += part[i];
        }
        hopper::wait_products<0>();
        hopper::settle(small);
        if (lane == 0) hopper::arrive(&pipe.empty[(slot + SLOTS - 1) % SLOTS]);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int64_t row = at.x % padded + (group - 1) * 64 + lane / 32 * 16 + lane % 32 / 4 + r * 8;
            if (row >= m) continue;
            const int of_row = shift(most_a[batch * m + row]);
#pragma unroll
            for (int j = 0; j < 16; ++j) {
                const int place = j * 8 + lane % 4 * 2;
                const int64_t column = at.y + place;
                if (column >= n) continue;
                float both[2];
                for (int e = 0; e < 2; ++e) {
                    const int i = j * 4 + r * 2 + e;
                    both[e] = scale(total[i] + small[i] * (1.0f / (1 << EXTRA)),
                                    -of_row - of_columns[group - 1][place + e]);
                }
                *reinterpret_cast<float2*>(to + row * n + column) = make_float2(both[0], both[1]);
            }
        }
    }
}

// The rows of a product's tiles.
inline int64_t padded_rows(int64_t m) { return (m + ROWS - 1) / ROWS * ROWS; }

// Whether it is right, of operands whose rows are whole packs, and pays: elements are used often enough to
// be prepared, and tiles have their rows.
inline bool suits(int64_t batch, int64_t m, int64_t n, int64_t k) {
    const int64_t most = 1 << 30;
    return k % 8 == 0 && n % 8 == 0 && double(m) * n / (m + n) >= HALVE_FROM && k < most && n < most &&
           (batch == 1 || (k >= 4 * DEPTH && n >= 4 * COLUMNS && padded_rows(m) <= m + m / 4)) && batch < 1 << 16 &&
           batch * padded_rows(m) < most;
}

// And what is odd, for `launch_odd` to compute anew.
template <class Launch>
int launch(const float* a, const float* b, float* c, int64_t batch, int64_t m, int64_t n, int64_t k,
           cudaStream_t stream, Launch launch_odd) {
    const int64_t of_a = batch * m * k, of_b = batch * k * n, halves = 2 * (of_a + of_b);
    const int64_t lines = batch * (m + n);
    Scratch<unsigned char> work(halves * sizeof(half) + 2 * lines * sizeof(unsigned), stream);
    if (work.error) return (int)work.error;
    half *high_a = (half*)work.data, *low_a = high_a + of_a, *high_b = low_a + of_a, *low_b = high_b + of_b;
    unsigned* most = (unsigned*)(work.data + halves * sizeof(half));
    unsigned* least = most + lines;
    const Odd odd = {{most, least}, {most + batch * m, least + batch * m}};
    cudaMemsetAsync(most, 0, 2 * lines * sizeof(unsigned), stream);
    const int wide = k <= 128 ? 32 : k <= 512 ? 64 : PREPARING;
    const auto blocks_of = [](int64_t threads) { return (threads + PREPARING - 1) / PREPARING; };
    Operands of = {{a, batch, m, k, odd.rows, high_a, low_a}, {b, batch, k, n, odd.columns, high_b, low_b},
                   (unsigned)blocks_of(batch * m * wide)};
    const int64_t bands = (n + BAND_COLUMNS - 1) / BAND_COLUMNS * ((k + BAND_ROWS - 1) / BAND_ROWS);
    find_ranges<<<(unsigned)(of.left + batch * bands), PREPARING, 0, stream>>>(of, wide);
    of.left = (unsigned)blocks_of(of_a / 8);
    launch_next(halve_both, of.left + blocks_of(of_b / 8), PREPARING, stream, of);
    Maps maps;
    constexpr auto KIND = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    int wrong = hopper::map_matrix(&maps.high_a, KIND, 2, high_a, m, k, ROWS, 64, batch);
    wrong = wrong ? wrong : hopper::map_matrix(&maps.low_a, KIND, 2, low_a, m, k, ROWS, 64, batch);
    wrong = wrong ? wrong : hopper::map_matrix(&maps.high_b, KIND, 2, high_b, k, n, DEPTH, 64, batch);
    wrong = wrong ? wrong : hopper::map_matrix(&maps.low_b, KIND, 2, low_b, k, n, DEPTH, 64, batch);
    if (wrong) return wrong;
    const int padded = (int)padded_rows(m), down = (int)batch * (padded / ROWS);
    const int across = (int)((n + COLUMNS - 1) / COLUMNS);
    const int64_t tiles = (int64_t)down * across;
    const int64_t at_once = multiprocessors();
    const Depths depths(tiles, k, DEPTH, wanted_at_once(tiles, at_once), LEAST);
    cudaFuncSetAttribute(matmul_split, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
    wrong = share_depth(depths.splits, c, batch * m * n, stream, [&](const Output& to) {
        launch_next_with(
            SHARED, matmul_split, min(at_once, tiles * depths.splits), 384, stream, maps, to, odd.rows.most,
            odd.columns.most, m, n, padded, down, across, (int)((k + DEPTH - 1) / DEPTH),
            (int)(depths.each / DEPTH), (int)depths.splits);
    });
    return wrong ? wrong : launch_odd(odd);
}
}  // namespace split
