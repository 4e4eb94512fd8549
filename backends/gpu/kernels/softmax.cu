// Softmax over the last axis. A row that fits is read once and kept in registers, of a few lanes where
// it is narrow, else of a block. A wider one is read twice, its maximum and sum found together in the
// first pass; a few very wide ones are several blocks' each. On Hopper a block keeps a row of a quarter
// of a megabyte, and a cluster of blocks a wider one.
#include <portkern/rows.h>

#define BLOCK 256  // knob: 128 256 512 (hip: 512)
#define ITEMS 32  // knob: 16 32 64 (hip: 16)
#define CLUSTER_ITEMS 32  // knob: 16 32
#define FILL 1024  // knob: 512 1024 2048
#ifdef PORTKERN_HOPPER
#include <portkern/softmax_hopper.h>
#endif

// What was seen of a row: its maximum, and the sum of powers relative to that.
struct Seen {
    float top = Max::start(), total = 0.0f;

    __device__ __forceinline__ void add(const Seen& other) {
        const float higher = fmaxf(top, other.top);
        total = total * expf(top - higher) + other.total * expf(other.top - higher);
        top = higher;
    }
};

// A row, or what a thread has of it, in registers: SHARE packs, `step` packs apart.
template <int SHARE, bool WHOLE>
struct Held {
    float at[SHARE][VEC];

    __device__ __forceinline__ float read(const Row<WHOLE>& row, int64_t first, int64_t packs, int step) {
        Pack values[SHARE];
#pragma unroll
        for (int k = 0; k < SHARE; ++k)  // all are on their way before the first is looked at
            if (first + k * step < packs) values[k] = row.load(first + k * step, lowest());
        float top = Max::start();
#pragma unroll
        for (int k = 0; k < SHARE; ++k)
#pragma unroll
            for (int j = 0; j < VEC; ++j) {
                const bool inside = first + k * step < packs;
                at[k][j] = inside ? float(values[k].at[j]) : float(lowest());
                top = fmaxf(top, at[k][j]);
            }
        return top;
    }
    __device__ __forceinline__ float powers(float top) {
        float total = 0.0f;
#pragma unroll
        for (int k = 0; k < SHARE; ++k)
#pragma unroll
            for (int j = 0; j < VEC; ++j) total += at[k][j] = expf(at[k][j] - top);
        return total;
    }
    __device__ __forceinline__ void write(const Row<WHOLE>& row, scalar_t* y, int64_t first,
                                          int64_t packs, int step, float scale, bool alike) const {
#pragma unroll
        for (int k = 0; k < SHARE; ++k) {
            Pack result;
#pragma unroll
            for (int j = 0; j < VEC; ++j) result.at[j] = scalar_t(at[k][j] * scale);
            if (first + k * step < packs) row.store(y, first + k * step, result, alike);
        }
    }
};

template <int LANES, int SHARE, bool WHOLE>
__global__ __launch_bounds__(BLOCK) void softmax_narrow(const scalar_t* __restrict__ x,
                                                        scalar_t* __restrict__ y, int64_t rows,
                                                        int64_t cols, bool alike) {
    const int64_t row = ((int64_t)blockIdx.x * BLOCK + threadIdx.x) / LANES;
    const int lane = threadIdx.x % LANES;
    const Row<WHOLE> in(x, row < rows ? row : rows - 1, cols);
    const int64_t packs = row < rows ? in.packs : 0;
    Held<SHARE, WHOLE> held;
    const float top = lane_reduce<Max>(held.read(in, lane, packs, LANES), LANES);
    const float total = lane_reduce<Sum>(held.powers(top), LANES);
    held.write(in, y, lane, packs, LANES, 1.0f / total, alike);
}

// THREADS: BLOCK, or as many as a block can have, for rows that would be read twice otherwise.
template <int THREADS, int SHARE, bool WHOLE>
__global__ __launch_bounds__(THREADS) void softmax_row(const scalar_t* __restrict__ x,
                                                       scalar_t* __restrict__ y, int64_t cols,
                                                       bool alike) {
    __shared__ float tops[WARPS_MOST], totals[WARPS_MOST];
    const Row<WHOLE> in(x, blockIdx.x, cols);
    const int64_t packs = in.packs;
    Held<SHARE, WHOLE> held;
    const float top = block_reduce<Max>(held.read(in, threadIdx.x, packs, blockDim.x), tops);
    const float total = block_reduce<Sum>(held.powers(top), totals);
    held.write(in, y, threadIdx.x, packs, blockDim.x, 1.0f / total, alike);
}

constexpr int AHEAD = 4;  // packs on their way at once
constexpr int LARGE = 1024;  // threads of the largest block
constexpr int MANY = 4;  // blocks that share a row: with fewer, rows that stay on chip are faster

// Of what all threads of the block have seen.
__device__ __forceinline__ Seen joined(const Seen& mine) {
    __shared__ float tops[WARPS_MOST], totals[WARPS_MOST];
    const float top = block_reduce<Max>(mine.top, tops);
    return {top, block_reduce<Sum>(mine.total * expf(mine.top - top), totals)};
}

// Of a part of a row, by the block.
template <bool WHOLE>
__device__ __forceinline__ Seen look(const Row<WHOLE>& row, const Part& part) {
    Seen seen;
    each_pack<AHEAD>(row, part, threadIdx.x, BLOCK, lowest(), [&](const auto& values, int64_t) {
        float top = seen.top, total = 0.0f;
        for (const Pack& pack : values)
#pragma unroll
            for (int j = 0; j < VEC; ++j) top = fmaxf(top, float(pack.at[j]));
        for (const Pack& pack : values)
#pragma unroll
            for (int j = 0; j < VEC; ++j) total += expf(float(pack.at[j]) - top);
        seen = {top, seen.total * expf(seen.top - top) + total};
    });
    return joined(seen);
}

