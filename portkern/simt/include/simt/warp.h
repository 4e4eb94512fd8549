// Warp intrinsics: shuffles, votes, matches, reductions and barriers, in CUDA's and HIP's forms.
//
// SIMT_HIP chooses the language. CUDA: a 32-bit mask with every operation. HIP: operations without
// a mask, and `_sync` forms that insist on a 64-bit one.
#pragma once
#include "core.h"

#ifndef SIMT_HIP
#define SIMT_HIP 0
#endif

namespace simt {

// Which lanes an operation is for: those of a mask, or whichever stand here together.
struct Lanes {
    Mask mask;
    bool named;
};
static constexpr Lanes converged = {0, false};
static inline Lanes named(Mask mask) { return {mask, true}; }

// Returns the lanes that took part, as far as known here.
template <class Own>
SIMT_INLINE Mask meet(Lanes lanes, Own& own, void (*complete)(Own* const*, Mask), Site at) {
    if (!lanes.named) return together_active(own, complete, at);
    together(lanes.mask, own, complete, at);
    return lanes.mask;
}

// CUDA's masks have 32 bits. On 64 lanes they name the lower half, unless the target's facts say
// that "all" was meant.
static inline Lanes cuda_mask(unsigned mask) {
    if (SIMT_UNLIKELY(warpSize == 64 && mask == ~0u && facts.widen_masks)) return named(~Mask{0});
    return named(mask);
}

template <class M>
static inline Lanes hip_mask(M mask) {
    static_assert(std::is_integral<M>::value && sizeof(M) == 8,
                  "HIP's _sync functions take a 64-bit mask: a 32-bit one is almost always a "
                  "mistake on a 64-lane wavefront");
    return named((Mask)mask & full_mask());
}

// ---- shuffles ---------------------------------------------------------------------------

// The sum of two __half, __half2 or their bfloat16 kin: the classes that have __hadd or __hadd2.
template <class T>
static inline auto half_sum(T a, T b, int) -> decltype(__hadd(a, b)) {
    return __hadd(a, b);
}
template <class T>
static inline auto half_sum(T a, T b, long) -> decltype(__hadd2(a, b)) {
    return __hadd2(a, b);
}
// T itself if it is one of them, else no type.
template <class T>
using IfHalf = std::enable_if_t<
    std::is_class<T>::value &&
        std::is_same<decltype(half_sum(std::declval<T>(), std::declval<T>(), 0)), T>::value,
    T>;

// The types with overloads, and what each is passed as: the usual promotions apply, structs have
// no overload.
int shuffle_type(int);
unsigned shuffle_type(unsigned);
long shuffle_type(long);
unsigned long shuffle_type(unsigned long);
long long shuffle_type(long long);
unsigned long long shuffle_type(unsigned long long);
float shuffle_type(float);
double shuffle_type(double);
template <class T>
IfHalf<T> shuffle_type(T);
template <class T>
using ShuffleType = decltype(shuffle_type(std::declval<T>()));

template <size_t Size>
struct Bytes {
    unsigned char bytes[Size];
};
// What carries a value of this many bytes: an integer if there is one.
template <size_t Size>
using Word = std::conditional_t<
    Size == 8, uint64_t,
    std::conditional_t<Size == 4, uint32_t,
                       std::conditional_t<Size == 2, uint16_t,
                                          std::conditional_t<Size == 1, uint8_t, Bytes<Size>>>>>;

template <class To, class From>
static inline To same_bits(const From& from) {
    static_assert(sizeof(To) == sizeof(From), "a copy of bits");
    To to;
    memcpy((void*)&to, (const void*)&from, sizeof to);
    return to;
}

template <class W>
struct Shuffle {
    W value;
    W result;
    int source;
    bool found;
};

// A lane that takes no part has no value: its readers get all ones, a NaN for floats.
template <class W, int kind = 0>  // shuffles of different kinds are different operations
SIMT_NO_CHECK inline void exchange(Shuffle<W>* const* own, Mask present) {
    for (; present; present &= present - 1) {
        Shuffle<W>& reader = *own[__builtin_ctzll(present)];
        const Shuffle<W>* source = own[reader.source];
        reader.found = source;
        if (SIMT_LIKELY(source)) reader.result = source->value;
        else memset(&reader.result, 0xff, sizeof reader.result);
    }
}

template <int kind = 0, class T>
SIMT_MEETING T shuffle_from(Lanes lanes, T value, int source, Site at) {
    using W = Word<sizeof(T)>;
    Shuffle<W> own;
    own.value = same_bits<W>(value);
    own.source = source;
    meet(lanes, own, exchange<W, kind>, at);
    if (SIMT_UNLIKELY(!own.found))
        finding(306, at, "a shuffle reads lane %d, which takes no part", source);
    return same_bits<T>(own.result);
}

enum class Move : uint8_t { index, up, down, exclusive };

// The lane read, for sub-groups of `width` lanes. Up and down stop at the sub-group's edges; xor
// may reach into lower sub-groups, not into higher ones. Beyond the edge a lane reads itself.
template <Move move>
static inline int shuffle_source(int lane, int by, int width) {
    const int last = lane | (width - 1), first = lane & ~(width - 1);
    if (move == Move::index) return first + (by & (width - 1));
    // PTX's shfl looks at the low bits of the distance only; HIP compares all of it.
    const int64_t far = SIMT_HIP && move != Move::exclusive ? (int64_t)(unsigned)by
                        : SIMT_HIP                          ? by
                                                            : by & (warpSize - 1);
    if (move == Move::up) return lane - far < first ? lane : (int)(lane - far);
    const int64_t to = move == Move::down ? lane + far : lane ^ far;
    return to > last || to < 0 ? lane : (int)to;
}

template <Move move>
static inline int shuffle_source(int by, int width) {
    return shuffle_source<move>((int)(block->rank & (unsigned)(warpSize - 1)), by, width);
}

template <Move move, class T>
SIMT_INLINE T shuffle(Lanes lanes, T value, int by, int width, Site at) {
    if (SIMT_UNLIKELY(width <= 0 || width > warpSize || (width & (width - 1)))) {
        finding(307, at, "shuffle width %d in a warp of %d lanes", width, warpSize);
        width = warpSize;
    }
    return shuffle_from<(int)move>(lanes, value, shuffle_source<move>(by, width), at);
}

// A loop of shuffles that fold one value, carried out for all lanes when the last of them comes.
// Each brings its value, the loop's head (steps) and its body, as a function of the loop's counter,
// the value and what the lane that is read had.
template <class V>
struct Fold {
    V* value;
    void *steps, *body;
    uint64_t signature;  // of the steps, where lanes may have different ones
    bool done;
};

struct FoldStep {
    long counter;
    int by, width;
};
// The steps of the loop; -1: more than are kept, or one that has something to report.
template <class Steps>
SIMT_NO_CHECK static inline int fold_steps(Steps& steps, FoldStep (&out)[8]) {
    int count = 0;
    steps([&](long counter, int by, int width) {
        const bool fine = width > 0 && width <= warpSize && !(width & (width - 1));
        if (count < 0 || count == 8 || !fine) count = -1;
        else out[count++] = {counter, by, width};
    });
    return count;
}

// From `v` to `next`; the lane that each reads is among `present`.
template <Move move, class V, class Body>
SIMT_NO_CHECK static inline bool fold_step(Fold<V>* const* own, Mask present, const FoldStep& step,
                                           V* v, V* next) {
    const int by = step.by, width = step.width;
    if (present != full_mask()) {
        Mask read = 0;
        for_lanes(present, [&](int l) { read |= Mask{1} << shuffle_source<move>(l, by, width); });
        if (read & ~present) return false;
    }
    for (Mask m = present; m; m &= m - 1) {
        const int l = __builtin_ctzll(m);
        next[l] = v[l];
        (*static_cast<Body*>(own[l]->body))(step.counter, next[l],
                                            v[shuffle_source<move>(l, by, width)]);
    }
    return true;
}

template <Move move, class V, class Steps, class Body>
SIMT_NO_CHECK inline void make_fold(Fold<V>* const* own, Mask present) {
    Fold<V>& first = *own[__builtin_ctzll(present)];
    FoldStep steps[8];
    const int count = fold_steps(*static_cast<Steps*>(first.steps), steps);
    bool able = count >= 0;
    V values[2][64];
    for (Mask m = present; m; m &= m - 1) {
        const int l = __builtin_ctzll(m);
        able = able && own[l]->signature == first.signature;
        values[0][l] = *own[l]->value;
    }
    for (int k = 0; k < count && able; ++k)
        able = fold_step<move, V, Body>(own, present, steps[k], values[k & 1], values[~k & 1]);
    for (Mask m = present; m; m &= m - 1) {
        const int l = __builtin_ctzll(m);
        own[l]->done = able;
        if (able) *own[l]->value = values[count & 1][l];
    }
}

// False: nothing was done. steps(f) calls f(counter, distance, width) for each step of the caller;
// `uniform`: they are the same for all lanes.
template <Move move, bool uniform, class V, class Steps, class Body>
SIMT_INLINE bool shuffle_loop(Lanes lanes, V& value, Steps steps, Body body, SIMT_AT) {
#ifndef SIMT_CHECK
    if constexpr (std::is_same<V, ShuffleType<V>>::value && std::is_arithmetic<V>::value) {
        Fold<V> own = {&value, &steps, &body, 0, false};
        if (!uniform)
            steps([&](long counter, int by, int width) {
                own.signature = own.signature * 0x9E3779B97F4A7C15u + (uint64_t)counter * 4096 +
                                (uint64_t)by * 64 + (unsigned)width;
            });
        meet(lanes, own, make_fold<move, V, Steps, Body>, at);
        return own.done;
    }
#endif
    return false;
}

// ---- votes ------------------------------------------------------------------------------

struct Vote {
    Mask ballot;
    bool predicate;
};

SIMT_NO_CHECK inline void count_votes(Vote* const* own, Mask present) {
    Mask ballot = 0;
    for (Mask m = present; m; m &= m - 1) {
        const int lane = __builtin_ctzll(m);
        ballot |= (Mask)own[lane]->predicate << lane;
    }
    for (Mask m = present; m; m &= m - 1) own[__builtin_ctzll(m)]->ballot = ballot;
}

// The lanes among `lanes` whose predicate holds.
SIMT_MEETING Mask vote(Lanes lanes, bool predicate, Site at) {
    Vote own = {0, predicate};
    meet(lanes, own, count_votes, at);
    return own.ballot;
}

SIMT_INLINE Mask active_mask(Site at) {
    return together_active((void*)nullptr, (Complete) nullptr, at);
}

SIMT_INLINE void warp_barrier(Lanes lanes, Site at) {
    const Mask mask = lanes.named ? lanes.mask : active_mask(at);
    together(mask, (void*)nullptr, (Complete) nullptr, at, Sync::memory);
}

// ---- matches ----------------------------------------------------------------------------

template <class W>
struct Match {
    Mask same;
    W value;
};

template <class W>
SIMT_NO_CHECK inline void find_matches(Match<W>* const* own, Mask present) {
    while (present) {
        const W value = own[__builtin_ctzll(present)]->value;
        Mask same = 0;
        for (Mask m = present; m; m &= m - 1) {
            const int lane = __builtin_ctzll(m);
            same |= (Mask)(own[lane]->value == value) << lane;
        }
        for (Mask m = same; m; m &= m - 1) own[__builtin_ctzll(m)]->same = same;
        present &= ~same;
    }
}

template <class W>
SIMT_NO_CHECK inline void find_common(Match<W>* const* own, Mask present) {
    const W value = own[__builtin_ctzll(present)]->value;
    bool all = true;
    for (Mask m = present; m; m &= m - 1) all &= own[__builtin_ctzll(m)]->value == value;
    for (Mask m = present; m; m &= m - 1) own[__builtin_ctzll(m)]->same = all ? present : 0;
}

// The lanes whose value has the same bits as the caller's.
template <class T>
SIMT_MEETING Mask match_any(Lanes lanes, T value, Site at) {
    using W = Word<sizeof(T)>;
    Match<W> own = {0, same_bits<W>(value)};
    meet(lanes, own, find_matches<W>, at);
    return own.same;
}

// All lanes if their values have the same bits, else none.
template <class T>
SIMT_MEETING Mask match_all(Lanes lanes, T value, Site at) {
    using W = Word<sizeof(T)>;
    Match<W> own = {0, same_bits<W>(value)};
    meet(lanes, own, find_common<W>, at);
    return own.same;
}

template <class T>
using IfMatchable =
    std::enable_if_t<std::is_arithmetic<T>::value && (sizeof(T) == 4 || sizeof(T) == 8)>;

// ---- reductions -------------------------------------------------------------------------

struct Sum {
    template <class T>
    T operator()(T a, T b) const {
        // Unsigned: integers wrap, as on a device.
        if constexpr (std::is_integral<T>::value)
            return (T)((std::make_unsigned_t<T>)a + (std::make_unsigned_t<T>)b);
        else
            return a + b;
    }
};
struct Least {
    template <class T>
    T operator()(T a, T b) const { return b < a ? b : a; }
};
struct Greatest {
    template <class T>
    T operator()(T a, T b) const { return a < b ? b : a; }
};
struct BitAnd {
    template <class T>
    T operator()(T a, T b) const { return a & b; }
};
struct BitOr {
    template <class T>
    T operator()(T a, T b) const { return a | b; }
};
struct BitXor {
    template <class T>
    T operator()(T a, T b) const { return a ^ b; }
};

template <class T>
struct Reduction {
    T value;
};

template <class Op, class T>
SIMT_NO_CHECK inline void fold(Reduction<T>* const* own, Mask present) {
    T total = own[__builtin_ctzll(present)]->value;
    for (Mask m = present & (present - 1); m; m &= m - 1)
        total = Op{}(total, own[__builtin_ctzll(m)]->value);
    for (Mask m = present; m; m &= m - 1) own[__builtin_ctzll(m)]->value = total;
}

template <class Op, class T>
SIMT_MEETING T warp_reduce(Lanes lanes, T value, Site at) {
    Reduction<T> own = {value};
    meet(lanes, own, fold<Op, T>, at);
    return own.value;
}

}  // namespace simt

