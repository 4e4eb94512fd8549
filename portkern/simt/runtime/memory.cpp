// Buffers, shared memory and stacks. A buffer lies between inaccessible pages, and nothing else lies
// within `reach` of it. Fresh bytes are all ones (NaN in every float type), the slack behind the end
// holds a canary.
#include "memory.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "context.h"
#include "heap.h"
#include "host.h"
#include "launch.h"

namespace simt {
namespace {

constexpr size_t page = 4096, alignment = 256;
// What a wrong 32-bit byte offset gets to. A process has room for 16,000 such buffers.
constexpr size_t reach = size_t{4} << 30;
constexpr unsigned char poison = 0xFF, canary = 0xC5;
// Freed buffers stay inaccessible until so many others have been freed: a use is then found.
constexpr size_t quarantined = 4096;

std::mutex lock;
std::map<char*, Region*> buffers;   // by begin, live ones
std::map<char*, Region*> reserved;  // by begin, live and freed ones
std::vector<Region*> quarantine;    // a ring
size_t quarantine_next, live_bytes;
unsigned buffers_made;

// ---- pages → regions: a two-level table over 47 bits of address

constexpr int leaf_bits = 18, top_bits = 47 - 12 - leaf_bits;
Region** top[size_t{1} << top_bits];

Region** page_entry(uintptr_t address, bool make) {
    const uintptr_t number = address / page;
    const uintptr_t high = number >> leaf_bits;
    if (high >> top_bits) return nullptr;
    Region**& leaf = top[high];
    if (!leaf) {
        if (!make) return nullptr;
        const size_t bytes = sizeof(Region*) << leaf_bits;
        void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) return nullptr;
        leaf = static_cast<Region**>(at);
    }
    return &leaf[number & ((uintptr_t{1} << leaf_bits) - 1)];
}

void set_pages(char* begin, size_t bytes, Region* to) {
    const uintptr_t first = (uintptr_t)begin & ~(page - 1);
    for (uintptr_t p = first; p < (uintptr_t)begin + bytes; p += page)
        if (Region** entry = page_entry(p, to != nullptr)) *entry = to;
}

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

char* map_pages(size_t bytes, int flags = 0) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags,
                    -1, 0);
    return at == MAP_FAILED ? nullptr : static_cast<char*>(at);
}

void forget(Region* r) {  // out of the quarantine
    set_pages(r->mapped, r->mapped_bytes, nullptr);
    reserved.erase(r->reserved);
    munmap(r->reserved, r->reserved_bytes);
    delete r;
}

// Addresses for `bytes`, inaccessible; fewer around them where the process has no more.
char* reserve(size_t bytes, size_t& around) {
    for (around = reach;; around = 0) {
        void* at = mmap(nullptr, bytes + 2 * around, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at != MAP_FAILED) return static_cast<char*>(at);
        if (!around) return nullptr;
    }
}

}  // namespace

Region* region_of(const void* p) {
    Region** entry = page_entry((uintptr_t)p, false);
    return entry ? *entry : nullptr;
}

Region* region_near(const void* p) {
    if (Region* r = region_of(p)) return r;
    std::lock_guard<std::mutex> guard(lock);
    char* at = static_cast<char*>(const_cast<void*>(p));
    auto after = reserved.upper_bound(at);
    if (after == reserved.begin()) return nullptr;
    Region* r = std::prev(after)->second;
    return at < r->reserved + r->reserved_bytes ? r : nullptr;
}

Region* add_region(Where where, char* begin, size_t bytes) {
    Region* r = new Region{where, {begin, bytes, Kind::device}, begin, bytes, nullptr, 0, 2,
                           nullptr, 0, nullptr, 0};
    set_pages(begin, bytes, r);
    return r;
}

void drop_region(Region* r) {
    set_pages(r->mapped, r->mapped_bytes, nullptr);
    if (r->cells) munmap(r->cells, r->cells_bytes);
    delete r;
}

