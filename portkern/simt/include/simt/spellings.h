// The host API under one vendor's names: SIMT_N(Malloc) is cudaMalloc or hipMalloc. Included by
// driver_types.h and hip/hip_runtime_api.h, which define SIMT_N, SIMT_STREAM and SIMT_EVENT.
// No #pragma once: a program may have both.
//
// Functions that are often passed as deleters (Free, StreamDestroy, …) have the vendor's exact
// type; the others take the caller's place as a last argument.
#include "api.h"
#include "graph.h"

#define SIMT_CALL(name) static inline SIMT_N(Error_t) SIMT_N(name)
#define SIMT_DO(call) (SIMT_N(Error_t))::simt::api::call
// Exists, is not modelled: returns NotSupported with a finding.
#define SIMT_REFUSED(name)                                                                        \
    template <class... A>                                                                         \
    SIMT_CALL(name)(A&&...) { return SIMT_DO(unsupported(SIMT_NAME_OF(name), nullptr)); }
#define SIMT_NAME_OF(name) SIMT_TEXT(SIMT_N(name))
#define SIMT_TEXT(name) SIMT_TEXT_OF(name)
#define SIMT_TEXT_OF(name) #name

// ---- types

typedef struct SIMT_STREAM* SIMT_N(Stream_t);
typedef struct SIMT_EVENT* SIMT_N(Event_t);

enum SIMT_N(MemcpyKind) {
    SIMT_N(MemcpyHostToHost) = 0,
    SIMT_N(MemcpyHostToDevice) = 1,
    SIMT_N(MemcpyDeviceToHost) = 2,
    SIMT_N(MemcpyDeviceToDevice) = 3,
    SIMT_N(MemcpyDefault) = 4,
};
enum SIMT_N(MemoryType) {
    SIMT_N(MemoryTypeUnregistered) = 0,
    SIMT_N(MemoryTypeHost) = 1,
    SIMT_N(MemoryTypeDevice) = 2,
    SIMT_N(MemoryTypeManaged) = 3,
};
enum SIMT_N(MemoryAdvise) {
    SIMT_N(MemAdviseSetReadMostly) = 1,
    SIMT_N(MemAdviseUnsetReadMostly) = 2,
    SIMT_N(MemAdviseSetPreferredLocation) = 3,
    SIMT_N(MemAdviseUnsetPreferredLocation) = 4,
    SIMT_N(MemAdviseSetAccessedBy) = 5,
    SIMT_N(MemAdviseUnsetAccessedBy) = 6,
};
enum SIMT_N(FuncCache) {
    SIMT_N(FuncCachePreferNone) = 0,
    SIMT_N(FuncCachePreferShared) = 1,
    SIMT_N(FuncCachePreferL1) = 2,
    SIMT_N(FuncCachePreferEqual) = 3,
};
enum SIMT_N(SharedMemConfig) {
    SIMT_N(SharedMemBankSizeDefault) = 0,
    SIMT_N(SharedMemBankSizeFourByte) = 1,
    SIMT_N(SharedMemBankSizeEightByte) = 2,
};
enum SIMT_N(FuncAttribute) {
    SIMT_N(FuncAttributeMaxDynamicSharedMemorySize) = 8,
    SIMT_N(FuncAttributePreferredSharedMemoryCarveout) = 9,
};
enum SIMT_N(StreamCaptureMode) {
    SIMT_N(StreamCaptureModeGlobal) = 0,
    SIMT_N(StreamCaptureModeThreadLocal) = 1,
    SIMT_N(StreamCaptureModeRelaxed) = 2,
};
enum SIMT_N(StreamCaptureStatus) {
    SIMT_N(StreamCaptureStatusNone) = 0,
    SIMT_N(StreamCaptureStatusActive) = 1,
    SIMT_N(StreamCaptureStatusInvalidated) = 2,
};
enum : unsigned {
    SIMT_N(HostAllocDefault) = 0,
    SIMT_N(HostAllocPortable) = 1,
    SIMT_N(HostAllocMapped) = 2,
    SIMT_N(HostAllocWriteCombined) = 4,
    SIMT_N(HostRegisterDefault) = 0,
    SIMT_N(HostRegisterPortable) = 1,
    SIMT_N(HostRegisterMapped) = 2,
    SIMT_N(HostRegisterReadOnly) = 8,
    SIMT_N(StreamNonBlocking) = 1,
    SIMT_N(EventDefault) = 0,
    SIMT_N(EventBlockingSync) = 1,
    SIMT_N(EventDisableTiming) = 2,
    SIMT_N(EventInterprocess) = 4,
    SIMT_N(EventRecordDefault) = 0,
    SIMT_N(EventWaitDefault) = 0,
    SIMT_N(MemAttachGlobal) = 1,
    SIMT_N(MemAttachHost) = 2,
    SIMT_N(MemAttachSingle) = 4,
    SIMT_N(OccupancyDefault) = 0,
    SIMT_N(OccupancyDisableCachingOverride) = 1,
    SIMT_N(DeviceScheduleAuto) = 0,
    SIMT_N(DeviceScheduleSpin) = 1,
    SIMT_N(DeviceScheduleYield) = 2,
    SIMT_N(DeviceScheduleBlockingSync) = 4,
    SIMT_N(DeviceBlockingSync) = 4,
    SIMT_N(IpcMemLazyEnablePeerAccess) = 1,
    SIMT_N(DeviceMapHost) = 8,
};
enum : int { SIMT_N(CpuDeviceId) = -1, SIMT_N(InvalidDeviceId) = -2 };