// ---- the block --------------------------------------------------------------------------

SIMT_INLINE void __syncthreads(SIMT_AT) { simt::block_barrier(at); }
SIMT_INLINE int __syncthreads_count(int predicate, SIMT_AT) {
    return (int)simt::block_vote(predicate != 0, at).count;
}
SIMT_INLINE int __syncthreads_and(int predicate, SIMT_AT) {
    return simt::block_vote(predicate != 0, at).all;
}
SIMT_INLINE int __syncthreads_or(int predicate, SIMT_AT) {
    return simt::block_vote(predicate != 0, at).any;
}

// ---- the warp, with masks ---------------------------------------------------------------

#if SIMT_HIP
#define SIMT_MASK_AND(...) template <class M, __VA_ARGS__>
#define SIMT_MASK_ONLY template <class M>
#define SIMT_MASK M
#define SIMT_NAMED(mask) ::simt::hip_mask(mask)
using simt_ballot_t = unsigned long long;
#else
#define SIMT_MASK_AND(...) template <__VA_ARGS__>
#define SIMT_MASK_ONLY
#define SIMT_MASK unsigned
#define SIMT_NAMED(mask) ::simt::cuda_mask(mask)
using simt_ballot_t = unsigned;
#endif

namespace simt {
SIMT_MASK_ONLY static inline Lanes shuffle_lanes(SIMT_MASK mask) { return SIMT_NAMED(mask); }
}  // namespace simt

