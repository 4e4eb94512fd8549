// PTX's loads, stores and atomics, and cp.async. Every access is a plain C++ load or store of its
// own size, so that checkers see it.
#pragma once
#include "atomics.h"
#include "ptx_arithmetic.h"

namespace simt {
namespace ptx {

// ---- addresses ---------------------------------------------------------------------------

// .shared: an offset into the block's memory, of which 32 bits count. All else is one flat space.
static inline char* shared_at(uint64_t address, int64_t offset = 0) {
    return (char*)shared_pointer((uint32_t)(address + (uint64_t)offset));
}
static inline char* flat_at(uint64_t address, int64_t offset = 0) {
    return (char*)(uintptr_t)(address + (uint64_t)offset);
}
static inline uint64_t to_shared(uint64_t pointer) { return shared_address((void*)pointer); }
static inline uint64_t from_shared(uint64_t address) { return (uint64_t)shared_pointer(address); }
static inline bool in_shared(uint64_t pointer) { return is_shared((void*)pointer); }
static inline bool in_global(uint64_t pointer) { return is_global((void*)pointer); }

template <class T, int N>
struct alignas(N * sizeof(T)) Vector {
    T at[N];
};

// An access of SIZE bytes in one piece (32: in two), to memory of any type.
template <size_t SIZE>
struct Carrier {
    typedef Word<SIZE> type __attribute__((may_alias));
};
template <>
struct Carrier<16> {
    typedef uint32_t type __attribute__((vector_size(16), may_alias));
};
template <>
struct Carrier<32> {
    struct __attribute__((may_alias)) type {
        Carrier<16>::type halves[2];
    };
};

static inline bool misaligned(const void* p, size_t size, Site at) {
    if (SIMT_LIKELY((uintptr_t)p % size == 0)) return false;
    finding(106, at, "an access of %zu bytes at %p, which is not a multiple of that", size, p);
    return true;
}

// ---- loads and stores --------------------------------------------------------------------

template <class T>
SIMT_INLINE T copied(const char* p) {
    const auto carried = *(const typename Carrier<sizeof(T)>::type*)p;
    T value;
    memcpy((void*)&value, (const void*)&carried, sizeof value);
    return value;
}
template <class T>
SIMT_INLINE void copy_to(char* p, const T& value) {
    typename Carrier<sizeof(T)>::type carried;
    memcpy((void*)&carried, (const void*)&value, sizeof value);
    *(typename Carrier<sizeof(T)>::type*)p = carried;
}

template <class T>
SIMT_INLINE T ld(const char* p, SIMT_AT) {
    if (SIMT_LIKELY(!misaligned(p, sizeof(T), at))) return copied<T>(p);
    T value;
    memcpy((void*)&value, p, sizeof value);
    return value;
}
template <class T>
SIMT_INLINE void st(char* p, T value, SIMT_AT) {
    if (SIMT_LIKELY(!misaligned(p, sizeof(T), at))) copy_to(p, value);
    else memcpy(p, (const void*)&value, sizeof value);
}

enum class Order : uint8_t { relaxed, acquire, release, both };
static inline bool acquires(Order order) { return order == Order::acquire || order == Order::both; }
static inline bool releases(Order order) { return order == Order::release || order == Order::both; }

// .volatile, .relaxed, .acquire, .release: atomics, each element of a vector by itself.
template <class T, int N>
static inline Vector<T, N> ld_atomic(const char* p, Order order, Scope scope) {
    Vector<T, N> value;
    for (int i = 0; i < N; ++i) value.at[i] = atomic_load((const T*)p + i, scope);
    if (acquires(order)) fence(scope);
    return value;
}
template <class T, int N>
static inline void st_atomic(char* p, const Vector<T, N>& value, Order order, Scope scope) {
    if (releases(order)) fence(scope);
    for (int i = 0; i < N; ++i) atomic_store((T*)p + i, value.at[i], scope);
}

// ---- atomics -----------------------------------------------------------------------------

enum class Change { add, min, max, bit_and, bit_or, bit_xor, exch, inc, dec };

// What an atomic leaves behind.
template <Change WHAT>
struct Changed {
    template <class T>
    T operator()(T a, T b) const {
        if constexpr (WHAT == Change::min) return ptx::min(a, b);
        else if constexpr (WHAT == Change::max) return ptx::max(a, b);
        else if constexpr (WHAT == Change::bit_and) return a & b;
        else if constexpr (WHAT == Change::bit_or) return a | b;
        else if constexpr (WHAT == Change::bit_xor) return a ^ b;
        else return ptx::add(a, b);
    }
};

// Compares and swaps where the host has no single instruction: g++ 12 miscompiles its own
// fetch_and, fetch_or and fetch_xor when their result may share a register with their operand.
template <Change WHAT, class T>
static inline T change(T* p, T b, Scope scope) {
    if constexpr (WHAT == Change::exch) return atomic_exchange(p, b, scope);
    else if constexpr (WHAT == Change::inc) return atomic_inc(p, b, scope);
    else if constexpr (WHAT == Change::dec) return atomic_dec(p, b, scope);
    else if constexpr (WHAT == Change::add && std::is_integral<T>::value)
        return atomic_add(p, b, scope);
    else return atomic_update(p, b, scope, Changed<WHAT>{});
}

// Returns what was there.
template <Change WHAT, class T>
static inline T atom(char* p, T b, Order order, Scope scope, SIMT_AT) {
    if (misaligned(p, sizeof(T), at)) return b;
    if (releases(order)) fence(scope);
    const T before = change<WHAT>((T*)p, b, scope);
    if (acquires(order)) fence(scope);
    return before;
}
// Adds each number to its own place, in a step of its own.
template <class T, int N>
static inline void red(char* p, const Vector<T, N>& more, Order order, Scope scope, SIMT_AT) {
    if (misaligned(p, sizeof(more), at)) return;
    if (releases(order)) fence(scope);
    for (int i = 0; i < N; ++i) change<Change::add>((T*)p + i, more.at[i], scope);
}
template <class T>
static inline T cas(char* p, T expected, T value, Order order, Scope scope, SIMT_AT) {
    if (misaligned(p, sizeof(T), at)) return expected;
    if (releases(order)) fence(scope);
    const T before = atomic_cas((T*)p, expected, value, scope);
    if (acquires(order)) fence(scope);
    return before;
}

// ---- cp.async ----------------------------------------------------------------------------

// A copy waits in its thread's queue for the wait that covers it: as late as the model allows, so
// that a missing wait shows as old data. Copies that nobody waits for are never made. Checkers are
// told when one is issued, as what it may disturb is disturbed from then on.
struct Copy {
    const char* from;
    uint32_t to;     // in shared memory
    uint32_t group;  // the commit_group that takes it, counted from 0
    uint8_t size, bytes;  // written, and of those read; the rest is zero
};
struct Copies {
    uint32_t count;
    uint32_t group;  // the one that copies go to now
};

// The queue grows by pieces, each twice as large as the one before.
constexpr unsigned copies_slot = 64, first_piece = 16;
SIMT_NO_CHECK static inline Copy& queued(unsigned i) {
    const int piece = 31 - __builtin_clz(i / first_piece + 1);
    const unsigned before = first_piece * ((1u << piece) - 1);
    const size_t bytes = ((size_t)first_piece << piece) * sizeof(Copy);
    return static_cast<Copy*>(thread_slot(copies_slot + 1 + piece, bytes))[i - before];
}
static inline Copies& copies() {
    return *static_cast<Copies*>(thread_slot(copies_slot, sizeof(Copies)));
}

SIMT_NO_CHECK static inline void cp_async_commit() { copies().group++; }

// How many of the queue's first copies a wait covers that leaves the `newest` groups out.
SIMT_NO_CHECK static inline unsigned due(unsigned newest) {
    const Copies& all = copies();
    const unsigned end = all.group > newest ? all.group - newest : 0;
    unsigned count = 0;
    while (count < all.count && queued(count).group < end) ++count;
    return count;
}
SIMT_NO_CHECK static inline Copy copy_number(unsigned i) { return queued(i); }
SIMT_NO_CHECK static inline void forget(unsigned done) {
    Copies& all = copies();
    for (unsigned i = done; done && i < all.count; ++i) queued(i - done) = queued(i);
    all.count -= done;
}

__attribute__((always_inline)) static inline void perform(const Copy& c) {
    char* to = (char*)shared_pointer(c.to);
#ifdef SIMT_CHECK
    copy_landing(to, c.size);
#endif
    if (c.bytes == 16) copy_to(to, copied<Vector<uint32_t, 4>>(c.from));
    else if (c.bytes == 8 && c.size == 8) copy_to(to, copied<uint64_t>(c.from));
    else if (c.bytes == 4 && c.size == 4) copy_to(to, copied<uint32_t>(c.from));
    else
        for (int i = 0; i < c.size; ++i) to[i] = i < c.bytes ? c.from[i] : 0;
}

// Carries out all copies but those of the `newest` groups committed last. Inlined, so that a
// checker places these accesses at the wait: the queue is nobody's business, they are the kernel's.
__attribute__((always_inline)) static inline void cp_async_wait(unsigned newest,
                                                                bool uncommitted = false) {
    if (uncommitted) cp_async_commit();
    const unsigned count = due(newest);
    for (unsigned i = 0; i < count; ++i) perform(copy_number(i));
    forget(count);
}

SIMT_NO_CHECK static inline void enqueue(const Copy& c) {
    Copies& all = copies();
    Copy& last = queued(all.count++);
    last = c;
    last.group = all.group;
}

// cp.async: `bytes` of `size` are read, or none with `ignore`. Inlined for the place of the issue.
template <int SIZE>
__attribute__((always_inline)) static inline void cp_async(const char* to, const char* from, int bytes = SIZE,
                            bool ignore = false, SIMT_AT) {
    static_assert(SIZE == 4 || SIZE == 8 || SIZE == 16, "cp.async copies 4, 8 or 16 bytes");
    if (misaligned(to, SIZE, at)) return;
    bytes = ignore || bytes < 0 ? 0 : bytes > SIZE ? SIZE : bytes;
    if (bytes && misaligned(from, SIZE, at)) return;
#ifdef SIMT_CHECK
    copy_issued(to, from, SIZE, (size_t)bytes);
#endif
    enqueue({from, shared_address(to), 0, SIZE, (uint8_t)bytes});
}

}  // namespace ptx
}  // namespace simt
