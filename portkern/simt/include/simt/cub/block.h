// cub's collectives of a block: reductions, scans, loads, stores, exchanges and their relatives.
//
// As on a device they work in the TempStorage that the caller gives, with barriers where cub has
// them: a caller that uses it again without a barrier has a race.
#pragma once
#include "../atomics.h"
#include "types.h"
#include "warp.h"

namespace simt {

// A block of X × Y × Z threads, as the caller says it is.
template <int X, int Y, int Z>
struct BlockShape {
    static constexpr int threads = X * Y * Z;
    static constexpr int most_warps = (threads + 31) / 32;

    static unsigned thread() {
        unsigned t = threadIdx.x;
        if (Y * Z > 1) t += threadIdx.y * X;
        if (Z > 1) t += threadIdx.z * X * Y;
        return t;
    }
    static unsigned warp() { return thread() / (unsigned)warpSize; }
    static unsigned lane() { return thread() % (unsigned)warpSize; }
    static unsigned warps() { return (threads + (unsigned)warpSize - 1) / (unsigned)warpSize; }
    static unsigned lanes_of(unsigned warp) {
        const unsigned left = threads - warp * (unsigned)warpSize;
        return left < (unsigned)warpSize ? left : (unsigned)warpSize;
    }
    static Mask mask() { return low_lanes(lanes_of(warp())); }
};

// The storage of a collective that was given none: one per block and kind of collective.
template <class Storage>
static inline Storage& private_storage(Site at) {
    static SharedVariable variable;
    return shared<Storage>(variable, "cub's own TempStorage", at);
}

}  // namespace simt

namespace SIMT_CUB {

// ---- reductions -------------------------------------------------------------------------

enum BlockReduceAlgorithm {
    BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY,
    BLOCK_REDUCE_RAKING,
    BLOCK_REDUCE_WARP_REDUCTIONS
};

// Each warp reduces by shuffles; thread 0 combines the warps' results, and it alone has the total.
// The algorithms differ in speed only, so there is one.
template <class T, int BLOCK_DIM_X, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS,
          int BLOCK_DIM_Y = 1, int BLOCK_DIM_Z = 1, int = 0>
class BlockReduce {
    using Block = simt::BlockShape<BLOCK_DIM_X, BLOCK_DIM_Y, BLOCK_DIM_Z>;
    struct Partials {
        T of_warp[Block::most_warps];
    };

  public:
    struct TempStorage : Uninitialized<Partials> {};
    explicit BlockReduce(SIMT_AT) : partials_(simt::private_storage<TempStorage>(at).Alias()) {}
    explicit BlockReduce(TempStorage& storage) : partials_(storage.Alias()) {}

    template <class Op>
    T Reduce(T input, Op op, SIMT_AT) { return reduce(input, op, Block::threads, at); }
    template <class Op>
    T Reduce(T input, Op op, int valid, SIMT_AT) { return reduce(input, op, valid, at); }
    template <int ITEMS, class Op>
    T Reduce(T (&inputs)[ITEMS], Op op, SIMT_AT) {
        return reduce(ThreadReduce(inputs, op), op, Block::threads, at);
    }
    T Sum(T input, SIMT_AT) { return reduce(input, SIMT_CUB::Sum(), Block::threads, at); }
    T Sum(T input, int valid, SIMT_AT) { return reduce(input, SIMT_CUB::Sum(), valid, at); }
    template <int ITEMS>
    T Sum(T (&inputs)[ITEMS], SIMT_AT) {
        return reduce(ThreadReduce(inputs, SIMT_CUB::Sum()), SIMT_CUB::Sum(), Block::threads, at);
    }

  private:
    Partials& partials_;

    template <class Op>
    T reduce(T input, Op op, int valid, simt::Site at) {
        const int first = (int)(Block::warp() * (unsigned)warpSize);
        T total = input;
        if (valid > first) {
            total = simt::collect<simt::ToFirst>(Block::mask(), input, op, at,
                                                 (unsigned)(valid - first));
            if (Block::lane() == 0) partials_.of_warp[Block::warp()] = total;
        }
        simt::block_barrier(at);
        if (Block::thread() != 0) return total;
        const int used = valid < Block::threads ? valid : Block::threads;
        for (int w = 1; w * warpSize < used; ++w) total = op(total, partials_.of_warp[w]);
        return total;
    }
};

// ---- scans ------------------------------------------------------------------------------

enum BlockScanAlgorithm {
    BLOCK_SCAN_RAKING,
    BLOCK_SCAN_RAKING_MEMOIZE,
    BLOCK_SCAN_WARP_SCANS
};

template <class T, int BLOCK_DIM_X, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int BLOCK_DIM_Y = 1,
          int BLOCK_DIM_Z = 1, int = 0>
class BlockScan {
    using Block = simt::BlockShape<BLOCK_DIM_X, BLOCK_DIM_Y, BLOCK_DIM_Z>;
    using Prefix = simt::Prefix<T>;
    struct Partials {
        T of_warp[Block::most_warps];
        T block_prefix;
    };

