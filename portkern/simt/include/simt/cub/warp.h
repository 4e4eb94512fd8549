// cub's collectives of a warp, or of logical warps of fewer lanes.
#pragma once
#include "types.h"

namespace simt {

// `LOGICAL` lanes of a warp; 0: all of them, whatever the hardware's number. The lanes of one
// logical warp exchange values by shuffles, so its TempStorage is empty.
template <int LOGICAL>
struct LogicalWarp {
    static_assert(LOGICAL >= 0 && LOGICAL <= 64, "a logical warp is part of one warp");

    static unsigned width() { return LOGICAL ? (unsigned)LOGICAL : (unsigned)warpSize; }
    static unsigned lane() { return hardware_lane() % width(); }
    static unsigned warp() { return hardware_lane() / width(); }
    static Mask mask(Site at) {
        if (SIMT_UNLIKELY(width() > (unsigned)warpSize))
            fatal(409, at, "logical warps of %u lanes on warps of %d", width(), warpSize);
        return low_lanes(width()) << (hardware_lane() - lane());
    }
    static unsigned hardware_lane() { return thread_rank() & (unsigned)(warpSize - 1); }
};

// A lane's prefixes: with and without its own value.
template <class T>
struct Prefix {
    T upto, before;
};
struct PrefixPairs {
    template <class P, class Op>
    SIMT_NO_CHECK static void apply(P* v, unsigned n, Op& op) {
        for (unsigned by = 1; by < n; by *= 2)
            for (unsigned i = n; i-- > by;) v[i].upto = op(v[i - by].upto, v[i].upto);
        for (unsigned i = n; i-- > 1;) v[i].before = v[i - 1].upto;
    }
    static Mask wanted(Mask asked, Mask lane, unsigned limit) {
        return Prefixes::wanted(asked, lane, limit);
    }
};

}  // namespace simt

namespace SIMT_CUB {

template <class T, int LOGICAL_WARP_THREADS = 0, int = 0>
class WarpReduce {
    using Lanes = simt::LogicalWarp<LOGICAL_WARP_THREADS>;

  public:
    struct TempStorage : Uninitialized<NullType> {};
    explicit WarpReduce(TempStorage&) {}

    // Only lane 0 of the logical warp has the result.
    template <class Op>
    T Reduce(T input, Op op, SIMT_AT) { return reduce(input, op, 64, at); }
    template <class Op>
    T Reduce(T input, Op op, int valid, SIMT_AT) { return reduce(input, op, valid, at); }
    T Sum(T input, SIMT_AT) { return reduce(input, SIMT_CUB::Sum(), 64, at); }
    T Sum(T input, int valid, SIMT_AT) { return reduce(input, SIMT_CUB::Sum(), valid, at); }

    // Sums of segments that begin at, or end with, the flagged lanes; valid in their first lanes.
    template <class Flag>
    T HeadSegmentedSum(T input, Flag head, SIMT_AT) {
        return segmented(input, SIMT_CUB::Sum(), head != 0, true, at);
    }
    template <class Flag>
    T TailSegmentedSum(T input, Flag tail, SIMT_AT) {
        return segmented(input, SIMT_CUB::Sum(), tail != 0, false, at);
    }
    template <class Op, class Flag>
    T HeadSegmentedReduce(T input, Flag head, Op op, SIMT_AT) {
        return segmented(input, op, head != 0, true, at);
    }
    template <class Op, class Flag>
    T TailSegmentedReduce(T input, Flag tail, Op op, SIMT_AT) {
        return segmented(input, op, tail != 0, false, at);
    }

  private:
    template <class Op>
    static T reduce(T input, Op op, int valid, simt::Site at) {
        if (valid <= 0) valid = 1;
        return simt::collect<simt::ToFirst>(Lanes::mask(at), input, op, at, (unsigned)valid);
    }

    struct Item {
        T value;
        bool flag, heads;
    };
    struct Segments {
        template <class Op>
        SIMT_NO_CHECK static void apply(Item* v, unsigned n, Op& op) {
            const unsigned shift = v[0].heads ? 0 : 1;  // a tail ends what the next lane begins
            for (unsigned i = n - 1; i-- > 0;)
                if (!v[i + 1 - shift].flag) v[i].value = op(v[i].value, v[i + 1].value);
        }
        static simt::Mask wanted(simt::Mask asked, simt::Mask, unsigned) { return asked; }
    };
    template <class Op>
    static T segmented(T input, Op op, bool flag, bool heads, simt::Site at) {
        return simt::collect<Segments>(Lanes::mask(at), Item{input, flag, heads}, op, at).value;
    }
};

template <class T, int LOGICAL_WARP_THREADS = 0, int = 0>
class WarpScan {
    using Lanes = simt::LogicalWarp<LOGICAL_WARP_THREADS>;
    using Prefix = simt::Prefix<T>;