template <bool WHOLE>
__device__ __forceinline__ void finish(const Row<WHOLE>& row, const Part& part, scalar_t* y,
                                       const Seen& seen, bool alike) {
    const float scale = 1.0f / seen.total;
    each_pack<AHEAD>(row, part, threadIdx.x, BLOCK, scalar_t(0.0f), [&](const auto& values, int64_t i) {
        for (const Pack& pack : values) {
            Pack result;
#pragma unroll
            for (int j = 0; j < VEC; ++j)
                result.at[j] = scalar_t(expf(float(pack.at[j]) - seen.top) * scale);
            row.store(y, i, result, alike);
            i += BLOCK;
        }
    });
}

template <bool WHOLE>
__global__ __launch_bounds__(BLOCK) void softmax_wide(const scalar_t* __restrict__ x,
                                                      scalar_t* __restrict__ y, int64_t cols,
                                                      bool alike) {
    const Row<WHOLE> in(x, blockIdx.x, cols);
    const Part all(in.packs, 1, 0);
    finish(in, all, y, look(in, all), alike);
}

template <bool WHOLE>
__global__ __launch_bounds__(BLOCK) void softmax_look(const scalar_t* __restrict__ x, Seen* seen,
                                                      int64_t cols, int64_t splits) {
    const Row<WHOLE> in(x, blockIdx.x / splits, cols);
    const Seen part = look(in, Part(in.packs, splits, blockIdx.x % splits));
    if (threadIdx.x == 0) seen[blockIdx.x] = part;
}

template <bool WHOLE>
__global__ __launch_bounds__(BLOCK) void softmax_finish(const scalar_t* __restrict__ x,
                                                        scalar_t* __restrict__ y,
                                                        const Seen* __restrict__ seen,
                                                        int64_t cols, int64_t splits, bool alike) {
    const int64_t row = blockIdx.x / splits;
    Seen mine;
    for (int64_t s = threadIdx.x; s < splits; s += BLOCK) mine.add(seen[row * splits + s]);
    const Row<WHOLE> in(x, row, cols);
    finish(in, Part(in.packs, splits, blockIdx.x % splits), y, joined(mine), alike);
}

template <int SHARE, bool WHOLE>
int launch_narrow(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, bool alike,
                  cudaStream_t stream) {
    const int64_t packs = most_packs(cols, WHOLE);
    if constexpr (2 * SHARE * VEC <= ITEMS)  // as few as do: what has no element costs as much
        if (packs > SHARE * WARP_SIZE_MIN)
            return launch_narrow<2 * SHARE, WHOLE>(x, y, rows, cols, alike, stream);
    const int lanes = lanes_for(packs, SHARE);
    const int64_t blocks = (rows * lanes + BLOCK - 1) / BLOCK;
    with_lanes(lanes, [&](auto lanes) {
        const auto kernel = softmax_narrow<decltype(lanes)::count, SHARE, WHOLE>;
        kernel<<<(unsigned)blocks, BLOCK, 0, stream>>>(x, y, rows, cols, alike);
    });
    return (int)cudaGetLastError();
}

template <bool WHOLE>
int launch(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, cudaStream_t stream) {
    constexpr int SHARE = ITEMS / VEC;  // packs per thread
    const int64_t packs = most_packs(cols, WHOLE), threads = (packs + SHARE - 1) / SHARE;
    const bool alike = lie_alike(x, y);
    if (threads <= WARP_SIZE_MIN) return launch_narrow<1, WHOLE>(x, y, rows, cols, alike, stream);
    const int64_t splits = splits_for(rows, packs, FILL, 4 * BLOCK);
    if (threads <= BLOCK || (threads <= LARGE && splits <= MANY)) {
        const unsigned whole = (unsigned)((threads + WARP_SIZE_MAX - 1) / WARP_SIZE_MAX) * WARP_SIZE_MAX;
        const auto kernel = threads <= BLOCK ? softmax_row<BLOCK, SHARE, WHOLE> : softmax_row<LARGE, SHARE, WHOLE>;
        kernel<<<(unsigned)rows, whole, 0, stream>>>(x, y, cols, alike);
        return (int)cudaGetLastError();
    }
#ifdef PORTKERN_HOPPER
    if (WHOLE && splits <= MANY && softmax_hopper::launch<VEC>(x, y, rows, packs, stream))
        return (int)cudaGetLastError();
#endif
    if (splits == 1) {
        softmax_wide<WHOLE><<<(unsigned)rows, BLOCK, 0, stream>>>(x, y, cols, alike);
        return (int)cudaGetLastError();
    }
    Scratch<Seen> seen(rows * splits, stream);
    if (seen.error) return (int)seen.error;
    const unsigned blocks = (unsigned)(rows * splits);
    softmax_look<WHOLE><<<blocks, BLOCK, 0, stream>>>(x, seen.data, cols, splits);
    softmax_finish<WHOLE><<<blocks, BLOCK, 0, stream>>>(x, y, seen.data, cols, splits, alike);
    return (int)cudaGetLastError();
}

extern "C" int softmax(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols,
                       cudaStream_t stream) {
    if (rows == 0 || cols == 0) return 0;
    return are_whole((uintptr_t)x | (uintptr_t)y, cols) ? launch<true>(x, y, rows, cols, stream)
                                                        : launch<false>(x, y, rows, cols, stream);
}
