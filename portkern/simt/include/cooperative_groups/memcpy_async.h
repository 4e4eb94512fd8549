// Copies that a group makes together. They are done when they are asked for; what must wait is the
// other threads' use of them, and that is in wait().
#pragma once
#include "../cooperative_groups.h"
#if SIMT_HIP
#error "HIP has no cooperative_groups/memcpy_async.h"
#endif

namespace simt {

// Thread `rank` of `threads` copies every threads-th unit.
template <class Unit>
static inline void copy_share(char* to, const char* from, size_t bytes, size_t rank,
                              size_t threads) {
    for (size_t i = rank * sizeof(Unit); i + sizeof(Unit) <= bytes; i += threads * sizeof(Unit)) {
        Unit unit;
        memcpy(&unit, from + i, sizeof unit);
        memcpy(to + i, &unit, sizeof unit);
    }
}

template <class Group>
static inline void copy_together(const Group& group, void* to, const void* from, size_t bytes) {
    const size_t rank = group.thread_rank(), threads = group.num_threads();
    const size_t alignment = (size_t)to | (size_t)from | bytes;
    if (alignment % 16 == 0)
        copy_share<Bytes<16>>((char*)to, (const char*)from, bytes, rank, threads);
    else if (alignment % 4 == 0)
        copy_share<uint32_t>((char*)to, (const char*)from, bytes, rank, threads);
    else
        copy_share<char>((char*)to, (const char*)from, bytes, rank, threads);
}

}  // namespace simt

namespace cooperative_groups {

// `bytes`: a number, or a cuda::aligned_size_t.
template <class Group, class T, class Size>
static inline void memcpy_async(const Group& group, T* to, const T* from, const Size& bytes) {
    simt::copy_together(group, to, from, (size_t)bytes);
}
// Counts of elements; the smaller one is copied.
template <class Group, class T, class To, class From>
static inline void memcpy_async(const Group& group, T* to, const To& room, const T* from,
                                const From& count) {
    const size_t n = (size_t)room < (size_t)count ? (size_t)room : (size_t)count;
    simt::copy_together(group, to, from, n * sizeof(T));
}

template <class Group>
static inline void wait(const Group& group, SIMT_AT) {
    group.sync(at);
}
template <unsigned Stages, class Group>
static inline void wait_prior(const Group& group, SIMT_AT) {
    group.sync(at);
}

}  // namespace cooperative_groups