struct SIMT_N(FuncAttributes) {
    size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
    int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA;
    int maxDynamicSharedSizeBytes, preferredShmemCarveout;
};

typedef ::simt::api::Graph* SIMT_N(Graph_t);
typedef ::simt::api::GraphExec* SIMT_N(GraphExec_t);
typedef ::simt::api::GraphNode* SIMT_N(GraphNode_t);

// ---- errors

SIMT_CALL(GetLastError)() { return SIMT_DO(last_error()); }
SIMT_CALL(PeekAtLastError)() { return SIMT_DO(peek_error()); }
static inline const char* SIMT_N(GetErrorString)(SIMT_N(Error_t) error) {
    return ::simt::api::error_text((int)error);
}

// ---- memory

SIMT_CALL(Malloc)(void** p, size_t bytes, SIMT_AT) {
    return SIMT_DO(allocate(p, bytes, ::simt::api::Space::device, at));
}
template <class T>
SIMT_CALL(Malloc)(T** p, size_t bytes, SIMT_AT) {
    return SIMT_N(Malloc)((void**)(void*)p, bytes, at);
}
template <class T>
SIMT_CALL(MallocAsync)(T** p, size_t bytes, SIMT_N(Stream_t) stream, SIMT_AT) {
    if (const int refused = ::simt::api::refuse_captured((void*)stream, "an allocation in a graph", at))
        return (SIMT_N(Error_t))refused;
    return SIMT_N(Malloc)((void**)(void*)p, bytes, at);
}
template <class T>
SIMT_CALL(MallocManaged)(T** p, size_t bytes, unsigned = SIMT_N(MemAttachGlobal), SIMT_AT) {
    return SIMT_DO(allocate((void**)(void*)p, bytes, ::simt::api::Space::managed, at));
}
template <class T>
SIMT_CALL(MallocHost)(T** p, size_t bytes, unsigned = SIMT_N(HostAllocDefault), SIMT_AT) {
    return SIMT_DO(allocate((void**)(void*)p, bytes, ::simt::api::Space::host, at));
}
template <class T>
SIMT_CALL(HostAlloc)(T** p, size_t bytes, unsigned = SIMT_N(HostAllocDefault), SIMT_AT) {
    return SIMT_DO(allocate((void**)(void*)p, bytes, ::simt::api::Space::host, at));
}
template <class T>
SIMT_CALL(MallocPitch)(T** p, size_t* pitch, size_t width, size_t height, SIMT_AT) {
    return SIMT_DO(allocate_pitched((void**)(void*)p, pitch, width, height, at));
}
SIMT_CALL(Free)(void* p) { return SIMT_DO(release(p, ::simt::api::Space::device)); }
SIMT_CALL(FreeAsync)(void* p, SIMT_N(Stream_t) stream) {
    const int refused = ::simt::api::refuse_captured((void*)stream, "a free in a graph", nullptr);
    return refused ? (SIMT_N(Error_t))refused : SIMT_N(Free)(p);
}
SIMT_CALL(StreamAttachMemAsync)(SIMT_N(Stream_t) stream, const void*, size_t = 0, unsigned = 4) {
    return SIMT_DO(stream_synchronize((void*)stream));  // all see managed memory at all times
}
SIMT_CALL(FreeHost)(void* p) { return SIMT_DO(release(p, ::simt::api::Space::host)); }
template <class T>
SIMT_CALL(HostGetDevicePointer)(T** device, void* host, unsigned = 0, SIMT_AT) {
    return SIMT_DO(device_pointer((void**)(void*)device, host, at));
}

