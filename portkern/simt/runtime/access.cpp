// Who may touch device memory. Buffers are inaccessible while host code runs, as on a GPU. A
// kernel's first access to one faults, and the handler lets it in until the launch ends, so that
// it is known as well which buffers kernels wrote to.
#include <dlfcn.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unwind.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "context.h"
#include "launch.h"
#include "memory.h"
#include "object.h"

namespace simt {
namespace {

constexpr size_t page = 4096;

// Spun on, for it is taken in the handler of a fault; what holds it does not fault itself.
std::atomic_flag busy = ATOMIC_FLAG_INIT;
struct Locked {
    Locked() {
        while (busy.test_and_set(std::memory_order_acquire)) {}
    }
    ~Locked() { busy.clear(std::memory_order_release); }
};

Region* open_ones;  // linked by next_open
std::atomic<bool> launch_wrote;
std::atomic<size_t> read_back;

// Managed and pinned memory are the host's too.
bool is_closed_to_host(const Region* r) {
    return r->buffer.kind == Kind::device || config.account;
}

void protect(Region* r, Opened access) {
    const int allowed = access == Opened::no   ? PROT_NONE
                        : access == Opened::read ? PROT_READ
                                                 : PROT_READ | PROT_WRITE;
    mprotect(r->mapped + page, r->mapped_bytes - 2 * page, allowed);
}

bool is_inside(const Region* r, const void* p) {
    const char* at = static_cast<const char*>(p);
    return at >= r->mapped + page && at < r->mapped + r->mapped_bytes - page;
}

// An instruction that faults again where it may read wants to write; x86 says so at once.
bool is_write(const void* p, const Region* r, const void* ucontext) {
#if defined(__x86_64__)
    (void)p, (void)r;
    return static_cast<const ucontext_t*>(ucontext)->uc_mcontext.gregs[REG_ERR] & 2;
#else
    (void)ucontext;
    static thread_local const void* last;
    const bool again = last == p && r->open != Opened::no;
    last = p;
    return again;
#endif
}

// ---- whose code it is that faulted, outside of kernels

struct Frames {
    const void* from;     // where the signal came
    const void* runtime;  // our own module
    const void* found;
    bool reached, ours;
};

bool is_system_library(const char* path) {
    const char* slash = strrchr(path, '/');
    const char* name = slash ? slash + 1 : path;
    for (const char* known : {"libc.", "libc-", "libm.", "libstdc++", "libgcc_s", "ld-", "libasan"})
        if (!strncmp(name, known, strlen(known))) return true;
    return false;
}

_Unwind_Reason_Code visit(_Unwind_Context* frame, void* data) {
    Frames& f = *static_cast<Frames*>(data);
    int before = 0;
    const char* pc = reinterpret_cast<const char*>(_Unwind_GetIPInfo(frame, &before));
    pc += before;
    f.reached |= pc == f.from;
    Dl_info info;
    if (!f.reached || !dladdr(pc, &info) || is_system_library(info.dli_fname))
        return _URC_NO_REASON;
    f.ours = info.dli_fbase == f.runtime;
    f.found = pc;
    return _URC_END_OF_STACK;
}

Frames frames_at(const void* ucontext) {
    Frames f{program_counter(ucontext), nullptr, nullptr, false, false};
    Dl_info info;
    if (dladdr(reinterpret_cast<const void*>(&launch_wrote), &info)) f.runtime = info.dli_fbase;
    _Unwind_Backtrace(visit, &f);
    return f;
}

void note_device_write(Region* r) {
    r->device_wrote = r->unread = true;
    launch_wrote = true;
}

void read_by_host(Region* r) {
    if (r->unread) read_back += r->buffer.bytes;
    r->unread = false;
}

}  // namespace

void settle(Region* r) {
    watch_faults();
    if (is_closed_to_host(r)) protect(r, r->open = Opened::no);
    else r->open = Opened::write;
}

void unsettle(Region* r) {
    const Locked locked;
    for (Region** link = &open_ones; *link; link = &(*link)->next_open) {
        if (*link != r) continue;
        *link = r->next_open;
        break;
    }
    r->next_open = nullptr;
    r->open = Opened::no;
}

void admit(Region* r, Opened access) {
    if (!is_closed_to_host(r)) return;
    const Locked locked;
    if (r->open == Opened::no) {
        r->next_open = open_ones;
        open_ones = r;
    }
    r->open = std::max(r->open, access);
    r->changed |= access == Opened::write;
    protect(r, r->open);
}

void admit(const void* p, Opened access) {
    Region* r = region_of(p);
    if (r && r->where == Where::buffer) admit(r, access);
}

void close_buffers() {
    const Locked locked;
    for (Region* r = open_ones; r; r = std::exchange(r->next_open, nullptr))
        protect(r, r->open = Opened::no);
    open_ones = nullptr;
}

bool admit_fault(const void* p, const void* ucontext) {
    Region* r = region_of(p);
    if (!r || r->where != Where::buffer || !is_inside(r, p)) return false;
    const bool write = is_write(p, r, ucontext);
    if (block || object::runs()) {
        if (write) note_device_write(r);
        admit(r, write ? Opened::write : Opened::read);
        return true;
    }
    const Frames frames = frames_at(ucontext);
    if (frames.ours) {  // a routine of cuBLAS, an operator on tensors: the device's work
        if (write) note_device_write(r);
        admit(r, write ? Opened::write : Opened::read);
        return true;
    }
    if (r->buffer.kind != Kind::device) {
        read_by_host(r);
    } else {
        char where[256];
        describe_address(p, where, sizeof where);
        report(114, Place(frames.found ? frames.found : program_counter(ucontext)), Place(),
               "host code %s device memory: %s; copy it with %sMemcpy first",
               write ? "writes" : "reads", where, facts.hip ? "hip" : "cuda");
    }
    admit(r, Opened::write);  // it goes on, so that what else it does is seen
    return true;
}

void note_fill(void* to) {
    Region* target = region_of(to);
    if (!target || target->where != Where::buffer) return;
    admit(target, Opened::write);
    target->device_wrote = true;
}

void note_copy(void* to, const void* from, size_t bytes, bool from_variable) {
    Region* target = region_of(to);
    Region* source = region_of(from);
    const auto device = [](const Region* r) {
        return r && r->where == Where::buffer && r->buffer.kind == Kind::device;
    };
    const bool of_host = device(source) ? source->from_host && !source->device_wrote
                                        : !from_variable;
    if (target && target->where == Where::buffer) {
        admit(target, Opened::write);
        if (of_host) target->from_host += bytes;
        else target->device_wrote = true;
    }
    if (source && source->where == Where::buffer) admit(source, Opened::read);
    if ((device(source) || from_variable) && !device(target)) read_back += bytes;
}

void begin_account() {
    each_buffer([](Region* r) {
        r->device_wrote = r->unread = false;
        r->from_host = 0;
    });
    read_back = 0;
}

size_t read_back_bytes() { return read_back; }

bool take_launch_wrote() { return launch_wrote.exchange(false); }

}  // namespace simt
