// Root-mean-square normalisation over the last axis. A row that fits is read once and kept in registers,
// of a few lanes where it is narrow, else of a block. A wider one is read twice; a few very wide ones
// are several blocks' each.
#include <portkern/rows.h>

#define BLOCK 512  // knob: 128 256 512
#define ITEMS 4  // knob: 2 4 8
#define FILL 1024  // knob: 512 1024 2048

struct Tensors {
    const scalar_t *x, *weight;
    scalar_t* y;
    int64_t rows, cols;
    float eps;
    bool alike;  // packs of x and y
};

__device__ __forceinline__ float squares(bool inside, const Pack& values) {
    float total = 0.0f;
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
        const float v = inside ? float(values.at[j]) : 0.0f;
        total += v * v;
    }
    return total;
}

template <bool WHOLE>
__device__ __forceinline__ void write(const Tensors& all, const Row<WHOLE>& row, int64_t i,
                                      const Pack& values, float scale) {
    Pack weight, result;
    if (WHOLE) weight = reinterpret_cast<const Pack*>(all.weight)[i];
#pragma unroll
    for (int j = 0; j < VEC; ++j) {
        const int64_t column = row.has(i, j) ? row.column(i, j) : 0;
        const float factor = float(WHOLE ? weight.at[j] : all.weight[column]);
        result.at[j] = scalar_t(float(values.at[j]) * scale * factor);
    }
    row.store(all.y, i, result, all.alike);
}

__device__ __forceinline__ float scale_of(float total, const Tensors& all) {
    return rsqrtf(total / all.cols + all.eps);
}

// A row, or what a thread has of it, in registers: SHARE packs, `step` packs apart.
template <int SHARE, bool WHOLE>
struct Held {
    Pack values[SHARE];

    __device__ __forceinline__ float read(const Row<WHOLE>& row, int first, int packs, int step) {
#pragma unroll
        for (int k = 0; k < SHARE; ++k)
            if (first + k * step < packs) values[k] = row.load(first + k * step);
        float total = 0.0f;
#pragma unroll
        for (int k = 0; k < SHARE; ++k)
            total += squares(first + k * step < packs, values[k]);
        return total;
    }
    __device__ __forceinline__ void scale(const Tensors& all, const Row<WHOLE>& row, int first,
                                          int packs, int step, float scale) const {
#pragma unroll
        for (int k = 0; k < SHARE; ++k)
            if (first + k * step < packs) write(all, row, first + k * step, values[k], scale);
    }
};

template <int LANES, int SHARE, bool WHOLE>
__global__ __launch_bounds__(BLOCK) void rmsnorm_narrow(const Tensors all) {
    const int64_t row = ((int64_t)blockIdx.x * BLOCK + threadIdx.x) / LANES;
    const int lane = threadIdx.x % LANES;
    const Row<WHOLE> in(all.x, row < all.rows ? row : all.rows - 1, all.cols);
    const int packs = row < all.rows ? (int)in.packs : 0;
    Held<SHARE, WHOLE> held;
    const float total = lane_reduce<Sum>(held.read(in, lane, packs, LANES), LANES);
    held.scale(all, in, lane, packs, LANES, scale_of(total, all));
}

template <bool WHOLE>
__global__ __launch_bounds__(BLOCK) void rmsnorm_row(const Tensors all) {
    __shared__ float partial[WARPS_MOST];
    const Row<WHOLE> in(all.x, blockIdx.x, all.cols);
    const int packs = (int)in.packs, step = blockDim.x;
    Held<ITEMS, WHOLE> held;
    const float total = block_reduce<Sum>(held.read(in, threadIdx.x, packs, step), partial);
    held.scale(all, in, threadIdx.x, packs, step, scale_of(total, all));
}

template <bool WHOLE>
__device__ __forceinline__ float look(const Row<WHOLE>& row, const Part& part) {
    __shared__ float partial[WARPS_MOST];
    float total = 0.0f;
    for (int64_t i = part.first + threadIdx.x; i < part.last; i += BLOCK)
        total += squares(true, row.load(i));
    return block_reduce<Sum>(total, partial);
}

template <bool WHOLE>
__device__ __forceinline__ void finish(const Tensors& all, const Row<WHOLE>& row, const Part& part,
                                       float total) {
    const float scale = scale_of(total, all);
    each_pack<2>(row, part, threadIdx.x, BLOCK, scalar_t(0.0f), [&](const auto& values, int64_t i) {
        for (const Pack& pack : values) write(all, row, i, pack, scale), i += BLOCK;
    });
}