SIMT_CALL(Memcpy)(void* to, const void* from, size_t bytes, SIMT_N(MemcpyKind) kind, SIMT_AT) {
    return SIMT_DO(copy(to, from, bytes, (::simt::api::Copy)kind, nullptr, at));
}
SIMT_CALL(MemcpyAsync)(void* to, const void* from, size_t bytes, SIMT_N(MemcpyKind) kind,
                       SIMT_N(Stream_t) stream = nullptr, SIMT_AT) {
    return SIMT_DO(copy(to, from, bytes, (::simt::api::Copy)kind, (void*)stream, at));
}
SIMT_CALL(Memcpy2D)(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                    size_t height, SIMT_N(MemcpyKind) kind, SIMT_AT) {
    return SIMT_DO(copy_2d(to, to_pitch, from, from_pitch, width, height, (::simt::api::Copy)kind,
                           nullptr, at));
}
SIMT_CALL(Memcpy2DAsync)(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, SIMT_N(MemcpyKind) kind,
                         SIMT_N(Stream_t) stream = nullptr, SIMT_AT) {
    return SIMT_DO(copy_2d(to, to_pitch, from, from_pitch, width, height, (::simt::api::Copy)kind,
                           (void*)stream, at));
}
SIMT_CALL(MemcpyPeer)(void* to, int to_device, const void* from, int from_device, size_t bytes,
                      SIMT_AT) {
    if (to_device || from_device) return SIMT_DO(set_device(to_device ? to_device : from_device));
    return SIMT_DO(copy(to, from, bytes, ::simt::api::Copy::on_device, nullptr, at));
}
SIMT_CALL(MemcpyPeerAsync)(void* to, int to_device, const void* from, int from_device, size_t bytes,
                           SIMT_N(Stream_t) = nullptr, SIMT_AT) {
    return SIMT_N(MemcpyPeer)(to, to_device, from, from_device, bytes, at);
}
SIMT_CALL(Memset)(void* p, int value, size_t bytes, SIMT_AT) {
    return SIMT_DO(fill(p, (unsigned)value, 1, bytes, nullptr, at));
}
SIMT_CALL(MemsetAsync)(void* p, int value, size_t bytes, SIMT_N(Stream_t) stream = nullptr,
                       SIMT_AT) {
    return SIMT_DO(fill(p, (unsigned)value, 1, bytes, (void*)stream, at));
}
SIMT_CALL(Memset2D)(void* p, size_t pitch, int value, size_t width, size_t height, SIMT_AT) {
    return SIMT_DO(fill_2d(p, pitch, value, width, height, nullptr, at));
}
SIMT_CALL(Memset2DAsync)(void* p, size_t pitch, int value, size_t width, size_t height,
                         SIMT_N(Stream_t) stream = nullptr, SIMT_AT) {
    return SIMT_DO(fill_2d(p, pitch, value, width, height, (void*)stream, at));
}

