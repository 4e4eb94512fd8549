// PTX's mbarriers and bulk copies, of memory as it lies and of boxes of tensors (TMA), where a cluster is
// one block.
//
// A bulk copy is made as late as the model allows, so that a missing wait shows as old data: one to shared
// memory when a thread asks for the phase that it completes, one from there when its thread waits for it.
#pragma once
#include "ptx_memory.h"
#include "tensor_map.h"

namespace simt {
namespace ptx {

// ---- swizzled addresses ------------------------------------------------------------------

// Where the hardware puts the 16 bytes that rows of `span` bytes (32, 64 or 128; 0: as they are) have at
// an address of shared memory: the bits from 16 on are changed by those from 128 on.
static inline uint32_t swizzled(uint32_t address, unsigned span) {
    return span ? address ^ ((address >> 3) & (span - 16)) : address;
}

// ---- bulk copies that wait ---------------------------------------------------------------

struct BulkCopy {
    uint32_t shared, bytes;
    uint32_t key;        // the mbarrier that it completes, or the rank of the thread that waits for it
    uint32_t group;      // of that thread
    const char* memory;  // without a tensor
    TensorMap map;       // a kernel's argument, which may be gone when the copy is made; or of rank 0
    int32_t at[5];
};
struct BulkCopies {
    static constexpr unsigned most = 256;
    unsigned count;
    BulkCopy at[most];
};
constexpr unsigned bulk_slot = 1, bulk_group_slot = 100;  // of the block, of a thread

enum class To { shared, memory };
template <To TO>
static inline BulkCopies& bulk_copies() {
    return *static_cast<BulkCopies*>(block_slot(bulk_slot + (unsigned)TO, sizeof(BulkCopies)));
}

// Takes the first with this key whose group is below `end`.
template <To TO>
SIMT_NO_CHECK static inline bool take_bulk(BulkCopy* taken, uint32_t key, uint32_t end) {
    BulkCopies& all = bulk_copies<TO>();
    for (unsigned i = 0; i < all.count; ++i) {
        if (all.at[i].key != key || all.at[i].group >= end) continue;
        *taken = all.at[i];
        memmove((void*)(all.at + i), (const void*)(all.at + i + 1), (--all.count - i) * sizeof(BulkCopy));
        return true;
    }
    return false;
}

// An access of what the copy engine moves at once, if it lies inside and is aligned; else by elements.
template <To TO>
SIMT_INLINE void move_16(char* shared, char* memory, int first, int last, unsigned element) {
    char* const to = TO == To::shared ? shared : memory;
    const char* const from = TO == To::shared ? memory : shared;
    if (first == 0 && last == 16 && (uintptr_t)memory % 16 == 0)
        return copy_to(to, copied<Vector<uint32_t, 4>>(from));
    for (int i = 0; i < 16; i += (int)element) {
        const bool inside = i >= first && i < last;
        if (!inside && TO == To::memory) continue;
        if (element == 8) copy_to(to + i, inside ? copied<uint64_t>(from + i) : uint64_t{0});
        else if (element == 4) copy_to(to + i, inside ? copied<uint32_t>(from + i) : uint32_t{0});
        else if (element == 2) copy_to(to + i, inside ? copied<uint16_t>(from + i) : uint16_t{0});
        else to[i] = inside ? from[i] : 0;
    }
}

struct BoxRow {
    char* memory;  // where coordinate 0 of the innermost dimension lies
    bool inside;
};
SIMT_NO_CHECK static inline BoxRow row_of_box(const BulkCopy& c, unsigned row) {
    const TensorMap& m = c.map;
    BoxRow found = {(char*)m.base, true};
    for (int d = 1; d < m.rank; ++d) {
        const int64_t at = c.at[d] + (int64_t)(row % m.count(d)) * m.step[d];
        row /= m.count(d);
        found.inside = found.inside && at >= 0 && at <= (int64_t)m.last[d];
        found.memory += at * (int64_t)m.pitch[d - 1];
    }
    return found;
}
SIMT_NO_CHECK static inline unsigned rows_of_box(const TensorMap& m) {
    unsigned rows = 1;
    for (int d = 1; d < m.rank; ++d) rows *= m.count(d);
    return rows;
}

template <To TO>
__attribute__((always_inline)) static inline void perform_box(const BulkCopy& c) {
    const TensorMap& m = c.map;
    const int64_t element = m.element_bytes, end = ((int64_t)m.last[0] + 1) * element;
    const unsigned span = m.box[0] * m.element_bytes, rows = rows_of_box(m);
    for (unsigned r = 0; r < rows; ++r) {
        const BoxRow row = row_of_box(c, r);
        for (unsigned i = 0; i < span; i += 16) {
            const int64_t start = c.at[0] * element + i;
            const int64_t first = start < 0 ? -start : 0, last = end - start < 16 ? end - start : 16;
            const bool inside = row.inside && first < 16 && last > 0;
            if (!inside && TO == To::memory) continue;
            char* const shared = (char*)shared_pointer(swizzled(c.shared + r * span + i, m.swizzle_bytes));
            move_16<TO>(shared, row.memory + start, inside ? (int)first : 16, inside ? (int)last : 0,
                        m.element_bytes);
        }
    }
}
template <To TO>
__attribute__((always_inline)) static inline void perform_bytes(const BulkCopy& c) {
    char* const shared = (char*)shared_pointer(c.shared);
    for (unsigned i = 0; i < c.bytes; i += 16) move_16<TO>(shared + i, (char*)c.memory + i, 0, 16, 1);
}
template <To TO>
__attribute__((always_inline)) static inline void perform(const BulkCopy& c) {
#ifdef SIMT_CHECK
    copy_engine(true);
#endif
    if (c.map.rank) perform_box<TO>(c);
    else perform_bytes<TO>(c);
#ifdef SIMT_CHECK
    copy_engine(false);
#endif
}

// ---- mbarriers ---------------------------------------------------------------------------

// One in its 64 bits, whose layout PTX leaves open: arrivals that are pending in this phase and expected
// in each, the phase's parity, and the bytes of copies that are expected and not there (less those that
// came before they were expected).
struct Mbarrier {
    static constexpr int count_bits = 20;
    static constexpr uint64_t count_mask = (1u << count_bits) - 1;
    uint64_t bits;