SIMT_MASK_AND(class T, class S = simt::ShuffleType<T>)
SIMT_INLINE S __shfl_sync(SIMT_MASK mask, T var, int lane, int width = warpSize, SIMT_AT) {
    return simt::shuffle<simt::Move::index, S>(SIMT_NAMED(mask), var, lane, width, at);
}
SIMT_MASK_AND(class T, class S = simt::ShuffleType<T>)
SIMT_INLINE S __shfl_up_sync(SIMT_MASK mask, T var, unsigned by, int width = warpSize, SIMT_AT) {
    return simt::shuffle<simt::Move::up, S>(SIMT_NAMED(mask), var, (int)by, width, at);
}
SIMT_MASK_AND(class T, class S = simt::ShuffleType<T>)
SIMT_INLINE S __shfl_down_sync(SIMT_MASK mask, T var, unsigned by, int width = warpSize,
                                 SIMT_AT) {
    return simt::shuffle<simt::Move::down, S>(SIMT_NAMED(mask), var, (int)by, width, at);
}
SIMT_MASK_AND(class T, class S = simt::ShuffleType<T>)
SIMT_INLINE S __shfl_xor_sync(SIMT_MASK mask, T var, int by, int width = warpSize, SIMT_AT) {
    return simt::shuffle<simt::Move::exclusive, S>(SIMT_NAMED(mask), var, by, width, at);
}