template <class T>
SIMT_CALL(MemcpyToSymbol)(const T& symbol, const void* from, size_t bytes, size_t offset = 0,
                          SIMT_N(MemcpyKind) kind = SIMT_N(MemcpyHostToDevice), SIMT_AT) {
    return SIMT_DO(copy_to_symbol(::simt::api::symbol(symbol), from, bytes, offset,
                                  (::simt::api::Copy)kind, nullptr, at));
}
template <class T>
SIMT_CALL(MemcpyToSymbolAsync)(const T& symbol, const void* from, size_t bytes, size_t offset,
                               SIMT_N(MemcpyKind) kind, SIMT_N(Stream_t) stream = nullptr,
                               SIMT_AT) {
    return SIMT_DO(copy_to_symbol(::simt::api::symbol(symbol), from, bytes, offset,
                                  (::simt::api::Copy)kind, (void*)stream, at));
}
template <class T>
SIMT_CALL(MemcpyFromSymbol)(void* to, const T& symbol, size_t bytes, size_t offset = 0,
                            SIMT_N(MemcpyKind) kind = SIMT_N(MemcpyDeviceToHost), SIMT_AT) {
    return SIMT_DO(copy_from_symbol(to, ::simt::api::symbol(symbol), bytes, offset,
                                    (::simt::api::Copy)kind, nullptr, at));
}
template <class T>
SIMT_CALL(MemcpyFromSymbolAsync)(void* to, const T& symbol, size_t bytes, size_t offset,
                                 SIMT_N(MemcpyKind) kind, SIMT_N(Stream_t) stream = nullptr,
                                 SIMT_AT) {
    return SIMT_DO(copy_from_symbol(to, ::simt::api::symbol(symbol), bytes, offset,
                                    (::simt::api::Copy)kind, (void*)stream, at));
}
template <class T>
SIMT_CALL(GetSymbolAddress)(void** p, const T& symbol, SIMT_AT) {
    return SIMT_DO(symbol_address(p, ::simt::api::symbol(symbol), at));
}
template <class T>
SIMT_CALL(GetSymbolSize)(size_t* bytes, const T&) {
    *bytes = sizeof(T);
    return SIMT_DO(success);
}

SIMT_CALL(MemGetInfo)(size_t* free, size_t* total) { return SIMT_DO(memory_info(free, total)); }
SIMT_CALL(MemAdvise)(const void* p, size_t bytes, SIMT_N(MemoryAdvise), int, SIMT_AT) {
    return SIMT_DO(advise(p, bytes, SIMT_NAME_OF(MemAdvise), at));
}
SIMT_CALL(MemPrefetchAsync)(const void* p, size_t bytes, int, SIMT_N(Stream_t) = nullptr, SIMT_AT) {
    return SIMT_DO(advise(p, bytes, SIMT_NAME_OF(MemPrefetchAsync), at));
}
SIMT_REFUSED(HostRegister)
SIMT_REFUSED(HostUnregister)
SIMT_REFUSED(IpcGetMemHandle)
SIMT_REFUSED(IpcOpenMemHandle)
SIMT_REFUSED(IpcCloseMemHandle)
SIMT_REFUSED(IpcGetEventHandle)
SIMT_REFUSED(IpcOpenEventHandle)

// ---- streams

SIMT_CALL(StreamCreate)(SIMT_N(Stream_t)* stream) {
    return SIMT_DO(stream_create((void**)stream, 0, 0));
}
SIMT_CALL(StreamCreateWithFlags)(SIMT_N(Stream_t)* stream, unsigned flags) {
    return SIMT_DO(stream_create((void**)stream, flags, 0));
}
SIMT_CALL(StreamCreateWithPriority)(SIMT_N(Stream_t)* stream, unsigned flags, int priority) {
    return SIMT_DO(stream_create((void**)stream, flags, priority));
}
SIMT_CALL(StreamDestroy)(SIMT_N(Stream_t) stream) { return SIMT_DO(stream_destroy(stream)); }
SIMT_CALL(StreamSynchronize)(SIMT_N(Stream_t) stream) {
    return SIMT_DO(stream_synchronize(stream));
}
SIMT_CALL(StreamQuery)(SIMT_N(Stream_t) stream) { return SIMT_DO(stream_synchronize(stream)); }
SIMT_CALL(StreamWaitEvent)(SIMT_N(Stream_t) stream, SIMT_N(Event_t) event, unsigned = 0) {
    return SIMT_DO(stream_wait(stream, event));
}
SIMT_CALL(StreamGetFlags)(SIMT_N(Stream_t) stream, unsigned* flags) {
    return SIMT_DO(stream_flags(stream, flags));
}
SIMT_CALL(StreamGetPriority)(SIMT_N(Stream_t) stream, int* priority) {
    return SIMT_DO(stream_priority(stream, priority));
}
SIMT_CALL(DeviceGetStreamPriorityRange)(int* least, int* greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return SIMT_DO(success);
}
SIMT_CALL(LaunchHostFunc)(SIMT_N(Stream_t) stream, void (*function)(void*), void* data) {
    return SIMT_DO(host_function(stream, function, data));
}

// ---- events

