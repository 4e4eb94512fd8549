// Root-mean-square normalisation over the last axis. A row that fits is read once and kept in registers,
// of one thread where it is short, of a few lanes where it is narrow, else of a block. A wider one is read
// twice; a few very wide ones are several blocks' each.
#include <portkern/rows.h>

#define BLOCK 512  // knob: 128 256 512
#define ITEMS 4  // knob: 2 4 8
#define FILL 1024  // knob: 512 1024 2048
#define FEW 131072  // knob: 0 32768 131072 524288

constexpr int LOCAL_ITEMS = 4 * VEC;  // elements of a lane

struct Tensors {
    const scalar_t *x, *weight;
    scalar_t* y;
    int64_t rows, cols;
    float eps;
    bool alike;  // packs of x and y
};

template <int V>
__device__ __forceinline__ float squares(bool inside, const Some<V>& values) {
    float total = 0.0f;
#pragma unroll
    for (int j = 0; j < V; ++j) {
        const float v = inside ? float(values.at[j]) : 0.0f;
        total += v * v;
    }
    return total;
}

template <class R>
__device__ __forceinline__ void write(const Tensors& all, const R& row, int64_t i,
                                      const typename R::Pack& values, float scale) {
    const typename R::Pack weight = row.beside(all.weight, i);
    typename R::Pack result;
#pragma unroll
    for (int j = 0; j < R::VEC; ++j)
        result.at[j] = scalar_t(float(values.at[j]) * scale * float(weight.at[j]));
    row.store(all.y, i, result, all.alike);
}

__device__ __forceinline__ float scale_of(float total, const Tensors& all) {
    return rsqrtf(total / all.cols + all.eps);
}

// A row, or what a thread has of it, in registers: SHARE packs, `step` packs apart.
template <int SHARE, class R>
struct Held {
    typename R::Pack values[SHARE];

    __device__ __forceinline__ float read(const R& row, const Mine<R>& mine) {
#pragma unroll
        for (int k = 0; k < SHARE; ++k) {
            if (mine.ends(k)) break;
            if (mine.has(k)) values[k] = row.load(mine.at(k));
        }
        float total = 0.0f;
#pragma unroll
        for (int k = 0; k < SHARE; ++k) {
            if (mine.ends(k)) break;
            total += squares(mine.has(k), values[k]);
        }
        return total;
    }
    __device__ __forceinline__ void scale(const Tensors& all, const R& row, const Mine<R>& mine,
                                          float scale) const {
        mine.template each<SHARE>([&](int k) { write(all, row, mine.at(k), values[k], scale); });
    }
};

template <int LANES, int SHARE, class R>
__device__ __forceinline__ void normalise(const Tensors& all, const R& in, bool there) {
    const Mine<R> mine(threadIdx.x % LANES, LANES, there ? (int)in.packs : 0);
    Held<SHARE, R> held;
    const float total = lane_reduce<Sum>(held.read(in, mine), LANES);
    held.scale(all, in, mine, scale_of(total, all));
}