  public:
    struct TempStorage : Uninitialized<NullType> {};
    explicit WarpScan(TempStorage&) {}

    void InclusiveSum(T input, T& output, SIMT_AT) {
        output = scan(input, SIMT_CUB::Sum(), at).upto;
    }
    void InclusiveSum(T input, T& output, T& aggregate, SIMT_AT) {
        inclusive(input, output, SIMT_CUB::Sum(), aggregate, at);
    }
    void ExclusiveSum(T input, T& output, SIMT_AT) {
        ExclusiveScan(input, output, T{}, SIMT_CUB::Sum(), at);
    }
    void ExclusiveSum(T input, T& output, T& aggregate, SIMT_AT) {
        exclusive(input, output, T{}, SIMT_CUB::Sum(), aggregate, at);
    }
    template <class Op>
    void InclusiveScan(T input, T& output, Op op, SIMT_AT) {
        output = scan(input, op, at).upto;
    }
    template <class Op>
    void InclusiveScan(T input, T& output, Op op, T& aggregate, SIMT_AT) {
        inclusive(input, output, op, aggregate, at);
    }
    // Without an initial value lane 0's output is undefined.
    template <class Op>
    void ExclusiveScan(T input, T& output, Op op, SIMT_AT) {
        output = scan(input, op, at).before;
    }
    template <class Op>
    void ExclusiveScan(T input, T& output, T initial, Op op, SIMT_AT) {
        const T before = scan(input, op, at).before;
        output = Lanes::lane() ? (T)op(initial, before) : initial;
    }
    template <class Op>
    void ExclusiveScan(T input, T& output, Op op, T& aggregate, SIMT_AT) {
        const Prefix mine = scan(input, op, at);
        aggregate = last(mine.upto, at);
        output = mine.before;
    }
    template <class Op>
    void ExclusiveScan(T input, T& output, T initial, Op op, T& aggregate, SIMT_AT) {
        exclusive(input, output, initial, op, aggregate, at);
    }
    template <class Op>
    void Scan(T input, T& inclusive_output, T& exclusive_output, Op op, SIMT_AT) {
        const Prefix mine = scan(input, op, at);
        inclusive_output = mine.upto;
        exclusive_output = mine.before;
    }
    template <class Op>
    void Scan(T input, T& inclusive_output, T& exclusive_output, T initial, Op op, SIMT_AT) {
        const Prefix mine = scan(input, op, at);
        inclusive_output = op(initial, mine.upto);
        exclusive_output = Lanes::lane() ? (T)op(initial, mine.before) : initial;
    }
    T Broadcast(T input, unsigned lane, SIMT_AT) {
        return simt::shuffle_from(simt::named(Lanes::mask(at)), input,
                                  (int)(Lanes::hardware_lane() - Lanes::lane() + lane), at);
    }

  private:
    template <class Op>
    static Prefix scan(T input, Op op, simt::Site at) {
        return simt::collect<simt::PrefixPairs>(Lanes::mask(at), Prefix{input, input}, op, at);
    }
    T last(T value, simt::Site at) { return Broadcast(value, Lanes::width() - 1, at); }
    template <class Op>
    void inclusive(T input, T& output, Op op, T& aggregate, simt::Site at) {
        const T upto = scan(input, op, at).upto;
        aggregate = last(upto, at);
        output = upto;
    }
    template <class Op>
    void exclusive(T input, T& output, T initial, Op op, T& aggregate, simt::Site at) {
        const Prefix mine = scan(input, op, at);
        aggregate = last(mine.upto, at);
        output = Lanes::lane() ? (T)op(initial, mine.before) : initial;
    }
};

template <int LOGICAL_WARP_THREADS, class T>
static inline T ShuffleIndex(T input, int lane, unsigned mask, SIMT_AT) {
    return simt::shuffle<simt::Move::index>(simt::named(mask), input, lane, LOGICAL_WARP_THREADS,
                                            at);
}
template <int LOGICAL_WARP_THREADS, class T>
static inline T ShuffleUp(T input, int by, int first, unsigned mask, SIMT_AT) {
    const int lane = (int)simt::LogicalWarp<LOGICAL_WARP_THREADS>::lane();
    const int from = lane - by < first ? lane : lane - by;
    return ShuffleIndex<LOGICAL_WARP_THREADS>(input, from, mask, at);
}
template <int LOGICAL_WARP_THREADS, class T>
static inline T ShuffleDown(T input, int by, int last, unsigned mask, SIMT_AT) {
    const int lane = (int)simt::LogicalWarp<LOGICAL_WARP_THREADS>::lane();
    const int from = lane + by > last ? lane : lane + by;
    return ShuffleIndex<LOGICAL_WARP_THREADS>(input, from, mask, at);
}

}  // namespace SIMT_CUB
