// The device's heap. Objects of programs are linked with --wrap, so that their malloc(), free(),
// new and delete come here: from a kernel they mean this heap, from host code the process's own.
//
// Blocks have a red zone behind them, and freed ones are used again only when nothing else fits.
#include "heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <new>

#include "context.h"
#include "host.h"
#include "memory.h"
#include "simt/api.h"

// Where the process has AddressSanitizer, blocks are its own: it knows their bounds.
extern "C" __attribute__((weak)) void __asan_init();

namespace simt {
namespace {

constexpr size_t page = 4096, least_alignment = 16, zone = 16;
constexpr unsigned char poison = 0xFF, canary = 0xC5;

struct Heap {
    std::mutex lock;
    Region* region = nullptr;
    size_t limit = 0, used = 0;         // bytes that live blocks were asked for
    std::map<char*, HeapBlock> blocks;  // live and freed ones, by begin
    std::map<char*, size_t> free;       // extents that nobody has had, or that were forgotten
    std::deque<char*> freed;            // in the order in which they were
};
Heap& heap() {
    static Heap* h = new Heap;  // never destroyed: modules free memory at exit
    return *h;
}

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

bool open_heap(Heap& h) {
    if (h.region) return true;
    find_limit(&h.limit, api::heap_limit);
    // Room for red zones, and for freed blocks to rest.
    const size_t bytes = round_up(2 * h.limit, page) + (1 << 20);
    void* at = mmap(nullptr, bytes + 2 * page, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return false;
    char* begin = static_cast<char*>(at) + page;
    if (mprotect(begin, bytes, PROT_READ | PROT_WRITE)) return false;
    h.region = add_region(Where::heap, begin, bytes);
    if (config.uninitialised) {
        void* bits = mmap(nullptr, bytes / 8, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        h.region->written = bits == MAP_FAILED ? nullptr : static_cast<uint8_t*>(bits);
    }
    h.free[begin] = bytes;
    return true;
}

void give_back(Heap& h, char* begin, size_t bytes) {
    auto after = h.free.lower_bound(begin);
    if (after != h.free.end() && begin + bytes == after->first) {
        bytes += after->second;
        after = h.free.erase(after);
    }
    if (after != h.free.begin()) {
        auto before = std::prev(after);
        if (before->first + before->second == begin) {
            before->second += bytes;
            return;
        }
    }
    h.free[begin] = bytes;
}

char* carve(Heap& h, size_t extent, size_t align) {
    for (auto it = h.free.begin(); it != h.free.end(); ++it) {
        char* const first = it->first;
        char* const begin = reinterpret_cast<char*>(round_up((uintptr_t)first, align));
        char* const end = first + it->second;
        if (begin + extent > end) continue;
        h.free.erase(it);
        if (begin > first) h.free[first] = (size_t)(begin - first);
        if (begin + extent < end) h.free[begin + extent] = (size_t)(end - begin) - extent;
        return begin;
    }
    return nullptr;
}

char* find_room(Heap& h, size_t extent, size_t align) {
    for (;;) {
        if (char* begin = carve(h, extent, align)) return begin;
        if (h.freed.empty()) return nullptr;
        const auto oldest = h.blocks.find(h.freed.front());
        h.freed.pop_front();
        give_back(h, oldest->second.begin, oldest->second.extent);
        h.blocks.erase(oldest);
    }
}

void forget_written(const Region& r, char* begin, size_t bytes) {
    if (!r.written) return;
    const size_t first = (size_t)(begin - r.buffer.begin);  // blocks begin at whole bytes of bits
    memset(r.written + first / 8, 0, (bytes + 7) / 8);
}

const HeapBlock* block_before(Heap& h, const void* p) {
    auto after = h.blocks.upper_bound(static_cast<char*>(const_cast<void*>(p)));
    return after == h.blocks.begin() ? nullptr : &std::prev(after)->second;
}

void check_zone(const HeapBlock& b, const void* pc) {
    for (size_t i = b.bytes; i < b.extent; ++i) {
        if ((unsigned char)b.begin[i] == canary) continue;
        report(110, Place(pc), Place(b.pc),
               "offset %zu of a heap block of %zu bytes was written before it was freed", i,
               b.bytes);
        return;
    }
}

}  // namespace

void* heap_allocate(size_t bytes, size_t align, const void* pc) {
    if (__asan_init) return aligned_alloc(std::max(align, least_alignment),
                                          round_up(std::max<size_t>(bytes, 1),
                                                   std::max(align, least_alignment)));
    Heap& h = heap();
    std::lock_guard<std::mutex> guard(h.lock);
    if (!open_heap(h) || bytes > h.limit - std::min(h.used, h.limit)) return nullptr;
    const size_t extent = round_up(bytes + zone, least_alignment);
    char* begin = find_room(h, extent, std::max(align, least_alignment));
    if (!begin) return nullptr;
    h.used += bytes;
    h.blocks[begin] = {begin, bytes, extent, pc, false};
    memset(begin, poison, bytes);
    memset(begin + bytes, canary, extent - bytes);
    forget_written(*h.region, begin, extent);
    check::forget(*h.region, begin, extent);
    return begin;
}

void heap_release(void* p, const void* pc) {
    if (!p) return;
    Heap& h = heap();
    if (__asan_init && !region_of(p)) return ::free(p);
    std::lock_guard<std::mutex> guard(h.lock);
    const auto found = h.blocks.find(static_cast<char*>(p));
    if (found == h.blocks.end() || found->second.freed) {
        char what[256];
        describe_address(p, what, sizeof what);
        report(113, Place(pc), Place(), "a free in a kernel: %s%s", what,
               found != h.blocks.end() ? " already" : ", not what malloc or new of a kernel gave");
        return;
    }
    HeapBlock& b = found->second;
    check_zone(b, pc);
    memset(b.begin, poison, b.bytes);
    b.freed = true;
    h.used -= b.bytes;
    h.freed.push_back(b.begin);
}

bool in_heap(const void* p) {
    const Region* r = region_of(p);
    return r && r->where == Where::heap;
}

const HeapBlock* heap_block(const void* p) { return block_before(heap(), p); }

void describe_heap(const void* p, char* text, size_t size) {
    const HeapBlock* b = heap_block(p);
    const char* at = static_cast<const char*>(p);
    if (!b || at >= b->begin + b->extent) {
        snprintf(text, size, "the device's heap, where no block is");
    } else if (b->freed) {
        snprintf(text, size, "a block of the device's heap (%zu bytes), which is freed", b->bytes);
    } else if (at >= b->begin + b->bytes) {
        snprintf(text, size, "%zu bytes past the end of a block of the device's heap (%zu bytes)",
                 (size_t)(at - b->begin) - b->bytes, b->bytes);
    } else {
        snprintf(text, size, "offset %zu of a block of the device's heap (%zu bytes)",
                 (size_t)(at - b->begin), b->bytes);
    }
}

bool heap_used() { return heap().region; }

void drop_heap() {
    Heap& h = heap();
    std::lock_guard<std::mutex> guard(h.lock);
    if (!h.region) return;
    for (const auto& [begin, b] : h.blocks) {
        if (b.freed) continue;
        check_zone(b, b.pc);
        if (config.bounds)
            report(117, Place(b.pc), Place(), "%zu bytes of the device's heap were never freed",
                   b.bytes);
    }
    flush_findings();
    if (h.region->written) munmap(h.region->written, h.region->buffer.bytes / 8);
    char* const mapped = h.region->buffer.begin - page;
    const size_t bytes = h.region->buffer.bytes + 2 * page;
    drop_region(h.region);
    munmap(mapped, bytes);
    h.region = nullptr;
    h.used = 0;
    h.blocks.clear();
    h.free.clear();
    h.freed.clear();
}

}  // namespace simt

namespace {

void* allocate_for(size_t bytes, size_t align, const void* pc) {
    if (simt::block) return simt::heap_allocate(bytes, align, pc);
    return nullptr;
}

// Whether it was a kernel's to free, or of a kernel.
bool freed_by_device(void* p, const void* pc) {
    if (!simt::block && !(p && simt::in_heap(p))) return false;
    if (simt::block) {
        simt::heap_release(p, pc);
        return true;
    }
    simt::report(113, simt::Place(pc), simt::Place(), "host code frees memory of the device's heap");
    return true;
}

struct AtExit {
    ~AtExit() { simt::drop_heap(); }
} at_exit;

}  // namespace

#define SIMT_WRAP extern "C" __attribute__((visibility("default")))
#define SIMT_CALLER __builtin_return_address(0)

SIMT_WRAP void* __wrap_malloc(size_t n) {
    return simt::block ? allocate_for(n, 16, SIMT_CALLER) : malloc(n);
}
SIMT_WRAP void __wrap_free(void* p) {
    if (!freed_by_device(p, SIMT_CALLER)) free(p);
}

// operator new and its kin under the names that compilers give them (size_t is unsigned long).
#define SIMT_NEW(name, call)                                                 \
    SIMT_WRAP void* __wrap_##name(size_t n) {                                \
        return simt::block ? allocate_for(n, 16, SIMT_CALLER) : call;        \
    }
SIMT_NEW(_Znwm, ::operator new(n))
SIMT_NEW(_Znam, ::operator new[](n))
#define SIMT_NEW_NOTHROW(name, call)                                         \
    SIMT_WRAP void* __wrap_##name(size_t n, const std::nothrow_t& t) {       \
        return simt::block ? allocate_for(n, 16, SIMT_CALLER) : call;        \
    }
