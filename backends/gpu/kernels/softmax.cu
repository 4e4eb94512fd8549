// Softmax over the last axis. A row that fits is read once and kept in registers, of one thread where it
// is short, of a few lanes where it is narrow, else of a block. A wider one is read twice, its maximum and
// sum found together in the first pass; a few very wide ones are several blocks' each. On Hopper a block
// keeps a row of a quarter of a megabyte, and a cluster of blocks a wider one.
#include <portkern/rows.h>

#define BLOCK 256  // knob: 128 256 512
#define ITEMS 32  // knob: 16 32 64
#define CLUSTER_ITEMS 32  // knob: 16 32
#define FILL 1024  // knob: 512 1024 2048
#define FEW 131072  // knob: 0 32768 131072 524288
#ifdef PORTKERN_HOPPER
#include <portkern/softmax_hopper.h>
#endif

// What was seen of a row: its maximum, and the sum of powers relative to that.
struct Seen {
    float top = Max::start(), total = 0.0f;

    __device__ __forceinline__ void add(const Seen& other) {
        const float higher = fmaxf(top, other.top);
        total = total * exponential(top - higher) + other.total * exponential(other.top - higher);
        top = higher;
    }
};

// A row, or what a thread has of it, in registers: SHARE packs, `step` packs apart.
template <int SHARE, class R>
struct Held {
    float at[SHARE][R::VEC];

    __device__ __forceinline__ float read(const R& row, const Mine<R>& mine) {
        typename R::Pack values[SHARE];
#pragma unroll
        for (int k = 0; k < SHARE; ++k) {  // all are on their way before the first is looked at
            if (mine.ends(k)) break;
            if (R::LOCAL) values[k].at[0] = lowest();
            if (mine.has(k)) values[k] = row.load(mine.at(k), lowest());
        }
        float top = Max::start();
#pragma unroll
        for (int k = 0; k < SHARE; ++k) {
            if (mine.ends(k)) break;
#pragma unroll
            for (int j = 0; j < R::VEC; ++j) {
                const bool inside = R::LOCAL || mine.has(k);
                at[k][j] = inside ? float(values[k].at[j]) : float(lowest());
                top = fmaxf(top, at[k][j]);
            }
        }
        return top;
    }
    __device__ __forceinline__ float powers(float top, const Mine<R>& mine) {
        float total = 0.0f;
#pragma unroll
        for (int k = 0; k < SHARE; ++k) {
            if (mine.ends(k)) break;
#pragma unroll
            for (int j = 0; j < R::VEC; ++j) total += at[k][j] = exponential(at[k][j] - top);
        }
        return total;
    }
    __device__ __forceinline__ void write(const R& row, scalar_t* y, const Mine<R>& mine, float scale,
                                          bool alike) const {
        mine.template each<SHARE>([&](int k) {
            typename R::Pack result;
#pragma unroll
            for (int j = 0; j < R::VEC; ++j) result.at[j] = scalar_t(at[k][j] * scale);
            row.store(y, mine.at(k), result, alike);
        });
    }
};

template <int LANES, int SHARE, class R>
__device__ __forceinline__ void normalise(const R& in, bool there, scalar_t* y, bool alike) {
    const Mine<R> mine(threadIdx.x % LANES, LANES, there ? (int)in.packs : 0);
    Held<SHARE, R> held;
    const float top = lane_reduce<Max>(held.read(in, mine), LANES);
    const float total = lane_reduce<Sum>(held.powers(top, mine), LANES);
    held.write(in, y, mine, 1.0f / total, alike);
}

// Bounded only by its threads, it is given too few registers on some architectures.
template <int LANES, int SHARE, class R>
__global__ PORTABLE_LAUNCH_BOUNDS(BLOCK, 2) void softmax_narrow(const scalar_t* __restrict__ x,
                                                               scalar_t* __restrict__ y, int64_t rows,
                                                               int64_t cols, bool alike) {
    if constexpr (R::LOCAL) {
        // Not by change_local_rows(): nvcc would ask for the row's place anew at each element.
        __shared__ Image<BLOCK, (SHARE + VEC - 1) / VEC> image;
        const BlockRows own(rows, blockDim.x / LANES);
        const int count = (int)(own.count * cols);
        scalar_t* here = image.fetch(x, own.first * cols, count, rows * cols, blockDim.x);
        const int row = threadIdx.x / LANES;
        normalise<LANES, SHARE>(R(here, min(row, own.count - 1), cols), row < own.count, here, true);
        image.store(y, here, own.first * cols, count, blockDim.x);
    } else {
        const int64_t row = group_of_lanes(LANES);
        normalise<LANES, SHARE>(R(x, row < rows ? row : rows - 1, cols), row < rows, y, alike);
    }
}