void* allocate(size_t bytes, Kind kind) {
    const size_t data = std::max(round_up(bytes, alignment), alignment);
    const size_t body = round_up(data, page), whole = body + 2 * page;
    size_t around;
    char* first = reserve(whole, around);
    if (!first) return nullptr;
    char* mapped = first + around;
    if (mprotect(mapped + page, body, PROT_READ | PROT_WRITE)) {
        munmap(first, whole + 2 * around);
        return nullptr;
    }
    char* begin = mapped + page + body - data;
    memset(mapped + page, canary, (size_t)(begin - mapped) - page);
    memset(begin, poison, bytes);
    memset(begin + bytes, canary, data - bytes);
    uint8_t* written = nullptr;
    // The host writes to managed and pinned memory without our noticing.
    if (config.uninitialised && kind == Kind::device) written = reinterpret_cast<uint8_t*>(
        map_pages(round_up(bytes / 8 + 1, page), MAP_NORESERVE));
    std::lock_guard<std::mutex> guard(lock);
    Region* r = new Region{Where::buffer, {begin, bytes, kind}, mapped, whole, nullptr, 0, 2,
                           written, buffers_made++, first, whole + 2 * around};
    set_pages(mapped, whole, r);
    buffers[begin] = reserved[first] = r;
    live_bytes += bytes;
    settle(r);
    return begin;
}