SIMT_MASK_ONLY SIMT_INLINE simt_ballot_t __ballot_sync(SIMT_MASK mask, int predicate, SIMT_AT) {
    return (simt_ballot_t)simt::vote(SIMT_NAMED(mask), predicate != 0, at);
}
SIMT_MASK_ONLY SIMT_INLINE int __any_sync(SIMT_MASK mask, int predicate, SIMT_AT) {
    return simt::vote(SIMT_NAMED(mask), predicate != 0, at) != 0;
}
SIMT_MASK_ONLY SIMT_INLINE int __all_sync(SIMT_MASK mask, int predicate, SIMT_AT) {
#if SIMT_HIP
    // HIP compares the ballot with the mask: a lane of it that does not exist votes no.
    const simt::Lanes lanes = SIMT_NAMED(mask);
    return simt::vote(lanes, predicate != 0, at) == lanes.mask;
#else
    return simt::vote(SIMT_NAMED(mask), predicate == 0, at) == 0;
#endif
}
SIMT_MASK_AND(class T, class = simt::IfMatchable<T>)
SIMT_INLINE simt_ballot_t __match_any_sync(SIMT_MASK mask, T value, SIMT_AT) {
    return (simt_ballot_t)simt::match_any(SIMT_NAMED(mask), value, at);
}
SIMT_MASK_AND(class T, class = simt::IfMatchable<T>)
SIMT_INLINE simt_ballot_t __match_all_sync(SIMT_MASK mask, T value, int* predicate, SIMT_AT) {
    const simt::Mask same = simt::match_all(SIMT_NAMED(mask), value, at);
    *predicate = same != 0;
    return (simt_ballot_t)same;
}

