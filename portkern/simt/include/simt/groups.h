// Cooperative groups: blocks, grids, tiles of a warp and the threads that stand here together.
#pragma once
#include "core.h"
#include "warp.h"

namespace simt {

// ---- collectives with the caller's own operation ----------------------------------------

// What a lane brings to a collective, and gets from it. `limit`: only so many lanes, from the
// lowest, are combined. `whole`: all lanes came whose values are in its result.
template <class T, class Op>
struct Folding {
    T value;
    Op* op;
    Mask asked;
    unsigned limit;
    bool whole;
};

// An arrangement combines `v[0..n)`, the lanes' values in order, in place, in the order of a
// device's shuffles: sums of floats depend on it.
template <class Arrangement, class T, class Op>
SIMT_NO_CHECK inline void combine(Folding<T, Op>* const* own, Mask present) {
    alignas(T) unsigned char bytes[64 * sizeof(T)];
    T* v = reinterpret_cast<T*>(bytes);
    Folding<T, Op>& first = *own[__builtin_ctzll(present)];
    unsigned n = 0;
    for (Mask m = present; m; m &= m - 1, ++n)
        memcpy((void*)&v[n], (void*)&own[__builtin_ctzll(m)]->value, sizeof(T));
    Arrangement::apply(v, n < first.limit ? n : first.limit, *first.op);
    n = 0;
    for (Mask m = present; m; m &= m - 1, ++n) {
        Folding<T, Op>& lane = *own[__builtin_ctzll(m)];
        memcpy((void*)&lane.value, (void*)&v[n], sizeof(T));
        const Mask wanted = Arrangement::wanted(lane.asked, m & (0 - m), first.limit);
        lane.whole = !(wanted & ~present);
    }
}

// The lowest `n` lanes of a mask.
static inline Mask lowest_lanes(Mask mask, unsigned n) {
    if (n >= (unsigned)__builtin_popcountll(mask)) return mask;
    Mask rest = mask;
    while (n--) rest &= rest - 1;
    return mask & ~rest;
}

// Lane i takes in lane i + 1, 2, 4, …, as by shuffles down: only the first lane has the result.
struct ToFirst {
    template <class T, class Op>
    SIMT_NO_CHECK static void apply(T* v, unsigned n, Op& op) {
        for (unsigned by = 1; by < n; by *= 2)
            for (unsigned i = 0; i + by < n; ++i) v[i] = op(v[i], v[i + by]);
    }
    // The other lanes' results are of no use to anybody.
    static Mask wanted(Mask asked, Mask lane, unsigned limit) {
        return lane == (asked & (0 - asked)) ? lowest_lanes(asked, limit) : lane;
    }
};

// Lane i holds the result of lanes 0 … i, as by shuffles up.
struct Prefixes {
    template <class T, class Op>
    SIMT_NO_CHECK static void apply(T* v, unsigned n, Op& op) {
        for (unsigned by = 1; by < n; by *= 2)
            for (unsigned i = n; i-- > by;) v[i] = op(v[i - by], v[i]);
    }
    static Mask wanted(Mask asked, Mask lane, unsigned) { return asked & (lane | (lane - 1)); }
};

// Everybody has the result: a butterfly of xor shuffles for a power of two, else the last prefix.
struct ToAll {
    template <class T, class Op>
    SIMT_NO_CHECK static void apply(T* v, unsigned n, Op& op) {
        if (n & (n - 1)) {
            Prefixes::apply(v, n, op);
            for (unsigned i = 0; i + 1 < n; ++i) v[i] = v[n - 1];
            return;
        }
        for (unsigned half = n / 2; half; half /= 2)
            for (unsigned i = 0; i < half; ++i) v[i] = op(v[i], v[i + half]);
        for (unsigned i = 1; i < n; ++i) v[i] = v[0];
    }
    static Mask wanted(Mask asked, Mask, unsigned) { return asked; }
};

// Lanes 1 … hold the result of the lanes before them; lane 0 holds its own value.
struct Before {
    template <class T, class Op>
    SIMT_NO_CHECK static void apply(T* v, unsigned n, Op& op) {
        Prefixes::apply(v, n, op);
        for (unsigned i = n; i-- > 1;) v[i] = v[i - 1];
    }
    static Mask wanted(Mask asked, Mask lane, unsigned limit) {
        return Prefixes::wanted(asked, lane, limit);
    }
};

template <class Arrangement, class T, class Op>
SIMT_NO_CHECK static inline T collect(Mask mask, const T& value, Op op, Site at,
                                      unsigned limit = 64) {
    static_assert(std::is_copy_constructible<T>::value, "lanes exchange copies");
    Folding<T, Op> own = {value, &op, mask, limit, true};
    together(mask, own, combine<Arrangement, T, Op>, at);
    if (SIMT_UNLIKELY(!own.whole))
        finding(306, at, "not all lanes of mask 0x%llx take part: the others' values are undefined",
                (unsigned long long)mask);
    return own.value;
}

// ---- lanes of a group -------------------------------------------------------------------

static inline Mask low_lanes(unsigned n) { return n >= 64 ? ~Mask{0} : (Mask{1} << n) - 1; }
static inline Mask this_lane() { return Mask{1} << (block->rank & (unsigned)(warpSize - 1)); }

// The lane whose rank in the mask is `rank`; -1 if there are not so many.
static inline int lane_of_rank(Mask mask, unsigned rank) {
    if (rank >= (unsigned)__builtin_popcountll(mask)) return -1;
    const unsigned first = (unsigned)__builtin_ctzll(mask);
    const Mask rest = mask >> first;
    if (!(rest & (rest + 1))) return (int)(first + rank);
    while (rank--) mask &= mask - 1;
    return __builtin_ctzll(mask);
}

// The bits of `lanes` at the places of `mask`, moved together: bit r is the lane of rank r.
static inline Mask by_rank(Mask lanes, Mask mask) {
    Mask packed = 0;
    for (unsigned rank = 0; mask; mask &= mask - 1, ++rank)
        packed |= (lanes >> __builtin_ctzll(mask) & 1) << rank;
    return packed;
}

static inline dim3 to_dim3(uint3 v) { return dim3(v.x, v.y, v.z); }

// What may be shuffled between a group's threads.
template <class T>
static constexpr bool groupwise() {
#if SIMT_HIP
    static_assert(std::is_integral<T>::value || std::is_floating_point<T>::value,
                  "HIP's groups shuffle integers and floats only");
#else
    static_assert(std::is_trivially_copyable<T>::value && sizeof(T) <= 32,
                  "groups shuffle trivially copyable types of up to 32 bytes");
#endif
    return true;
}

// Matching looks at 4 or 8 bytes; smaller integers are promoted.
template <class T>
static inline auto matchable(T v) {
    static_assert(std::is_arithmetic<T>::value, "groups match numbers");
    if constexpr (std::is_integral<T>::value) return +v;
    else return v;
}

}  // namespace simt