SIMT_CALL(EventCreate)(SIMT_N(Event_t)* event) {
    return SIMT_DO(event_create((void**)event, SIMT_N(EventDefault)));
}
SIMT_CALL(EventCreateWithFlags)(SIMT_N(Event_t)* event, unsigned flags) {
    return SIMT_DO(event_create((void**)event, flags));
}
SIMT_CALL(EventCreate)(SIMT_N(Event_t)* event, unsigned flags) {
    return SIMT_DO(event_create((void**)event, flags));
}
SIMT_CALL(EventDestroy)(SIMT_N(Event_t) event) { return SIMT_DO(event_destroy(event)); }
SIMT_CALL(EventRecord)(SIMT_N(Event_t) event, SIMT_N(Stream_t) stream = nullptr) {
    return SIMT_DO(event_record(event, stream));
}
SIMT_CALL(EventRecordWithFlags)(SIMT_N(Event_t) event, SIMT_N(Stream_t) stream = nullptr,
                                unsigned = 0) {
    return SIMT_DO(event_record(event, stream));
}
SIMT_CALL(EventSynchronize)(SIMT_N(Event_t) event) { return SIMT_DO(event_synchronize(event)); }
SIMT_CALL(EventQuery)(SIMT_N(Event_t) event) { return SIMT_DO(event_synchronize(event)); }
SIMT_CALL(EventElapsedTime)(float* milliseconds, SIMT_N(Event_t) from, SIMT_N(Event_t) to) {
    return SIMT_DO(event_elapsed(milliseconds, from, to));
}

// ---- the device

SIMT_CALL(SetDevice)(int device) { return SIMT_DO(set_device(device)); }
SIMT_CALL(GetDevice)(int* device) {
    *device = 0;
    return SIMT_DO(success);
}
SIMT_CALL(GetDeviceCount)(int* count) {
    *count = 1;
    return SIMT_DO(success);
}
SIMT_CALL(SetDeviceFlags)(unsigned) { return SIMT_DO(success); }
SIMT_CALL(GetDeviceFlags)(unsigned* flags) {
    *flags = SIMT_N(DeviceScheduleAuto);
    return SIMT_DO(success);
}
SIMT_CALL(DeviceSynchronize)() { return SIMT_DO(synchronize()); }
SIMT_CALL(DeviceReset)() { return SIMT_DO(reset()); }
SIMT_CALL(DeviceSetCacheConfig)(SIMT_N(FuncCache)) { return SIMT_DO(success); }
SIMT_CALL(DeviceSetSharedMemConfig)(SIMT_N(SharedMemConfig)) { return SIMT_DO(success); }
SIMT_CALL(DeviceCanAccessPeer)(int* can, int device, int peer) {
    if (!device && !peer) *can = 0;
    return SIMT_DO(set_device(device ? device : peer));
}
SIMT_CALL(DeviceEnablePeerAccess)(int peer, unsigned) { return SIMT_DO(peer_access(0, peer)); }
SIMT_CALL(DeviceDisablePeerAccess)(int peer) { return SIMT_DO(peer_access(0, peer)); }
SIMT_CALL(DriverGetVersion)(int* version) {
    *version = SIMT_VERSION;
    return SIMT_DO(success);
}
SIMT_CALL(RuntimeGetVersion)(int* version) {
    *version = SIMT_VERSION;
    return SIMT_DO(success);
}
SIMT_CALL(ProfilerStart)() { return SIMT_DO(success); }
SIMT_CALL(ProfilerStop)() { return SIMT_DO(success); }

// ---- kernels

template <class F>
SIMT_CALL(FuncSetAttribute)(F* kernel, SIMT_N(FuncAttribute) attribute, int value, SIMT_AT) {
    return SIMT_DO(set_function_attribute((const void*)kernel, attribute, value, at));
}
template <class F>
SIMT_CALL(FuncSetCacheConfig)(F*, SIMT_N(FuncCache)) { return SIMT_DO(success); }
template <class F>
SIMT_CALL(FuncSetSharedMemConfig)(F*, SIMT_N(SharedMemConfig)) { return SIMT_DO(success); }