  public:
    struct TempStorage : Uninitialized<Partials> {};
    explicit BlockScan(SIMT_AT) : partials_(simt::private_storage<TempStorage>(at).Alias()) {}
    explicit BlockScan(TempStorage& storage) : partials_(storage.Alias()) {}

    // One item per thread. Without an initial value thread 0's exclusive output is undefined.
    void ExclusiveSum(T input, T& output, SIMT_AT) {
        T total;
        output = after(T{}, scan(input, SIMT_CUB::Sum(), total, at), SIMT_CUB::Sum()).before;
    }
    void ExclusiveSum(T input, T& output, T& aggregate, SIMT_AT) {
        output = after(T{}, scan(input, SIMT_CUB::Sum(), aggregate, at), SIMT_CUB::Sum()).before;
    }
    template <class Callback>
    void ExclusiveSum(T input, T& output, Callback& callback, SIMT_AT) {
        output = scan_with(input, SIMT_CUB::Sum(), callback, at).before;
    }
    void InclusiveSum(T input, T& output, SIMT_AT) {
        T total;
        output = scan(input, SIMT_CUB::Sum(), total, at).upto;
    }
    void InclusiveSum(T input, T& output, T& aggregate, SIMT_AT) {
        output = scan(input, SIMT_CUB::Sum(), aggregate, at).upto;
    }
    template <class Callback>
    void InclusiveSum(T input, T& output, Callback& callback, SIMT_AT) {
        output = scan_with(input, SIMT_CUB::Sum(), callback, at).upto;
    }
    template <class Op>
    void ExclusiveScan(T input, T& output, T initial, Op op, SIMT_AT) {
        T total;
        output = after(initial, scan(input, op, total, at), op).before;
    }
    template <class Op>
    void ExclusiveScan(T input, T& output, T initial, Op op, T& aggregate, SIMT_AT) {
        output = after(initial, scan(input, op, aggregate, at), op).before;
    }
    template <class Op>
    void ExclusiveScan(T input, T& output, Op op, SIMT_AT) {
        T total;
        output = scan(input, op, total, at).before;
    }
    template <class Op>
    void ExclusiveScan(T input, T& output, Op op, T& aggregate, SIMT_AT) {
        output = scan(input, op, aggregate, at).before;
    }
    template <class Op, class Callback>
    void ExclusiveScan(T input, T& output, Op op, Callback& callback, SIMT_AT) {
        output = scan_with(input, op, callback, at).before;
    }
    template <class Op>
    void InclusiveScan(T input, T& output, Op op, SIMT_AT) {
        T total;
        output = scan(input, op, total, at).upto;
    }
    template <class Op>
    void InclusiveScan(T input, T& output, Op op, T& aggregate, SIMT_AT) {
        output = scan(input, op, aggregate, at).upto;
    }
    template <class Op, class Callback>
    void InclusiveScan(T input, T& output, Op op, Callback& callback, SIMT_AT) {
        output = scan_with(input, op, callback, at).upto;
    }

    // ITEMS consecutive items per thread.
    template <int ITEMS>
    void ExclusiveSum(T (&input)[ITEMS], T (&output)[ITEMS], SIMT_AT) {
        T total;
        exclusive(input, output, T{}, SIMT_CUB::Sum(), total, at);
    }
    template <int ITEMS>
    void ExclusiveSum(T (&input)[ITEMS], T (&output)[ITEMS], T& aggregate, SIMT_AT) {
        exclusive(input, output, T{}, SIMT_CUB::Sum(), aggregate, at);
    }
    template <int ITEMS, class Callback>
    void ExclusiveSum(T (&input)[ITEMS], T (&output)[ITEMS], Callback& callback, SIMT_AT) {
        const T mine = ThreadReduce(input, SIMT_CUB::Sum());
        const T before = scan_with(mine, SIMT_CUB::Sum(), callback, at).before;
        spread_before(input, output, before, SIMT_CUB::Sum());
    }
    template <int ITEMS>
    void InclusiveSum(T (&input)[ITEMS], T (&output)[ITEMS], SIMT_AT) {
        T total;
        inclusive(input, output, SIMT_CUB::Sum(), total, at);
    }
    template <int ITEMS>
    void InclusiveSum(T (&input)[ITEMS], T (&output)[ITEMS], T& aggregate, SIMT_AT) {
        inclusive(input, output, SIMT_CUB::Sum(), aggregate, at);
    }
    template <int ITEMS, class Callback>
    void InclusiveSum(T (&input)[ITEMS], T (&output)[ITEMS], Callback& callback, SIMT_AT) {
        const T mine = ThreadReduce(input, SIMT_CUB::Sum());
        const T before = scan_with(mine, SIMT_CUB::Sum(), callback, at).before;
        spread_upto(input, output, before, SIMT_CUB::Sum());
    }
    template <int ITEMS, class Op>
    void ExclusiveScan(T (&input)[ITEMS], T (&output)[ITEMS], T initial, Op op, SIMT_AT) {
        T total;
        exclusive(input, output, initial, op, total, at);
    }
    template <int ITEMS, class Op>
    void ExclusiveScan(T (&input)[ITEMS], T (&output)[ITEMS], T initial, Op op, T& aggregate,
                       SIMT_AT) {
        exclusive(input, output, initial, op, aggregate, at);
    }
    template <int ITEMS, class Op>
    void ExclusiveScan(T (&input)[ITEMS], T (&output)[ITEMS], Op op, SIMT_AT) {
        T total;
        exclusive_without(input, output, op, total, at);
    }
    template <int ITEMS, class Op>
    void ExclusiveScan(T (&input)[ITEMS], T (&output)[ITEMS], Op op, T& aggregate, SIMT_AT) {
        exclusive_without(input, output, op, aggregate, at);
    }
    template <int ITEMS, class Op, class Callback>
    void ExclusiveScan(T (&input)[ITEMS], T (&output)[ITEMS], Op op, Callback& callback, SIMT_AT) {
        const T before = scan_with(ThreadReduce(input, op), op, callback, at).before;
        spread_before(input, output, before, op);
    }
    template <int ITEMS, class Op>
    void InclusiveScan(T (&input)[ITEMS], T (&output)[ITEMS], Op op, SIMT_AT) {
        T total;
        inclusive(input, output, op, total, at);
    }
    template <int ITEMS, class Op>
    void InclusiveScan(T (&input)[ITEMS], T (&output)[ITEMS], Op op, T& aggregate, SIMT_AT) {
        inclusive(input, output, op, aggregate, at);
    }
    template <int ITEMS, class Op>
    void InclusiveScan(T (&input)[ITEMS], T (&output)[ITEMS], T initial, Op op, SIMT_AT) {
        T total;
        spread_upto(input, output, before_thread(input, initial, op, total, at), op);
    }
    template <int ITEMS, class Op>
    void InclusiveScan(T (&input)[ITEMS], T (&output)[ITEMS], T initial, Op op, T& aggregate,
                       SIMT_AT) {
        spread_upto(input, output, before_thread(input, initial, op, aggregate, at), op);
    }
    template <int ITEMS, class Op, class Callback>
    void InclusiveScan(T (&input)[ITEMS], T (&output)[ITEMS], Op op, Callback& callback, SIMT_AT) {
        const T before = scan_with(ThreadReduce(input, op), op, callback, at).before;
        spread_upto(input, output, before, op);
    }

