// The host API: memory, streams, events, the device's facts, attributes of kernels, errors.
#include "simt/api.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <climits>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "context.h"
#include "heap.h"
#include "host.h"
#include "launch.h"
#include "memory.h"
#include "simt/attributes.h"
#include "simt/errors.h"
#include "simt/graph.h"
#include "symbols.h"

namespace simt {
namespace {

using namespace api;

std::mutex lock;
std::atomic<int> fault{0};  // of a kernel: every call fails with it until reset()
thread_local int last;      // what last_error() returns once, per host thread

struct Stream {
    unsigned flags;
    int priority;
};
struct Event {
    unsigned flags;
    bool recorded;
    int64_t ns;
    const void* captured_on = nullptr;  // the stream, if it was being captured
};
struct Granted {  // by set_function_attribute
    std::string name;
    size_t bytes;
};
struct Kept {
    std::set<const void*> streams, events;
    std::map<const char*, size_t> symbols;  // those whose address was asked for
    std::map<const void*, Granted> granted;
    std::map<const void*, std::string> names;
    std::set<void*> buffers;  // ours, for reset()
    std::map<int, size_t> limits;
};
Kept& kept() {
    static Kept* s = new Kept;  // never destroyed: modules free memory at exit
    return *s;
}

bool is_fault(int error) {
    return error >= 700 && error < 800 && error != launch_out_of_resources &&
           error != launch_too_many_blocks;
}

}  // namespace

int finish(int error) {
    if (error) last = error;
    return error;
}

int enter() {
    const int error = take_launch_error();
    if (is_fault(error)) fault = error;
    if (error) last = error;
    return fault;
}

namespace {

bool is_stream(const void* s) {
    if ((uintptr_t)s <= 2) return true;  // the default ones: 0, legacy 1, per thread 2
    std::lock_guard<std::mutex> guard(lock);
    return kept().streams.count(s);
}
bool is_event(const void* e) {
    std::lock_guard<std::mutex> guard(lock);
    return kept().events.count(e);
}
int enter_on(const void* stream) {
    if (const int error = enter()) return error;
    constexpr int capture_unsupported = 900;
    if (!is_stream(stream)) return invalid_handle;
    return capturing(stream) ? capture_unsupported : success;
}

// ---- ranges of memory

// The variable that p points into, of those whose address was asked for.
bool in_symbol(const char* p, size_t bytes) {
    std::lock_guard<std::mutex> guard(lock);
    auto after = kept().symbols.upper_bound(p);
    if (after == kept().symbols.begin()) return false;
    --after;
    return p + bytes <= after->first + after->second;
}

// The host API has written there, for the device.
void written(void* p, size_t bytes) {
    mark_written(p, bytes);
    if (checking() && in_symbol(static_cast<const char*>(p), bytes)) check::copied(p, bytes);
}

}  // namespace

bool on_device(const void* p, size_t bytes, const char* what, Site at) {
    if (in_symbol(static_cast<const char*>(p), bytes)) return true;
    const Region* r = region_of(p);
    const bool live = r && r->where == Where::buffer;
    const char* from = static_cast<const char*>(p);
    if (live && from >= r->buffer.begin && from + bytes <= r->buffer.begin + r->buffer.bytes)
        return true;
    char where[256];
    describe_address(p, where, sizeof where);
    finding(!p ? 112 : live ? 101 : r && r->where == Where::freed ? 105 : 104, at,
            "%zu bytes %s, from %s", bytes, what, where);
    return false;
}

namespace {

bool on_host(const void* p, size_t bytes, const char* what, Site at) {
    if (!p) return false;
    const Region* r = region_of(p);
    if (!r || (r->where != Where::buffer && r->where != Where::freed)) return true;
    if (!on_device(p, bytes, what, at)) return false;
    if (r->buffer.kind != Kind::device) return true;
    char where[256];
    describe_address(p, where, sizeof where);
    // Undefined by the manual. A device finds out and copies all the same.
    finding(104, at, "%zu bytes %s: the kind of copy says host memory, this is %s", bytes, what,
            where);
    return true;
}

bool anywhere(const void* p, size_t bytes, const char* what, Site at) {
    const Region* r = region_of(p);
    const bool device = r && (r->where == Where::buffer || r->where == Where::freed);
    return device ? on_device(p, bytes, what, at) : p != nullptr;
}

bool may_copy(void* to, size_t to_bytes, const void* from, size_t from_bytes, Copy kind, Site at) {
    using Check = bool (*)(const void*, size_t, const char*, Site);
    const bool device_to = kind == Copy::to_device || kind == Copy::on_device;
    const bool device_from = kind == Copy::to_host || kind == Copy::on_device;
    const Check check_to = kind == Copy::any ? anywhere : device_to ? on_device : on_host;
    const Check check_from = kind == Copy::any ? anywhere : device_from ? on_device : on_host;
    return check_to(to, to_bytes, "written", at) && check_from(from, from_bytes, "read", at);
}

int64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

}  // namespace

// ---- what launch.cpp asks

size_t dynamic_limit(const Call& call) {
    return std::max(granted_dynamic(call), facts.shared_static);
}

size_t granted_dynamic(const Call& call) {
    std::lock_guard<std::mutex> guard(lock);
    const std::string name = last_name(call.kernel);
    size_t most = 0, any = 0;
    bool named = false;
    for (const auto& [code, granted] : kept().granted) {
        any = std::max(any, granted.bytes);
        if (granted.name != name && !granted.name.empty()) continue;
        named = true;
        most = std::max(most, granted.bytes);
    }
    if (named) return most;
    // A name that is not a function's is a variable's, which may hold any kernel that was granted.
    const bool variable = any && !defines_function((const void*)call.run, name);
    return variable ? any : 0;
}

int refuse_launch(const Shape& shape) { return enter_on(shape.stream); }

void assertion_failed(const char* condition, Site at) {
    if (block) {
        set_launch_error(launch_assert);
        fatal(407, at, "%s", condition);
    }
    fprintf(stderr, "%s:%u: %s: Assertion `%s' failed.\n", at->_M_file_name, at->_M_line,
            at->_M_function_name, condition);
    abort();
}

bool find_limit(size_t* value, int limit) {
    static const std::map<int, size_t> defaults = {  // an H200's, in bytes
        {0, 1024}, {1, 8650752}, {heap_limit, 8 << 20}, {5, 64}, {6, 0}};
    if (!defaults.count(limit)) return false;
    std::lock_guard<std::mutex> guard(lock);
    const auto set = kept().limits.find(limit);
    *value = set != kept().limits.end() ? set->second : defaults.at(limit);
    return true;
}

namespace api {

// ---- errors

int last_error() {
    enter();
    return std::exchange(last, success);
}

int peek_error() {
    enter();
    return last;
}

namespace {

struct Named {
    int error;
    const char* name;
};
#define SIMT_CUDA_NAME(name, number) {number, "cuda" #name},
const Named cuda_names[] = {SIMT_CUDA_ERRORS(SIMT_CUDA_NAME)};
#undef SIMT_CUDA_NAME
#define SIMT_HIP_NAME(name, number) {number, "hip" #name},
const Named hip_names[] = {SIMT_HIP_ERRORS(SIMT_HIP_NAME)};
#undef SIMT_HIP_NAME

template <size_t N>
const char* name_in(const Named (&names)[N], int error) {
    for (const Named& n : names)
        if (n.error == error) return n.name;
    return nullptr;
}

// "cudaErrorStreamCaptureUnjoined" → "stream capture unjoined"
std::string words_of(const char* name) {
    const char* p = strstr(name, "Error");
    std::string words;
    for (p = p ? p + 5 : name; *p; ++p) {
        if (isupper((unsigned char)*p) && !words.empty() && !isupper((unsigned char)p[-1]))
            words += ' ';
        words += (char)tolower((unsigned char)*p);
    }
    return words;
}

}  // namespace

const char* cuda_error_name(int error) {
    const char* name = name_in(cuda_names, error);
    return name ? name : "unrecognized error code";
}
const char* hip_error_name(int error) {
    const char* name = name_in(hip_names, error);
    return name ? name : "hipErrorUnknown";
}

const char* error_text(int error) {
    static const Named usual[] = {  // what programs print most often, in CUDA's words
        {success, "no error"},
        {invalid_value, "invalid argument"},
        {out_of_memory, "out of memory"},
        {launch_invalid_configuration, "invalid configuration argument"},
        {invalid_pitch, "invalid pitch argument"},
        {invalid_symbol, "invalid device symbol"},
        {invalid_direction, "invalid copy direction for memcpy"},
        {invalid_device, "invalid device ordinal"},
        {unsupported_limit, "limit is not supported on this architecture"},
        {invalid_handle, "invalid resource handle"},
        {launch_illegal_address, "an illegal memory access was encountered"},
        {launch_out_of_resources, "too many resources requested for launch"},
        {launch_timeout, "the launch timed out and was terminated"},
        {launch_assert, "device-side assert triggered"},
        {launch_failure, "unspecified launch failure"},
        {too_many_blocks, "too many blocks in cooperative launch"},
        {not_supported, "operation not supported"},
    };
    if (const char* text = name_in(usual, error)) return text;
    static std::map<int, std::string> texts;
    const char* name = name_in(cuda_names, error);
    if (!name) name = name_in(hip_names, error);
    if (!name) return "unrecognized error code";
    std::lock_guard<std::mutex> guard(lock);
    return texts.emplace(error, words_of(name)).first->second.c_str();
}

int unsupported(const char* call, Site at) {
    const void* caller = __builtin_return_address(0);
    report(409, at ? Place(at) : Place(caller), Place(),
           "%s is not modelled: it returns NotSupported", call);
    return finish(not_supported);
}

// ---- memory

int allocate(void** p, size_t bytes, Space space, Site at) {
    if (!p) return finish(invalid_value);
    *p = nullptr;
    if (const int error = enter()) return finish(error);
    if (!bytes) return success;
    const Kind kind = space == Space::host      ? Kind::host
                      : space == Space::managed ? Kind::managed
                                                : Kind::device;
    const bool fits = kind == Kind::host || !facts.memory_bytes ||
                      allocated_bytes() + bytes <= facts.memory_bytes;
    if (fits) *p = simt::allocate(bytes, kind);
    if (!*p) return finish(out_of_memory);
    std::lock_guard<std::mutex> guard(lock);
    kept().buffers.insert(*p);
    (void)at;
    return success;
}

int allocate_pitched(void** p, size_t* pitch, size_t width, size_t rows, Site at) {
    *pitch = round_up(width, 512);  // texturePitchAlignment's multiple that devices use
    return allocate(p, *pitch * rows, Space::device, at);
}

int release(void* p, Space space) {
    if (const int error = enter()) return finish(error);
    if (!p) return success;
    const char* call = space == Space::host ? "a free of host memory" : "a free of device memory";
    const Place caller(__builtin_return_address(0));  // it must not have an argument for its site
    const Buffer* b = find_buffer(p);
    char where[256];
    describe_address(p, where, sizeof where);
    if (!b || b->begin != p) {
        report(113, caller, Place(), "%s: %s", call, where);
        return finish(invalid_value);
    }
    if ((b->kind == Kind::host) != (space == Space::host)) {
        report(113, caller, Place(), "%s got memory of the other kind: %s", call, where);
        return finish(invalid_value);
    }
    std::lock_guard<std::mutex> guard(lock);
    kept().buffers.erase(p);
    return simt::release(p) ? success : finish(invalid_value);
}

int copy(void* to, const void* from, size_t bytes, Copy kind, void* stream, Site at) {
    if (capturing(stream) && captured(stream, Node::copy, [=] {
            return copy(to, from, bytes, kind, nullptr, at);
        }))
        return success;
    if (const int error = enter_on(stream)) return finish(error);
    if (kind > Copy::any) return finish(invalid_direction);
    if (!bytes) return success;
    if (!may_copy(to, bytes, from, bytes, kind, at)) return finish(invalid_value);
    const DeviceWork work;
    note_copy(to, from, bytes, in_symbol(static_cast<const char*>(from), bytes));
    memmove(to, from, bytes);
    written(to, bytes);
    return success;
}

int copy_2d(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
            size_t rows, Copy kind, void* stream, Site at) {
    if (capturing(stream) && captured(stream, Node::copy, [=] {
            return copy_2d(to, to_pitch, from, from_pitch, width, rows, kind, nullptr, at);
        }))
        return success;
    if (const int error = enter_on(stream)) return finish(error);
    if (kind > Copy::any) return finish(invalid_direction);
    if (width > to_pitch || width > from_pitch) return finish(invalid_pitch);
    if (!width || !rows) return success;
    if (!may_copy(to, (rows - 1) * to_pitch + width, from, (rows - 1) * from_pitch + width, kind,
                  at))
        return finish(invalid_value);
    const DeviceWork work;
    note_copy(to, from, rows * width, in_symbol(static_cast<const char*>(from), width));
    for (size_t i = 0; i < rows; ++i) {
        char* row = static_cast<char*>(to) + i * to_pitch;
        memmove(row, static_cast<const char*>(from) + i * from_pitch, width);
        written(row, width);
    }
    return success;
}

int fill(void* p, unsigned value, size_t size, size_t count, void* stream, Site at) {
    if (capturing(stream) && captured(stream, Node::fill, [=] {
            return fill(p, value, size, count, nullptr, at);
        }))
        return success;
    if (const int error = enter_on(stream)) return finish(error);
    if (!count) return success;
    if (!on_device(p, size * count, "set", at)) return finish(invalid_value);
    const DeviceWork work;
    note_fill(p);
    char* to = static_cast<char*>(p);
    if (size == 1) memset(to, (int)value, count);
    for (size_t i = 0; size > 1 && i < count; ++i) memcpy(to + i * size, &value, size);
    written(p, size * count);
    return success;
}

int fill_2d(void* p, size_t pitch, int byte, size_t width, size_t rows, void* stream, Site at) {
    if (capturing(stream) && captured(stream, Node::fill, [=] {
            return fill_2d(p, pitch, byte, width, rows, nullptr, at);
        }))
        return success;
    if (const int error = enter_on(stream)) return finish(error);
    if (width > pitch) return finish(invalid_pitch);
    if (!width || !rows) return success;
    if (!on_device(p, (rows - 1) * pitch + width, "set", at)) return finish(invalid_value);
    const DeviceWork work;
    note_fill(p);
    for (size_t i = 0; i < rows; ++i) {
        memset(static_cast<char*>(p) + i * pitch, byte, width);
        written(static_cast<char*>(p) + i * pitch, width);
    }
    return success;
}

namespace {

// success, or what is wrong with `bytes` of it at `offset`
int look_at(Symbol s, size_t bytes, size_t offset, Site at) {
    if (!can_be_symbol(s.at)) {
        finding(118, at, "the host's: on its stack, its heap, or static in a function");
        return invalid_symbol;
    }
    if (offset <= s.bytes && bytes <= s.bytes - offset) return success;
    finding(101, at, "%zu bytes at offset %zu of a variable of %zu bytes", bytes, offset, s.bytes);
    return invalid_value;
}

}  // namespace

int symbol_address(void** p, Symbol symbol, Site at) {
    if (const int error = enter()) return finish(error);
    if (const int error = look_at(symbol, 0, 0, at)) return finish(error);
    std::lock_guard<std::mutex> guard(lock);
    kept().symbols[static_cast<const char*>(symbol.at)] = symbol.bytes;
    *p = const_cast<void*>(symbol.at);
    return success;
}

int copy_to_symbol(Symbol to, const void* from, size_t bytes, size_t offset, Copy kind,
                   void* stream, Site at) {
    if (capturing(stream) && captured(stream, Node::copy, [=] {
            return copy_to_symbol(to, from, bytes, offset, kind, nullptr, at);
        }))
        return success;
    if (const int error = enter_on(stream)) return finish(error);
    if (kind == Copy::to_host || kind == Copy::host_to_host) return finish(invalid_direction);
    if (const int error = look_at(to, bytes, offset, at)) return finish(error);
    const auto check = kind == Copy::to_device ? on_host : kind == Copy::any ? anywhere : on_device;
    if (!check(from, bytes, "read", at)) return finish(invalid_value);
    const DeviceWork work;
    admit(from, Opened::read);
    char* at_offset = static_cast<char*>(const_cast<void*>(to.at)) + offset;
    memmove(at_offset, from, bytes);
    if (checking()) check::copied(at_offset, bytes);
    return success;
}

int copy_from_symbol(void* to, Symbol from, size_t bytes, size_t offset, Copy kind, void* stream,
                     Site at) {
    if (capturing(stream) && captured(stream, Node::copy, [=] {
            return copy_from_symbol(to, from, bytes, offset, kind, nullptr, at);
        }))
        return success;
    if (const int error = enter_on(stream)) return finish(error);
    if (kind == Copy::to_device || kind == Copy::host_to_host) return finish(invalid_direction);
    if (const int error = look_at(from, bytes, offset, at)) return finish(error);
    const auto check = kind == Copy::to_host ? on_host : kind == Copy::any ? anywhere : on_device;
    if (!check(to, bytes, "written", at)) return finish(invalid_value);
    const DeviceWork work;
    note_copy(to, from.at, bytes, true);
    memmove(to, static_cast<const char*>(from.at) + offset, bytes);
    mark_written(to, bytes);
    return success;
}

int describe(const void* p, Pointer* out) {
    const int error = enter();
    void* at = const_cast<void*>(p);
    const Buffer* b = find_buffer(p);
    *out = {Space::unregistered, nullptr, at};
    if (in_symbol(static_cast<const char*>(p), 1)) *out = {Space::device, at, nullptr};
    if (b && p < b->begin + std::max<size_t>(b->bytes, 1)) {
        if (b->kind == Kind::device) *out = {Space::device, at, nullptr};
        if (b->kind == Kind::managed) *out = {Space::managed, at, at};
        if (b->kind == Kind::host) *out = {Space::host, at, at};
    }
    return finish(error);
}

int device_pointer(void** device, void* host, Site at) {
    if (const int error = enter()) return finish(error);
    const Buffer* b = find_buffer(host);
    *device = b && b->kind == Kind::host ? host : nullptr;
    if (*device) return success;
    finding(104, at, "the device's address of %p, which is not pinned host memory", host);
    return finish(invalid_value);
}

int memory_info(size_t* free, size_t* total) {
    const size_t used = allocated_bytes();
    *total = facts.memory_bytes;
    *free = facts.memory_bytes > used ? facts.memory_bytes - used : 0;
    return finish(enter());
}

int advise(const void* p, size_t bytes, const char* call, Site at) {
    if (const int error = enter()) return finish(error);
    const Buffer* b = find_buffer(p);
    const bool inside = b && static_cast<const char*>(p) + bytes <= b->begin + b->bytes;
    if (inside && b->kind == Kind::managed) return success;
    finding(inside ? 104 : 101, at, "%s of %zu bytes that are not managed memory", call, bytes);
    return finish(invalid_value);
}

// ---- streams and events

int stream_create(void** stream, unsigned flags, int priority) {
    if (const int error = enter()) return finish(error);
    if (!stream || flags > 1) return finish(invalid_value);
    *stream = new Stream{flags, std::min(0, std::max(-5, priority))};
    std::lock_guard<std::mutex> guard(lock);
    kept().streams.insert(*stream);
    return success;
}

int stream_destroy(void* stream) {
    if (const int error = enter()) return finish(error);
    std::lock_guard<std::mutex> guard(lock);
    if (!kept().streams.erase(stream)) return finish(invalid_handle);
    delete static_cast<Stream*>(stream);
    return success;
}

int stream_synchronize(void* stream) { return finish(enter_on(stream)); }

int stream_wait(void* stream, void* event) {
    if (const int error = enter()) return finish(error);
    if (!is_stream(stream) || !is_event(event)) return finish(invalid_handle);
    if (const void* origin = static_cast<Event*>(event)->captured_on) join_capture(stream, origin);
    return success;
}

int stream_flags(void* stream, unsigned* flags) {
    if (const int error = enter_on(stream)) return finish(error);
    *flags = (uintptr_t)stream <= 2 ? 0 : static_cast<Stream*>(stream)->flags;
    return success;
}

int stream_priority(void* stream, int* priority) {
    if (const int error = enter_on(stream)) return finish(error);
    *priority = (uintptr_t)stream <= 2 ? 0 : static_cast<Stream*>(stream)->priority;
    return success;
}

int host_function(void* stream, void (*function)(void*), void* data) {
    const auto work = [=] {
        function(data);
        return (int)success;
    };
    if (capturing(stream) && captured(stream, Node::host, work)) return success;
    if (const int error = enter_on(stream)) return finish(error);
    function(data);
    return success;
}

int event_create(void** event, unsigned flags) {
    if (const int error = enter()) return finish(error);
    if (!event) return finish(invalid_value);
    *event = new Event{flags, false, 0};
    std::lock_guard<std::mutex> guard(lock);
    kept().events.insert(*event);
    return success;
}

int event_destroy(void* event) {
    if (const int error = enter()) return finish(error);
    std::lock_guard<std::mutex> guard(lock);
    if (!kept().events.erase(event)) return finish(invalid_handle);
    delete static_cast<Event*>(event);
    return success;
}

int event_record(void* event, void* stream) {
    if (const int error = enter()) return finish(error);
    if (!is_stream(stream) || !is_event(event)) return finish(invalid_handle);
    Event& e = *static_cast<Event*>(event);
    e.captured_on = capturing(stream) ? stream : nullptr;
    if (e.captured_on) return success;  // it orders the graph's nodes and has no time
    e.ns = now_ns();
    e.recorded = true;
    return success;
}

int event_synchronize(void* event) {
    if (const int error = enter()) return finish(error);
    return is_event(event) ? success : finish(invalid_handle);
}

int event_elapsed(float* milliseconds, void* from, void* to) {
    constexpr unsigned disable_timing = 2;
    if (const int error = enter()) return finish(error);
    if (!is_event(from) || !is_event(to)) return finish(invalid_handle);
    const Event &a = *static_cast<Event*>(from), &b = *static_cast<Event*>(to);
    if (!a.recorded || !b.recorded || ((a.flags | b.flags) & disable_timing))
        return finish(invalid_handle);
    *milliseconds = (float)((double)(b.ns - a.ns) * 1e-6);
    return success;
}

// ---- the device

int properties(Properties* out, int device) {
    if (const int error = enter()) return finish(error);
    if (device) return finish(invalid_device);
    Properties p = {};
    const Facts& f = facts;
    const auto clip = [](uint64_t n) { return (int)std::min<uint64_t>(n, INT_MAX); };
    snprintf(p.name, sizeof p.name, "%s", f.name);
    snprintf(p.gcnArchName, sizeof p.gcnArchName, "%s", f.arch);
    p.totalGlobalMem = f.memory_bytes;
    p.sharedMemPerBlock = f.shared_static;
    p.sharedMemPerBlockOptin = f.shared_dynamic;
    p.sharedMemPerMultiprocessor = p.maxSharedMemoryPerMultiProcessor = f.shared_unit;
    p.reservedSharedMemPerBlock = f.shared_reserved;
    p.regsPerBlock = p.regsPerMultiprocessor = (int)f.registers_unit;
    p.warpSize = f.warp;
    p.memPitch = INT_MAX;
    p.maxThreadsPerBlock = (int)f.threads_block;
    for (int i = 0; i < 3; ++i) {
        p.maxThreadsDim[i] = (int)f.block_max[i];
        p.maxGridSize[i] = clip(f.grid_max[i]);
    }
    p.totalConstMem = f.constant_bytes;
    p.major = f.major;
    p.minor = f.minor;
    p.clockRate = 1000000;  // kHz: what clock64() counts are nanoseconds
    p.textureAlignment = 512;
    p.texturePitchAlignment = 32;
    p.multiProcessorCount = (int)f.units;
    p.canMapHostMemory = p.concurrentKernels = p.unifiedAddressing = p.managedMemory = 1;
    p.concurrentManagedAccess = p.streamPrioritiesSupported = p.cooperativeLaunch = 1;
    p.asyncEngineCount = p.deviceOverlap = 1;
    p.l2CacheSize = clip(f.l2_bytes);
    p.maxThreadsPerMultiProcessor = (int)f.threads_unit;
    p.maxBlocksPerMultiProcessor = (int)f.blocks_unit;
    *out = p;
    return success;
}

int attribute(int* value, int number, int device, Site at) {
    if (const int error = enter()) return finish(error);
    if (device) return finish(invalid_device);
    Properties p;
    properties(&p, 0);
    switch (number) {
        case 1: *value = p.maxThreadsPerBlock; break;
        case 2: case 3: case 4: *value = p.maxThreadsDim[number - 2]; break;
        case 5: case 6: case 7: *value = p.maxGridSize[number - 5]; break;
        case 8: *value = (int)p.sharedMemPerBlock; break;
        case 9: *value = (int)p.totalConstMem; break;
        case 10: *value = p.warpSize; break;
        case 11: *value = (int)p.memPitch; break;
        case 12: *value = p.regsPerBlock; break;
        case 13: *value = p.clockRate; break;
        case 16: *value = p.multiProcessorCount; break;
        case 38: *value = p.l2CacheSize; break;
        case 39: *value = p.maxThreadsPerMultiProcessor; break;
        case 75: *value = p.major; break;
        case 76: *value = p.minor; break;
        case 81: *value = (int)p.sharedMemPerMultiprocessor; break;
        case 82: *value = p.regsPerMultiprocessor; break;
        case 97: *value = (int)p.sharedMemPerBlockOptin; break;
        case 106: *value = p.maxBlocksPerMultiProcessor; break;
        case 111: *value = (int)p.reservedSharedMemPerBlock; break;
        // Yes: mapped host memory, concurrent kernels, one copy engine, unified addressing, stream
        // priorities, managed memory, its concurrent access, cooperative launches, memory pools.
        case 15: case 19: case 31: case 40: case 41: case 78: case 83: case 89: case 95: case 115: *value = 1; break;
        // No: a run-time limit on kernels, an integrated device, an exclusive compute mode, a board
        // of several, access to pageable memory, registering host memory.
        case 17: case 18: case 20: case 84: case 86: case 88: case 99: *value = 0; break;
        default: return unsupported("this device attribute", at);
    }
    return success;
}

int set_device(int device) { return device ? finish(invalid_device) : success; }

int peer_access(int device, int peer) {
    if (device || peer) return finish(invalid_device);
    return finish(peer_unsupported);
}

int synchronize() { return finish(enter()); }

void forgive() {
    take_launch_error();
    fault = success;
    last = success;
}

int reset() {
    forgive();
    drop_heap();
    std::lock_guard<std::mutex> guard(lock);
    for (void* p : kept().buffers) simt::release(p);
    for (const void* s : kept().streams) delete static_cast<const Stream*>(s);
    for (const void* e : kept().events) delete static_cast<const Event*>(e);
    kept() = Kept{{}, {}, {}, {}, std::move(kept().names), {}, {}};
    return success;
}

int set_limit(int limit, size_t value) {
    if (const int error = enter()) return finish(error);
    if (limit == heap_limit && heap_used()) return finish(invalid_value);  // it has its size
    std::lock_guard<std::mutex> guard(lock);
    kept().limits[limit] = value;
    return success;
}

int get_limit(size_t* value, int limit) {
    if (const int error = enter()) return finish(error);
    return find_limit(value, limit) ? success : finish(unsupported_limit);
}

// ---- kernels

const char* kernel_name(const void* kernel) {
    {
        std::lock_guard<std::mutex> guard(lock);
        const auto found = kept().names.find(kernel);
        if (found != kept().names.end()) return found->second.c_str();
    }
    std::string name = function_at(kernel);
    if (name.empty()) name = "a kernel";
    std::lock_guard<std::mutex> guard(lock);
    return kept().names.emplace(kernel, name).first->second.c_str();
}

int set_function_attribute(const void* kernel, int attribute, int value, Site at) {
    if (const int error = enter()) return finish(error);
    if (attribute == shared_carveout)
        return value >= -1 && value <= 100 ? success : finish(invalid_value);
    if (attribute != max_dynamic_shared) return unsupported("this function attribute", at);
    if (value < 0 || (size_t)value > facts.shared_dynamic) {
        finding(402, at, "a kernel is to have %d bytes of dynamic shared memory; %s has %zu", value,
                facts.arch, facts.shared_dynamic);
        return finish(invalid_value);
    }
    const std::string name = function_at(kernel);
    std::lock_guard<std::mutex> guard(lock);
    kept().granted[kernel] = {name, (size_t)value};
    return success;
}

int max_dynamic_of(const void* kernel) {
    std::lock_guard<std::mutex> guard(lock);
    const auto found = kept().granted.find(kernel);
    const size_t granted = found == kept().granted.end() ? 0 : found->second.bytes;
    return (int)std::max(granted, facts.hip ? facts.shared_dynamic : facts.shared_static);
}

namespace {

int resident(const void* kernel, int threads, size_t dynamic) {
    if (threads <= 0 || (unsigned)threads > facts.threads_block) return 0;
    if (dynamic > (size_t)max_dynamic_of(kernel)) return 0;
    const size_t warps = ((size_t)threads + facts.warp - 1) / facts.warp;
    size_t blocks = facts.threads_unit / (size_t)facts.warp / warps;
    blocks = std::min<size_t>(blocks, facts.blocks_unit);
    // Shared memory is given out in steps: 128 bytes since sm_80, 512 on CDNA.
    const size_t shared = round_up(dynamic, facts.hip ? 512 : 128) + facts.shared_reserved;
    return (int)(shared ? std::min(blocks, facts.shared_unit / shared) : blocks);
}

}  // namespace

int occupancy(int* blocks, const void* kernel, int threads, size_t dynamic) {
    if (const int error = enter()) return finish(error);
    if (!blocks || threads <= 0) return finish(invalid_value);
    *blocks = resident(kernel, threads, dynamic);
    return success;
}

int best_block(int* grid, int* block, const void* kernel,
               size_t (*dynamic)(void* context, int threads), void* context, int limit) {
    if (const int error = enter()) return finish(error);
    int most = (int)facts.threads_block, best = 0, best_threads = 0, best_blocks = 0;
    if (limit > 0) most = std::min(most, limit);
    const int step = std::min(facts.warp, most);
    for (int threads = most / step * step; threads > 0; threads -= step) {
        const int blocks = resident(kernel, threads, dynamic(context, threads));
        if (blocks * threads <= best) continue;
        best = blocks * threads;
        best_threads = threads;
        best_blocks = blocks;
    }
    *block = best_threads;
    *grid = best_blocks * (int)facts.units;
    return best ? success : finish(invalid_value);
}

int check_cooperative(const Shape& shape, const void* kernel, Site at) {
    if (const int error = enter_on(shape.stream)) return finish(error);
    const uint64_t threads = (uint64_t)shape.block.x * shape.block.y * shape.block.z;
    const uint64_t blocks = (uint64_t)shape.grid.x * shape.grid.y * shape.grid.z;
    // What launch() refuses in any form is left to it.
    if (!threads || threads > facts.threads_block || shape.dynamic > (size_t)max_dynamic_of(kernel))
        return success;
    const uint64_t most = (uint64_t)facts.units * resident(kernel, (int)threads, shape.dynamic);
    if (blocks <= most) return success;
    finding(401, at, "a cooperative grid of %llu blocks; at most %llu are resident at once",
            (unsigned long long)blocks, (unsigned long long)most);
    return finish(too_many_blocks);
}

int launch_result() {
    const int before = last;
    last = success;
    const int faulty = enter(), error = faulty ? faulty : last;
    if (!error) last = before;
    return error;
}

}  // namespace api
}  // namespace simt

// Ends what a fault in a kernel does to later calls; everything else stays.
extern "C" __attribute__((visibility("default"))) void simt_forgive() { simt::api::forgive(); }
// Makes the next run in this process independent of what went wrong in the last.
extern "C" __attribute__((visibility("default"))) void simt_reset() { simt::api::reset(); }
