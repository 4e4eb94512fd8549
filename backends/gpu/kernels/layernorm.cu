// Layer normalisation over the last axis. A row that fits is read once and kept in registers, of one
// thread where it is short, of a few lanes where it is narrow, else of a block; a few very wide ones are
// several blocks' each. Deviations from a first mean give the variance and correct the mean itself, so a
// mean far above the deviation costs no digits. On Hopper, all blocks share a few rows of the widest.
#include <portkern/rows.h>

#define BLOCK 256  // knob: 128 256 512
#define ITEMS 32  // knob: 16 32 64
#define SHARED_FROM 100  // knob: 50 100 400
#define HELD 12  // knob: 0 6 12
#define FILL 1024  // knob: 512 1024 2048
#define FEW 131072  // knob: 0 32768 131072 524288

// Sums two values over the block; `partial` is the call's own, as one barrier is enough then.
__device__ __forceinline__ float2 block_sum(float2 value, float2* partial) {
    value.x = lane_reduce<Sum>(value.x, WARP_SIZE);
    value.y = lane_reduce<Sum>(value.y, WARP_SIZE);
    if (threadIdx.x % WARP_SIZE == 0) partial[threadIdx.x / WARP_SIZE] = value;
    __syncthreads();
    value = partial[0];
    for (int w = 1; w < blockDim.x / WARP_SIZE; ++w) {
        value.x += partial[w].x;
        value.y += partial[w].y;
    }
    return value;
}

template <int V>
__device__ __forceinline__ Some<V> scaled(const float (&deviation)[V], float shift, float scale,
                                          const Some<V>& weight, const Some<V>& bias) {
    Some<V> result;
#pragma unroll
    for (int j = 0; j < V; ++j)
        result.at[j] = scalar_t((deviation[j] - shift) * scale * float(weight.at[j]) + float(bias.at[j]));
    return result;
}

#ifdef PORTKERN_HOPPER
#include <portkern/layernorm_hopper.h>
#endif

constexpr int AHEAD = 4;  // packs on their way at once

// What every kernel is given.
struct Tensors {
    const scalar_t *x, *weight, *bias;
    scalar_t* y;
    int64_t rows, cols;
    float eps;
    bool alike;  // packs of x and y
};

// Of `cols` deviations from a mean: how far the true mean is from it, and the scale.
__device__ __forceinline__ float2 normal_of(float2 sums, int64_t cols, float eps) {
    const float shift = sums.x / cols;
    return make_float2(shift, rsqrtf(fmaxf(sums.y / cols - shift * shift, 0.0f) + eps));
}

// A row, or what a thread has of it, in registers: SHARE packs, `step` packs apart.
template <int SHARE, class R>
struct Held {
    float at[SHARE][R::VEC];

    __device__ __forceinline__ float read(const R& row, const Mine<R>& mine) {
        typename R::Pack values[SHARE];
#pragma unroll
        for (int k = 0; k < SHARE; ++k) {  // all are on their way before the first is looked at
            if (mine.ends(k)) break;
            if (mine.has(k)) values[k] = row.load(mine.at(k));
        }
        float total = 0.0f;
#pragma unroll
        for (int k = 0; k < SHARE; ++k) {
            if (mine.ends(k)) break;
#pragma unroll
            for (int j = 0; j < R::VEC; ++j) {
                const bool inside = mine.has(k);
                total += at[k][j] = inside ? float(values[k].at[j]) : 0.0f;
            }
        }
        return total;
    }
    __device__ __forceinline__ float2 deviate(const R& row, const Mine<R>& mine, float mean) {
        float2 sums = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int k = 0; k < SHARE; ++k) {
            if (mine.ends(k)) break;
#pragma unroll
            for (int j = 0; j < R::VEC; ++j) {
                const bool inside = mine.has(k) && (R::LOCAL || row.has(mine.at(k), j));
                at[k][j] = inside ? at[k][j] - mean : 0.0f;
                sums.x += at[k][j];
                sums.y += at[k][j] * at[k][j];
            }
        }
        return sums;
    }
    __device__ __forceinline__ void write(const Tensors& all, const R& row, const Mine<R>& mine,
                                          float2 normal) const {
        mine.template each<SHARE>([&](int k) {
            const int i = mine.at(k);
            const typename R::Pack result = scaled(at[k], normal.x, normal.y, row.beside(all.weight, i),
                                       row.beside(all.bias, i));
            row.store(all.y, i, result, all.alike);
        });
    }
};

template <int LANES, int SHARE, class R>
__device__ __forceinline__ void normalise(const Tensors& all, const R& in, bool there) {
    const Mine<R> mine(threadIdx.x % LANES, LANES, there ? (int)in.packs : 0);
    Held<SHARE, R> held;
    const float mean = lane_reduce<Sum>(held.read(in, mine), LANES) / all.cols;
    float2 sums = held.deviate(in, mine, mean);
    sums = make_float2(lane_reduce<Sum>(sums.x, LANES), lane_reduce<Sum>(sums.y, LANES));
    held.write(all, in, mine, normal_of(sums, all.cols, all.eps));
}

