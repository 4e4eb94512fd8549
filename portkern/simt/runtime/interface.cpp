// What Python calls through ctypes, beside the settings and findings.
#include <cstring>

#include "launch.h"
#include "memory.h"
#include "record.h"

#define SIMT_EXPORT extern "C" __attribute__((visibility("default")))

SIMT_EXPORT void* simt_allocate(size_t bytes) {
    return simt::allocate(bytes, simt::Kind::device);
}
SIMT_EXPORT void simt_mark(const char* name) { simt::record::mark(name); }
SIMT_EXPORT int simt_release(void* p) { return simt::release(p); }
SIMT_EXPORT void simt_mark_written(void* p, size_t bytes) { simt::mark_written(p, bytes); }
SIMT_EXPORT void simt_write(void* to, const void* from, size_t bytes) {
    const simt::DeviceWork work;
    simt::admit(to, simt::Opened::write);
    memcpy(to, from, bytes);
}
SIMT_EXPORT void simt_read(void* to, const void* from, size_t bytes) {
    const simt::DeviceWork work;
    simt::admit(from, simt::Opened::read);
    memcpy(to, from, bytes);
}
// The account of one call: what host code has read back, and who wrote to a buffer.
SIMT_EXPORT void simt_begin_account() { simt::begin_account(); }
SIMT_EXPORT size_t simt_read_back() { return simt::read_back_bytes(); }
SIMT_EXPORT int simt_device_wrote(const void* p) {
    const simt::Region* r = simt::region_of(p);
    return r && r->device_wrote;
}
SIMT_EXPORT size_t simt_copied_from_host(const void* p) {
    const simt::Region* r = simt::region_of(p);
    return r ? r->from_host : 0;
}
SIMT_EXPORT const char* simt_take_launches() { return simt::take_launches(); }
SIMT_EXPORT int simt_take_error() { return simt::take_launch_error(); }
