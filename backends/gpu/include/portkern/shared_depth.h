// Products with too few tiles to fill a GPU: several blocks share the depth of each, and what they
// summed is added by a second kernel.
#pragma once
#include <portkern/rows.h>

// The least blocks that are wanted where all are to be under way at once: one more than `at_once` would take as
// long as as many again.
inline int64_t wanted_at_once(int64_t tiles, int64_t at_once) { return tiles < at_once ? at_once - tiles + 1 : 1; }

// Blocks that share the depth of a tile, of which there are `tiles`, and what each of them has of it: a
// multiple of `step`, `least` at the least. So many that there are `wanted` blocks, if it is deep enough.
struct Depths {
    int64_t splits, each;

    Depths(int64_t tiles, int64_t k, int64_t step, int64_t wanted, int64_t least) {
        splits = splits_for(tiles, k, wanted, least);
        each = (k + splits * step - 1) / (splits * step) * step;
        splits = k > 0 ? (k + each - 1) / each : 1;
    }
};

// Where sums go: into C, or into parts of them, each of which is as large as C.
struct Output {
    scalar_t* whole;
    float* parts;
    int64_t count;

    __device__ __forceinline__ Output from(int64_t split, int64_t first) const {
        return {whole + first, parts ? parts + split * count + first : nullptr, count};
    }
    __device__ __forceinline__ void store(int64_t at, float sum) const {
        if (parts) parts[at] = sum;
        else whole[at] = scalar_t(sum);
    }
    // Of two neighbours, the first at an even place of memory that is aligned.
    __device__ __forceinline__ void store_pair(int64_t at, float first, float second) const {
        struct alignas(2 * sizeof(scalar_t)) Pair {
            scalar_t at[2];
        };
        if (parts) *reinterpret_cast<float2*>(parts + at) = make_float2(first, second);
        else *reinterpret_cast<Pair*>(whole + at) = {scalar_t(first), scalar_t(second)};
    }
};

// What several blocks summed of the elements of C, side by side; of few elements, by several lanes each.
constexpr int ADDING = 256, FEW_SUMS = 1 << 14;
__global__ __launch_bounds__(ADDING) void add_parts(const float* parts, scalar_t* c,
                                                    int64_t count, int64_t splits, int lanes,
                                                    const scalar_t* __restrict__ scale, int64_t n) {
    wait_for_previous();
    const int64_t i = group_of_lanes(lanes);
    const int lane = threadIdx.x % lanes;
    float total = 0.0f;
    if (i < count)
#pragma unroll 8
        for (int64_t s = lane; s < splits; s += lanes) total += parts[s * count + i];
    total = lane_reduce<Sum>(total, lanes);
    if (lane == 0 && i < count) c[i] = scalar_t(scale ? total * float(scale[i % n]) : total);
}

// C of `count` elements by `start`, whose blocks go to the Output that it gets: where `splits` share a sum,
// to parts of memory of their own, which are added then, and multiplied by the scale of their columns.
template <class Start>
int share_depth(int64_t splits, scalar_t* c, int64_t count, cudaStream_t stream, Start start,
                const scalar_t* scale = nullptr, int64_t n = 1) {
    Scratch<float> parts(splits > 1 ? splits * count : 0, stream);
    if (parts.error) return (int)parts.error;
    start(Output{c, parts.data, count});
    if (parts.data) {
        const int lanes = count <= FEW_SUMS ? lanes_for(splits, 8) : 1;
        const int64_t blocks = (count * lanes + ADDING - 1) / ADDING;
        launch_next(add_parts, blocks, ADDING, stream, parts.data, c, count, splits, lanes, scale, n);
    }
    return (int)cudaGetLastError();
}