template <int LANES, int SHARE, class R>
__global__ __launch_bounds__(BLOCK) void layernorm_narrow(const Tensors all) {
    if constexpr (R::LOCAL) {
        const auto change = [&](scalar_t* here, int row, bool there) {
            Tensors local = all;
            local.y = here;
            normalise<LANES, SHARE>(local, R(here, row, all.cols), there);
        };
        change_local_rows<BLOCK, SHARE>(all.x, all.y, all.rows, all.cols, LANES, change);
    } else {
        const int64_t row = group_of_lanes(LANES);
        normalise<LANES, SHARE>(all, R(all.x, row < all.rows ? row : all.rows - 1, all.cols),
                                row < all.rows);
    }
}

// Rows of at most N elements.
template <int N>
__global__ __launch_bounds__(SHORT_BLOCK) void layernorm_short(const Tensors all) {
    change_short_rows(all.x, all.y, all.rows, all.cols, [&](const Single& in, scalar_t* here) {
        Tensors there = all;
        there.y = here;
        normalise<1, N>(there, in, true);
    });
}

template <int SHARE, class R>
__global__ __launch_bounds__(threads_most<R>(BLOCK)) void layernorm_row(const Tensors all) {
    __shared__ float partial[WARPS_MOST];
    __shared__ float2 partials[WARPS_MOST];
    const R in(all.x, blockIdx.x, all.cols);
    const Mine<R> mine(threadIdx.x, blockDim.x, (int)in.packs);
    Held<SHARE, R> held;
    const float mean = block_reduce<Sum>(held.read(in, mine), partial) / all.cols;
    const float2 sums = block_sum(held.deviate(in, mine, mean), partials);
    held.write(all, in, mine, normal_of(sums, all.cols, all.eps));
}

// ---- Rows that are read three times; the last two find them in the L2

// The mean of a part of a row, nearly, and the sums of the deviations and of their squares.
struct Moments {
    float mean, count;
    float2 sums;
};

template <class R>
__device__ __forceinline__ Moments look(const R& row, const Part& part) {
    __shared__ float2 partial[2][WARPS_MOST];
    float2 sums = make_float2(0.0f, 0.0f);
    each_pack<AHEAD>(row, part, threadIdx.x, BLOCK, scalar_t(0.0f), [&](const auto& values, int64_t i) {
        for (const auto& pack : values) {
#pragma unroll
            for (int j = 0; j < R::VEC; ++j) {
                sums.x += float(pack.at[j]);
                sums.y += row.has(i, j) ? 1.0f : 0.0f;
            }
            i += BLOCK;
        }
    });
    sums = block_sum(sums, partial[0]);
    const float count = sums.y, mean = sums.x / count;
    sums = make_float2(0.0f, 0.0f);
    each_pack<AHEAD>(row, part, threadIdx.x, BLOCK, scalar_t(0.0f), [&](const auto& values, int64_t i) {
        for (const auto& pack : values) {
#pragma unroll
            for (int j = 0; j < R::VEC; ++j) {
                const float deviation = row.has(i, j) ? float(pack.at[j]) - mean : 0.0f;
                sums.x += deviation;
                sums.y += deviation * deviation;
            }
            i += BLOCK;
        }
    });
    return {mean, count, block_sum(sums, partial[1])};
}

template <class R>
__device__ __forceinline__ void finish(const Tensors& all, const R& row, const Part& part,
                                       float mean, float2 normal) {
    each_pack<2>(row, part, threadIdx.x, BLOCK, scalar_t(0.0f), [&](const auto& values, int64_t i) {
        for (const auto& pack : values) {
            float deviation[R::VEC];
#pragma unroll
            for (int j = 0; j < R::VEC; ++j) deviation[j] = float(pack.at[j]) - mean;
            const typename R::Pack result = scaled(deviation, normal.x, normal.y, row.beside(all.weight, i),
                                       row.beside(all.bias, i));
            row.store(all.y, i, result, all.alike);
            i += BLOCK;
        }
    });
}

template <class R>
__global__ __launch_bounds__(BLOCK) void layernorm_wide(const Tensors all) {
    const R in(all.x, blockIdx.x, all.cols);
    const Part part(in.packs, 1, 0);
    const Moments seen = look(in, part);
    finish(all, in, part, seen.mean, normal_of(seen.sums, all.cols, all.eps));
}

template <class R>
__global__ __launch_bounds__(BLOCK) void layernorm_look(const Tensors all, Moments* seen,
                                                        unsigned splits) {
    let_next_begin();
    const R in(all.x, blockIdx.x / splits, all.cols);
    const Moments part = look(in, Part(in.packs, splits, blockIdx.x % splits));
    if (threadIdx.x == 0) seen[blockIdx.x] = part;
}