// Rows of at most N elements.
template <int N>
__global__ PORTABLE_LAUNCH_BOUNDS(SHORT_BLOCK, 2) void softmax_short(const scalar_t* __restrict__ x,
                                                              scalar_t* __restrict__ y, int64_t rows,
                                                              int64_t cols) {
    change_short_rows(x, y, rows, cols, [](const Single& in, scalar_t* here) {
        normalise<1, N>(in, true, here, true);
    });
}

// THREADS: BLOCK, or as many as a block can have, for rows that would be read twice otherwise.
template <int THREADS, int SHARE, class R>
__global__ __launch_bounds__(THREADS) void softmax_row(const scalar_t* __restrict__ x,
                                                       scalar_t* __restrict__ y, int64_t cols,
                                                       bool alike) {
    __shared__ float tops[WARPS_MOST], totals[WARPS_MOST];
    const R in(x, blockIdx.x, cols);
    const Mine<R> mine(threadIdx.x, blockDim.x, (int)in.packs);
    Held<SHARE, R> held;
    const float top = block_reduce<Max>(held.read(in, mine), tops);
    const float total = block_reduce<Sum>(held.powers(top, mine), totals);
    held.write(in, y, mine, 1.0f / total, alike);
}

constexpr int AHEAD = 4;  // packs on their way at once
constexpr int LARGE = 1024;  // threads of the largest block
constexpr int MANY = 4;  // blocks that share a row: with fewer, rows that stay on chip are faster

// Of what all threads of the block have seen.
__device__ __forceinline__ Seen joined(const Seen& mine) {
    __shared__ float tops[WARPS_MOST], totals[WARPS_MOST];
    const float top = block_reduce<Max>(mine.top, tops);
    return {top, block_reduce<Sum>(mine.total * exponential(mine.top - top), totals)};
}

// Of a part of a row, by the block.
template <class R>
__device__ __forceinline__ Seen look(const R& row, const Part& part) {
    Seen seen;
    each_pack<AHEAD>(row, part, threadIdx.x, BLOCK, lowest(), [&](const auto& values, int64_t) {
        float top = seen.top, total = 0.0f;
        for (const auto& pack : values)
#pragma unroll
            for (int j = 0; j < R::VEC; ++j) top = fmaxf(top, float(pack.at[j]));
        for (const auto& pack : values)
#pragma unroll
            for (int j = 0; j < R::VEC; ++j) total += exponential(float(pack.at[j]) - top);
        seen = {top, seen.total * exponential(seen.top - top) + total};
    });
    return joined(seen);
}

template <class R>
__device__ __forceinline__ void finish(const R& row, const Part& part, scalar_t* y,
                                       const Seen& seen, bool alike) {
    const float scale = 1.0f / seen.total;
    each_pack<AHEAD>(row, part, threadIdx.x, BLOCK, scalar_t(0.0f), [&](const auto& values, int64_t i) {
        for (const auto& pack : values) {
            typename R::Pack result;
#pragma unroll
            for (int j = 0; j < R::VEC; ++j)
                result.at[j] = scalar_t(exponential(float(pack.at[j]) - seen.top) * scale);
            row.store(y, i, result, alike);
            i += BLOCK;
        }
    });
}

template <class R>
__global__ __launch_bounds__(BLOCK) void softmax_wide(const scalar_t* __restrict__ x,
                                                      scalar_t* __restrict__ y, int64_t cols,
                                                      bool alike) {
    const R in(x, blockIdx.x, cols);
    const Part all(in.packs, 1, 0);
    finish(in, all, y, look(in, all), alike);
}

template <class R>
__global__ __launch_bounds__(BLOCK) void softmax_look(const scalar_t* __restrict__ x, Seen* seen,
                                                      int64_t cols, unsigned splits) {
    let_next_begin();
    const R in(x, blockIdx.x / splits, cols);
    const Seen part = look(in, Part(in.packs, splits, blockIdx.x % splits));
    if (threadIdx.x == 0) seen[blockIdx.x] = part;
}