  private:
    Partials& partials_;

    // Each warp scans by shuffles; each thread adds up the warps before its own.
    template <class Op>
    Prefix scan(T input, Op op, T& aggregate, simt::Site at) {
        Prefix mine =
            simt::collect<simt::PrefixPairs>(Block::mask(), Prefix{input, input}, op, at);
        const unsigned warp = Block::warp(), lane = Block::lane();
        if (lane + 1 == Block::lanes_of(warp)) partials_.of_warp[warp] = mine.upto;
        simt::block_barrier(at);
        T total = partials_.of_warp[0];
        for (unsigned w = 1; w < Block::warps(); ++w) {
            if (w == warp) {
                mine.before = lane ? (T)op(total, mine.before) : total;
                mine.upto = op(total, mine.upto);
            }
            total = op(total, partials_.of_warp[w]);
        }
        aggregate = total;
        return mine;
    }

    template <class Op>
    static Prefix after(const T& initial, const Prefix& mine, Op op) {
        return {(T)op(initial, mine.upto),
                Block::thread() ? (T)op(initial, mine.before) : initial};
    }

    // The first warp calls back with the aggregate; its first lane's answer comes before all items.
    template <class Op, class Callback>
    Prefix scan_with(T input, Op op, Callback& callback, simt::Site at) {
        T aggregate;
        const Prefix mine = scan(input, op, aggregate, at);
        if (Block::warp() == 0) {
            const T prefix = callback(aggregate);
            if (Block::lane() == 0) partials_.block_prefix = prefix;
        }
        simt::block_barrier(at);
        return after(partials_.block_prefix, mine, op);
    }