namespace cooperative_groups {

using simt::Mask;

class coalesced_group;
class thread_block;
class grid_group;
template <unsigned Size, class Parent>
class thread_block_tile;

// ---- a group of which only the kind is known --------------------------------------------

class thread_group {
  public:
    unsigned long long num_threads() const;
    unsigned long long size() const { return num_threads(); }
    unsigned long long thread_rank() const;
    void sync(SIMT_AT) const;
    bool is_valid() const { return true; }

  protected:
    enum class Kind : uint8_t { block, grid, lanes };
    explicit thread_group(Kind kind, Mask mask = 0, unsigned meta_rank = 0, unsigned meta_size = 1)
        : mask_(mask), meta_rank_(meta_rank), meta_size_(meta_size), kind_(kind) {}

    Mask mask_;
    unsigned meta_rank_, meta_size_;
    Kind kind_;

    friend thread_group tiled_partition(const thread_group&, unsigned, simt::Site);
};

// ---- the block --------------------------------------------------------------------------

class thread_block : public thread_group {
  public:
    struct arrival_token {};

    thread_block() : thread_group(Kind::block) {}
    static void sync(SIMT_AT) { simt::block_barrier(at); }
    // Arriving waits for nobody, so all of the barrier may as well be in the wait.
    static arrival_token barrier_arrive() { return {}; }
    static void barrier_wait(arrival_token&&, SIMT_AT) { simt::block_barrier(at); }
    static unsigned thread_rank() { return simt::thread_rank(); }
    static unsigned num_threads() { return simt::block->threads; }
    static unsigned size() { return num_threads(); }
    static dim3 group_index() { return simt::to_dim3(blockIdx); }
    static dim3 thread_index() { return simt::to_dim3(threadIdx); }
    static dim3 dim_threads() { return blockDim; }
    static dim3 group_dim() { return blockDim; }
};

static inline thread_block this_thread_block() { return {}; }

#if !SIMT_HIP
// Room for tiles of several warps, which have room of their own here.
template <unsigned MaxBlockSize = 1024>
struct block_tile_memory {
    unsigned char simt_unused;
};
template <unsigned MaxBlockSize>
static inline thread_block this_thread_block(block_tile_memory<MaxBlockSize>&) {
    return {};
}
#endif

// ---- the grid ---------------------------------------------------------------------------

class grid_group : public thread_group {
  public:
    struct arrival_token {};