template <class R>
__global__ __launch_bounds__(BLOCK) void softmax_finish(const scalar_t* __restrict__ x,
                                                        scalar_t* __restrict__ y,
                                                        const Seen* seen,
                                                        int64_t cols, unsigned splits, bool alike) {
    wait_for_previous();
    const int64_t row = blockIdx.x / splits;
    Seen mine;
    for (int64_t s = threadIdx.x; s < splits; s += BLOCK) mine.add(seen[row * splits + s]);
    const R in(x, row, cols);
    finish(in, Part(in.packs, splits, blockIdx.x % splits), y, joined(mine), alike);
}

template <class R>
int launch_narrow(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, bool alike,
                  cudaStream_t stream) {
    const auto start = [&](auto share, auto lanes) {
        const auto kernel = softmax_narrow<decltype(lanes)::value, decltype(share)::value, R>;
        const Blocks blocks = blocks_for(rows * decltype(lanes)::value, BLOCK);
        kernel<<<blocks.count, blocks.threads, 0, stream>>>(x, y, rows, cols, alike);
    };
    if constexpr (R::LOCAL) with_local_lanes<ITEMS>(cols, start);
    else with_lanes<share_most<R>(ITEMS)>(R::most(cols), start);
    return (int)cudaGetLastError();
}

template <class R>
int launch(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols, cudaStream_t stream) {
    constexpr int SHARE = share_most<R>(ITEMS);  // packs per thread
    const int64_t packs = R::most(cols), threads = (packs + SHARE - 1) / SHARE;
    const bool alike = lie_alike(x, y);
    if constexpr (!R::WHOLE)
        if (are_short(rows, cols)) {
            with_most(cols, [&](auto most) {
                softmax_short<decltype(most)::value><<<short_blocks(rows), SHORT_BLOCK, 0, stream>>>(x, y, rows, cols);
            });
            return (int)cudaGetLastError();
        }
    if constexpr (R::WHOLE && R::VEC > 1)
        if (are_spread(rows, packs, BLOCK)) {
            softmax_row<BLOCK, 1, R><<<(unsigned)rows, whole_warps(packs), 0, stream>>>(x, y, cols, alike);
            return (int)cudaGetLastError();
        }
    using Narrow = Near<R>;
    if (Narrow::most(cols) <= WARP_SIZE_MIN * share_most<Narrow>(ITEMS))
        return launch_narrow<Narrow>(x, y, rows, cols, alike, stream);
#ifdef PORTKERN_HOPPER
    if (softmax_hopper::launch_alone<R>(x, y, rows, cols, alike, stream)) return (int)cudaGetLastError();
#endif
    const bool few_parts = splits_for(rows, packs, FILL, 4 * BLOCK) <= MANY;
    if (threads <= BLOCK || (threads <= LARGE && few_parts)) {
        const auto kernel = threads <= BLOCK ? softmax_row<BLOCK, SHARE, R> : softmax_row<LARGE, SHARE, R>;
        kernel<<<(unsigned)rows, whole_warps(threads), 0, stream>>>(x, y, cols, alike);
        return (int)cudaGetLastError();
    }
#ifdef PORTKERN_HOPPER
    if constexpr (R::WHOLE && R::VEC > 1)
        if (few_parts && softmax_hopper::launch_together(x, y, rows, packs, stream))
            return (int)cudaGetLastError();
#endif
    const int64_t splits = parts_twice(rows, packs, FILL, BLOCK);
    if (splits == 1) {
        softmax_wide<R><<<(unsigned)rows, BLOCK, 0, stream>>>(x, y, cols, alike);
        return (int)cudaGetLastError();
    }
    Scratch<Seen> seen(rows * splits, stream);
    if (seen.error) return (int)seen.error;
    const unsigned blocks = (unsigned)(rows * splits);
    softmax_look<R><<<blocks, BLOCK, 0, stream>>>(x, seen.data, cols, splits);
    launch_next(softmax_finish<R>, blocks, BLOCK, stream, x, y, seen.data, cols, splits, alike);
    return (int)cudaGetLastError();
}

extern "C" int softmax(const scalar_t* x, scalar_t* y, int64_t rows, int64_t cols,
                       cudaStream_t stream) {
    if (rows == 0 || cols == 0) return 0;
    const bool whole = are_whole((uintptr_t)x | (uintptr_t)y, cols);
    if (is_single(rows, cols, SINGLE_MOST, FEW, whole))
        return launch<Single>(x, y, rows, cols, stream);
    return whole ? launch<Whole>(x, y, rows, cols, stream) : launch<Ragged>(x, y, rows, cols, stream);
}
