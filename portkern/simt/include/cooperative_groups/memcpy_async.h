// Copies that a group makes together: each thread's share is one group of cp.async where that can
// make it, from global to shared memory in pieces of 4 or 16 bytes, and is done at once elsewhere.
#pragma once
#include "../cooperative_groups.h"
#if SIMT_HIP
#error "HIP has no cooperative_groups/memcpy_async.h"
#endif

#include "../simt/ptx_memory.h"

namespace simt {

#define SIMT_INLINED __attribute__((always_inline)) static inline  // for the place of the accesses

// Thread `rank` of `threads` copies every threads-th unit.
template <class Unit>
SIMT_INLINED void copy_share(char* to, const char* from, size_t bytes, size_t rank, size_t threads,
                             bool wait, Site at) {
    for (size_t i = rank * sizeof(Unit); i + sizeof(Unit) <= bytes; i += threads * sizeof(Unit)) {
        if constexpr (sizeof(Unit) >= 4) {
            if (wait) {
                ptx::cp_async<sizeof(Unit)>(to + i, from + i, sizeof(Unit), false, at);
                continue;
            }
        }
        Unit unit;
        memcpy(&unit, from + i, sizeof unit);
        memcpy(to + i, &unit, sizeof unit);
    }
}

template <class Group>
SIMT_INLINED void copy_together(const Group& group, void* to, const void* from, size_t bytes,
                                Site at) {
    const size_t rank = group.thread_rank(), threads = group.num_threads();
    const size_t alignment = (size_t)to | (size_t)from | bytes;
    const bool wait = is_shared(to) && is_global(from);
    if (alignment % 16 == 0)
        copy_share<Bytes<16>>((char*)to, (const char*)from, bytes, rank, threads, wait, at);
    else if (alignment % 4 == 0)
        copy_share<uint32_t>((char*)to, (const char*)from, bytes, rank, threads, wait, at);
    else
        copy_share<char>((char*)to, (const char*)from, bytes, rank, threads, wait, at);
    ptx::cp_async_commit();
}

}  // namespace simt

namespace cooperative_groups {

// `bytes`: a number, or a cuda::aligned_size_t.
template <class Group, class T, class Size>
SIMT_INLINED void memcpy_async(const Group& group, T* to, const T* from, const Size& bytes,
                               SIMT_AT) {
    simt::copy_together(group, to, from, (size_t)bytes, at);
}
// Counts of elements; the smaller one is copied.
template <class Group, class T, class To, class From>
SIMT_INLINED void memcpy_async(const Group& group, T* to, const To& room, const T* from,
                               const From& count, SIMT_AT) {
    const size_t n = (size_t)room < (size_t)count ? (size_t)room : (size_t)count;
    simt::copy_together(group, to, from, n * sizeof(T), at);
}

template <class Group>
SIMT_INLINED void wait(const Group& group, SIMT_AT) {
    simt::ptx::cp_async_wait(0);
    group.sync(at);
}
// All but the last `Stages` calls of memcpy_async are done.
template <unsigned Stages, class Group>
SIMT_INLINED void wait_prior(const Group& group, SIMT_AT) {
    simt::ptx::cp_async_wait(Stages);
    group.sync(at);
}
#undef SIMT_INLINED

}  // namespace cooperative_groups