    // What comes before this thread's items.
    template <int ITEMS, class Op>
    T before_thread(T (&input)[ITEMS], const T& initial, Op op, T& aggregate, simt::Site at) {
        return after(initial, scan(ThreadReduce(input, op), op, aggregate, at), op).before;
    }
    template <int ITEMS, class Op>
    void exclusive(T (&input)[ITEMS], T (&output)[ITEMS], const T& initial, Op op, T& aggregate,
                   simt::Site at) {
        spread_before(input, output, before_thread(input, initial, op, aggregate, at), op);
    }
    template <int ITEMS, class Op>
    void exclusive_without(T (&input)[ITEMS], T (&output)[ITEMS], Op op, T& aggregate,
                           simt::Site at) {
        const T before = scan(ThreadReduce(input, op), op, aggregate, at).before;
        if (Block::thread()) return spread_before(input, output, before, op);
        T upto = input[0];
        for (int i = 1; i < ITEMS; ++i) {
            const T item = input[i];
            output[i] = upto;
            upto = op(upto, item);
        }
    }
    template <int ITEMS, class Op>
    void inclusive(T (&input)[ITEMS], T (&output)[ITEMS], Op op, T& aggregate, simt::Site at) {
        const T before = scan(ThreadReduce(input, op), op, aggregate, at).before;
        if (Block::thread()) return spread_upto(input, output, before, op);
        T upto = input[0];
        output[0] = upto;
        for (int i = 1; i < ITEMS; ++i) output[i] = upto = op(upto, input[i]);
    }
    template <int ITEMS, class Op>
    static void spread_before(T (&input)[ITEMS], T (&output)[ITEMS], T before, Op op) {
        for (int i = 0; i < ITEMS; ++i) {
            const T item = input[i];
            output[i] = before;
            before = op(before, item);
        }
    }
    template <int ITEMS, class Op>
    static void spread_upto(T (&input)[ITEMS], T (&output)[ITEMS], T before, Op op) {
        for (int i = 0; i < ITEMS; ++i) output[i] = before = op(before, input[i]);
    }
};

// ---- exchanges --------------------------------------------------------------------------

// Blocked: thread t has items t × ITEMS …; striped: items t, t + threads, …; warp-striped: striped
// within each warp's part.
template <class T, int BLOCK_DIM_X, int ITEMS, bool = false, int BLOCK_DIM_Y = 1,
          int BLOCK_DIM_Z = 1, int = 0>
class BlockExchange {
    using Block = simt::BlockShape<BLOCK_DIM_X, BLOCK_DIM_Y, BLOCK_DIM_Z>;
    static constexpr int tile = Block::threads * ITEMS;
    // cub leaves a hole after every 32 items against bank conflicts.
    static constexpr bool padded = ITEMS > 4 && (ITEMS & (ITEMS - 1)) == 0;
    struct Items {
        T item[tile + (padded ? tile / 32 : 0)];
        T& operator[](int i) { return item[padded ? i + (i >> 5) : i]; }
    };

  public:
    struct TempStorage : Uninitialized<Items> {};
    explicit BlockExchange(SIMT_AT) : items_(simt::private_storage<TempStorage>(at).Alias()) {}
    explicit BlockExchange(TempStorage& storage) : items_(storage.Alias()) {}

    template <class Out>
    void StripedToBlocked(const T (&input)[ITEMS], Out (&output)[ITEMS], SIMT_AT) {
        for (int i = 0; i < ITEMS; ++i) items_[striped(i)] = input[i];
        simt::block_barrier(at);
        for (int i = 0; i < ITEMS; ++i) output[i] = items_[blocked(i)];
    }
    template <class Out>
    void BlockedToStriped(const T (&input)[ITEMS], Out (&output)[ITEMS], SIMT_AT) {
        for (int i = 0; i < ITEMS; ++i) items_[blocked(i)] = input[i];
        simt::block_barrier(at);
        for (int i = 0; i < ITEMS; ++i) output[i] = items_[striped(i)];
    }
    template <class Out>
    void WarpStripedToBlocked(const T (&input)[ITEMS], Out (&output)[ITEMS], SIMT_AT) {
        for (int i = 0; i < ITEMS; ++i) items_[warp_striped(i)] = input[i];
        simt::warp_barrier(simt::named(Block::mask()), at);
        for (int i = 0; i < ITEMS; ++i) output[i] = items_[blocked(i)];
    }
    template <class Out>
    void BlockedToWarpStriped(const T (&input)[ITEMS], Out (&output)[ITEMS], SIMT_AT) {
        for (int i = 0; i < ITEMS; ++i) items_[blocked(i)] = input[i];
        simt::warp_barrier(simt::named(Block::mask()), at);
        for (int i = 0; i < ITEMS; ++i) output[i] = items_[warp_striped(i)];
    }
    // Item i goes to place ranks[i].
    template <class Out, class Rank>
    void ScatterToBlocked(const T (&input)[ITEMS], Out (&output)[ITEMS], Rank (&ranks)[ITEMS],
                          SIMT_AT) {
        for (int i = 0; i < ITEMS; ++i) items_[(int)ranks[i]] = input[i];
        simt::block_barrier(at);
        for (int i = 0; i < ITEMS; ++i) output[i] = items_[blocked(i)];
    }
    template <class Out, class Rank>
    void ScatterToStriped(const T (&input)[ITEMS], Out (&output)[ITEMS], Rank (&ranks)[ITEMS],
                          SIMT_AT) {
        for (int i = 0; i < ITEMS; ++i) items_[(int)ranks[i]] = input[i];
        simt::block_barrier(at);
        for (int i = 0; i < ITEMS; ++i) output[i] = items_[striped(i)];
    }
    template <class Out, class Rank>  // a negative rank: not at all
    void ScatterToStripedGuarded(const T (&input)[ITEMS], Out (&output)[ITEMS],
                                 Rank (&ranks)[ITEMS], SIMT_AT) {
        for (int i = 0; i < ITEMS; ++i)
            if (ranks[i] >= 0) items_[(int)ranks[i]] = input[i];
        simt::block_barrier(at);
        for (int i = 0; i < ITEMS; ++i) output[i] = items_[striped(i)];
    }
    template <class Out, class Rank, class Valid>
    void ScatterToStripedFlagged(const T (&input)[ITEMS], Out (&output)[ITEMS],
                                 Rank (&ranks)[ITEMS], Valid (&valid)[ITEMS], SIMT_AT) {
        for (int i = 0; i < ITEMS; ++i)
            if (valid[i]) items_[(int)ranks[i]] = input[i];
        simt::block_barrier(at);
        for (int i = 0; i < ITEMS; ++i) output[i] = items_[striped(i)];
    }