    grid_group() : thread_group(Kind::grid) {}
    // True in any launch, as on an H200 under CUDA 13; sync() is what needs a cooperative one.
    bool is_valid() const { return true; }
    void sync(SIMT_AT) const { simt::grid_barrier(at); }
    arrival_token barrier_arrive() const { return {}; }
    void barrier_wait(arrival_token&&, SIMT_AT) const { simt::grid_barrier(at); }
    static unsigned long long num_blocks() {
        return (unsigned long long)gridDim.x * gridDim.y * gridDim.z;
    }
    static unsigned long long block_rank() {
        return ((unsigned long long)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    }
    static unsigned long long num_threads() { return num_blocks() * simt::block->threads; }
    static unsigned long long size() { return num_threads(); }
    static unsigned long long thread_rank() {
        return block_rank() * simt::block->threads + simt::thread_rank();
    }
    static dim3 dim_blocks() { return gridDim; }
    static dim3 block_index() { return simt::to_dim3(blockIdx); }
    static dim3 group_dim() { return gridDim; }
    static dim3 dim_threads() {
        return dim3(gridDim.x * blockDim.x, gridDim.y * blockDim.y, gridDim.z * blockDim.z);
    }
    static dim3 thread_index() {
        return dim3(blockIdx.x * blockDim.x + threadIdx.x, blockIdx.y * blockDim.y + threadIdx.y,
                    blockIdx.z * blockDim.z + threadIdx.z);
    }
};

static inline grid_group this_grid() { return {}; }

// ---- some lanes of a warp ---------------------------------------------------------------

// Operations among the lanes of Self::mask(); masks are never widened, whatever the warp's width.
template <class Self, class Ballot>
class lane_operations {
  public:
    void sync(SIMT_AT) const { simt::warp_barrier(lanes(), at); }
    int any(int predicate, SIMT_AT) const { return simt::vote(lanes(), predicate != 0, at) != 0; }
    int all(int predicate, SIMT_AT) const { return simt::vote(lanes(), predicate == 0, at) == 0; }
    // Bit r stands for the thread of rank r.
    Ballot ballot(int predicate, SIMT_AT) const {
        return (Ballot)simt::by_rank(simt::vote(lanes(), predicate != 0, at), mask());
    }
    template <class T>
    Ballot match_any(T value, SIMT_AT) const {
        return (Ballot)simt::by_rank(simt::match_any(lanes(), simt::matchable(value), at), mask());
    }
    template <class T>
    Ballot match_all(T value, int& predicate, SIMT_AT) const {
        const Mask same = simt::match_all(lanes(), simt::matchable(value), at);
        predicate = same != 0;
        return (Ballot)simt::by_rank(same, mask());
    }

