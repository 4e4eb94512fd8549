// Reductions over a tile or a coalesced group.
#pragma once
#include "../cooperative_groups.h"
#include "../cuda/atomic"
#if SIMT_HIP
#error "HIP has no cooperative_groups/reduce.h"
#endif

namespace cooperative_groups {

template <class T>
struct plus {
    T operator()(T a, T b) const { return a + b; }
};
template <class T>
struct less {  // the lesser of the two
    T operator()(T a, T b) const { return b < a ? b : a; }
};
template <class T>
struct greater {
    T operator()(T a, T b) const { return a < b ? b : a; }
};
template <class T>
struct bit_and {
    T operator()(T a, T b) const { return a & b; }
};
template <class T>
struct bit_or {
    T operator()(T a, T b) const { return a | b; }
};
template <class T>
struct bit_xor {
    T operator()(T a, T b) const { return a ^ b; }
};

}  // namespace cooperative_groups

namespace simt {

template <class Group, class = void>
struct MayBeWide : std::false_type {};
template <class Group>
struct MayBeWide<Group, std::enable_if_t<Group::may_be_wide>> : std::true_type {};

// Of the ranks up to the caller's own (or before it, or all), in order.
enum class Reach { all, through, before };
template <Reach reach, class Group, class V, class Op>
static inline V wide_fold(const Group& group, const V& value, Op& op, Site at) {
    V total(value);
    bool begun = false;
    const unsigned mine = group.thread_rank();
    group.of_all(value, at, [&](unsigned rank, const V& other) {
        if (reach == Reach::through && rank > mine) return;
        if (reach == Reach::before && rank >= mine) return;
        total = begun ? (V)op(total, other) : other;
        begun = true;
    });
    return total;
}

}  // namespace simt

namespace cooperative_groups {

// Every thread of the group gets op over all values.
template <class Group, class T, class Op>
static inline std::decay_t<T> reduce(const Group& group, T&& value, Op&& op, SIMT_AT) {
    using V = std::decay_t<T>;
    static_assert(simt::groupwise<V>(), "");
    const V own(value);  // read here, where the sanitizers see it: what gathers it is not checked
    if constexpr (simt::MayBeWide<Group>::value)
        if (group.wide()) return simt::wide_fold<simt::Reach::all, Group, V>(group, own, op, at);
    return simt::collect<simt::ToAll, V, std::decay_t<Op>>(group.lane_mask(), own, op, at);
}

// The group's result is combined into, or stored to, an atomic.
template <class Group, class Atomic, class T, class Op>
static inline void reduce_update_async(const Group& group, Atomic& to, T&& value, Op&& op,
                                       SIMT_AT) {
    const auto total = reduce(group, value, op, at);
    if (group.thread_rank() == 0) to.update(total, op);
}
template <class Group, class Atomic, class T, class Op>
static inline void reduce_store_async(const Group& group, Atomic& to, T&& value, Op&& op, SIMT_AT) {
    const auto total = reduce(group, value, op, at);
    if (group.thread_rank() == 0) to.store(total, cuda::memory_order_relaxed);
}

}  // namespace cooperative_groups