SIMT_NEW_NOTHROW(_ZnwmRKSt9nothrow_t, ::operator new(n, t))
SIMT_NEW_NOTHROW(_ZnamRKSt9nothrow_t, ::operator new[](n, t))
#define SIMT_NEW_ALIGNED(name, call)                                         \
    SIMT_WRAP void* __wrap_##name(size_t n, std::align_val_t align) {        \
        return simt::block ? allocate_for(n, (size_t)align, SIMT_CALLER) : call; \
    }
SIMT_NEW_ALIGNED(_ZnwmSt11align_val_t, ::operator new(n, align))
SIMT_NEW_ALIGNED(_ZnamSt11align_val_t, ::operator new[](n, align))

#define SIMT_DELETE(name, parameters, call)                                  \
    SIMT_WRAP void __wrap_##name parameters {                                \
        if (!freed_by_device(p, SIMT_CALLER)) call;                          \
    }
SIMT_DELETE(_ZdlPv, (void* p), ::operator delete(p))
SIMT_DELETE(_ZdaPv, (void* p), ::operator delete[](p))
SIMT_DELETE(_ZdlPvm, (void* p, size_t), ::operator delete(p))
SIMT_DELETE(_ZdaPvm, (void* p, size_t), ::operator delete[](p))
SIMT_DELETE(_ZdlPvSt11align_val_t, (void* p, std::align_val_t a), ::operator delete(p, a))
SIMT_DELETE(_ZdaPvSt11align_val_t, (void* p, std::align_val_t a), ::operator delete[](p, a))
SIMT_DELETE(_ZdlPvmSt11align_val_t, (void* p, size_t, std::align_val_t a), ::operator delete(p, a))
SIMT_DELETE(_ZdaPvmSt11align_val_t, (void* p, size_t, std::align_val_t a),
            ::operator delete[](p, a))