  private:
    Mask mask() const { return static_cast<const Self*>(this)->lane_mask(); }
    simt::Lanes lanes() const { return simt::named(mask()); }
};

class coalesced_group : public thread_group,
                        public lane_operations<coalesced_group, simt_ballot_t> {
  public:
    using operations = lane_operations<coalesced_group, simt_ballot_t>;
    explicit coalesced_group(Mask mask, unsigned meta_rank = 0, unsigned meta_size = 1)
        : thread_group(Kind::lanes, mask, meta_rank, meta_size) {}

    using operations::sync;
    unsigned num_threads() const { return (unsigned)__builtin_popcountll(mask_); }
    unsigned size() const { return num_threads(); }
    unsigned thread_rank() const {
        return (unsigned)__builtin_popcountll(mask_ & (simt::this_lane() - 1));
    }
    unsigned meta_group_rank() const { return meta_rank_; }
    unsigned meta_group_size() const { return meta_size_; }
    Mask lane_mask() const { return mask_; }

    template <class T>
    T shfl(T value, int rank, SIMT_AT) const {
        const int lane = simt::lane_of_rank(mask_, (unsigned)rank);
        T result = from(value, lane, at);
        if (SIMT_UNLIKELY(lane < 0)) {
            simt::finding(306, at, "shfl from rank %d in a group of %u threads", rank, size());
            memset((void*)&result, 0xff, sizeof result);
        }
        return result;
    }
    template <class T>
    T shfl_up(T value, unsigned by, SIMT_AT) const {
        const unsigned rank = thread_rank();
        return from(value, by > rank ? -1 : simt::lane_of_rank(mask_, rank - by), at);
    }
    template <class T>
    T shfl_down(T value, unsigned by, SIMT_AT) const {
        const unsigned rank = thread_rank();
        return from(value, by >= size() - rank ? -1 : simt::lane_of_rank(mask_, rank + by), at);
    }

  private:
    template <class T>
    T from(T value, int lane, simt::Site at) const {  // -1: the caller itself
        static_assert(simt::groupwise<T>(), "");
        if (lane < 0) lane = __builtin_ctzll(simt::this_lane());
        return simt::shuffle_from(simt::named(mask_), value, lane, at);
    }
};

static inline coalesced_group coalesced_threads(SIMT_AT) {
    return coalesced_group(simt::active_mask(at));
}

// ---- tiles ------------------------------------------------------------------------------

// Bits for each thread of a tile.
template <unsigned Size>
using tile_ballot = std::conditional_t<(Size > 32), unsigned long long, simt_ballot_t>;

template <unsigned Size>
class tile_base : public lane_operations<tile_base<Size>, tile_ballot<Size>> {
    static_assert(Size > 0 && Size <= 1024 && (Size & (Size - 1)) == 0,
                  "a tile has 1, 2, 4, … threads, up to 1024");
#ifdef SIMT_CONSTEXPR_WARP
    static_assert(Size <= SIMT_CONSTEXPR_WARP, "a tile of several warps is not modelled");
#endif

  public:
    static constexpr unsigned numThreads = Size;
    using operations = lane_operations<tile_base<Size>, tile_ballot<Size>>;
    static constexpr bool may_be_wide = Size > 32;
    explicit tile_base(simt::Site) {}
    // Of several warps: what its threads tell each other goes through memory.
    static bool wide() { return may_be_wide && Size > (unsigned)warpSize; }
    // f(value of rank r) for each thread of the tile, in order, in the calling thread.
    template <class T, class F>
    static void of_all(const T& value, simt::Site at, F f) {
        const unsigned begin = number() * Size, end = simt::block->threads;
        simt::offer(&value);
        simt::tile_barrier(Size, number(), at);
        for (unsigned rank = 0; rank < Size && begin + rank < end; ++rank) {
            T other(value);
            simt::take((void*)&other, begin + rank, sizeof(T));
            f(rank, other);
        }
        simt::tile_barrier(Size, number(), at);
    }

    void sync(SIMT_AT) const {
        if (wide()) simt::tile_barrier(Size, number(), at);
        else operations::sync(at);
    }
    int any(int predicate, SIMT_AT) const {
        if (!wide()) return operations::any(predicate, at);
        int result = 0;
        of_all(predicate, at, [&](unsigned, int p) { result |= p != 0; });
        return result;
    }
    int all(int predicate, SIMT_AT) const { return !any(!predicate, at); }

    static constexpr unsigned num_threads() { return Size; }
    static constexpr unsigned size() { return Size; }
    static unsigned thread_rank() { return simt::thread_rank() & (Size - 1); }
    static Mask lane_mask(SIMT_AT) {
        if (SIMT_UNLIKELY(wide()))
            simt::fatal(409, at, "an operation of a warp in a tile of %u threads, warps have %d",
                        Size, warpSize);
        return simt::low_lanes(Size) << (simt::thread_rank() & (unsigned)(warpSize - 1) &
                                         ~(Size - 1));
    }

