// Launches of compiled kernels. The program is a library that portkern/worker/object_program.py has
// opened; the kernel's own code here says only which kernel it is and what its arguments are. Who
// executes it is another process, which has device memory of its own.
#include "object.h"

#include <atomic>

#include "context.h"
#include "memory.h"
#include "simt/object.h"

namespace simt {

struct ObjectLaunch {
    const void* code;  // within the kernel
    const char* kernel;
    uint32_t grid[3], block[3];
    size_t dynamic, count;
    const Passed* arguments;
    int refused;  // by what the host's side knows of the target: only to be told
};
using Executor = int (*)(const ObjectLaunch*);

namespace {

Executor executor;
std::atomic<bool> executing;
Launch* current;
bool taken;

}  // namespace

namespace object {

bool wanted() { return executor; }
bool runs() { return executing; }

void refused(const Shape& shape, const Call& call) {
    const dim3 g = shape.grid, b = shape.block;
    const ObjectLaunch told{nullptr, call.kernel, {g.x, g.y, g.z}, {b.x, b.y, b.z}, shape.dynamic,
                            0, nullptr, 1};
    executor(&told);
}

void run(Launch& launch) {
    current = &launch;
    taken = false;
    Block alone{};  // what the code around a kernel looks at
    alone.threads = 1;
    alone.size = {1, 1, 1};
    block = &alone;
    launch.call.run(launch.call.closure);
    block = nullptr;
    current = nullptr;
    if (taken) return;
    report(703, Place(launch.call.at), Place(),
           "the definition of %s is not understood: its object code cannot be launched",
           launch.call.kernel);
    launch.failed = true;
}

}  // namespace object

bool execute_object(const Passed* arguments, size_t count) {
    if (!current) return false;
    Block* const around = block;
    block = nullptr;
    Launch& l = *current;
    const dim3 g = l.shape.grid, b = l.shape.block;
    const ObjectLaunch asked{__builtin_return_address(0), l.call.kernel, {g.x, g.y, g.z},
                             {b.x, b.y, b.z}, l.shape.dynamic, count, arguments, 0};
    executing = taken = true;
    const int error = executor(&asked);
    executing = false;
    if (error) {
        set_launch_error(error);
        l.failed = true;
    }
    block = around;
    return true;
}

}  // namespace simt

extern "C" {

struct ObjectBuffer {
    char* begin;
    size_t bytes;
    unsigned number;
    int kind, dtype;
    int changed;  // the host may have written to it since simt_seen()
};

__attribute__((visibility("default"))) void simt_execute_objects(simt::Executor executor) {
    simt::executor = executor;
}

// How many buffers there are, of which as many as `most` are written.
__attribute__((visibility("default"))) size_t simt_buffers(ObjectBuffer* out, size_t most) {
    struct Filled {
        ObjectBuffer* out;
        size_t most, count;
    };
    static thread_local Filled filled;
    filled = {out, most, 0};
    simt::each_buffer([](simt::Region* r) {
        const simt::Buffer& b = r->buffer;
        if (filled.count < filled.most)
            filled.out[filled.count] = {b.begin, b.bytes, r->number, (int)b.kind, r->dtype,
                                        b.kind != simt::Kind::device || r->changed};
        ++filled.count;
    });
    return filled.count;
}

__attribute__((visibility("default"))) void simt_seen() {
    simt::each_buffer([](simt::Region* r) { r->changed = false; });
}

}