template <bool WHOLE>
__global__ __launch_bounds__(BLOCK) void rmsnorm_wide(const Tensors all) {
    const Row<WHOLE> in(all.x, blockIdx.x, all.cols);
    const Part part(in.packs, 1, 0);
    finish(all, in, part, look(in, part));
}

template <bool WHOLE>
__global__ __launch_bounds__(BLOCK) void rmsnorm_look(const Tensors all, float* seen, int64_t splits) {
    const Row<WHOLE> in(all.x, blockIdx.x / splits, all.cols);
    const float total = look(in, Part(in.packs, splits, blockIdx.x % splits));
    if (threadIdx.x == 0) seen[blockIdx.x] = total;
}

template <bool WHOLE>
__global__ __launch_bounds__(BLOCK) void rmsnorm_finish(const Tensors all, const float* __restrict__ seen,
                                                        int64_t splits) {
    __shared__ float partial[WARPS_MOST];
    const int64_t row = blockIdx.x / splits;
    float total = 0.0f;
    for (int64_t s = threadIdx.x; s < splits; s += BLOCK) total += seen[row * splits + s];
    total = block_reduce<Sum>(total, partial);
    const Row<WHOLE> in(all.x, row, all.cols);
    finish(all, in, Part(in.packs, splits, blockIdx.x % splits), total);
}

template <int SHARE, bool WHOLE>
int launch_narrow(const Tensors& all, cudaStream_t stream) {
    const int64_t packs = most_packs(all.cols, WHOLE);
    if constexpr (2 * SHARE <= ITEMS)
        if (packs > SHARE * WARP_SIZE_MIN) return launch_narrow<2 * SHARE, WHOLE>(all, stream);
    const int lanes = lanes_for(packs, SHARE);
    const int64_t blocks = (all.rows * lanes + BLOCK - 1) / BLOCK;
    with_lanes(lanes, [&](auto lanes) {
        const auto kernel = rmsnorm_narrow<decltype(lanes)::count, SHARE, WHOLE>;
        kernel<<<(unsigned)blocks, BLOCK, 0, stream>>>(all);
    });
    return (int)cudaGetLastError();
}

template <bool WHOLE>
int launch(const Tensors& all, cudaStream_t stream) {
    const int64_t packs = most_packs(all.cols, WHOLE), threads = (packs + ITEMS - 1) / ITEMS;
    if (threads <= WARP_SIZE_MIN) return launch_narrow<1, WHOLE>(all, stream);
    const unsigned rows = (unsigned)all.rows;
    if (threads <= BLOCK) {
        const int64_t warps = (threads + WARP_SIZE_MAX - 1) / WARP_SIZE_MAX;
        rmsnorm_row<WHOLE><<<rows, (unsigned)warps * WARP_SIZE_MAX, 0, stream>>>(all);
        return (int)cudaGetLastError();
    }
    const int64_t splits = splits_for(all.rows, packs, FILL, 4 * BLOCK);
    if (splits == 1) {
        rmsnorm_wide<WHOLE><<<rows, BLOCK, 0, stream>>>(all);
        return (int)cudaGetLastError();
    }
    Scratch<float> seen(all.rows * splits, stream);
    if (seen.error) return (int)seen.error;
    const unsigned blocks = (unsigned)(all.rows * splits);
    rmsnorm_look<WHOLE><<<blocks, BLOCK, 0, stream>>>(all, seen.data, splits);
    rmsnorm_finish<WHOLE><<<blocks, BLOCK, 0, stream>>>(all, seen.data, splits);
    return (int)cudaGetLastError();
}

extern "C" int rmsnorm(const scalar_t* x, const scalar_t* weight, scalar_t* y, int64_t rows,
                       int64_t cols, float eps, cudaStream_t stream) {
    if (rows == 0 || cols == 0) return 0;
    const uintptr_t pointers = (uintptr_t)x | (uintptr_t)weight | (uintptr_t)y;
    const Tensors all = {x, weight, y, rows, cols, eps, lie_alike(x, y)};
    return are_whole(pointers, cols) ? launch<true>(all, stream) : launch<false>(all, stream);
}