    static Mbarrier of(uint64_t pending, uint64_t expected, uint64_t parity, int64_t bytes) {
        return {pending | expected << count_bits | parity << 40 | (uint64_t)bytes << 41};
    }
    uint64_t pending() const { return bits & count_mask; }
    uint64_t expected() const { return bits >> count_bits & count_mask; }
    uint64_t parity() const { return bits >> 40 & 1; }
    int64_t bytes() const { return (int64_t)bits >> 41; }
    // After `arrivals`, of which `leaving` do not come again, and a change of the bytes.
    Mbarrier after(uint64_t arrivals, uint64_t leaving, int64_t more) const {
        const uint64_t left = pending() - arrivals, each = expected() - leaving;
        const int64_t open = bytes() + more;
        if (left == 0 && open == 0) return of(each, each, !parity(), 0);
        return of(left, each, parity(), open);
    }
};
static inline Mbarrier mbarrier_at(const char* p) {
    return {atomic_load((const uint64_t*)p, Scope::block)};
}
static inline Mbarrier change_mbarrier(char* p, uint64_t arrivals, uint64_t leaving, int64_t bytes) {
    mbarrier_arrived(p);
    return {atomic_update((uint64_t*)p, uint64_t{0}, Scope::block, [=](uint64_t was, uint64_t) {
        return Mbarrier{was}.after(arrivals, leaving, bytes).bits;
    })};
}

static inline void mbarrier_init(char* p, uint32_t count, SIMT_AT) {
    if (misaligned(p, 8, at)) return;
    if (count == 0 || count > Mbarrier::count_mask)
        finding(313, at, "an mbarrier of %u arrivals", count);
    st<uint64_t>(p, Mbarrier::of(count, count, 0, 0).bits, at);
}
static inline void mbarrier_inval(char* p, SIMT_AT) { st<uint64_t>(p, 0, at); }

static inline void mbarrier_expect(char* p, int64_t bytes) { change_mbarrier(p, 0, 0, bytes); }
static inline uint32_t mbarrier_pending(uint64_t state) { return (uint32_t)Mbarrier{state}.pending(); }

// Makes a copy that was waiting; one to shared memory tells its mbarrier.
template <To TO>
__attribute__((always_inline)) static inline void make(const BulkCopy& c) {
    perform<TO>(c);
    if (TO == To::shared) change_mbarrier(shared_at(c.key), 0, 0, -(int64_t)c.bytes);
}
__attribute__((always_inline)) static inline void make_copies_of(char* p) {
    BulkCopy copy;
    while (take_bulk<To::shared>(&copy, shared_address(p), ~0u)) make<To::shared>(copy);
}

// Returns the phase that it belongs to: the barrier as it was.
__attribute__((always_inline)) static inline uint64_t mbarrier_arrive(char* p, uint32_t count, int64_t bytes,
                                                                      bool leaves, SIMT_AT) {
    if (misaligned(p, 8, at)) return 0;
    Mbarrier was = mbarrier_at(p);
    if (was.pending() < count) {  // the copies of the phase before may well be there
        make_copies_of(p);
        was = mbarrier_at(p);
    }
    if (was.pending() < count)
        fatal(313, at, "%u arrivals at an mbarrier that expects %u, of which %u are still to come", count,
              (unsigned)was.expected(), (unsigned)was.pending());
    return change_mbarrier(p, count, leaves ? count : 0, bytes).bits;
}

// Whether the phase of this parity is complete; makes the copies that alone it is waiting for.
__attribute__((always_inline)) static inline bool mbarrier_complete(char* p, uint64_t parity) {
    const Mbarrier now = mbarrier_at(p);
    if (now.parity() == parity && now.pending()) return false;
    mbarrier_passed(p);
    if (now.parity() != parity) return true;
    make_copies_of(p);
    return mbarrier_at(p).parity() != parity;
}
__attribute__((always_inline)) static inline bool mbarrier_test(char* p, uint64_t parity) {
    if (mbarrier_complete(p, parity)) return true;
    spin();  // whoever asks in a loop gives way to those it waits for
    return false;
}
static inline uint64_t parity_of(uint64_t state) { return Mbarrier{state}.parity(); }

// ---- what starts copies ------------------------------------------------------------------

// Where as many copies wait as there is room for, the oldest is made at once.
template <To TO>
SIMT_NO_CHECK static inline bool make_room(BulkCopy* oldest) {
    const BulkCopies& all = bulk_copies<TO>();
    return all.count == all.most && take_bulk<TO>(oldest, all.at[0].key, all.at[0].group + 1);
}
template <To TO>
SIMT_NO_CHECK static inline void append(const BulkCopy& c) {
    BulkCopies& all = bulk_copies<TO>();
    all.at[all.count++] = c;
}
template <To TO>
SIMT_INLINE void enqueue(const BulkCopy& c) {
    BulkCopy oldest;
    if (make_room<TO>(&oldest)) make<TO>(oldest);
    append<TO>(c);
}

static inline bool sound(const char* shared, unsigned align, const char* what, Site at) {
    if (shared_address(shared) % align == 0) return true;
    finding(106, at, "%s at shared memory's byte %u, which is not a multiple of %u", what,
            shared_address(shared), align);
    return false;
}
static inline bool sound(const char* shared, const char* memory, uint32_t bytes, Site at) {
    if (bytes % 16) finding(106, at, "a bulk copy of %u bytes, which is not a multiple of 16", bytes);
    return bytes % 16 == 0 && sound(shared, 16, "a bulk copy", at) && !misaligned(memory, 16, at);
}
static inline void bulk_load(char* to, const char* from, uint32_t bytes, char* barrier, SIMT_AT) {
    if (!sound(to, from, bytes, at)) return;
    enqueue<To::shared>({shared_address(to), bytes, shared_address(barrier), 0, from, {}, {}});
}

template <size_t RANK>
SIMT_NO_CHECK static inline BulkCopy box_copy(const char* shared, const char* map,
                                              const int32_t (&coordinates)[RANK], Site at) {
    BulkCopy c = {shared_address(shared), 0, 0, 0, nullptr, *(const TensorMap*)map, {}};
    if (c.map.magic != TensorMap::known)
        fatal(314, at, "a tensor copy by what cuTensorMapEncodeTiled did not make");
    if (c.map.rank != RANK)
        fatal(314, at, "a tensor copy at %u coordinates of a tensor of %u dimensions", (unsigned)RANK,
              (unsigned)c.map.rank);
    for (size_t d = 0; d < RANK; ++d) c.at[d] = coordinates[d];
    // As an H200 does, which says "an illegal instruction was encountered".
    if (coordinates[0] * (int64_t)c.map.element_bytes % 16)
        fatal(314, at, "a box that begins %lld bytes into a row, which is not a multiple of 16",
              (long long)coordinates[0] * c.map.element_bytes);
    c.bytes = rows_of_box(c.map) * c.map.box[0] * c.map.element_bytes;
    return c;
}
template <size_t RANK>
static inline void box_load(char* to, const char* map, const int32_t (&coordinates)[RANK], char* barrier,
                            SIMT_AT) {
    if (!sound(to, 128, "a box of a tensor", at)) return;
    BulkCopy c = box_copy(to, map, coordinates, at);
    c.key = shared_address(barrier);
    enqueue<To::shared>(c);
}

// A count of the running thread's, after `more` of them.
SIMT_NO_CHECK static inline uint32_t own_count(unsigned slot, uint32_t more = 0) {
    return *static_cast<uint32_t*>(thread_slot(slot, sizeof(uint32_t))) += more;
}

// Of stores, a thread waits for its own.
SIMT_NO_CHECK static inline BulkCopy of_thread(BulkCopy c) {
    c.key = thread_rank();
    c.group = own_count(bulk_group_slot);
    return c;
}
static inline void bulk_store(char* to, const char* from, uint32_t bytes, SIMT_AT) {
    if (!sound(from, to, bytes, at)) return;
    enqueue<To::memory>(of_thread({shared_address(from), bytes, 0, 0, to, {}, {}}));
}
template <size_t RANK>
static inline void box_store(const char* map, const int32_t (&coordinates)[RANK], const char* from,
                             SIMT_AT) {
    if (!sound(from, 128, "a box of a tensor", at)) return;
    for (size_t d = 0; d < RANK; ++d)  // an illegal instruction, too: only loads may begin ahead of the tensor
        if (coordinates[d] < 0)
            fatal(314, at, "a box is stored at coordinate %d of dimension %u", (int)coordinates[d], (unsigned)d);
    enqueue<To::memory>(of_thread(box_copy(from, map, coordinates, at)));
}
static inline void bulk_commit() { own_count(bulk_group_slot, 1); }
__attribute__((always_inline)) static inline void bulk_wait(uint32_t newest) {
    const uint32_t group = own_count(bulk_group_slot), end = group > newest ? group - newest : 0;
    BulkCopy copy;
    while (take_bulk<To::memory>(&copy, thread_rank(), end)) make<To::memory>(copy);
}

// ---- a cluster of one block --------------------------------------------------------------

// The shared memory of block `rank` of the cluster.
static inline uint64_t map_to_rank(uint64_t address, uint32_t rank, SIMT_AT) {
    if (rank) fatal(314, at, "block %u of a cluster, which here has one", rank);
    return address;
}

}  // namespace ptx
}  // namespace simt