template <int LANES, int SHARE, class R>
__global__ __launch_bounds__(BLOCK) void rmsnorm_narrow(const Tensors all) {
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
__global__ __launch_bounds__(SHORT_BLOCK) void rmsnorm_short(const Tensors all) {
    change_short_rows(all.x, all.y, all.rows, all.cols, [&](const Single& in, scalar_t* here) {
        Tensors there = all;
        there.y = here;
        normalise<1, N>(there, in, true);
    });
}

template <class R>
__global__ __launch_bounds__(threads_most<R>(BLOCK)) void rmsnorm_row(const Tensors all) {
    __shared__ float partial[WARPS_MOST];
    const R in(all.x, blockIdx.x, all.cols);
    const Mine<R> mine(threadIdx.x, blockDim.x, (int)in.packs);
    Held<ITEMS, R> held;
    const float total = block_reduce<Sum>(held.read(in, mine), partial);
    held.scale(all, in, mine, scale_of(total, all));
}

template <class R>
__device__ __forceinline__ float look(const R& row, const Part& part) {
    __shared__ float partial[WARPS_MOST];
    float total = 0.0f;
    for (int64_t i = part.first + threadIdx.x; i < part.last; i += BLOCK)
        total += squares(true, row.load(i));
    return block_reduce<Sum>(total, partial);
}

template <class R>
__device__ __forceinline__ void finish(const Tensors& all, const R& row, const Part& part,
                                       float total) {
    const float scale = scale_of(total, all);
    each_pack<2>(row, part, threadIdx.x, BLOCK, scalar_t(0.0f), [&](const auto& values, int64_t i) {
        for (const auto& pack : values) write(all, row, i, pack, scale), i += BLOCK;
    });
}

template <class R>
__global__ __launch_bounds__(BLOCK) void rmsnorm_wide(const Tensors all) {
    const R in(all.x, blockIdx.x, all.cols);
    const Part part(in.packs, 1, 0);
    finish(all, in, part, look(in, part));
}

template <class R>
__global__ __launch_bounds__(BLOCK) void rmsnorm_look(const Tensors all, float* seen, unsigned splits) {
    let_next_begin();
    const R in(all.x, blockIdx.x / splits, all.cols);
    const float total = look(in, Part(in.packs, splits, blockIdx.x % splits));
    if (threadIdx.x == 0) seen[blockIdx.x] = total;
}

template <class R>
__global__ __launch_bounds__(BLOCK) void rmsnorm_finish(const Tensors all, const float* seen,
                                                        unsigned splits) {
    wait_for_previous();
    __shared__ float partial[WARPS_MOST];
    const int64_t row = blockIdx.x / splits;
    float total = 0.0f;
    for (int64_t s = threadIdx.x; s < splits; s += BLOCK) total += seen[row * splits + s];
    total = block_reduce<Sum>(total, partial);
    const R in(all.x, row, all.cols);
    finish(all, in, Part(in.packs, splits, blockIdx.x % splits), total);
}

template <class R>
int launch_narrow(const Tensors& all, cudaStream_t stream) {
    const auto start = [&](auto share, auto lanes) {
        const auto kernel = rmsnorm_narrow<decltype(lanes)::value, decltype(share)::value, R>;
        const Blocks blocks = blocks_for(all.rows * decltype(lanes)::value, BLOCK);
        kernel<<<blocks.count, blocks.threads, 0, stream>>>(all);
    };
    if constexpr (R::LOCAL) with_local_lanes<LOCAL_ITEMS>(all.cols, start);
    else with_lanes<ITEMS>(R::most(all.cols), start);
    return (int)cudaGetLastError();
}

template <class R>
int launch(const Tensors& all, cudaStream_t stream) {
    const int64_t packs = R::most(all.cols), threads = (packs + ITEMS - 1) / ITEMS;
    if constexpr (!R::WHOLE)
        if (are_short(all.rows, all.cols)) {
            with_most(all.cols, [&](auto most) {
                rmsnorm_short<decltype(most)::value><<<short_blocks(all.rows), SHORT_BLOCK, 0, stream>>>(all);
            });
            return (int)cudaGetLastError();
        }
    using Narrow = Near<R>;
    if (Narrow::most(all.cols) <= WARP_SIZE_MIN * (Narrow::LOCAL ? LOCAL_ITEMS : ITEMS))
        return launch_narrow<Narrow>(all, stream);
    const unsigned rows = (unsigned)all.rows;
    if (threads <= threads_most<R>(BLOCK)) {
        rmsnorm_row<R><<<rows, whole_warps(threads), 0, stream>>>(all);
        return (int)cudaGetLastError();
    }
    const int64_t splits = parts_twice(all.rows, packs, FILL, BLOCK);
    if (splits == 1) {
        rmsnorm_wide<R><<<rows, BLOCK, 0, stream>>>(all);
        return (int)cudaGetLastError();
    }
    Scratch<float> seen(all.rows * splits, stream);
    if (seen.error) return (int)seen.error;
    const unsigned blocks = (unsigned)(all.rows * splits);
    rmsnorm_look<R><<<blocks, BLOCK, 0, stream>>>(all, seen.data, splits);
    launch_next(rmsnorm_finish<R>, blocks, BLOCK, stream, all, seen.data, splits);
    return (int)cudaGetLastError();
}

extern "C" int rmsnorm(const scalar_t* x, const scalar_t* weight, scalar_t* y, int64_t rows,
                       int64_t cols, float eps, cudaStream_t stream) {
    if (rows == 0 || cols == 0) return 0;
    const uintptr_t pointers = (uintptr_t)x | (uintptr_t)weight | (uintptr_t)y;
    const Tensors all = {x, weight, y, rows, cols, eps, lie_alike(x, y)};
    const bool whole = are_whole(pointers, cols);
    if (is_single(rows, cols, SINGLE_MOST, FEW, whole))
        return launch<Single>(all, stream);
    return whole ? launch<Whole>(all, stream) : launch<Ragged>(all, stream);
}