    void StripedToBlocked(T (&items)[ITEMS], SIMT_AT) { StripedToBlocked(items, items, at); }
    void BlockedToStriped(T (&items)[ITEMS], SIMT_AT) { BlockedToStriped(items, items, at); }
    void WarpStripedToBlocked(T (&items)[ITEMS], SIMT_AT) {
        WarpStripedToBlocked(items, items, at);
    }
    void BlockedToWarpStriped(T (&items)[ITEMS], SIMT_AT) {
        BlockedToWarpStriped(items, items, at);
    }
    template <class Rank>
    void ScatterToBlocked(T (&items)[ITEMS], Rank (&ranks)[ITEMS], SIMT_AT) {
        ScatterToBlocked(items, items, ranks, at);
    }
    template <class Rank>
    void ScatterToStriped(T (&items)[ITEMS], Rank (&ranks)[ITEMS], SIMT_AT) {
        ScatterToStriped(items, items, ranks, at);
    }

  private:
    Items& items_;
    static int blocked(int i) { return (int)Block::thread() * ITEMS + i; }
    static int striped(int i) { return i * Block::threads + (int)Block::thread(); }
    static int warp_striped(int i) {
        const int warp = (int)Block::warp(), width = (int)Block::lanes_of(Block::warp());
        return warp * warpSize * ITEMS + i * width + (int)Block::lane();
    }
};

// ---- loads and stores -------------------------------------------------------------------

template <class T, int ITEMS, class It>
static inline void LoadDirectBlocked(int thread, It from, T (&items)[ITEMS]) {
    for (int i = 0; i < ITEMS; ++i) items[i] = from[thread * ITEMS + i];
}
template <class T, int ITEMS, class It>
static inline void LoadDirectBlocked(int thread, It from, T (&items)[ITEMS], int valid) {
    for (int i = 0; i < ITEMS; ++i)
        if (thread * ITEMS + i < valid) items[i] = from[thread * ITEMS + i];
}
template <class T, int ITEMS, class It, class Default>
static inline void LoadDirectBlocked(int thread, It from, T (&items)[ITEMS], int valid,
                                     Default beyond) {
    for (int i = 0; i < ITEMS; ++i) items[i] = beyond;
    LoadDirectBlocked(thread, from, items, valid);
}
template <class T, int ITEMS>
static inline void LoadDirectBlockedVectorized(int thread, T* from, T (&items)[ITEMS]) {
    LoadDirectBlocked(thread, from, items);
}
template <int THREADS, class T, int ITEMS, class It>
static inline void LoadDirectStriped(int thread, It from, T (&items)[ITEMS]) {
    for (int i = 0; i < ITEMS; ++i) items[i] = from[thread + i * THREADS];
}
template <int THREADS, class T, int ITEMS, class It>
static inline void LoadDirectStriped(int thread, It from, T (&items)[ITEMS], int valid) {
    for (int i = 0; i < ITEMS; ++i)
        if (thread + i * THREADS < valid) items[i] = from[thread + i * THREADS];
}
template <int THREADS, class T, int ITEMS, class It, class Default>
static inline void LoadDirectStriped(int thread, It from, T (&items)[ITEMS], int valid,
                                     Default beyond) {
    for (int i = 0; i < ITEMS; ++i) items[i] = beyond;
    LoadDirectStriped<THREADS>(thread, from, items, valid);
}
static inline int warp_striped_place(int thread, int items, int i) {
    const int lane = thread & (warpSize - 1);
    return (thread - lane) * items + lane + i * warpSize;
}
template <class T, int ITEMS, class It>
static inline void LoadDirectWarpStriped(int thread, It from, T (&items)[ITEMS]) {
    for (int i = 0; i < ITEMS; ++i) items[i] = from[warp_striped_place(thread, ITEMS, i)];
}
template <class T, int ITEMS, class It>
static inline void LoadDirectWarpStriped(int thread, It from, T (&items)[ITEMS], int valid) {
    for (int i = 0; i < ITEMS; ++i) {
        const int place = warp_striped_place(thread, ITEMS, i);
        if (place < valid) items[i] = from[place];
    }
}
template <class T, int ITEMS, class It, class Default>
static inline void LoadDirectWarpStriped(int thread, It from, T (&items)[ITEMS], int valid,
                                         Default beyond) {
    for (int i = 0; i < ITEMS; ++i) items[i] = beyond;
    LoadDirectWarpStriped(thread, from, items, valid);
}

template <class T, int ITEMS, class It>
static inline void StoreDirectBlocked(int thread, It to, T (&items)[ITEMS]) {
    for (int i = 0; i < ITEMS; ++i) to[thread * ITEMS + i] = items[i];
}
template <class T, int ITEMS, class It>
static inline void StoreDirectBlocked(int thread, It to, T (&items)[ITEMS], int valid) {
    for (int i = 0; i < ITEMS; ++i)
        if (thread * ITEMS + i < valid) to[thread * ITEMS + i] = items[i];
}
template <class T, int ITEMS>
static inline void StoreDirectBlockedVectorized(int thread, T* to, T (&items)[ITEMS]) {
    StoreDirectBlocked(thread, to, items);
}
template <int THREADS, class T, int ITEMS, class It>
static inline void StoreDirectStriped(int thread, It to, T (&items)[ITEMS]) {
    for (int i = 0; i < ITEMS; ++i) to[thread + i * THREADS] = items[i];
}
template <int THREADS, class T, int ITEMS, class It>
static inline void StoreDirectStriped(int thread, It to, T (&items)[ITEMS], int valid) {
    for (int i = 0; i < ITEMS; ++i)
        if (thread + i * THREADS < valid) to[thread + i * THREADS] = items[i];
}
template <class T, int ITEMS, class It>
static inline void StoreDirectWarpStriped(int thread, It to, T (&items)[ITEMS]) {
    for (int i = 0; i < ITEMS; ++i) to[warp_striped_place(thread, ITEMS, i)] = items[i];
}
template <class T, int ITEMS, class It>
static inline void StoreDirectWarpStriped(int thread, It to, T (&items)[ITEMS], int valid) {
    for (int i = 0; i < ITEMS; ++i) {
        const int place = warp_striped_place(thread, ITEMS, i);
        if (place < valid) to[place] = items[i];
    }
}

enum BlockLoadAlgorithm {
    BLOCK_LOAD_DIRECT,
    BLOCK_LOAD_STRIPED,
    BLOCK_LOAD_VECTORIZE,
    BLOCK_LOAD_TRANSPOSE,
    BLOCK_LOAD_WARP_TRANSPOSE,
    BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED
};
enum BlockStoreAlgorithm {
    BLOCK_STORE_DIRECT,
    BLOCK_STORE_STRIPED,
    BLOCK_STORE_VECTORIZE,
    BLOCK_STORE_TRANSPOSE,
    BLOCK_STORE_WARP_TRANSPOSE,
    BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED
};

template <class T, int BLOCK_DIM_X, int ITEMS, BlockLoadAlgorithm ALGORITHM = BLOCK_LOAD_DIRECT,
          int BLOCK_DIM_Y = 1, int BLOCK_DIM_Z = 1, int = 0>
class BlockLoad {
    using Block = simt::BlockShape<BLOCK_DIM_X, BLOCK_DIM_Y, BLOCK_DIM_Z>;
    using Exchange = BlockExchange<T, BLOCK_DIM_X, ITEMS, false, BLOCK_DIM_Y, BLOCK_DIM_Z>;
    static constexpr bool transposes = ALGORITHM >= BLOCK_LOAD_TRANSPOSE;
    static constexpr bool striped =
        ALGORITHM == BLOCK_LOAD_STRIPED || ALGORITHM == BLOCK_LOAD_TRANSPOSE;
    using Storage = std::conditional_t<transposes, typename Exchange::TempStorage,
                                       Uninitialized<NullType>>;

