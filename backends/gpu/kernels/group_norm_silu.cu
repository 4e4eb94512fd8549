// Group normalisation and silu. A group that fits is read once and kept in the registers of a block; of a larger one
// blocks keep parts, whose moments a second kernel puts together as it reads the group again. Each part has its mean
// taken out before it is squared, so that a mean far above the deviation costs no digits.
#include <portkern/rows.h>

#define BLOCK 512  // knob: 256 512
#define ITEMS 32  // knob: 16 32
#define PART 256  // knob: 128 256 512

struct Tensors {
    const scalar_t *x, *weight, *bias;
    scalar_t* y;
    int64_t rows, groups, channels, pixels, length;  // rows: groups of all images
    float eps;
};
struct Moments {
    float count, mean, squares;  // of distances from the mean
};

// Packs of V elements of a row from `first` to `last`, of which a thread keeps SHARE.
template <int V, int SHARE>
struct Held {
    float at[SHARE][V];

    __device__ __forceinline__ Moments read(const scalar_t* row, int64_t first, int64_t last) {
        __shared__ float sums[WARPS_MOST], squares[WARPS_MOST];
        Some<V> packs[SHARE];
#pragma unroll
        for (int k = 0; k < SHARE; ++k)
            packs[k] = reinterpret_cast<const Some<V>*>(row)[min(first + threadIdx.x + k * (int64_t)blockDim.x, last - 1)];
        float sum = 0.0f, square = 0.0f;
#pragma unroll
        for (int k = 0; k < SHARE; ++k)
#pragma unroll
            for (int j = 0; j < V; ++j) {
                at[k][j] = float(packs[k].at[j]);
                sum += has(k, first, last) ? at[k][j] : 0.0f;
            }
        const float count = (float)((last - first) * V), mean = block_reduce<Sum>(sum, sums) / count;
#pragma unroll
        for (int k = 0; k < SHARE; ++k)
#pragma unroll
            for (int j = 0; j < V; ++j) {
                at[k][j] -= mean;
                square += has(k, first, last) ? at[k][j] * at[k][j] : 0.0f;
            }
        return {count, mean, block_reduce<Sum>(square, squares)};
    }
    __device__ __forceinline__ static bool has(int k, int64_t first, int64_t last) {
        return first + threadIdx.x + k * (int64_t)blockDim.x < last;
    }
};

// Of a pack of deviations from a mean, all of one channel. An exact division would cost more than all the rest.
template <int V>
__device__ __forceinline__ Some<V> finished(const Tensors& all, int64_t row, int64_t pack, const float (&deviation)[V],
                                            float scale) {
    const int64_t at = pack * V, pixels = all.pixels;
    const int64_t place = (at | pixels) >> 32 ? at / pixels : (unsigned)at / (unsigned)pixels;
    const int64_t channel = row % all.groups * all.channels + place;
    const float gain = float(all.weight[channel]) * scale, more = float(all.bias[channel]);
    Some<V> result;
#pragma unroll
    for (int j = 0; j < V; ++j) {
        const float value = fmaf(deviation[j], gain, more);
        result.at[j] = scalar_t(__fdividef(value, 1.0f + expf(-value)));
    }
    return result;
}

template <int V, int SHARE>
__global__ __launch_bounds__(BLOCK) void group_norm_rows(const Tensors all) {
    const int64_t row = blockIdx.x, packs = all.length / V;
    Held<V, SHARE> held;
    const Moments seen = held.read(all.x + row * all.length, 0, packs);
    const float scale = rsqrtf(seen.squares / seen.count + all.eps);
    Some<V>* y = reinterpret_cast<Some<V>*>(all.y + row * all.length);
#pragma unroll
    for (int k = 0; k < SHARE; ++k) {
        const int64_t pack = threadIdx.x + k * (int64_t)blockDim.x;
        if (pack < packs) y[pack] = finished<V>(all, row, pack, held.at[k], scale);
    }
}