#define SIMT_REDUCE(NAME, OP, T)                                                            \
    SIMT_MASK_ONLY SIMT_INLINE T __reduce_##NAME##_sync(SIMT_MASK mask, T value, SIMT_AT) { \
        return simt::warp_reduce<simt::OP>(SIMT_NAMED(mask), value, at);                    \
    }
#define SIMT_REDUCE_ORDERED(T) \
    SIMT_REDUCE(add, Sum, T)   \
    SIMT_REDUCE(min, Least, T) \
    SIMT_REDUCE(max, Greatest, T)
#define SIMT_REDUCE_BITS(T)    \
    SIMT_REDUCE(and, BitAnd, T) \
    SIMT_REDUCE(or, BitOr, T)  \
    SIMT_REDUCE(xor, BitXor, T)
SIMT_REDUCE_ORDERED(int)
SIMT_REDUCE_ORDERED(unsigned)
SIMT_REDUCE_BITS(unsigned)
#if SIMT_HIP && defined(HIP_ENABLE_EXTRA_WARP_SYNC_TYPES)
SIMT_REDUCE_ORDERED(long long)
SIMT_REDUCE_ORDERED(unsigned long long)
SIMT_REDUCE_ORDERED(float)
SIMT_REDUCE_ORDERED(double)
SIMT_REDUCE_BITS(int)
SIMT_REDUCE_BITS(long long)
SIMT_REDUCE_BITS(unsigned long long)
#endif
#undef SIMT_REDUCE_BITS
#undef SIMT_REDUCE_ORDERED
#undef SIMT_REDUCE