  public:
    struct TempStorage : Storage {};
    explicit BlockLoad(SIMT_AT) : storage_(simt::private_storage<TempStorage>(at)) {}
    explicit BlockLoad(TempStorage& storage) : storage_(storage) {}

    // Items at and after `valid` are left alone, or get `beyond`.
    template <class It>
    void Load(It from, T (&items)[ITEMS], SIMT_AT) { load(items, at, from); }
    template <class It>
    void Load(It from, T (&items)[ITEMS], int valid, SIMT_AT) { load(items, at, from, valid); }
    template <class It, class Default>
    void Load(It from, T (&items)[ITEMS], int valid, Default beyond, SIMT_AT) {
        load(items, at, from, valid, beyond);
    }

  private:
    TempStorage& storage_;

    template <class It, class... Limits>
    void load(T (&items)[ITEMS], simt::Site at, It from, Limits... limits) {
        const int thread = (int)Block::thread();
        if constexpr (striped) LoadDirectStriped<Block::threads>(thread, from, items, limits...);
        else if constexpr (transposes) LoadDirectWarpStriped(thread, from, items, limits...);
        else LoadDirectBlocked(thread, from, items, limits...);
        if constexpr (ALGORITHM == BLOCK_LOAD_TRANSPOSE)
            Exchange(storage_).StripedToBlocked(items, items, at);
        else if constexpr (transposes)
            Exchange(storage_).WarpStripedToBlocked(items, items, at);
    }
};

template <class T, int BLOCK_DIM_X, int ITEMS, BlockStoreAlgorithm ALGORITHM = BLOCK_STORE_DIRECT,
          int BLOCK_DIM_Y = 1, int BLOCK_DIM_Z = 1, int = 0>
class BlockStore {
    using Block = simt::BlockShape<BLOCK_DIM_X, BLOCK_DIM_Y, BLOCK_DIM_Z>;
    using Exchange = BlockExchange<T, BLOCK_DIM_X, ITEMS, false, BLOCK_DIM_Y, BLOCK_DIM_Z>;
    static constexpr bool transposes = ALGORITHM >= BLOCK_STORE_TRANSPOSE;
    static constexpr bool striped =
        ALGORITHM == BLOCK_STORE_STRIPED || ALGORITHM == BLOCK_STORE_TRANSPOSE;
    // A transposing store tells its threads through shared memory how many items are valid.
    struct Limit {
        int valid;
    };
    struct Transposed {
        typename Exchange::TempStorage exchange;
        Uninitialized<Limit> limit;
    };
    using Storage = std::conditional_t<transposes, Transposed, Uninitialized<NullType>>;