// What only a device compiler knows (registers, static shared and local memory) is 0, and says so.
template <class F>
SIMT_CALL(FuncGetAttributes)(SIMT_N(FuncAttributes)* out, F* kernel, SIMT_AT) {
    const int arch = ::simt::facts.major * 10 + ::simt::facts.minor;
    ::simt::finding(409, at, "the attributes of %s: registers, shared and local memory are unknown",
                    ::simt::api::kernel_name((const void*)kernel));
    *out = SIMT_N(FuncAttributes)();
    out->maxThreadsPerBlock = (int)::simt::facts.threads_block;
    out->ptxVersion = out->binaryVersion = arch;
    out->maxDynamicSharedSizeBytes = ::simt::api::max_dynamic_of((const void*)kernel);
    out->preferredShmemCarveout = -1;
    return SIMT_DO(success);
}

template <class F>
SIMT_CALL(OccupancyMaxActiveBlocksPerMultiprocessor)(int* blocks, F* kernel, int threads,
                                                     size_t dynamic) {
    return SIMT_DO(occupancy(blocks, (const void*)kernel, threads, dynamic));
}
template <class F>
SIMT_CALL(OccupancyMaxActiveBlocksPerMultiprocessorWithFlags)(int* blocks, F* kernel, int threads,
                                                              size_t dynamic, unsigned) {
    return SIMT_DO(occupancy(blocks, (const void*)kernel, threads, dynamic));
}
template <class F, class Bytes>
SIMT_CALL(OccupancyMaxPotentialBlockSizeVariableSMem)(int* grid, int* block, F* kernel, Bytes bytes,
                                                      int limit = 0) {
    return SIMT_DO(best_block_with(grid, block, (const void*)kernel, bytes, limit));
}
template <class F, class Bytes>
SIMT_CALL(OccupancyMaxPotentialBlockSizeVariableSMemWithFlags)(int* grid, int* block, F* kernel,
                                                               Bytes bytes, int limit = 0,
                                                               unsigned = 0) {
    return SIMT_DO(best_block_with(grid, block, (const void*)kernel, bytes, limit));
}
template <class F>
SIMT_CALL(OccupancyMaxPotentialBlockSize)(int* grid, int* block, F* kernel, size_t dynamic = 0,
                                          int limit = 0) {
    auto bytes = [dynamic](int) { return dynamic; };
    return SIMT_DO(best_block_with(grid, block, (const void*)kernel, bytes, limit));
}
template <class F>
SIMT_CALL(OccupancyMaxPotentialBlockSizeWithFlags)(int* grid, int* block, F* kernel,
                                                   size_t dynamic = 0, int limit = 0,
                                                   unsigned = 0) {
    return SIMT_N(OccupancyMaxPotentialBlockSize)(grid, block, kernel, dynamic, limit);
}
template <class F>
SIMT_CALL(FuncGetName)(const char** name, F* kernel) {
    *name = ::simt::api::kernel_name((const void*)kernel);
    return SIMT_DO(success);
}
SIMT_REFUSED(OccupancyMaxActiveClusters)
SIMT_REFUSED(OccupancyMaxPotentialClusterSize)

// `arguments[i]` points to the kernel's i-th argument. The kernel comes with its type.
template <class... P>
SIMT_CALL(LaunchKernel)(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments,
                        size_t dynamic = 0, SIMT_N(Stream_t) stream = nullptr, SIMT_AT) {
    return SIMT_DO(launch_kernel(kernel, ::simt::Shape(grid, block, dynamic, stream), arguments,
                                 false, at));
}
template <class... P>
SIMT_CALL(LaunchCooperativeKernel)(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments,
                                   size_t dynamic = 0, SIMT_N(Stream_t) stream = nullptr, SIMT_AT) {
    return SIMT_DO(launch_kernel(kernel, ::simt::Shape(grid, block, dynamic, stream), arguments,
                                 true, at));
}
template <class F>
SIMT_CALL(LaunchKernel)(F*, dim3, dim3, void**, size_t = 0, SIMT_N(Stream_t) = nullptr) {
    static_assert(!sizeof(F*), "pass the kernel itself: behind a void* its parameters are lost");
    return SIMT_DO(invalid_value);
}
template <class F>
SIMT_CALL(LaunchCooperativeKernel)(F*, dim3, dim3, void**, size_t = 0, SIMT_N(Stream_t) = nullptr) {
    static_assert(!sizeof(F*), "pass the kernel itself: behind a void* its parameters are lost");
    return SIMT_DO(invalid_value);
}