SIMT_INLINE simt_ballot_t __activemask(SIMT_AT) { return (simt_ballot_t)simt::active_mask(at); }

#if !SIMT_HIP

// Without a mask: the whole warp, whatever its width.
SIMT_INLINE void __syncwarp(SIMT_AT) { simt::warp_barrier(simt::named(simt::full_mask()), at); }
template <class M, class = std::enable_if_t<std::is_integral<M>::value>>
SIMT_INLINE void __syncwarp(M mask, SIMT_AT) {
    simt::warp_barrier(simt::cuda_mask((unsigned)mask), at);
}
SIMT_INLINE int __uni_sync(unsigned mask, int predicate, SIMT_AT) {
    return simt::match_all(SIMT_NAMED(mask), (uint32_t)(predicate != 0), at) != 0;
}
static inline void __barrier_sync(unsigned id, SIMT_AT) { simt::named_barrier(id, 0, true, at); }
static inline void __barrier_sync_count(unsigned id, unsigned threads, SIMT_AT) {
    simt::named_barrier(id, threads, true, at);
}

#else  // ---- HIP: the lanes that are here ------------------------------------------------

static inline unsigned __lane_id() { return (unsigned)simt::lane_id(); }

template <class M>
SIMT_INLINE void __syncwarp(M mask, SIMT_AT) { simt::warp_barrier(SIMT_NAMED(mask), at); }
SIMT_INLINE void __syncwarp(SIMT_AT) { simt::warp_barrier(simt::converged, at); }

template <class T, class S = simt::ShuffleType<T>>
SIMT_INLINE S __shfl(T var, int lane, int width = warpSize, SIMT_AT) {
    return simt::shuffle<simt::Move::index, S>(simt::converged, var, lane, width, at);
}
template <class T, class S = simt::ShuffleType<T>>
SIMT_INLINE S __shfl_up(T var, unsigned by, int width = warpSize, SIMT_AT) {
    return simt::shuffle<simt::Move::up, S>(simt::converged, var, (int)by, width, at);
}
template <class T, class S = simt::ShuffleType<T>>
SIMT_INLINE S __shfl_down(T var, unsigned by, int width = warpSize, SIMT_AT) {
    return simt::shuffle<simt::Move::down, S>(simt::converged, var, (int)by, width, at);
}
template <class T, class S = simt::ShuffleType<T>>
SIMT_INLINE S __shfl_xor(T var, int by, int width = warpSize, SIMT_AT) {
    return simt::shuffle<simt::Move::exclusive, S>(simt::converged, var, by, width, at);
}

SIMT_INLINE unsigned long long __ballot(int predicate, SIMT_AT) {
    return simt::vote(simt::converged, predicate != 0, at);
}
SIMT_INLINE unsigned long long __ballot64(int predicate, SIMT_AT) {
    return simt::vote(simt::converged, predicate != 0, at);
}
SIMT_INLINE int __any(int predicate, SIMT_AT) {
    return simt::vote(simt::converged, predicate != 0, at) != 0;
}
SIMT_INLINE int __all(int predicate, SIMT_AT) {
    return simt::vote(simt::converged, predicate == 0, at) == 0;
}
template <class T, class = simt::IfMatchable<T>>
SIMT_INLINE unsigned long long __match_any(T value, SIMT_AT) {
    return simt::match_any(simt::converged, value, at);
}
template <class T, class = simt::IfMatchable<T>>
SIMT_INLINE unsigned long long __match_all(T value, int* predicate, SIMT_AT) {
    const simt::Mask same = simt::match_all(simt::converged, value, at);
    *predicate = same != 0;
    return same;
}

#endif
#undef SIMT_NAMED
#undef SIMT_MASK
#undef SIMT_MASK_ONLY
#undef SIMT_MASK_AND