    template <class T>
    T shfl(T value, int rank, SIMT_AT) const {
        if (wide()) {
            T result(value);
            of_all(value, at, [&](unsigned from, const T& other) {
                if (from == ((unsigned)rank & (Size - 1))) result = other;
            });
            return result;
        }
        return move<simt::Move::index>(value, rank, at);
    }
    template <class T>
    T shfl_up(T value, unsigned by, SIMT_AT) const {
        return move<simt::Move::up>(value, (int)by, at);
    }
    template <class T>
    T shfl_down(T value, unsigned by, SIMT_AT) const {
        return move<simt::Move::down>(value, (int)by, at);
    }
    template <class T>
    T shfl_xor(T value, unsigned by, SIMT_AT) const {
        return move<simt::Move::exclusive>(value, (int)by, at);
    }

  private:
    template <simt::Move how, class T>
    static T move(T value, int by, simt::Site at) {
        static_assert(simt::groupwise<T>(), "");
        return simt::shuffle<how>(simt::named(lane_mask(at)), value, by, (int)Size, at);
    }
    static unsigned number() { return simt::thread_rank() / Size; }
};

// How many tiles the parent has, and which of them this one is.
template <unsigned Size, class Parent>
struct tile_position;  // only of a block or of another tile
template <unsigned Size>
struct tile_position<Size, thread_block> {
    static unsigned rank() { return simt::thread_rank() / Size; }
    static unsigned count() { return (simt::block->threads + Size - 1) / Size; }
};
template <unsigned Size, unsigned Outer, class Parent>
struct tile_position<Size, thread_block_tile<Outer, Parent>> {
    static_assert(Size <= Outer, "a tile is no larger than the group it divides");
    static unsigned rank() { return simt::thread_rank() % Outer / Size; }
    static unsigned count() { return Outer / Size; }
};

template <unsigned Size, class Parent = void>
class thread_block_tile : public tile_base<Size> {
  public:
    explicit thread_block_tile(const Parent&, SIMT_AT) : tile_base<Size>(at) {
        static_assert(sizeof(tile_position<Size, Parent>) > 0, "");
    }
    static unsigned meta_group_rank() { return tile_position<Size, Parent>::rank(); }
    static unsigned meta_group_size() { return tile_position<Size, Parent>::count(); }
    operator thread_group() const { return coalesced_group(this->lane_mask()); }
};

template <unsigned Size>
class thread_block_tile<Size, void> : public tile_base<Size> {
  public:
    template <class Parent>
    thread_block_tile(const thread_block_tile<Size, Parent>& tile, SIMT_AT)
        : tile_base<Size>(at), rank_(tile.meta_group_rank()), count_(tile.meta_group_size()) {}
    explicit thread_block_tile(simt::Site at = nullptr)
        : tile_base<Size>(at), rank_(0), count_(1) {}
    unsigned meta_group_rank() const { return rank_; }
    unsigned meta_group_size() const { return count_; }
    operator thread_group() const { return coalesced_group(this->lane_mask()); }