  public:
    struct TempStorage : Storage {};
    explicit BlockStore(SIMT_AT) : storage_(simt::private_storage<TempStorage>(at)) {}
    explicit BlockStore(TempStorage& storage) : storage_(storage) {}

    template <class It>
    void Store(It to, T (&items)[ITEMS], SIMT_AT) {
        transpose(items, at);
        const int thread = (int)Block::thread();
        if constexpr (striped) StoreDirectStriped<Block::threads>(thread, to, items);
        else if constexpr (transposes) StoreDirectWarpStriped(thread, to, items);
        else StoreDirectBlocked(thread, to, items);
    }
    template <class It>
    void Store(It to, T (&items)[ITEMS], int valid, SIMT_AT) {
        const int thread = (int)Block::thread();
        if constexpr (transposes) {
            if (thread == 0) storage_.limit.Alias().valid = valid;
            if constexpr (!striped) simt::block_barrier(at);
        }
        transpose(items, at);
        if constexpr (transposes) valid = storage_.limit.Alias().valid;
        if constexpr (striped) StoreDirectStriped<Block::threads>(thread, to, items, valid);
        else if constexpr (transposes) StoreDirectWarpStriped(thread, to, items, valid);
        else StoreDirectBlocked(thread, to, items, valid);
    }

  private:
    TempStorage& storage_;

    // In place, as in cub: the caller's items are in the other order afterwards.
    void transpose(T (&items)[ITEMS], simt::Site at) {
        if constexpr (ALGORITHM == BLOCK_STORE_TRANSPOSE)
            Exchange(storage_.exchange).BlockedToStriped(items, items, at);
        else if constexpr (transposes)
            Exchange(storage_.exchange).BlockedToWarpStriped(items, items, at);
        else
            (void)items, (void)at;
    }
};

// ---- neighbours -------------------------------------------------------------------------

template <class T, int BLOCK_DIM_X, int BLOCK_DIM_Y = 1, int BLOCK_DIM_Z = 1, int = 0>
class BlockShuffle {
    using Block = simt::BlockShape<BLOCK_DIM_X, BLOCK_DIM_Y, BLOCK_DIM_Z>;
    struct Items {
        T of_thread[Block::threads];
    };

  public:
    struct TempStorage : Uninitialized<Items> {};
    explicit BlockShuffle(SIMT_AT) : items_(simt::private_storage<TempStorage>(at).Alias()) {}
    explicit BlockShuffle(TempStorage& storage) : items_(storage.Alias()) {}

    // From the thread `distance` further on; beyond the block's ends the output is left alone.
    void Offset(T input, T& output, int distance = 1, SIMT_AT) {
        put(input, at);
        const int from = (int)Block::thread() + distance;
        if (from >= 0 && from < Block::threads) output = items_.of_thread[from];
    }
    void Rotate(T input, T& output, unsigned distance = 1, SIMT_AT) {
        put(input, at);
        output = items_.of_thread[(Block::thread() + distance) % (unsigned)Block::threads];
    }
    // The block's items in blocked order, moved by one place. Down: the first is the next's.
    template <int ITEMS>
    void Up(T (&input)[ITEMS], T (&previous)[ITEMS], SIMT_AT) {
        put(input[ITEMS - 1], at);
        for (int i = ITEMS - 1; i > 0; --i) previous[i] = input[i - 1];
        if (Block::thread() > 0) previous[0] = items_.of_thread[Block::thread() - 1];
    }
    template <int ITEMS>
    void Up(T (&input)[ITEMS], T (&previous)[ITEMS], T& block_suffix, SIMT_AT) {
        Up(input, previous, at);
        block_suffix = items_.of_thread[Block::threads - 1];
    }
    template <int ITEMS>
    void Down(T (&input)[ITEMS], T (&next)[ITEMS], SIMT_AT) {
        put(input[0], at);
        for (int i = 0; i + 1 < ITEMS; ++i) next[i] = input[i + 1];
        if ((int)Block::thread() + 1 < Block::threads)
            next[ITEMS - 1] = items_.of_thread[Block::thread() + 1];
    }
    template <int ITEMS>
    void Down(T (&input)[ITEMS], T (&next)[ITEMS], T& block_prefix, SIMT_AT) {
        Down(input, next, at);
        block_prefix = items_.of_thread[0];
    }

  private:
    Items& items_;
    void put(const T& item, simt::Site at) {
        items_.of_thread[Block::thread()] = item;
        simt::block_barrier(at);
    }
};

// Flags items that differ from their neighbours, where op(a, b) says what differs.
template <class T, int BLOCK_DIM_X, int BLOCK_DIM_Y = 1, int BLOCK_DIM_Z = 1, int = 0>
class BlockDiscontinuity {
    using Block = simt::BlockShape<BLOCK_DIM_X, BLOCK_DIM_Y, BLOCK_DIM_Z>;
    struct Ends {
        T first[Block::threads], last[Block::threads];
    };

