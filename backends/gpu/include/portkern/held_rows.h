// Rows that several tensors have alike, by those who share one: a few lanes where rows are narrow, else a block.
// Each keeps what it has of a row in registers; of rows that are longer than that it looks in memory again.
#pragma once
#include <portkern/rows.h>

constexpr int HELD_LANES_SHARE = 4;  // packs of a lane, at most

// V elements make a pack, of which each has SHARE at most; 0: of any number.
template <int V, int SHARE, bool WIDE>
struct Sharers {
    static constexpr int VEC = V, KEPT = SHARE ? SHARE : 1;
    static constexpr bool LOOPS = SHARE == 0, BLOCKS = WIDE;
    using Pack = Some<V>;
    int me, members, packs;

    __device__ __forceinline__ Sharers(int64_t cols, int lanes)
        : me(WIDE ? threadIdx.x : threadIdx.x & (lanes - 1)),
          members(WIDE ? blockDim.x : lanes),
          packs((int)(cols / V)) {}

    // The first row of a group of members, and how far after it the next one of the grid lies.
    __device__ __forceinline__ int64_t row() const { return WIDE ? blockIdx.x : group_of_lanes(members); }
    __device__ __forceinline__ int64_t stride() const {
        return WIDE ? gridDim.x : (int64_t)gridDim.x * (blockDim.x / members);
    }
    // Gives `take` the packs of a row that are this member's, and the place in registers of each.
    template <class Take>
    __device__ __forceinline__ void each(Take take) const {
        if constexpr (LOOPS)
#pragma unroll 2
            for (int i = me; i < packs; i += members) take(i, 0);
        else
#pragma unroll
            for (int k = 0; k < SHARE; ++k)
                if (me + k * members < packs) take(me + k * members, k);
    }
    // Over all members; `partial` is the call's own, until the block meets again.
    __device__ __forceinline__ float sum(float value, float* partial) const {
        return WIDE ? block_reduce<Sum>(value, partial) : lane_reduce<Sum>(value, members);
    }
    __device__ __forceinline__ float largest(float value, float* partial) const {
        return WIDE ? block_reduce<Max>(value, partial) : lane_reduce<Max>(value, members);
    }
};

// Who shares the rows of a tensor: `lanes` to a row, or blocks of so many threads.
template <class S>
struct Shared {
    using By = S;
    int lanes;
    unsigned threads;

    unsigned blocks(int64_t rows) const {
        const int64_t each = S::BLOCKS ? 1 : threads / lanes;
        return (unsigned)((rows + each - 1) / each);
    }
};

// Calls `launch` with who shares rows of so many columns, which are whole packs of V; a block has up to MOST
// threads, and one of these up to EACH elements.
template <int V, int MOST, int EACH, class Launch>
int with_sharers(int64_t cols, Launch launch) {
    constexpr int SHARE = V > 1 ? EACH / V : EACH / 4;
    const int64_t packs = cols / V;
    const int lanes = lanes_for(packs, HELD_LANES_SHARE);
    const auto wide = [&](int share) { return whole_warps((packs + share - 1) / share); };
    if constexpr (V > 1)
        if (packs <= WARP_SIZE_MIN)
            return launch(Shared<Sharers<V, 1, false>>{lanes_for(packs, 1), (unsigned)MOST});
    if (packs <= HELD_LANES_SHARE * WARP_SIZE_MIN)
        return launch(Shared<Sharers<V, HELD_LANES_SHARE, false>>{lanes, (unsigned)MOST});
    if constexpr (V > 1)
        if (packs <= MOST) return launch(Shared<Sharers<V, 1, true>>{0, wide(1)});
    if (packs <= SHARE * MOST) return launch(Shared<Sharers<V, SHARE, true>>{0, wide(SHARE)});
    return launch(Shared<Sharers<V, 0, true>>{0, (unsigned)MOST});
}

// The same for tensors whose rows are whole packs of memory or not.
template <int MOST, int EACH, class Launch>
int with_sharers_of(bool whole, int64_t cols, Launch launch) {
    return whole ? with_sharers<VEC, MOST, EACH>(cols, launch) : with_sharers<1, MOST, EACH>(cols, launch);
}
