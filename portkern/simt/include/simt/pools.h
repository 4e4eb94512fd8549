// Memory pools under one vendor's names, as spellings.h has the rest. A pool is a name here: what is
// allocated from one is memory like any other, and is given back when it is freed.
#include <cstdint>

#define SIMT_CALL(name) static inline SIMT_N(Error_t) SIMT_N(name)

enum SIMT_N(MemLocationType) {
    SIMT_N(MemLocationTypeInvalid) = 0,
    SIMT_N(MemLocationTypeDevice) = 1,
    SIMT_N(MemLocationTypeHost) = 2,
};
struct SIMT_N(MemLocation) {
    SIMT_N(MemLocationType) type;
    int id;
};
enum SIMT_N(MemAllocationType) {
    SIMT_N(MemAllocationTypeInvalid) = 0,
    SIMT_N(MemAllocationTypePinned) = 1,
};
enum SIMT_N(MemAllocationHandleType) { SIMT_N(MemHandleTypeNone) = 0 };
enum SIMT_N(MemPoolAttr) {
    SIMT_N(MemPoolReuseFollowEventDependencies) = 1,
    SIMT_N(MemPoolReuseAllowOpportunistic) = 2,
    SIMT_N(MemPoolReuseAllowInternalDependencies) = 3,
    SIMT_N(MemPoolAttrReleaseThreshold) = 4,
    SIMT_N(MemPoolAttrReservedMemCurrent) = 5,
    SIMT_N(MemPoolAttrReservedMemHigh) = 6,
    SIMT_N(MemPoolAttrUsedMemCurrent) = 7,
    SIMT_N(MemPoolAttrUsedMemHigh) = 8,
};
struct SIMT_N(MemPoolProps) {
    SIMT_N(MemAllocationType) allocType;
    SIMT_N(MemAllocationHandleType) handleTypes;
    SIMT_N(MemLocation) location;
    void* win32SecurityAttributes;
    size_t maxSize;
    unsigned short usage;
    unsigned char reserved[54];
};
typedef struct SIMT_N(MemPool) {
    uint64_t release_threshold;
    int reuse[3];  // by the first three attributes
}* SIMT_N(MemPool_t);

namespace simt::detail {
inline SIMT_N(MemPool_t) SIMT_N(DefaultPool)() {
    static SIMT_N(MemPool) pool = {0, {1, 1, 1}};
    return &pool;
}
}  // namespace simt::detail

SIMT_CALL(DeviceGetDefaultMemPool)(SIMT_N(MemPool_t)* pool, int device) {
    *pool = ::simt::detail::SIMT_N(DefaultPool)();
    return (SIMT_N(Error_t))::simt::api::set_device(device);
}
SIMT_CALL(DeviceGetMemPool)(SIMT_N(MemPool_t)* pool, int device) {
    return SIMT_N(DeviceGetDefaultMemPool)(pool, device);
}
SIMT_CALL(DeviceSetMemPool)(int device, SIMT_N(MemPool_t)) {
    return (SIMT_N(Error_t))::simt::api::set_device(device);
}
SIMT_CALL(MemPoolCreate)(SIMT_N(MemPool_t)* pool, const SIMT_N(MemPoolProps)* of) {
    if (!pool || !of || of->allocType != SIMT_N(MemAllocationTypePinned))
        return (SIMT_N(Error_t))::simt::api::invalid_value;
    *pool = new SIMT_N(MemPool){0, {1, 1, 1}};
    return SIMT_N(Success);
}
SIMT_CALL(MemPoolDestroy)(SIMT_N(MemPool_t) pool) {
    if (!pool || pool == ::simt::detail::SIMT_N(DefaultPool)())
        return (SIMT_N(Error_t))::simt::api::invalid_value;
    delete pool;
    return SIMT_N(Success);
}
SIMT_CALL(MemPoolTrimTo)(SIMT_N(MemPool_t) pool, size_t) {
    return pool ? SIMT_N(Success) : (SIMT_N(Error_t))::simt::api::invalid_value;
}
SIMT_CALL(MemPoolSetAttribute)(SIMT_N(MemPool_t) pool, SIMT_N(MemPoolAttr) attribute, void* value) {
    if (!pool || !value) return (SIMT_N(Error_t))::simt::api::invalid_value;
    const int number = (int)attribute;
    if (number >= 1 && number <= 3) pool->reuse[number - 1] = *static_cast<int*>(value);
    if (number == 4) pool->release_threshold = *static_cast<uint64_t*>(value);
    return number < 5 ? SIMT_N(Success) : (SIMT_N(Error_t))::simt::api::invalid_value;
}
// What is used is the device's memory that is allocated, whoever asked for it.
SIMT_CALL(MemPoolGetAttribute)(SIMT_N(MemPool_t) pool, SIMT_N(MemPoolAttr) attribute, void* value) {
    if (!pool || !value) return (SIMT_N(Error_t))::simt::api::invalid_value;
    const int number = (int)attribute;
    size_t free = 0, total = 0;
    if (number <= 3) *static_cast<int*>(value) = pool->reuse[number - 1];
    if (number == 4) *static_cast<uint64_t*>(value) = pool->release_threshold;
    if (number < 5) return SIMT_N(Success);
    const int error = ::simt::api::memory_info(&free, &total);
    *static_cast<uint64_t*>(value) = total - free;
    return (SIMT_N(Error_t))error;
}
enum SIMT_N(MemAccessFlags) {
    SIMT_N(MemAccessFlagsProtNone) = 0,
    SIMT_N(MemAccessFlagsProtRead) = 1,
    SIMT_N(MemAccessFlagsProtReadWrite) = 3,
};
struct SIMT_N(MemAccessDesc) {
    SIMT_N(MemLocation) location;
    SIMT_N(MemAccessFlags) flags;
};
SIMT_CALL(MemPoolSetAccess)(SIMT_N(MemPool_t) pool, const SIMT_N(MemAccessDesc)*, size_t) {
    return pool ? SIMT_N(Success) : (SIMT_N(Error_t))::simt::api::invalid_value;
}
template <class T>
SIMT_CALL(MallocFromPoolAsync)(T** p, size_t bytes, SIMT_N(MemPool_t) pool, SIMT_N(Stream_t),
                               SIMT_AT) {
    if (!pool) return (SIMT_N(Error_t))::simt::api::invalid_value;
    return SIMT_N(Malloc)((void**)(void*)p, bytes, at);
}
template <class T>
SIMT_CALL(MallocAsync)(T** p, size_t bytes, SIMT_N(MemPool_t) pool, SIMT_N(Stream_t) stream,
                       SIMT_AT) {
    return SIMT_N(MallocFromPoolAsync)(p, bytes, pool, stream, at);
}

#undef SIMT_CALL