bool release(void* p) {
    std::lock_guard<std::mutex> guard(lock);
    auto found = buffers.find(static_cast<char*>(p));
    if (found == buffers.end()) return false;
    Region* r = found->second;
    buffers.erase(found);
    live_bytes -= r->buffer.bytes;
    unsettle(r);
    if (r->cells) munmap(r->cells, r->cells_bytes);
    if (r->written) munmap(r->written, round_up(r->buffer.bytes / 8 + 1, page));
    r->cells = nullptr;
    r->written = nullptr;
    r->where = Where::freed;
    // A new mapping in its place gives the memory back and keeps the addresses.
    mmap(r->mapped, r->mapped_bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    if (quarantine.size() < quarantined) {
        quarantine.push_back(r);
        return true;
    }
    Region*& oldest = quarantine[quarantine_next++ % quarantined];
    forget(oldest);
    oldest = r;
    return true;
}

const Buffer* find_buffer(const void* p) {
    std::lock_guard<std::mutex> guard(lock);
    char* at = static_cast<char*>(const_cast<void*>(p));
    auto after = buffers.upper_bound(at);
    if (after == buffers.begin()) return nullptr;
    const Buffer& b = std::prev(after)->second->buffer;
    return at <= b.begin + b.bytes ? &b : nullptr;
}

size_t allocated_bytes() { return live_bytes; }

void mark_written(void* p, size_t bytes) {
    Region* r = region_of(p);
    if (!r || r->where != Where::buffer || !r->written) return;
    const size_t from = (size_t)(static_cast<char*>(p) - r->buffer.begin);
    const size_t to = std::min(from + bytes, r->buffer.bytes);
    for (size_t i = from; i < to;) {
        if (i % 8 == 0 && i + 8 <= to) {
            const size_t whole = (to - i) / 8;
            memset(r->written + i / 8, 0xFF, whole);
            i += whole * 8;
        } else {
            r->written[i / 8] |= (uint8_t)(1u << i % 8);
            ++i;
        }
    }
}

bool check_range(const void* p, size_t bytes, bool write, const char* what) {
    const Region* r = region_of(p);
    if (!r) return true;  // host memory
    const char* from = static_cast<const char*>(p);
    if (r->where == Where::freed) {
        report(105, Place(), Place(), "%s %s freed memory (buffer #%u of %zu bytes)", what,
               write ? "writes" : "reads", r->number, r->buffer.bytes);
        return false;
    }
    if (r->where != Where::buffer) return true;
    const Buffer& b = r->buffer;
    if (from >= b.begin && from + bytes <= b.begin + b.bytes) return true;
    report(101, Place(), Place(),
           "%s %s %zu bytes from offset %lld of a buffer of %zu bytes (#%u)", what,
           write ? "writes" : "reads", bytes, (long long)(from - b.begin), b.bytes, r->number);
    return false;
}

void each_buffer(void (*visit)(Region*)) {
    std::lock_guard<std::mutex> guard(lock);
    for (auto& [begin, r] : buffers) visit(r);
}

void check_canaries() {
    std::lock_guard<std::mutex> guard(lock);
    for (auto& [begin, r] : buffers) {
        if (r->open != Opened::write) continue;  // not since it was last looked at
        const size_t n = r->buffer.bytes, data = std::max(round_up(n, alignment), alignment);
        for (size_t i = n; i < data; ++i) {
            if ((unsigned char)begin[i] == canary) continue;
            report(110, Place(), Place(), "offset %zu of a buffer of %zu bytes (#%u) was written",
                   i, n, r->number);
            memset(begin + n, canary, data - n);
            break;
        }
        for (char* q = r->mapped + page; q < begin; ++q) {
            if ((unsigned char)*q == canary) continue;
            report(110, Place(), Place(), "%lld bytes before a buffer of %zu bytes (#%u): written",
                   (long long)(begin - q), n, r->number);
            memset(r->mapped + page, canary, (size_t)(begin - r->mapped) - page);
            break;
        }
    }
}

void describe_address(const void* p, char* text, size_t size) {
    const char* at = static_cast<const char*>(p);
    const Region* r = region_near(p);
    if (!r) {
        const bool null = (uintptr_t)p < page;
        snprintf(text, size, null ? "address %p: a null pointer" : "address %p, which is not the "
                 "device's: a host pointer, or far out of bounds", p);
        return;
    }
    const Buffer& b = r->buffer;
    if (r->where == Where::stacks) {
        snprintf(text, size, "a thread's stack");
    } else if (r->where == Where::heap) {
        describe_heap(p, text, size);
    } else if (r->where == Where::freed) {
        snprintf(text, size, "buffer #%u (%zu bytes), which is freed", r->number, b.bytes);
    } else if (at < b.begin) {
        snprintf(text, size, "%zu bytes before buffer #%u (%zu bytes)", (size_t)(b.begin - at),
                 r->number, b.bytes);
    } else if (at >= b.begin + b.bytes) {
        snprintf(text, size, "%zu bytes past the end of buffer #%u (%zu bytes)",
                 (size_t)(at - b.begin) - b.bytes, r->number, b.bytes);
    } else {
        snprintf(text, size, "offset %zu of buffer #%u (%zu bytes)", (size_t)(at - b.begin),
                 r->number, b.bytes);
    }
}

// ---- stacks

size_t most_stacks() {
    rlimit limit;
    if (getrlimit(RLIMIT_DATA, &limit) || limit.rlim_cur == RLIM_INFINITY) return ~size_t{0};
    return limit.rlim_cur / 2 / (size_t)std::max(config.workers, 1);
}

static thread_local size_t all_stacks;  // which this OS thread has mapped

char* map_stacks(Context& c) {
    const size_t bytes = c.stack_bytes * c.stack_count;
    if (all_stacks && all_stacks + bytes > most_stacks()) return nullptr;
    char* at = map_pages(bytes, MAP_NORESERVE);
    if (!at) return nullptr;
    all_stacks += bytes;
    // Each guard splits a mapping, of which a process may have 65,530.
    static unsigned guards;
    if (guards + c.stack_count < 16384)
        for (unsigned i = 0; i < c.stack_count; ++i, ++guards)
            mprotect(at + i * c.stack_bytes, page, PROT_NONE);
    std::lock_guard<std::mutex> guard(lock);
    add_region(Where::stacks, at, bytes);
    return at;
}

void unmap_stacks(Context& c) {
    if (!c.stacks) return;
    std::lock_guard<std::mutex> guard(lock);
    drop_region(region_of(c.stacks));
    munmap(c.stacks, c.stack_bytes * c.stack_count);
    all_stacks -= c.stack_bytes * c.stack_count;
}

// ---- shared memory

char* map_shared() {
    char* at = map_pages(shared_arena, MAP_NORESERVE);
    if (!at) return nullptr;
    std::lock_guard<std::mutex> guard(lock);
    add_region(Where::shared, at, shared_arena);
    return at;
}

void unmap_shared(char* p) {
    if (!p) return;
    std::lock_guard<std::mutex> guard(lock);
    drop_region(region_of(p));
    munmap(p, shared_arena);
}

void begin_shared(Context& c) {
    c.shared_touched = std::max(c.shared_touched, c.launch->shared_top);
    memset(c.shared, poison, c.shared_touched);
}

namespace {

// Whether the target has room for the variable too; counts it if so.
bool has_room(Launch& launch, size_t offset, size_t size, size_t align) {
    const size_t used = round_up(launch.shared_used, align) + size;
    if (used - launch.shape.dynamic > facts.shared_static || used > facts.shared_dynamic ||
        offset + size + red_zone > shared_arena)
        return false;
    // CUDA: together more than a static limit's worth only where the kernel was granted its part.
    const bool granted = facts.hip || granted_dynamic(launch.call) >= launch.shape.dynamic;
    if (launch.shape.dynamic && used > facts.shared_static && !granted) return false;
    launch.shared_used = used;
    launch.shared_top = offset + size + red_zone;
    return true;
}

}  // namespace

void place_shared(SharedVariable& v, size_t size, size_t align, const char* name, Site at) {
    Context& c = context();
    Launch& launch = *c.launch;
    std::unique_lock<std::mutex> guard(lock);
    if (v.layout == c.layout) return;  // another worker was first
    const size_t offset = round_up(launch.shared_top, std::max<size_t>(align, 16));
    if (!has_room(launch, offset, size, align)) {
        guard.unlock();  // what follows does not return
        fatal(402, at,
              "'%s' brings shared memory to %zu bytes, %zu of them dynamic; %s has %zu, of which "
              "%zu may be static", name, launch.shared_used + size, launch.shape.dynamic,
              facts.arch, facts.shared_dynamic, facts.shared_static);
    }
    c.shared_touched = std::max(c.shared_touched, launch.shared_top);
    memset(c.shared + offset, poison, size + red_zone);
    if (checking()) check::place_shared(c, offset, size, name);
    v.offset = (uint32_t)offset;
    __atomic_store_n(&v.layout, c.layout, __ATOMIC_RELEASE);
    if (checking()) check::copied(&v, sizeof v);  // not by host code
}

size_t dynamic_shared_bytes() { return context().launch->shape.dynamic; }

bool is_shared(const void* p) {
    const Region* r = region_of(p);
    return r && r->where == Where::shared;
}

bool is_global(const void* p) {
    const Region* r = region_of(p);
    return !r || r->where == Where::buffer || r->where == Where::image ||
           r->where == Where::heap;
}

// ---- storage of threads and blocks for the headers

struct Slots {
    struct Slot {
        std::vector<char> data;
        uint64_t block;
    };
    uint64_t block = 1;
    std::map<unsigned, Slot> of_threads, of_block;
};

static char* zeroed(Slots& all, Slots::Slot& s, size_t bytes) {
    if (s.block != all.block || s.data.size() != bytes) {
        s.data.assign(bytes, 0);
        s.block = all.block;
    }
    return s.data.data();
}

static Slots& slots_of(Context& c) {
    if (!c.slots) c.slots = new Slots;
    return *c.slots;
}

void* thread_slot(unsigned which, size_t bytes) {
    Context& c = context();
    Slots& all = slots_of(c);
    return zeroed(all, all.of_threads[which], bytes * max_threads) + c.rank * bytes;
}

void* block_slot(unsigned which, size_t bytes) {
    Slots& all = slots_of(context());
    return zeroed(all, all.of_block[which], bytes);
}

void reset_slots(Context& c) {
    if (c.slots) c.slots->block++;
}

void free_slots(Slots* slots) { delete slots; }

}  // namespace simt