  public:
    struct TempStorage : Uninitialized<Ends> {};
    explicit BlockDiscontinuity(SIMT_AT) : ends_(simt::private_storage<TempStorage>(at).Alias()) {}
    explicit BlockDiscontinuity(TempStorage& storage) : ends_(storage.Alias()) {}

    // The block's first item is a head and its last a tail, unless a neighbour is given.
    template <int ITEMS, class Flag, class Op>
    void FlagHeads(Flag (&heads)[ITEMS], T (&items)[ITEMS], Op op, SIMT_AT) {
        put(items, at);
        flag_heads(heads, items, op, nullptr);
    }
    template <int ITEMS, class Flag, class Op>
    void FlagHeads(Flag (&heads)[ITEMS], T (&items)[ITEMS], Op op, T before, SIMT_AT) {
        put(items, at);
        flag_heads(heads, items, op, &before);
    }
    template <int ITEMS, class Flag, class Op>
    void FlagTails(Flag (&tails)[ITEMS], T (&items)[ITEMS], Op op, SIMT_AT) {
        put(items, at);
        flag_tails(tails, items, op, nullptr);
    }
    template <int ITEMS, class Flag, class Op>
    void FlagTails(Flag (&tails)[ITEMS], T (&items)[ITEMS], Op op, T after, SIMT_AT) {
        put(items, at);
        flag_tails(tails, items, op, &after);
    }
    template <int ITEMS, class Flag, class Op>
    void FlagHeadsAndTails(Flag (&heads)[ITEMS], Flag (&tails)[ITEMS], T (&items)[ITEMS], Op op,
                           SIMT_AT) {
        put(items, at);
        flag_heads(heads, items, op, nullptr);
        flag_tails(tails, items, op, nullptr);
    }

  private:
    Ends& ends_;

    template <int ITEMS>
    void put(T (&items)[ITEMS], simt::Site at) {
        ends_.first[Block::thread()] = items[0];
        ends_.last[Block::thread()] = items[ITEMS - 1];
        simt::block_barrier(at);
    }
    template <int ITEMS, class Flag, class Op>
    void flag_heads(Flag (&heads)[ITEMS], T (&items)[ITEMS], Op op, const T* before) {
        for (int i = 1; i < ITEMS; ++i) heads[i] = op(items[i - 1], items[i]);
        if (Block::thread()) before = &ends_.last[Block::thread() - 1];
        heads[0] = before ? (Flag)op(*before, items[0]) : (Flag)1;
    }
    template <int ITEMS, class Flag, class Op>
    void flag_tails(Flag (&tails)[ITEMS], T (&items)[ITEMS], Op op, const T* after) {
        for (int i = 0; i + 1 < ITEMS; ++i) tails[i] = op(items[i], items[i + 1]);
        if ((int)Block::thread() + 1 < Block::threads) after = &ends_.first[Block::thread() + 1];
        tails[ITEMS - 1] = after ? (Flag)op(items[ITEMS - 1], *after) : (Flag)1;
    }
};

// ---- histograms -------------------------------------------------------------------------

enum BlockHistogramAlgorithm { BLOCK_HISTO_SORT, BLOCK_HISTO_ATOMIC };

template <class T, int BLOCK_DIM_X, int ITEMS, int BINS,
          BlockHistogramAlgorithm = BLOCK_HISTO_SORT, int BLOCK_DIM_Y = 1, int BLOCK_DIM_Z = 1,
          int = 0>
class BlockHistogram {
    using Block = simt::BlockShape<BLOCK_DIM_X, BLOCK_DIM_Y, BLOCK_DIM_Z>;
    struct Counts {
        unsigned of_bin[BINS];
    };

  public:
    struct TempStorage : Uninitialized<Counts> {};
    explicit BlockHistogram(SIMT_AT) : counts_(simt::private_storage<TempStorage>(at).Alias()) {}
    explicit BlockHistogram(TempStorage& storage) : counts_(storage.Alias()) {}

    // The caller puts a barrier after each of these before others read the histogram.
    template <class Counter>
    void InitHistogram(Counter (&histogram)[BINS]) {
        for (int b = (int)Block::thread(); b < BINS; b += Block::threads) histogram[b] = 0;
    }
    template <class Counter>
    void Composite(T (&items)[ITEMS], Counter (&histogram)[BINS], SIMT_AT) {
        for (int b = (int)Block::thread(); b < BINS; b += Block::threads) counts_.of_bin[b] = 0;
        simt::block_barrier(at);
        for (int i = 0; i < ITEMS; ++i)
            simt::atomic_add(&counts_.of_bin[(int)items[i]], 1u, simt::Scope::block);
        simt::block_barrier(at);
        for (int b = (int)Block::thread(); b < BINS; b += Block::threads)
            histogram[b] = (Counter)(histogram[b] + counts_.of_bin[b]);
    }
    template <class Counter>
    void Histogram(T (&items)[ITEMS], Counter (&histogram)[BINS], SIMT_AT) {
        InitHistogram(histogram);
        Composite(items, histogram, at);
    }

  private:
    Counts& counts_;
};

}  // namespace SIMT_CUB