template <int V>
__global__ __launch_bounds__(PART) void group_norm_look(const Tensors all, Moments* seen, unsigned splits) {
    let_next_begin();
    const Part part(all.length / V, splits, blockIdx.x % splits);
    Held<V, ITEMS / V> held;
    const Moments own = held.read(all.x + blockIdx.x / splits * all.length, part.first, part.last);
    if (threadIdx.x == 0) seen[blockIdx.x] = own;
}

// Moments of parts about their own means become those about the first one's, by Chan's formula.
template <int V>
__global__ __launch_bounds__(PART) void group_norm_finish(const Tensors all, const Moments* seen, unsigned splits) {
    wait_for_previous();
    __shared__ float sums[WARPS_MOST], squares[WARPS_MOST];
    const int64_t row = blockIdx.x / splits;
    const Moments* parts = seen + row * splits;
    const float near = parts[0].mean;
    float sum = 0.0f, square = 0.0f;
    for (unsigned s = threadIdx.x; s < splits; s += PART) {
        const float off = parts[s].mean - near;
        sum += parts[s].count * off;
        square += parts[s].squares + parts[s].count * off * off;
    }
    const float shift = block_reduce<Sum>(sum, sums) / all.length;
    const float variance = block_reduce<Sum>(square, squares) / all.length - shift * shift;
    const float mean = near + shift, scale = rsqrtf(fmaxf(variance, 0.0f) + all.eps);
    const Row<V, true> in(all.x, row, all.length);
    Some<V>* y = reinterpret_cast<Some<V>*>(all.y + row * all.length);
    const Part part(in.packs, splits, blockIdx.x % splits);
    each_pack<ITEMS / V / 2>(in, part, threadIdx.x, PART, scalar_t(0.0f), [&](const auto& values, int64_t i) {
        for (const auto& pack : values) {
            float deviation[V];
#pragma unroll
            for (int j = 0; j < V; ++j) deviation[j] = float(pack.at[j]) - mean;
            if (V > 1 || i < part.last) y[i] = finished<V>(all, row, i, deviation, scale);
            i += PART;
        }
    });
}

template <int V>
int launch(const Tensors& all, cudaStream_t stream) {
    constexpr int FEW = V > 1 ? 1 : 4, SHARE = ITEMS / V;
    const int64_t packs = all.length / V;
    if (packs <= FEW * BLOCK) {
        group_norm_rows<V, FEW><<<(unsigned)all.rows, whole_warps((packs + FEW - 1) / FEW), 0, stream>>>(all);
        return (int)cudaGetLastError();
    }
    if (packs <= SHARE * BLOCK) {
        group_norm_rows<V, SHARE><<<(unsigned)all.rows, whole_warps((packs + SHARE - 1) / SHARE), 0, stream>>>(all);
        return (int)cudaGetLastError();
    }
    const int64_t splits = (packs + SHARE * PART - 1) / (SHARE * PART);
    Scratch<Moments> seen(all.rows * splits, stream);
    if (seen.error) return (int)seen.error;
    const unsigned blocks = (unsigned)(all.rows * splits);
    group_norm_look<V><<<blocks, PART, 0, stream>>>(all, seen.data, (unsigned)splits);
    launch_next(group_norm_finish<V>, blocks, PART, stream, all, seen.data, (unsigned)splits);
    return (int)cudaGetLastError();
}

extern "C" int group_norm_silu(const scalar_t* x, const scalar_t* weight, const scalar_t* bias, scalar_t* y,
                               int64_t batch, int64_t groups, int64_t channels, int64_t pixels, float eps,
                               cudaStream_t stream) {
    const int64_t rows = batch * groups, length = channels * pixels;
    if (rows == 0 || length == 0) return 0;
    const Tensors all = {x, weight, bias, y, rows, groups, channels, pixels, length, eps};
    return are_whole((uintptr_t)x | (uintptr_t)y, pixels) ? launch<VEC>(all, stream) : launch<1>(all, stream);
}
