// Prefix sums over a tile or a coalesced group.
#pragma once
#include "reduce.h"

namespace cooperative_groups {

// The thread of rank r gets op over the values of ranks 0 … r.
template <class Group, class T, class Op>
static inline std::decay_t<T> inclusive_scan(const Group& group, T&& value, Op&& op, SIMT_AT) {
    using V = std::decay_t<T>;
    static_assert(simt::groupwise<V>(), "");
    const V own(value);
    if constexpr (simt::MayBeWide<Group>::value)
        if (group.wide())
            return simt::wide_fold<simt::Reach::through, Group, V>(group, own, op, at);
    return simt::collect<simt::Prefixes, V, std::decay_t<Op>>(group.lane_mask(), own, op, at);
}
template <class Group, class T>
static inline std::decay_t<T> inclusive_scan(const Group& group, T&& value, SIMT_AT) {
    return inclusive_scan(group, value, plus<std::decay_t<T>>(), at);
}

// … of ranks 0 … r - 1; rank 0 gets T().
template <class Group, class T, class Op>
static inline std::decay_t<T> exclusive_scan(const Group& group, T&& value, Op&& op, SIMT_AT) {
    using V = std::decay_t<T>;
    static_assert(simt::groupwise<V>(), "");
    const V own(value);
    if constexpr (simt::MayBeWide<Group>::value)
        if (group.wide()) {
            const V total = simt::wide_fold<simt::Reach::before, Group, V>(group, own, op, at);
            return group.thread_rank() == 0 ? V() : total;
        }
    const V before =
        simt::collect<simt::Before, V, std::decay_t<Op>>(group.lane_mask(), own, op, at);
    return group.thread_rank() == 0 ? V() : before;
}
template <class Group, class T>
static inline std::decay_t<T> exclusive_scan(const Group& group, T&& value, SIMT_AT) {
    return exclusive_scan(group, value, plus<std::decay_t<T>>(), at);
}

// Combines the group's total into an atomic; what was there comes before every result.
template <class Group, class Atomic, class T, class Op>
static inline std::decay_t<T> inclusive_scan_update(const Group& group, Atomic& to, T&& value,
                                                    Op&& op, SIMT_AT) {
    const auto mine = inclusive_scan(group, value, op, at);
    const unsigned last = group.num_threads() - 1;
    auto before = mine;
    if (group.thread_rank() == last) before = to.update(mine, op);
    before = group.shfl(before, (int)last, at);
    return op(before, mine);
}
template <class Group, class Atomic, class T, class Op>
static inline std::decay_t<T> exclusive_scan_update(const Group& group, Atomic& to, T&& value,
                                                    Op&& op, SIMT_AT) {
    const auto inclusive = inclusive_scan(group, value, op, at);
    const auto mine = group.shfl_up(inclusive, 1, at);
    const unsigned last = group.num_threads() - 1;
    auto before = inclusive;
    if (group.thread_rank() == last) before = to.update(inclusive, op);
    before = group.shfl(before, (int)last, at);
    return group.thread_rank() == 0 ? before : op(before, mine);
}
template <class Group, class Atomic, class T>
static inline std::decay_t<T> inclusive_scan_update(const Group& group, Atomic& to, T&& value,
                                                    SIMT_AT) {
    return inclusive_scan_update(group, to, value, plus<std::decay_t<T>>(), at);
}
template <class Group, class Atomic, class T>
static inline std::decay_t<T> exclusive_scan_update(const Group& group, Atomic& to, T&& value,
                                                    SIMT_AT) {
    return exclusive_scan_update(group, to, value, plus<std::decay_t<T>>(), at);
}

}  // namespace cooperative_groups
