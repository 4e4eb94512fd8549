// What Python calls through ctypes, beside the settings and findings.
#include "launch.h"
#include "memory.h"

#define SIMT_EXPORT extern "C" __attribute__((visibility("default")))

SIMT_EXPORT void* simt_allocate(size_t bytes) {
    return simt::allocate(bytes, simt::Kind::device);
}
SIMT_EXPORT int simt_release(void* p) { return simt::release(p); }
SIMT_EXPORT void simt_mark_written(void* p, size_t bytes) { simt::mark_written(p, bytes); }
SIMT_EXPORT const char* simt_take_launches() { return simt::take_launches(); }
SIMT_EXPORT int simt_take_error() { return simt::take_launch_error(); }