  private:
    unsigned rank_, count_;
};

template <unsigned Size, class Parent>
static inline thread_block_tile<Size, Parent> tiled_partition(const Parent& parent, SIMT_AT) {
    return thread_block_tile<Size, Parent>(parent, at);
}

static inline thread_block_tile<1> this_thread() { return thread_block_tile<1>(); }

// ---- groups cut at run time -------------------------------------------------------------

static inline void check_tile_size(unsigned size, simt::Site at) {
    if (SIMT_UNLIKELY(size == 0 || (size & (size - 1)) || size > (unsigned)warpSize))
        simt::fatal(307, at, "tiled_partition into %u threads", size);
}

// Every `size` threads of the parent; the last group may have fewer.
static inline coalesced_group tiled_partition(const coalesced_group& parent, unsigned size,
                                              SIMT_AT) {
    check_tile_size(size, at);
    const unsigned which = parent.thread_rank() / size;
    Mask rest = parent.lane_mask(), mine = 0;
    for (unsigned rank = 0; rest; rest &= rest - 1, ++rank)
        if (rank / size == which) mine |= rest & (0 - rest);
    return coalesced_group(mine, which, (parent.size() + size - 1) / size);
}

static inline coalesced_group tile_of_block(unsigned size, simt::Site at) {
    check_tile_size(size, at);
    const unsigned base = simt::thread_rank() & ~(size - 1), end = simt::block->threads;
    const unsigned count = end - base < size ? end - base : size;
    return coalesced_group(simt::low_lanes(count) << (base & (unsigned)(warpSize - 1)), base / size,
                           (end + size - 1) / size);
}

inline thread_group tiled_partition(const thread_group& parent, unsigned size,
                                    simt::Site at = SIMT_HERE) {
    if (parent.kind_ == thread_group::Kind::block) return tile_of_block(size, at);
    if (parent.kind_ == thread_group::Kind::grid)
        simt::fatal(307, at, "tiled_partition of a grid");
    return tiled_partition(coalesced_group(parent.mask_), size, at);
}
static inline thread_group tiled_partition(const thread_block&, unsigned size, SIMT_AT) {
    return tile_of_block(size, at);
}

// The parent's threads for which the predicate is the caller's.
template <class Group>
static inline coalesced_group binary_partition(const Group& parent, bool predicate, SIMT_AT) {
    const Mask all = parent.lane_mask();
    const Mask yes = simt::vote(simt::named(all), predicate, at);
    if (yes == all || yes == 0) return coalesced_group(all);
    return coalesced_group(predicate ? yes : all & ~yes, predicate, 2);
}

// The parent's threads with the caller's label; groups are numbered by their first threads.
template <class Group, class Label>
static inline coalesced_group labeled_partition(const Group& parent, Label label, SIMT_AT) {
    if constexpr (std::is_same<Label, bool>::value) return binary_partition(parent, label, at);
    const simt::Lanes lanes = simt::named(parent.lane_mask());
    Mask mine;
    if constexpr (std::is_pointer<Label>::value)
        mine = simt::match_any(lanes, (unsigned long long)label, at);
    else
        mine = simt::match_any(lanes, +label, at);
    const Mask first = mine & (0 - mine);
    const Mask leaders = simt::vote(lanes, first == simt::this_lane(), at);
    return coalesced_group(mine, (unsigned)__builtin_popcountll(leaders & (first - 1)),
                           (unsigned)__builtin_popcountll(leaders));
}

// ---- the same for every group -----------------------------------------------------------

template <class Group>
static inline void sync(const Group& group, SIMT_AT) {
    group.sync(at);
}
template <class Group>
static inline auto thread_rank(const Group& group) -> decltype(group.thread_rank()) {
    return group.thread_rank();
}
template <class Group>
static inline auto group_size(const Group& group) -> decltype(group.num_threads()) {
    return group.num_threads();
}

inline unsigned long long thread_group::num_threads() const {
    if (kind_ == Kind::block) return thread_block::num_threads();
    if (kind_ == Kind::grid) return grid_group::num_threads();
    return (unsigned long long)__builtin_popcountll(mask_);
}
inline unsigned long long thread_group::thread_rank() const {
    if (kind_ == Kind::block) return thread_block::thread_rank();
    if (kind_ == Kind::grid) return grid_group::thread_rank();
    return coalesced_group(mask_).thread_rank();
}
inline void thread_group::sync(simt::Site at) const {
    if (kind_ == Kind::block) simt::block_barrier(at);
    else if (kind_ == Kind::grid) simt::grid_barrier(at);
    else simt::warp_barrier(simt::named(mask_), at);
}

#if !SIMT_HIP
// One thread of the group calls fn(args…).
template <class Group, class F, class... Args>
static inline void invoke_one(const Group& group, F&& fn, Args&&... args) {
    if (group.thread_rank() == 0) std::forward<F>(fn)(std::forward<Args>(args)...);
}
// The same, and all threads of the group get its result.
template <class Group, class F, class... Args>
static inline auto invoke_one_broadcast(const Group& group, F&& fn, Args&&... args)
    -> std::decay_t<decltype(std::forward<F>(fn)(std::forward<Args>(args)...))> {
    std::decay_t<decltype(std::forward<F>(fn)(std::forward<Args>(args)...))> result{};
    if (group.thread_rank() == 0) result = std::forward<F>(fn)(std::forward<Args>(args)...);
    return group.shfl(result, 0);
}
#else
template <class Group>
static inline bool is_valid(const Group& group) {
    return group.is_valid();
}
#endif

}  // namespace cooperative_groups