enum SIMT_N(LaunchAttributeID) {
    SIMT_N(LaunchAttributeIgnore) = 0,
    SIMT_N(LaunchAttributeAccessPolicyWindow) = 1,
    SIMT_N(LaunchAttributeCooperative) = 2,
    SIMT_N(LaunchAttributeSynchronizationPolicy) = 3,
    SIMT_N(LaunchAttributeClusterDimension) = 4,
    SIMT_N(LaunchAttributeClusterSchedulingPolicyPreference) = 5,
    SIMT_N(LaunchAttributeProgrammaticStreamSerialization) = 6,
    SIMT_N(LaunchAttributePriority) = 8,
};
struct SIMT_N(AccessPolicyWindow) {
    void* base_ptr;
    size_t num_bytes;
    float hitRatio;
    int hitProp, missProp;
};
union SIMT_N(LaunchAttributeValue) {
    char pad[64];
    SIMT_N(AccessPolicyWindow) accessPolicyWindow;
    struct { unsigned x, y, z; } clusterDim;
    int cooperative, clusterSchedulingPolicyPreference, syncPolicy;
    int programmaticStreamSerializationAllowed, priority;
};
struct SIMT_N(LaunchAttribute) {
    SIMT_N(LaunchAttributeID) id;
    SIMT_N(LaunchAttributeValue) val;
};
struct SIMT_N(LaunchConfig_t) {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    SIMT_N(Stream_t) stream;
    SIMT_N(LaunchAttribute)* attrs;
    unsigned numAttrs;
};

namespace simt::detail {
// Priorities and orders between launches change nothing when each is done before the next begins.
static inline int launch_attributes(const SIMT_N(LaunchConfig_t)& config, bool* cooperative,
                                    Site at) {
    for (unsigned i = 0; i < config.numAttrs; ++i) {
        const SIMT_N(LaunchAttribute)& a = config.attrs[i];
        const auto& cluster = a.val.clusterDim;
        if (a.id == SIMT_N(LaunchAttributeCooperative)) *cooperative = a.val.cooperative;
        if (a.id == SIMT_N(LaunchAttributeClusterDimension) &&
            cluster.x * cluster.y * cluster.z > 1)
            return api::unsupported("a launch of thread-block clusters", at);
    }
    return api::success;
}
}  // namespace simt::detail

template <class... P>
SIMT_CALL(LaunchKernelExC)(const SIMT_N(LaunchConfig_t)* config, void (*kernel)(P...),
                           void** arguments, SIMT_AT) {
    bool cooperative = false;
    if (const int error = ::simt::detail::launch_attributes(*config, &cooperative, at))
        return (SIMT_N(Error_t))error;
    const ::simt::Shape shape(config->gridDim, config->blockDim, config->dynamicSmemBytes,
                              config->stream);
    return SIMT_DO(launch_kernel(kernel, shape, arguments, cooperative, at));
}
namespace simt::detail {
// Takes the caller's place where a parameter pack leaves no room for a last argument.
struct SIMT_N(LocatedConfig) {
    const SIMT_N(LaunchConfig_t)* config;
    Site at;
    SIMT_N(LocatedConfig)(const SIMT_N(LaunchConfig_t)* config, SIMT_AT) : config(config), at(at) {}
};
}  // namespace simt::detail
template <class... P, class... A>
SIMT_CALL(LaunchKernelEx)(::simt::detail::SIMT_N(LocatedConfig) located, void (*kernel)(P...),
                          A&&... values) {
    return [located, kernel](std::remove_cv_t<P>... converted) {
        void* arguments[] = {(void*)&converted..., nullptr};
        return SIMT_N(LaunchKernelExC)(located.config, kernel, arguments, located.at);
    }(static_cast<std::remove_cv_t<P>>(values)...);
}

// Of a stream: hints to the cache and the scheduler.
SIMT_CALL(StreamSetAttribute)(SIMT_N(Stream_t) stream, SIMT_N(LaunchAttributeID),
                              const SIMT_N(LaunchAttributeValue)*) {
    return SIMT_DO(stream_synchronize((void*)stream));
}

#undef SIMT_CALL
#undef SIMT_DO
#undef SIMT_REFUSED
#undef SIMT_NAME_OF
#undef SIMT_TEXT
#undef SIMT_TEXT_OF