// Moments of parts about their own means become those about the first one's, by Chan's formula.
template <class R>
__global__ __launch_bounds__(BLOCK) void layernorm_finish(const Tensors all,
                                                          const Moments* seen,
                                                          unsigned splits) {
    wait_for_previous();
    __shared__ float2 partial[WARPS_MOST];
    const int64_t row = blockIdx.x / splits;
    const Moments* parts = seen + row * splits;
    const float near = parts[0].mean;
    float2 sums = make_float2(0.0f, 0.0f);
    for (int64_t s = threadIdx.x; s < splits; s += BLOCK) {
        const Moments part = parts[s];
        const float off = part.mean - near;
        sums.x += part.sums.x + part.count * off;
        sums.y += part.sums.y + 2.0f * off * part.sums.x + part.count * off * off;
    }
    const float2 normal = normal_of(block_sum(sums, partial), all.cols, all.eps);
    const R in(all.x, row, all.cols);
    finish(all, in, Part(in.packs, splits, blockIdx.x % splits), near, normal);
}

template <class R>
int launch_narrow(const Tensors& all, cudaStream_t stream) {
    const auto start = [&](auto share, auto lanes) {
        const auto kernel = layernorm_narrow<decltype(lanes)::value, decltype(share)::value, R>;
        const Blocks blocks = blocks_for(all.rows * decltype(lanes)::value, BLOCK);
        kernel<<<blocks.count, blocks.threads, 0, stream>>>(all);
    };
    if constexpr (R::LOCAL) with_local_lanes<ITEMS>(all.cols, start);
    else with_lanes<share_most<R>(ITEMS)>(R::most(all.cols), start);
    return (int)cudaGetLastError();
}

template <class R>
int launch(const Tensors& all, cudaStream_t stream) {
    constexpr int SHARE = share_most<R>(ITEMS);  // packs per thread
    const int64_t packs = R::most(all.cols), threads = (packs + SHARE - 1) / SHARE;
    if constexpr (!R::WHOLE)
        if (are_short(all.rows, all.cols)) {
            with_most(all.cols, [&](auto most) {
                layernorm_short<decltype(most)::value><<<short_blocks(all.rows), SHORT_BLOCK, 0, stream>>>(all);
            });
            return (int)cudaGetLastError();
        }
    const unsigned rows = (unsigned)all.rows;
    if constexpr (R::WHOLE && R::VEC > 1)
        if (are_spread(all.rows, packs, BLOCK)) {
            layernorm_row<1, R><<<rows, whole_warps(packs), 0, stream>>>(all);
            return (int)cudaGetLastError();
        }
    using Narrow = Near<R>;
    if (Narrow::most(all.cols) <= WARP_SIZE_MIN * share_most<Narrow>(ITEMS))
        return launch_narrow<Narrow>(all, stream);
    if (threads <= threads_most<R>(BLOCK)) {
        layernorm_row<SHARE, R><<<rows, whole_warps(threads), 0, stream>>>(all);
        return (int)cudaGetLastError();
    }
#ifdef PORTKERN_HOPPER
    if (R::WHOLE && R::VEC > 1 && all.cols >= SHARED_FROM * 1000 &&
        layernorm_hopper::launch(all.x, all.weight, all.bias, all.y, all.rows, packs, all.eps, stream))
        return 0;
#endif
    const int64_t splits = parts_twice(all.rows, packs, FILL, BLOCK);
    if (splits == 1) {
        layernorm_wide<R><<<rows, BLOCK, 0, stream>>>(all);
        return (int)cudaGetLastError();
    }
    Scratch<Moments> seen(all.rows * splits, stream);
    if (seen.error) return (int)seen.error;
    const unsigned blocks = (unsigned)(all.rows * splits);
    layernorm_look<R><<<blocks, BLOCK, 0, stream>>>(all, seen.data, splits);
    launch_next(layernorm_finish<R>, blocks, BLOCK, stream, all, seen.data, splits);
    return (int)cudaGetLastError();
}

extern "C" int layernorm(const scalar_t* x, const scalar_t* weight, const scalar_t* bias,
                         scalar_t* y, int64_t rows, int64_t cols, float eps, cudaStream_t stream) {
    if (rows == 0 || cols == 0) return 0;
    const uintptr_t pointers = (uintptr_t)x | (uintptr_t)weight | (uintptr_t)bias | (uintptr_t)y;
    const Tensors all = {x, weight, bias, y, rows, cols, eps, lie_alike(x, y)};
    const bool whole = are_whole(pointers, cols);
    if (is_single(rows, cols, SINGLE_MOST, FEW, whole))
        return launch<Single>(all, stream);
    return whole ? launch<Whole>(all, stream) : launch<Ragged>(all, stream);
}
